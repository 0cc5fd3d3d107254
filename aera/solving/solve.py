"""Solve questions live: drive one run until it stops, or many at once under one ledger.

Every path ends in `drive` or `step`: batches, shared budgets, the gateway, audits and adapters.
"""

import asyncio
import heapq
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from math import inf
from typing import TypeVar

from aera.core import Prefix, Question, Response
from aera.errors import AeraError, UpstreamError, UsageError, check_count
from aera.policies.domain import Lookout
from aera.policies.gate import Gated
from aera.policies.rules import ON_WEIGHTS, Decision, Policy
from aera.pools.log import Log
from aera.sampling.budget import NO_ROOM, Bound, Budget, Held, Ledger
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
FEW, MANY = 64, 4_096
"""Questions under way at once where nobody knows the server, and where it has enough to do."""
Done = TypeVar("Done")
Watch = Callable[[Run], None]
Answer = asyncio.Future[Held | None]
Reserve = Callable[[Run, int, Bound], Awaitable[Held | None]]


async def drive(
    run: Run,
    sampler: Sampler,
    ledger: Ledger,
    *,
    kept: Log | None = None,
    watch: Watch | None = None,
    reserve: Reserve | None = None,
) -> Allocation:
    """Feed a run from a sampler until it stops, a limit is hit, or nothing can be had.

    What went wrong is in the allocation, beside the best answer so far; nothing paid for is lost.
    `reserve` says when it is the turn of this run, where others want the same room.
    """
    begun, first, bound = time.monotonic(), True, bound_of(sampler, run.question, ledger)
    while want := await recall(run, kept):
        held = await (reserve(run, want, bound) if reserve else ledger.reserve(want, bound))
        if held is None:
            await _end_at_limit(run, ledger)
            break
        await step(run, sampler, held, kept=kept)
        if first:  # until then others were first
            begun, first = held.begun or begun, False
        if watch is not None:
            watch(run)
    return replace(run.allocation, seconds=time.monotonic() - begun)


async def step(run: Run, sampler: Sampler, held: Held, *, kept: Log | None = None) -> None:
    """Ask for what is held and feed it; where nothing of it came, the run ends.

    What did not arrive before the deadline was never a response, only a wait. Of every call, what
    it brought is kept at once.
    """
    if kept is not None:
        held.heard = partial(kept.add, run.question)
    try:
        got = await sample_held(sampler, run.question, held, start=run.delivered)
        late = held.ledger.late
        good = [response for response in got if response.error is None]
        if not got and not late:
            raise UpstreamError("the sampler returned nothing")
        if not good and not late:
            cause = got[0].source
            known = cause if isinstance(cause, UpstreamError) else UpstreamError(str(got[0].error))
            await _give_up(run, held, known.after(0), got)
            return
        await feed(run, good if late else got)
        if late and run.want:
            await _end_at_limit(run, held.ledger)
    except AeraError as error:
        await _give_up(run, held, error)
    finally:
        held.close()


async def _give_up(run: Run, held: Held, error: AeraError, failed: Sequence[Response] = ()) -> None:
    """End a run that cannot go on; a call for whose retry there was no room met the limit."""
    if isinstance(error, UpstreamError) and error.code == NO_ROOM:
        await _end_at_limit(run, held.ledger)
    else:
        await off_loop(run, partial(run.fail, error, failed))


async def _end_at_limit(run: Run, ledger: Ledger) -> None:
    await off_loop(run, partial(run.end, f"limit: {ledger.limit}"))


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
    decided = ((each, look_at(each, controller, lookout)) for each in questions)
    asked = ((each, by) for each, by in decided if not skip(each))
    runs: Iterable[Run] = (by.start(question) for question, by in asked)
    queue: SharedBudget | None = None
    if shared:
        runs = [_start_unstopped(question, by) for question, by in asked]
        queue = SharedBudget(runs, ledger, concurrency or FEW)
        for run in runs:
            await recall(run, kept)
    in_order = ledger.limited or ledger.deadline is not None
    refusal: AeraError | None = None

    async def reserve(place: int, run: Run, want: int, bound: Bound) -> Held | None:
        held = None
        if queue is not None:
            held = await queue.reserve(run, want, bound)
        elif refusal is None:
            turn = float(place) if in_order else _turn(run)
            held = await ledger.reserve(want, bound, turn=turn)
        if refusal is None:
            return held
        run.fail(refusal)  # a wrong key, model or address is wrong for every question
        if held is not None:
            held.close()
        return None

    async def solve_one(place: int, run: Run) -> Allocation:
        nonlocal refusal
        own = partial(reserve, place)
        done = await drive(run, sampler, ledger, kept=kept, watch=watch, reserve=own)
        if isinstance(run.error, UpstreamError) and run.error.final:
            refusal = run.error.after(0)
        if queue is not None:
            queue.leave(run)
        return done

    waiting = enumerate(runs)
    active, done = set[asyncio.Task[Allocation]](), asyncio.Queue[asyncio.Task[Allocation]]()
    try:
        while True:
            most = inf if shared else concurrency or _at_once(sampler, controller, ledger)
            while len(active) < most and (next_one := next(waiting, None)) is not None:
                active.add(task := asyncio.create_task(solve_one(*next_one)))
                task.add_done_callback(done.put_nowait)
            if not active:
                return
            active.discard(task := await done.get())
            yield task.result()
    finally:
        await cancel_all(active)


def _turn(run: Run) -> float:
    """First blocks of all come first, then the questions that seem to be farthest from an end."""
    if not run.steps:
        return -inf
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


def _start_unstopped(question: Question, controller: Controller) -> Run:
    """A run that stops only where its limit, or all there is, is spent."""
    gate = controller.gate
    policy: Policy = Gated(gate, 0.0) if gate else Unstopped()  # neither ever stops
    return replace(controller, policy=policy).start(question, label=shared_label(controller))


class SharedBudget:
    """One limit over many questions, spent where it promises most.

    Every question gets its first block; where the limit is too small for that, one response each
    comes first, then a second, so that as many as possible are answered. Then the next block always
    goes to the question whose gate is surest that going on pays; without a gate, to the one whose
    leader is least certain. The gate has the price of tokens in its target, so nothing is divided
    by them again.
    """

    def __init__(self, runs: Sequence[Run], ledger: Ledger, at_once: int) -> None:
        if not ledger.budget.limited:
            raise UsageError("a shared budget needs a limit in tokens, responses or money")
        self._runs, self._ledger, self._at_once = runs, ledger, at_once
        self._out: set[Run] = set()
        """Those that are held room for, until they are back or at their end."""
        self._numbers = count()
        self._waiting: list[tuple[float, int, int, Run, int, Bound, Answer]] = []

    async def reserve(self, run: Run, want: int, bound: Bound) -> Held | None:
        """Room for a block, once it is this run's turn; of those without one the least fed first.

        Those that come back together are compared before any of them gets it.
        """
        loop = asyncio.get_running_loop()
        answer: Answer = loop.create_future()
        order = _turn(run), run.delivered, next(self._numbers)
        heapq.heappush(self._waiting, (*order, run, want, bound, answer))
        self._out.discard(run)
        loop.call_soon(self._hand_out)
        return await answer

    def leave(self, run: Run) -> None:
        """A run is over."""
        self._out.discard(run)
        self._hand_out()

    def _hand_out(self) -> None:
        """Give room to the most urgent runs.

        What has no room beside nobody else will have none later: then all who wait end. Beyond the
        first blocks only few are under way at once, for those may come back more urgent than all
        that wait.
        """
        ledger, out = self._ledger, self._out
        while self._waiting and len(out) < self._at_once:
            turn, _, _, run, want, bound, answer = self._waiting[0]
            if answer.cancelled():
                heapq.heappop(self._waiting)
                continue
            first = turn == -inf
            if not first and len(out) >= max(1, len(self._runs) // AT_ONCE):
                return
            if ledger.usual is None and out:
                return  # one block tells how long responses are
            scarce = first and ledger.usual is not None and not self._enough_for_first_blocks()
            held = ledger.take(1 if scarce else want, bound)
            if held is None and out and not ledger.late:
                return
            heapq.heappop(self._waiting)
            if held is not None:
                out.add(run)
            answer.set_result(held)

    def _enough_for_first_blocks(self) -> bool:
        """Whether all first blocks that are missing fit, as far as anybody can tell."""
        lacking = [run.prefix.schedule.first - run.delivered for run in self._runs if run.want]
        return self._ledger.leaves_room_for(sum(max(0, each) for each in lacking))
