"""The demo: recorded responses behind a real port, solved live, then graded."""

import asyncio
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aera.core import Schedule
from aera.errors import check_count
from aera.lab.formats.importing import import_jsonl
from aera.lab.judging.difference import paired_gap
from aera.lab.judging.live import LiveTest, check_answered
from aera.lab.truths import Grader, Truths
from aera.policies.rules import Fixed
from aera.pools.pool import Pool, Record, read_votes
from aera.reading.task import get_task
from aera.sampling.client import Endpoint
from aera.sampling.recorded import RecordedUpstream, prompt_tokens
from aera.sampling.sampler import Chat, OpenAISampler
from aera.solving.controller import Controller
from aera.solving.replay import replay
from aera.solving.run import Allocation, Run
from aera.solving.solve import solve_many

BUNDLED = Path(__file__).parents[2] / "demo"
LATEST = 12


def run_demo(
    console: Console, *, questions: int = 150, pace: float = 0.6, out: Path | None = None
) -> list[Allocation]:
    """Import the bundled pool, serve it, solve its questions live, and show what was saved."""
    check_count("questions", questions)
    with tempfile.TemporaryDirectory() as scratch:
        place = out or Path(scratch) / "pool"
        if not place.exists():
            import_jsonl(BUNDLED / "gsm8k.jsonl.gz", place, task=get_task("gsm8k"))
        pool = Pool.open(place)
        records = list(pool)[:questions]
        controller = Controller.load(BUNDLED / "controller")
        summary = controller.calibration.get("summary", "")
        console.print(f"[bold]{len(records)} questions[/], controller [bold]{controller.label}[/]")
        console.print(f"calibrated on other questions: {summary}", highlight=False)
        story = controller.calibration.get("learned", "")
        console.print(f"learned: {story}", style="dim", highlight=False)
        view = _View(len(records))
        begun = time.monotonic()
        with Live(get_renderable=view.render, console=console, refresh_per_second=8):
            allocations = asyncio.run(_solve(pool, records, controller, pace=pace, view=view))
        seconds = time.monotonic() - begun
        truths = Truths.open(place)
        assert truths is not None
        test = _grade_run(pool, records, truths, allocations)
        console.print()
        _outcome(console, test, seconds=seconds)
    return allocations


async def _solve(
    pool: Pool, records: list[Record], controller: Controller, *, pace: float, view: "_View"
) -> list[Allocation]:
    """Ask the recorded upstream over HTTP, as any other server would be asked."""
    async with RecordedUpstream(pool, pace=pace) as upstream:
        chat = Chat("recorded", pool.task, {"seed": 0}, wishes=controller.asks)
        async with OpenAISampler(Endpoint(upstream.base_url), chat) as sampler:
            done, questions = [], [each.question for each in records]
            many = solve_many(questions, sampler, controller, concurrency=16, watch=view.watch)
            async for allocation in many:
                view.finish(allocation)
                done.append(allocation)
            return done


class _View:
    """Who continues and who stops, as it happens."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._active: dict[str, Run] = {}
        self._latest: list[Allocation] = []
        self._stops: dict[int, int] = {}

    def watch(self, run: Run) -> None:
        self._active[run.question.id] = run

    def finish(self, allocation: Allocation) -> None:
        self._active.pop(allocation.question_id, None)
        self._latest = [*self._latest, allocation][-LATEST:]
        stops = self._stops
        stops[allocation.checkpoint] = stops.get(allocation.checkpoint, 0) + 1

    def render(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2))
        for name in ("question", "responses", "p_continue", "votes", ""):
            table.add_column(name)
        for allocation in self._latest:
            table.add_row(*_row(allocation))
        for run in list(self._active.values())[: LATEST // 2]:
            votes = _votes(run.prefix.tally.weights)
            table.add_row(
                run.question.id, str(run.delivered), "", votes, Text("continues", "yellow")
            )
        finished = sum(self._stops.values())
        at = ", ".join(f"{count} at {stop}" for stop, count in sorted(self._stops.items()))
        return Group(table, Text(f"{finished}/{self._total} stopped: {at}", "bold"))


def _votes(weights: Mapping[str, float]) -> str:
    """The leading answers with their votes, short enough for a row."""
    top = sorted(weights.items(), key=lambda vote: -vote[1])[:3]
    return ", ".join(f"{answer}×{weight:.3g}" for answer, weight in top)[:40]


def _row(allocation: Allocation) -> list[str | Text]:
    chances = [step.decision.p_continue for step in allocation.steps]
    shown = " ".join(f"{chance:.2f}" for chance in chances if chance is not None)
    votes = _votes(allocation.votes)
    ended = Text(f"{allocation.reason}: {allocation.answer}", "green")
    if allocation.error is not None:
        ended = Text(allocation.error, "red")
    return [allocation.question_id, str(allocation.responses), shown, votes, ended]


def _reference(pool: Pool, records: list[Record]) -> tuple[Allocation, ...]:
    """The full budget on the recorded responses, in one call and so with one prompt each."""
    last = pool.schedule.last
    voted = read_votes(records, pool.task)
    runs = [
        replay(record.prefixes(Schedule((last,))), Fixed(last), task=pool.task) for record in voted
    ]
    prompts = [prompt_tokens(pool.task.prompt(record.question)) for record in records]
    return tuple(
        replace(run.allocation, prompt_tokens=prompt)
        for run, prompt in zip(runs, prompts, strict=True)
    )


def _grade_run(
    pool: Pool, records: list[Record], truths: Truths, allocations: list[Allocation]
) -> LiveTest:
    """The live run beside the full budget, both graded."""
    check_answered(allocations)
    found = {allocation.question_id: allocation for allocation in allocations}
    ours = tuple(found[record.question.id] for record in records)
    theirs = _reference(pool, records)
    graders = [Grader(pool.task, truths[record.question.id]) for record in records]
    scores = [
        np.array([grader.grade([a.answer])[0] for grader, a in zip(graders, side, strict=True)])
        for side in (ours, theirs)
    ]
    return LiveTest(ours, theirs, scores[0], scores[1], shared=True)


def _outcome(console: Console, test: LiveTest, *, seconds: float) -> None:
    """Accuracy against the full budget, tokens saved with an interval, and time."""
    gap = paired_gap(test.scores, test.reference_scores)
    saved, net = test.token_saving(prompts=False), test.token_saving(prompts=True)
    used = float(np.mean([a.responses for a in test.allocations]))
    full = test.reference[0].responses
    ours, theirs = 100 * test.scores.mean(), 100 * test.reference_scores.mean()
    rows = [
        ("accuracy", f"{ours:.1f} %, {full} plain votes {theirs:.1f} %"),
        ("difference", f"{gap.difference:+.1f} points, 95 % [{gap.low:+.1f}, {gap.high:+.1f}]"),
        (
            "completion tokens saved",
            f"{saved.percent:.1f} %, 95 % [{saved.low:.1f}, {saved.high:.1f}]",
        ),
        ("net of prompts", f"{net.percent:.1f} %, each billed again for every block"),
        ("responses per question", f"{used:.1f} of {full}"),
        ("time", f"{seconds:.1f} s for {sum(a.calls for a in test.allocations)} calls"),
    ]
    table = Table(box=None, padding=(0, 2), show_header=False)
    for name, value in rows:
        table.add_row(name, value)
    console.print(table, highlight=False)
    note = "The full budget shares the recorded responses with the live run."
    console.print(note, style="dim", highlight=False)
