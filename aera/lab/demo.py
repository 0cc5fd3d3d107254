"""The demo: recorded responses behind a real port, solved live, then graded."""

import asyncio
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aera.allocator import Allocator
from aera.controller import Controller
from aera.fake import RecordedUpstream
from aera.lab.bootstrap import bootstrap_ratio, paired_bootstrap
from aera.lab.evaluation import Grader, read_ballots
from aera.lab.importing import import_jsonl
from aera.lab.truths import Truths
from aera.policy import check_count
from aera.pool import Pool, Record
from aera.run import Allocation, Run
from aera.sampler import Chat, OpenAISampler
from aera.task import get_task
from aera.upstream import Endpoint

BUNDLED = Path(__file__).parents[1] / "demo"
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
        verdict = controller.calibration.get("verdict", "")
        console.print(f"[bold]{len(records)} questions[/], controller [bold]{controller.policy}[/]")
        console.print(f"calibrated on other questions: {verdict}", highlight=False)
        view = _View(len(records))
        begun = time.monotonic()
        with Live(get_renderable=view.render, console=console, refresh_per_second=8):
            allocations = asyncio.run(_solve(pool, records, controller, pace=pace, view=view))
        seconds = time.monotonic() - begun
        truths = Truths.open(place)
        assert truths is not None
        _outcome(console, pool, records, truths=truths, allocations=allocations, seconds=seconds)
    return allocations


async def _solve(
    pool: Pool, records: list[Record], controller: Controller, *, pace: float, view: "_View"
) -> list[Allocation]:
    """Ask the recorded upstream over HTTP, as any other server would be asked."""
    async with RecordedUpstream(pool, pace=pace) as upstream:
        chat = Chat("recorded", pool.task, {"seed": 0})
        async with OpenAISampler(Endpoint(upstream.base_url), chat) as sampler:
            allocator = Allocator(sampler, controller, concurrency=16, watch=view.watch)
            done = []
            async for allocation in allocator.solve(record.question for record in records):
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
            table.add_row(run.question.id, str(run.delivered), "", "", Text("continues", "yellow"))
        finished = sum(self._stops.values())
        at = ", ".join(f"{count} at {stop}" for stop, count in sorted(self._stops.items()))
        return Group(table, Text(f"{finished}/{self._total} stopped: {at}", "bold"))


def _row(allocation: Allocation) -> list[str | Text]:
    chances = [step.decision.p_continue for step in allocation.steps]
    shown = " ".join(f"{chance:.2f}" for chance in chances if chance is not None)
    top = sorted(allocation.votes.items(), key=lambda vote: -vote[1])[:3]
    votes = ", ".join(f"{answer}×{weight:g}" for answer, weight in top)
    ended = Text(f"stops: {allocation.answer}", "green")
    return [allocation.question_id, str(allocation.responses), shown, votes[:40], ended]


def _outcome(
    console: Console,
    pool: Pool,
    records: list[Record],
    *,
    truths: Truths,
    allocations: list[Allocation],
    seconds: float,
) -> None:
    """Accuracy against the full budget, tokens saved with an interval, and time."""
    found = {allocation.question_id: allocation for allocation in allocations}
    ordered = [found[record.question.id] for record in records]
    graders = [Grader(pool.task, truths[record.question.id]) for record in records]
    ballots = read_ballots(records, pool.task)
    full = [ballot.prefixes(pool.schedule)[-1].tally.leaders.answer for ballot in ballots]
    ours = np.array([grade(a.answer) for grade, a in zip(graders, ordered, strict=True)])
    theirs = np.array([grade(a) for grade, a in zip(graders, full, strict=True)])
    spent = np.array([float(a.completion_tokens) for a in ordered])
    whole = np.array([float(sum(r.tokens for r in record.responses)) for record in records])
    gap = paired_bootstrap(100 * ours, 100 * theirs, seed=0)
    saved = bootstrap_ratio(spent, whole, seed=0)
    used = float(np.mean([a.responses for a in ordered]))
    interval = f"95 % [{saved.low:.1f}, {saved.high:.1f}]"
    rows = [
        ("accuracy", f"{100 * ours.mean():.1f} %, full budget {100 * theirs.mean():.1f} %"),
        ("difference", f"{gap.difference:+.1f} points, 95 % [{gap.low:+.1f}, {gap.high:+.1f}]"),
        ("completion tokens saved", f"{saved.percent:.1f} %, {interval}"),
        ("responses per question", f"{used:.1f} of {pool.schedule.last}"),
        ("time", f"{seconds:.1f} s for {sum(a.calls for a in ordered)} calls"),
    ]
    table = Table(box=None, padding=(0, 2), show_header=False)
    for name, value in rows:
        table.add_row(name, value)
    console.print(table, highlight=False)
    note = "The full budget shares the recorded responses with the live run."
    console.print(note, style="dim", highlight=False)
