"""Solve questions live: drive one run until it stops, or many at once under one ledger.

Every path ends in `drive`: batches, shared budgets, the gateway, audits and adapters.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from typing import TypeVar

from aera.core import Prefix, Question, Response
from aera.errors import AeraError, UpstreamError, UsageError, check_count
from aera.policies.domain import Lookout
from aera.policies.gate import Gated
from aera.policies.rules import ON_WEIGHTS, Decision, Policy
from aera.pools.log import Log
from aera.sampling.budget import NO_ROOM, Budget, Held, Ledger, Ration
from aera.sampling.client import cancel_all
from aera.sampling.recorded import RecordedSampler
from aera.sampling.sampler import OpenAISampler, Sampler, bound_of, sample_held
from aera.solving.controller import Controller
from aera.solving.run import Allocation, Run
from aera.voting.rules import gives_weights

log = logging.getLogger("aera.solving")
LARGE = 64 * 1024
"""Characters of a block beyond which it is read and weighed where the loop does not wait for it."""
COMPARING = 256
"""Decisions that may wait for a comparison at once; a waiting thread costs next to nothing."""
AT_ONCE = 8
"""Under a shared budget one in so many questions may be under way, beyond the first blocks."""
FIRST = -1e6
"""The turn of a question of which nothing is decided, before all others."""
FEW, MANY = 64, 4_096
"""Questions under way at once where nobody knows the server, and where it has enough to do."""
Done = TypeVar("Done")
Watch = Callable[[Run], None]


async def drive(
    run: Run,
    sampler: Sampler,
    ledger: Ledger,
    *,
    kept: Log | None = None,
    watch: Watch | None = None,
    turn: Callable[[Run], float] = lambda run: 0.0,
) -> Allocation:
    """Feed a run from a sampler until it stops, a limit is hit, or nothing can be had.

    What went wrong is in the allocation, beside the best answer so far; nothing paid for is lost:
    of every call, what it brought is kept at once. Where others want the same room, the lowest
    `turn` goes first.
    """
    begun, first, bound = time.monotonic(), True, bound_of(sampler, run.question, ledger)
    while want := await recall(run, kept):
        held = await ledger.reserve(want, bound, turn=turn(run))
        if held is None:
            await _end(run, ledger)
            break
        with closing(held):
            if kept is not None:
                held.heard = partial(kept.add, run.question)
            await _ask(run, sampler, held)
        if first:  # until then others were first
            begun, first = held.begun or begun, False
        if watch is not None:
            watch(run)
    return replace(run.allocation, seconds=time.monotonic() - begun)


async def _ask(run: Run, sampler: Sampler, held: Held) -> None:
    """Ask for what is held and feed it; where nothing of it came, the run ends.

    What did not arrive before the deadline was never a response, only a wait.
    """
    ledger, failed = held.ledger, list[Response]()
    try:
        got = await sample_held(sampler, run.question, held, start=run.delivered)
        late, good = ledger.late, [response for response in got if response.error is None]
        if good or late:
            return await feed(run, good if late else got)
        if not got:
            raise UpstreamError("the sampler returned nothing")
        failed, cause = got, got[0].source
        known = cause if isinstance(cause, UpstreamError) else UpstreamError(str(got[0].error))
        raise known.after(0)
    except UpstreamError as error:
        if error.final:
            ledger.refusal = error.after(0)
        if error.code == NO_ROOM:  # for the retry of a call
            await _end(run, ledger)
        else:
            await off_loop(run, partial(run.fail, error, failed))
    except AeraError as error:
        await off_loop(run, partial(run.fail, error))


async def _end(run: Run, ledger: Ledger) -> None:
    """End a run for which nothing more is to be had."""
    end = partial(run.end, f"limit: {ledger.limit}")
    await off_loop(run, partial(run.fail, ledger.refusal) if ledger.refusal else end)


async def recall(run: Run, kept: Log | None) -> int:
    """Feed a run what was paid for before; returns how many responses must be asked for next."""
    if kept is None:
        return run.want
    while known := kept.recall(run.question, run.delivered, run.want):
        await feed(run, known)
    return kept.gap(run.question, run.delivered, run.want)


async def feed(run: Run, responses: Sequence[Response]) -> None:
    """Feed a run where the event loop does not wait for it."""
    size = sum(len(each.text) for each in responses)
    await off_loop(run, partial(run.feed, responses), size=size)


async def off_loop(run: Run, work: Callable[[], Done], *, size: int = 0) -> Done:
    """Do a part of deciding, where the event loop does not wait for it if that may take long.

    Embedding and scoring are work, for which a few threads are best. Comparing waits for another
    process: it has many of its own, so that nothing else waits with it.
    """
    if run.pace == "waits":
        return await asyncio.get_running_loop().run_in_executor(_comparison_threads(), work)
    if run.pace == "works" or size > LARGE:
        return await asyncio.to_thread(work)
    return work()


@cache
def _comparison_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(COMPARING, "aera-comparing")


async def solve(
    question: Question | str,
    sampler: Sampler,
    controller: Controller,
    *,
    budget: Budget | Ledger | None = None,
    watch: Watch | None = None,
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
    return await drive(controller.start(question), sampler, _ledger(budget), watch=watch)


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


def look_at(question: Question, controller: Controller, lookout: Lookout) -> Controller:
    """Who decides this question: the controller, or plain votes where it may be abroad.

    The log says it once when a controller steps aside or comes back.
    """
    if lookout.home is None:
        return controller
    before, doubt = lookout.abroad, lookout.see(question)
    if lookout.abroad != before:
        log.warning("%s", lookout.news)
    return controller.plain if doubt else controller


def _ledger(budget: Budget | Ledger | None) -> Ledger:
    return budget if isinstance(budget, Ledger) else Ledger(budget or Budget())


# --- many -----------------------------------------------------------------------------------------


async def solve_many(
    questions: Iterable[Question],
    sampler: Sampler,
    controller: Controller,
    *,
    budget: Budget | Ledger | None = None,
    concurrency: int | None = None,
    shared: bool = False,
    kept: Log | None = None,
    watch: Watch | None = None,
    skip: Callable[[Question], bool] = lambda question: False,
) -> AsyncIterator[Allocation]:
    """Allocations as questions stop, all under one budget.

    async for allocation in solve_many(questions, sampler, controller):
        print(allocation.question_id, allocation.answer)

    One failing question is an Allocation with its error. With `shared`, nobody stops before the
    limit is spent, and the next block goes to the question where it promises most. What is to be
    skipped is looked at, and not asked.

    `concurrency` is how many questions are under way at once; by default as many as keep the server
    busy. Without a limit the first blocks of all then come first, and after them the questions
    that will take longest, so that few are left in the end; with one, earlier questions do.
    """
    if concurrency is not None:
        check_count("concurrency", concurrency)
    ledger, lookout = _ledger(budget), controller.make_lookout()
    if kept is not None:
        ledger.book(kept.paid)
    start = _start_unstopped if shared else Controller.start
    decided = ((look_at(each, controller, lookout), each) for each in questions)
    runs: Iterable[Run] = (start(by, each) for by, each in decided if not skip(each))
    in_order = not shared and (ledger.limited or ledger.deadline is not None)
    if shared:
        runs = [*runs]
        ledger.ration = _share(runs, ledger, concurrency or FEW)
        for run in runs:
            await recall(run, kept)

    def begin(place: int, run: Run) -> asyncio.Task[Allocation]:
        turn = (lambda run: float(place)) if in_order else _turn
        return asyncio.create_task(drive(run, sampler, ledger, kept=kept, watch=watch, turn=turn))

    waiting = enumerate(runs)
    active, done = set[asyncio.Task[Allocation]](), asyncio.Queue[asyncio.Task[Allocation]]()
    try:
        while True:
            most = inf if shared else concurrency or _at_once(sampler, controller, ledger)
            while len(active) < most and (next_one := next(waiting, None)) is not None:
                active.add(task := begin(*next_one))
                task.add_done_callback(done.put_nowait)
            if not active:
                return
            active.discard(task := await done.get())
            yield task.result()
    finally:
        await cancel_all(active)
        ledger.ration = None


def _turn(run: Run) -> float:
    """First blocks come first, of the least fed foremost; then who seems farthest from an end."""
    if not run.steps:
        return FIRST + run.delivered
    chance = run.steps[-1].decision.p_continue
    return run.prefix.tally.leaders.confidence - 1 if chance is None else -chance


def _at_once(sampler: Sampler, controller: Controller, ledger: Ledger) -> int:
    """Questions under way: with a limit no more than the server takes, so that few are unfinished.

    A sampler that says nothing of its server gets a few.
    """
    if not isinstance(sampler, OpenAISampler):
        return FEW
    if ledger.limited or ledger.deadline is not None:
        upstream = sampler.upstream
        return upstream.endpoint.concurrency or max(
            FEW, upstream.allowed // controller.schedule.first
        )
    return MANY


@dataclass(frozen=True)
class Unstopped:
    """Nobody stops by a policy: the limit decides."""

    def decide(self, prefix: Prefix) -> Decision:
        return Decision(False, "the limit decides")


def shared_label(controller: Controller) -> str:
    """What allocations of a shared budget call their policy."""
    return "shared-budget" + (ON_WEIGHTS if gives_weights(controller.weigher) else "")


def _start_unstopped(controller: Controller, question: Question) -> Run:
    """A run that stops only where its limit, or all there is, is spent."""
    gate = controller.gate
    policy: Policy = Gated(gate, 0.0) if gate else Unstopped()  # neither ever stops
    return replace(controller, policy=policy).start(question, label=shared_label(controller))


def _share(runs: Sequence[Run], ledger: Ledger, at_once: int) -> Ration:
    """One limit over many questions, spent where it promises most.

    Every question gets its first block; where the limit is too small for that, one response each
    comes first, then a second, so that as many as possible are answered. Then the next block always
    goes to the question whose gate is surest that going on pays; without a gate, to the one whose
    leader is least certain. The gate has the price of tokens in its target, so nothing is divided
    by them again. Beyond the first blocks only few are under way at once, for those may come back
    more urgent than all that wait.
    """
    if not ledger.budget.limited:
        raise UsageError("a shared budget needs a limit in tokens, responses or money")

    def ration(turn: float, want: int) -> int:
        first, known = turn < FIRST / 2, ledger.usual is not None
        most = at_once if first else min(at_once, max(1, len(runs) // AT_ONCE))
        if len(ledger.open) >= (most if known else 1):
            return 0  # one block tells how long responses are
        lacking = (run.prefix.schedule.first - run.delivered for run in runs if run.want)
        scarce = known and not ledger.leaves_room_for(sum(max(0, each) for each in lacking))
        return 1 if first and scarce else want

    return ration
