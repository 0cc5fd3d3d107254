"""Solve questions live: one, or many at once, spending only what each is worth."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypeVar

from aera.errors import AeraError, UpstreamError, check_count
from aera.response import Question, Response
from aera.sampling.budget import Budget
from aera.sampling.sampler import (
    OpenAISampler,
    RecordedSampler,
    Sampler,
    bound_of,
    sample_reserved,
)
from aera.sampling.spending import NO_ROOM, Reservation, Spending
from aera.solving.controller import Controller
from aera.solving.home import Lookout
from aera.solving.journal import Journal
from aera.solving.run import Allocation, Run
from aera.voting.best_of_n import BestOfN

log = logging.getLogger("aera.solving")
COMPARING = 256
"""Decisions that may wait for a comparison at once; a waiting thread costs next to nothing."""
Done = TypeVar("Done")


@dataclass(frozen=True)
class BlockFailure:
    """Why a block could not be had."""

    error: AeraError
    unseen: int = 0
    """Calls made for it that no response accounts for."""


async def solve(
    question: Question | str,
    sampler: Sampler,
    controller: Controller,
    *,
    budget: Budget | None = None,
    watch: Callable[[Run], None] | None = None,
    lookout: Lookout | None = None,
) -> Allocation:
    """Sample until the controller stops, or a limit is hit; then the best answer so far.

    An upstream that fails for good gives an Allocation with its error, never an exception. Who
    asks one question after the other shares a `lookout` between them, controller.make_lookout().
    """
    if isinstance(question, str):
        question = Question("question", question)
    if lookout is not None:
        controller = look_at(question, controller, lookout)
    run, spending = controller.start(question), Spending(budget or Budget())
    return await advance(run, sampler, controller, spending=spending, watch=watch)


def look_at(question: Question, controller: Controller, lookout: Lookout) -> Controller:
    """Who decides this question: the controller, or plain votes where it may be abroad."""
    doubt = lookout.see(question)
    warn(lookout)
    return controller.plain if doubt else controller


def warn(lookout: Lookout) -> None:
    """Say it in the log, once, when a controller goes abroad or comes home."""
    if (news := lookout.tell()) is not None:
        log.warning("%s", news)


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


async def advance(
    run: Run,
    sampler: Sampler,
    controller: Controller,
    *,
    spending: Spending,
    watch: Callable[[Run], None] | None = None,
) -> Allocation:
    """Feed a run from a sampler until it stops, a limit is hit, or nothing can be had.

    What went wrong is in the allocation, beside the best answer so far; nothing paid for is lost.
    """
    begun = time.monotonic()
    failure = await feed_run(run, sampler, controller, spending=spending, watch=watch)
    return conclude(run, failure, begun)


async def feed_run(
    run: Run,
    sampler: Sampler,
    controller: Controller,
    *,
    spending: Spending,
    watch: Callable[[Run], None] | None = None,
    journal: Journal | None = None,
    turn: int = 0,
) -> BlockFailure | None:
    """Feed a run until it has stopped; returns what ended it, where that was a failure.

    Where a limit leaves too little for all, questions with an earlier `turn` go first.
    """
    while want := await recall(run, controller, journal):
        bound = bound_of(sampler, run.question, spending.budget)
        reservation = await spending.reserve(want, bound, turn=turn)
        if reservation is None:
            await run_off_loop(
                controller, partial(run.end, f"limit: {spending.limit}"), heavy=run.heavy
            )
            return None
        failure = await feed_block(run, sampler, controller, reservation, journal=journal)
        if failure is not None:
            await run_off_loop(
                controller, partial(end_with_error, run, failure.error), heavy=run.heavy
            )
        if watch is not None:
            watch(run)
        if failure is not None:
            return failure
    return None


def conclude(run: Run, failure: BlockFailure | None, begun: float) -> Allocation:
    """The allocation of a run that has ended, and why."""
    return run.make_allocation(
        seconds=time.monotonic() - begun,
        unseen=failure.unseen if failure else 0,
        error=str(failure.error) if failure else None,
    )


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
    sampler: Sampler,
    controller: Controller,
    reservation: Reservation,
    *,
    journal: Journal | None = None,
) -> BlockFailure | None:
    """Ask for what was reserved and feed it; returns what went wrong when none of it could be had.

    What did not arrive before the deadline was never a response, only a wait.
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


class Allocator:
    """Many questions under one budget; stopped ones leave, active ones advance.

    async for allocation in Allocator(sampler, controller).solve(questions):
        print(allocation.question_id, allocation.answer)
    """

    def __init__(
        self,
        sampler: Sampler,
        controller: Controller,
        *,
        concurrency: int = 64,
        budget: Budget | Spending | None = None,
        watch: Callable[[Run], None] | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.sampler, self.controller = sampler, controller
        self.lookout = controller.make_lookout()
        self.concurrency, self.watch, self.journal = concurrency, watch, journal
        self.spending = budget if isinstance(budget, Spending) else Spending(budget or Budget())
        self._refusal: UpstreamError | None = None
        check_count("concurrency", concurrency)
        if journal is not None:
            self.spending.book(journal.paid)

    async def solve(self, questions: Iterable[Question]) -> AsyncIterator[Allocation]:
        """Allocations as questions stop. One failing question is an Allocation with its error.

        Where all questions are there, as in a list, all are looked at before any is asked.
        """
        if isinstance(questions, Sequence):
            self.lookout.survey(questions)
        waiting = enumerate(questions)
        active: set[asyncio.Task[Allocation]] = set()
        try:
            while True:
                while len(active) < self.concurrency and (q := next(waiting, None)) is not None:
                    active.add(asyncio.create_task(self._solve_one(*q)))
                if not active:
                    return
                done, active = await asyncio.wait(active, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in active:
                task.cancel()
            await asyncio.gather(*active, return_exceptions=True)

    async def _solve_one(self, turn: int, question: Question) -> Allocation:
        controller = look_at(question, self.controller, self.lookout)
        run = controller.start(question)
        if self._refusal is not None:
            run.end("upstream failed")
            return replace(run.allocation, error=str(self._refusal))
        begun = time.monotonic()
        failure = await feed_run(
            run,
            self.sampler,
            controller,
            spending=self.spending,
            watch=self.watch,
            journal=self.journal,
            turn=turn,
        )
        if failure and isinstance(failure.error, UpstreamError) and failure.error.final:
            self._refusal = failure.error  # nobody else need be refused
        return conclude(run, failure, begun)


def solve_blocking(
    question: Question | str,
    sampler: OpenAISampler | RecordedSampler,
    controller: Controller,
    *,
    budget: Budget | None = None,
) -> Allocation:
    """`solve` for code without an event loop, and for notebooks, which have one already.

    The sampler must not have been entered: its connections live and die with this call.
    """

    async def work() -> Allocation:
        async with sampler:
            return await solve(question, sampler, controller, budget=budget)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work()).result()
