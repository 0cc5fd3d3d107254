"""SharedBudget: one limit on tokens over many questions, spent where it promises most.

Every question gets its first block. Then the next block always goes to the question whose gate is
surest that going on pays; without a gate, to the one whose leader is least certain. The gate has
the price of tokens in its target, so nothing is divided by them again.
"""

import heapq
import time
from asyncio import FIRST_COMPLETED, Task, create_task, gather, wait
from collections.abc import Callable, Iterable
from math import inf

from aera.errors import check_count
from aera.policies.gate import Gated
from aera.policies.labels import label_of
from aera.policies.policy import Fixed, Policy
from aera.reading.equivalence import question_reader
from aera.response import Prefix, Question
from aera.sampling.sampler import Sampler
from aera.solving.budget import Budget, Spending
from aera.solving.controller import Controller
from aera.solving.run import Allocation, Run
from aera.solving.solve import BlockFailure, end_with_error, feed_block
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


class SharedBudget:
    """Who gets the next block. No I/O: `take` a run, feed it what it wants, `put` it back."""

    def __init__(self, questions: Iterable[Question], controller: Controller, tokens: int) -> None:
        check_count("tokens", tokens)
        last = controller.schedule.last
        policy: Policy = Gated(controller.gate, 0.0) if controller.gate else Fixed(last)
        label = label_of(policy, weighted=gives_weights(controller.weigher))
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
        self._controller, self._tokens = controller, tokens
        self._spent = self._responses = 0
        self._promised = 0.0
        """What the blocks under way are expected to take."""
        self._expected: dict[int, float] = {}
        self._booked: dict[int, tuple[int, int]] = {}
        self._waiting: list[tuple[float, int]] = []
        for place in range(len(self.runs)):
            self._push(place)

    def take(self) -> int | None:
        """The place of the most urgent run whose next block still fits, None if none does now.

        What does not fit now will not fit later, for the rest only shrinks: such a run ends. Beyond
        the first blocks only few are under way at once, for those may come back more urgent than
        all that wait.
        """
        while self._waiting:
            first = self._waiting[0][0] == -inf
            if not first and len(self._expected) >= max(1, len(self.runs) // AT_ONCE):
                return None
            _, place = heapq.heappop(self._waiting)
            expected = self.runs[place].want * self._usual(place)
            if self._spent + self._promised + expected <= self._tokens:
                self._expected[place] = expected
                self._promised += expected
                return place
            self.runs[place].end("limit: tokens")
        return None

    def put(self, place: int) -> None:
        """Give back a run that was fed, or has ended."""
        self._promised -= self._expected.pop(place)
        prefix = self.runs[place].prefix
        known = self._booked.get(place, (0, 0))
        self._booked[place] = (prefix.completion_tokens, len(prefix))
        self._spent += prefix.completion_tokens - known[0]
        self._responses += len(prefix) - known[1]
        self._push(place)

    def _push(self, place: int) -> None:
        run = self.runs[place]
        if run.want:
            heapq.heappush(self._waiting, (-urgency(run.prefix, self._controller), place))

    def _usual(self, place: int) -> float:
        """Tokens a response takes: of this question, else of all so far, else none are known."""
        prefix = self.runs[place].prefix
        if len(prefix):
            return prefix.completion_tokens / len(prefix)
        return self._spent / self._responses if self._responses else 0.0


async def solve_shared(
    questions: Iterable[Question],
    sampler: Sampler,
    controller: Controller,
    *,
    tokens: int,
    concurrency: int = 64,
    watch: Callable[[Run], None] | None = None,
) -> list[Allocation]:
    """Spend at most about so many completion tokens on all questions together, best first.

    The limit is kept by what blocks are expected to take, so the last ones may exceed it a little.
    """
    shared, spending = SharedBudget(questions, controller, tokens), Spending(Budget())
    errors: dict[int, str] = {}
    active: dict[Task[BlockFailure | None], int] = {}
    begun = time.monotonic()
    try:
        while True:
            while len(active) < concurrency and (place := shared.take()) is not None:
                run = shared.runs[place]
                work = feed_block(run, sampler, controller, run.want, spending=spending)
                active[create_task(work)] = place
            if not active:
                break
            done, _ = await wait(active, return_when=FIRST_COMPLETED)
            for task in done:
                place = active.pop(task)
                run, failure = shared.runs[place], task.result()
                if failure is not None:
                    end_with_error(run, failure.error)
                    errors[place] = str(failure.error)
                shared.put(place)
                if watch is not None:
                    watch(run)
    finally:
        for task in active:
            task.cancel()
        await gather(*active, return_exceptions=True)
    seconds = time.monotonic() - begun
    return [
        run.make_allocation(seconds=seconds, error=errors.get(place))
        for place, run in enumerate(shared.runs)
    ]
