"""Live: the holdout test with real generation, and the demo, which solves recorded questions."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aera.arrays import Floats
from aera.core import Question, Schedule
from aera.errors import ProtocolError
from aera.lab.stats import Estimate, bootstrap_ratio, paired_bootstrap
from aera.lab.truths import Truths, grade_all
from aera.policies.rules import Fixed
from aera.pools.pool import HeldRecords, Pool, hold
from aera.sampling.client import Endpoint
from aera.sampling.recorded import RecordedUpstream
from aera.sampling.sampler import Chat, OpenAISampler, Sampler
from aera.solving.controller import Controller
from aera.solving.run import Allocation, Run
from aera.solving.solve import solve_many

BUNDLED = Path(__file__).parents[1] / "demo"
LATEST = 12


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
        ours, theirs = (
            np.array([a.completion_tokens + prompts * a.prompt_tokens for a in each], np.float64)
            for each in (self.allocations, self.reference)
        )
        return bootstrap_ratio(ours, theirs, seed=seed)


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

    def grades() -> Floats:
        task, rows = controller.task, zip(questions, ours, theirs, strict=True)
        pairs = ((truths[q.id], (one.answer, two.answer)) for q, one, two in rows)
        return np.array([grade_all(answers, truth, task=task) for truth, answers in pairs])

    # Comparing expressions blocks, so grading is done off the event loop.
    one, other = (await asyncio.to_thread(grades)).T
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


# --- the demo -----------------------------------------------------------------------------------


def run_demo(
    console: Console, pool: Pool, controller: Controller, *, questions: int, pace: float
) -> tuple[HeldRecords, list[Allocation]]:
    """Serve a recorded pool, and solve the first of its questions live."""
    held = hold(pool)
    records = replace(held, records=held.records[:questions])
    asked = [*records.questions.values()]
    view, begun = _View(len(asked)), time.monotonic()
    with Live(get_renderable=view.render, console=console, refresh_per_second=8):
        asyncio.run(_solve(pool, asked, controller, pace=pace, view=view))
    check_answered(view.done)
    calls = sum(allocation.calls for allocation in view.done)
    seconds = time.monotonic() - begun
    told = f"\n{len(asked)} questions solved live with {calls} calls in {seconds:.1f} s.\n"
    console.print(told, highlight=False)
    return records, view.done


async def _solve(
    pool: Pool, questions: list[Question], controller: Controller, *, pace: float, view: "_View"
) -> None:
    """Ask the recorded upstream over HTTP, as any other server would be asked."""
    async with RecordedUpstream(pool, pace=pace) as upstream:
        chat = Chat("recorded", pool.task, {"seed": 0}, wishes=controller.asks)
        async with OpenAISampler(Endpoint(upstream.base_url), chat) as sampler:
            many = solve_many(questions, sampler, controller, concurrency=16, watch=view.watch)
            async for allocation in many:
                view.finish(allocation)


class _View:
    """Who continues and who stops, as it happens."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._active: dict[str, Run] = {}
        self.done: list[Allocation] = []

    def watch(self, run: Run) -> None:
        self._active[run.question.id] = run

    def finish(self, allocation: Allocation) -> None:
        self._active.pop(allocation.question_id, None)
        self.done.append(allocation)

    def render(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("question", "responses", "leading answer", "its share", "what happens"):
            table.add_column(name, no_wrap=True)
        for each in self.done[-LATEST:]:
            ended = each.error or f"stops: {each.reason}"
            votes = _leader(each.votes)
            style = "green" if each.error is None else "red"
            table.add_row(each.question_id, str(each.responses), *votes, Text(ended, style))
        for run in list(self._active.values())[: LATEST // 2]:
            votes = _leader(run.prefix.tally.weights)
            told = Text("continues", "yellow")
            table.add_row(run.question.id, str(run.delivered), *votes, told)
        stops = Counter(allocation.checkpoint for allocation in self.done)
        at = ", ".join(f"{count} at {stop}" for stop, count in sorted(stops.items()))
        finished = f"{len(self.done)}/{self._total} stopped: {at} responses"
        return Group(table, Text(finished, "bold"))


def _leader(weights: Mapping[str, float]) -> tuple[str, str]:
    """The answer with the most votes, and which share of them it has."""
    if not weights:
        return "", ""
    answer, weight = max(weights.items(), key=lambda vote: vote[1])
    return answer[:16], f"{100 * weight / sum(weights.values()):.0f} %"
