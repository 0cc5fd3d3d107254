"""SharedBudget: one limit over many questions, spent where it promises most.

Every question gets its first block; where the limit is too small for that, one response each comes
first, then a second, so that as many as possible are answered. Then the next block always goes to
the question whose gate is surest that going on pays; without a gate, to the one whose leader is
least certain. The gate has the price of tokens in its target, so nothing is divided by them again.
"""

import heapq
import time
from asyncio import FIRST_COMPLETED, Task, create_task, gather, wait
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import inf

from aera.errors import UsageError, check_count
from aera.policies.gate import Gated
from aera.policies.labels import ON_WEIGHTS
from aera.policies.policy import Fixed, Policy, ServedPolicy
from aera.reading.equivalence import question_reader
from aera.response import Prefix, Question
from aera.sampling.budget import Bound, Budget
from aera.sampling.reservation import Reservation
from aera.sampling.sampler import Sampler, bound_of
from aera.sampling.spending import Spending
from aera.solving.controller import Controller
from aera.solving.feeding import (
    BlockFailure,
    end_with_error,
    feed_block,
    recall,
    run_off_loop,
)
from aera.solving.journal import Journal
from aera.solving.run import Allocation, Run
from aera.solving.solve import conclude, warn
from aera.tally import beta_confidence
from aera.voting.best_of_n import gives_weights

AT_ONCE = 8
"""One in so many questions may be under way at once, beyond the first blocks."""


def urgency(prefix: Prefix, controller: Controller) -> float:
    """How much the next block promises; infinite before the first."""
    if not len(prefix):
        return inf
    if controller.gate is not None:
        return controller.gate.p_continue(prefix)
    leaders = prefix.tally.leaders
    return 1 - beta_confidence(leaders.weight, leaders.runner_up)


def shared_policy(controller: Controller) -> Policy:
    """Nobody stops by themselves but where nothing is to be gained at all."""
    last = controller.schedule.last
    return Gated(controller.gate, 0.0) if controller.gate else Fixed(last)


def shared_label(controller: Controller) -> str:
    """What allocations call it: nobody stops by a policy, all stop by the limit."""
    return "shared-budget" + (ON_WEIGHTS if gives_weights(controller.weigher) else "")


class SharedBudget:
    """Who gets the next responses. No I/O: `take` a run, feed it, `put` it back."""

    def __init__(
        self,
        questions: Iterable[Question],
        controller: Controller,
        spending: Spending,
        bound: Callable[[Question], Bound] = lambda question: Bound(),
    ) -> None:
        if not spending.budget.limited:
            raise UsageError("a shared budget needs a limit in tokens, responses or money")
        policy = ServedPolicy(shared_policy(controller), patient=True)
        label = shared_label(controller)
        self.runs = [
            Run(
                question,
                policy,
                task=question_reader(controller.task),
                schedule=controller.schedule,
                weigher=controller.weigher,
                label=label,
            )
            for question in questions
        ]
        self.spending = spending
        self._controller, self._bound = controller, bound
        self._out: set[int] = set()
        self._waiting: list[tuple[float, int, int]] = []

    def begin(self) -> None:
        """Line everybody up; runs may have been fed before."""
        for place in range(len(self.runs)):
            self.put(place)

    def take(
        self, wants: Callable[[Run], int] = lambda run: run.want
    ) -> tuple[int, Reservation] | None:
        """The place of the most urgent run and what is reserved for it; None if nothing is now.

        What has no room beside nobody else will have none later: then all who wait end. Beyond the
        first blocks only few are under way at once, for those may come back more urgent than all
        that wait.
        """
        while self._waiting:
            first = self._waiting[0][0] == -inf
            if not first and len(self._out) >= max(1, len(self.runs) // AT_ONCE):
                return None
            if self.spending.usual is None and self._out:
                return None  # one block tells how long responses are
            run = self.runs[self._waiting[0][2]]
            want = wants(run)
            if first and self.spending.usual is not None and not self._enough_for_first_blocks():
                want = 1
            reservation = self.spending.take(want, self._bound(run.question))
            if reservation is None and self._out and not self.spending.late:
                return None
            _, _, place = heapq.heappop(self._waiting)
            if reservation is not None:
                self._out.add(place)
                return place, reservation
            run.end(f"limit: {self.spending.limit}")
        return None

    def put(self, place: int) -> None:
        """Give back a run; of those without a first block, the least fed go first."""
        self._out.discard(place)
        run = self.runs[place]
        if run.want:
            entry = (-urgency(run.prefix, self._controller), run.delivered, place)
            heapq.heappush(self._waiting, entry)

    def _enough_for_first_blocks(self) -> bool:
        """Whether all first blocks that are missing fit, as far as anybody can tell."""
        first = self._controller.schedule.first
        lacking = sum(max(0, first - run.delivered) for run in self.runs if run.want)
        return self.spending.leaves_room_for(lacking)


async def solve_shared(
    questions: Iterable[Question],
    sampler: Sampler,
    controller: Controller,
    *,
    budget: Budget | Spending,
    concurrency: int = 64,
    watch: Callable[[Run], None] | None = None,
    journal: Journal | None = None,
) -> list[Allocation]:
    """Spend one budget on all questions together, best first.

    done = await aera.solve_shared(questions, sampler, controller, budget=Budget(tokens=50_000))
    """
    check_count("concurrency", concurrency)
    spending = Spending(budget) if isinstance(budget, Budget) else budget
    questions, lookout = list(questions), controller.make_lookout()
    if lookout.survey(questions):
        controller = controller.plain
    warn(lookout)
    feeder = _Feeder(sampler, controller, journal)
    shared = SharedBudget(
        questions,
        controller,
        spending,
        lambda question: bound_of(sampler, question, spending.budget),
    )
    begun = time.monotonic()
    if journal is not None:
        spending.book(journal.paid)
    for run in shared.runs:
        await recall(run, controller, journal)
    shared.begin()
    failures: dict[int, BlockFailure] = {}
    active: dict[Task[BlockFailure | None], int] = {}
    try:
        while True:
            while len(active) < concurrency and (taken := shared.take(feeder.want)) is not None:
                place, reservation = taken
                active[create_task(feeder.feed(shared.runs[place], reservation))] = place
            if not active:
                break
            done, _ = await wait(active, return_when=FIRST_COMPLETED)
            for task in done:
                place = active.pop(task)
                if failure := task.result():
                    failures[place] = failure
                shared.put(place)
                if watch is not None:
                    watch(shared.runs[place])
    finally:
        for task in active:
            task.cancel()
        await gather(*active, return_exceptions=True)
    return [conclude(run, failures.get(place), begun) for place, run in enumerate(shared.runs)]


@dataclass(frozen=True)
class _Feeder:
    """Where responses come from, those that were paid for before included."""

    sampler: Sampler
    controller: Controller
    journal: Journal | None

    def want(self, run: Run) -> int:
        """How many responses a run must ask for next."""
        if self.journal is None:
            return run.want
        return self.journal.gap(run.question, run.delivered, run.want)

    async def feed(self, run: Run, reservation: Reservation) -> BlockFailure | None:
        """Ask for what was reserved; a run that cannot go on is ended."""
        controller, journal = self.controller, self.journal
        failure = await feed_block(run, controller, self.sampler, reservation, journal=journal)
        if failure is None:
            await recall(run, controller, journal)
        else:
            await run_off_loop(controller, partial(end_with_error, run, failure.error))
        return failure
