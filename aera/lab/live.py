"""The holdout test with real generation: stop decisions end sampling, a full budget is paired."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from aera.arrays import Floats
from aera.core import Question, Schedule
from aera.errors import ProtocolError
from aera.lab.stats import Estimate, bootstrap_ratio, paired_bootstrap
from aera.lab.truths import Grader, Truths
from aera.policies.rules import Fixed
from aera.sampling.sampler import Sampler
from aera.solving.controller import Controller
from aera.solving.run import Allocation
from aera.solving.solve import solve_many


@dataclass(frozen=True, eq=False)
class LiveTest:
    """A frozen controller on untouched questions beside the full budget on the same questions."""

    allocations: tuple[Allocation, ...]
    reference: tuple[Allocation, ...]
    """The full budget, question by question."""
    scores: Floats
    reference_scores: Floats
    shared: bool
    """Whether the reference used the very responses the controller saw, as a recording does."""

    def difference(self, *, seed: int = 0) -> Estimate:
        """Accuracy against the full budget, in points."""
        return paired_bootstrap(100 * self.scores, 100 * self.reference_scores, seed=seed)

    def token_saving(self, *, prompts: bool, seed: int = 0) -> Estimate:
        """Percent of tokens saved; with prompts, each is counted as often as it was billed."""

        def spent(allocations: Sequence[Allocation]) -> Floats:
            extra = 1 if prompts else 0
            rows = [a.completion_tokens + extra * a.prompt_tokens for a in allocations]
            return np.array(rows, dtype=np.float64)

        return bootstrap_ratio(spent(self.allocations), spent(self.reference), seed=seed)


async def live_test(
    controller: Controller,
    questions: Sequence[Question],
    truths: Truths,
    *,
    sampler: Sampler,
    reference: Sampler | None = None,
    concurrency: int = 64,
) -> LiveTest:
    """Generate under the controller, then generate the full budget with `reference`.

    Without a `reference` the same sampler is asked again: right for a recording, which then shares
    its responses; a live server wants one with a second seed.
    """
    seen = controller.find_seen(questions)
    if seen:
        raise ProtocolError(
            f"the controller was fitted or calibrated on {len(seen)} of the test questions, the "
            f"first is {seen[0]}"
        )
    last = controller.schedule.last
    full = Controller(controller.task, Schedule((last,)), Fixed(last))  # one call, one prompt
    ours = await _all(controller, questions, sampler, concurrency)
    theirs = await _all(full, questions, reference or sampler, concurrency)
    graders = {q.id: Grader(controller.task, truths[q.id]) for q in questions}

    def grades(allocations: Sequence[Allocation]) -> Floats:
        return np.array([graders[a.question_id].grade([a.answer])[0] for a in allocations])

    # Comparing expressions blocks, so grading is done off the event loop.
    one, other = [await asyncio.to_thread(grades, each) for each in (ours, theirs)]
    return LiveTest(ours, theirs, one, other, shared=reference is None)


async def _all(
    controller: Controller, questions: Sequence[Question], sampler: Sampler, concurrency: int
) -> tuple[Allocation, ...]:
    """Allocations in the order of the questions."""
    many = solve_many(questions, sampler, controller, concurrency=concurrency)
    done = {a.question_id: a async for a in many}
    check_answered(done.values())
    return tuple(done[question.id] for question in questions)


def check_answered(allocations: Iterable[Allocation]) -> None:
    """Refuse to grade failures of the server as wrong answers."""
    failed = [allocation for allocation in allocations if allocation.error is not None]
    if failed:
        raise ProtocolError(f"{len(failed)} questions failed, the first with: {failed[0].error}")
