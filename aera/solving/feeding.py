"""Feeding: a run gets its blocks, in the order asked, until it stops or nothing can be had."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

from aera.errors import AeraError, UpstreamError
from aera.response import Response
from aera.sampling.reservation import NO_ROOM, Reservation
from aera.sampling.sampler import Sampler, bound_of, sample_reserved
from aera.sampling.spending import Spending
from aera.solving.controller import Controller
from aera.solving.journal import Journal
from aera.solving.run import Run
from aera.voting.best_of_n import BestOfN

COMPARING = 256
"""Decisions that may wait for a comparison at once; a waiting thread costs next to nothing."""
Done = TypeVar("Done")


@dataclass(frozen=True)
class BlockFailure:
    """Why a block could not be had."""

    error: AeraError
    unseen: int = 0
    """Calls made for it that no response accounts for."""


async def run_off_loop(
    controller: Controller, work: Callable[[], Done], *, heavy: bool = False
) -> Done:
    """Do a part of deciding where the event loop does not wait for it.

    Embedding and scoring are work, for which a few threads are best. Comparing waits for another
    process: it has many of its own, so that nothing else waits with it.
    """
    if not (controller.threaded or heavy):
        return work()
    if controller.task.equivalence and not isinstance(controller.weigher, BestOfN):
        return await asyncio.get_running_loop().run_in_executor(_comparison_threads(), work)
    return await asyncio.to_thread(work)


@cache
def _comparison_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(COMPARING, "aera-comparing")


async def feed_run(
    run: Run,
    controller: Controller,
    sampler: Sampler,
    spending: Spending,
    *,
    journal: Journal | None = None,
    watch: Callable[[Run], None] | None = None,
    turn: int = 0,
) -> BlockFailure | None:
    """Feed a run until it has stopped; returns what ended it, where that was a failure.

    Where a limit leaves too little for all, questions with an earlier `turn` go first.
    """
    bound = bound_of(sampler, run.question, spending.budget)
    while want := await recall(run, controller, journal):
        reservation = await spending.reserve(want, bound, turn=turn)
        if reservation is None:
            reason = f"limit: {spending.limit}"
            await run_off_loop(controller, partial(run.end, reason), heavy=run.heavy)
            return None
        failure = await feed_block(run, controller, sampler, reservation, journal=journal)
        if failure is not None:
            ending = partial(end_with_error, run, failure.error)
            await run_off_loop(controller, ending, heavy=run.heavy)
        if watch is not None:
            watch(run)
        if failure is not None:
            return failure
    return None


async def recall(run: Run, controller: Controller, journal: Journal | None) -> int:
    """Feed a run what was paid for before; returns how many responses must be asked for next."""
    if journal is None:
        return run.want
    while known := journal.recall(run.question, run.delivered, run.want):
        await run_off_loop(controller, partial(run.feed, known))
    return journal.gap(run.question, run.delivered, run.want)


def end_with_error(run: Run, error: AeraError) -> None:
    """End a run that cannot go on; a block that could not be read or weighed abstains."""
    if isinstance(error, UpstreamError):
        run.end("upstream failed")
    else:
        run.end("failed", abstain=True)


async def feed_block(
    run: Run,
    controller: Controller,
    sampler: Sampler,
    reservation: Reservation,
    *,
    journal: Journal | None = None,
) -> BlockFailure | None:
    """Ask for what was reserved and feed it; returns what went wrong when nothing could be had.

    What did not arrive before the deadline was never a response, only a wait. The journal keeps
    what every call brings.
    """
    if journal is not None:
        reservation.heard = partial(journal.add, run.question)
    failure: BlockFailure | None
    try:
        got = await sample_reserved(sampler, run.question, reservation, start=run.delivered)
        failure = await _feed(run, controller, got, late=reservation.late)
    except AeraError as error:
        failure = BlockFailure(error, error.calls if isinstance(error, UpstreamError) else 0)
    finally:
        reservation.close()
    cause = failure.error if failure else None
    if isinstance(cause, UpstreamError) and cause.code == NO_ROOM:
        # A call could not be tried again for want of room: that is the limit's doing.
        await run_off_loop(
            controller, partial(run.end, f"limit: {reservation.limit}"), heavy=run.heavy
        )
        return None
    return failure


async def _feed(
    run: Run, controller: Controller, got: list[Response], *, late: bool
) -> BlockFailure | None:
    """Feed what came; a block of which nothing came is a failure."""
    kept = [response for response in got if response.error is None] if late else got
    try:
        await run_off_loop(controller, partial(run.feed, kept), heavy=run.heavy)
    except AeraError as error:
        return BlockFailure(error)
    if late and run.want:
        await run_off_loop(controller, partial(run.end, "limit: seconds"), heavy=run.heavy)
        return None
    if not got:
        return BlockFailure(UpstreamError("the sampler returned nothing"))
    if late or any(response.error is None for response in got):
        return None
    cause = got[0].source
    known = cause if isinstance(cause, UpstreamError) else UpstreamError(str(got[0].error))
    return BlockFailure(known)
