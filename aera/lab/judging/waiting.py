"""Waiting times of an evaluation: what the questions of every policy wait at a server."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from aera.arrays import Columns
from aera.lab.judging.protocols import Judgement
from aera.lab.replay.frontier import Frontier, Kind, Point, fixed_points
from aera.lab.replay.replay import ReplaySettings
from aera.lab.replay.server import Server
from aera.lab.replay.waiting import Waited, courses, simulate
from aera.policies.ahead import Ahead, default_ahead
from aera.pools.record import Record, Records, VotedRecord
from aera.schedule import Schedule
from aera.solving.controller import Controller
from aera.workers import Workers

HURRIES = (0.0, 0.5, 0.8)
"""Those that are shown where nobody names others."""


@dataclass(frozen=True, eq=False)
class Seen:
    """Judged questions as the policy spoken of saw them, and what foresees its stops."""

    records: Sequence[VotedRecord]
    aheads: Sequence[Ahead]
    """One for each question; learned on others, or bundled."""

    @classmethod
    def judged(cls, done: Judgement) -> "Seen":
        """What a protocol leaves behind."""
        known = [ahead or default_ahead() for ahead in done.aheads]
        return cls(done.measured.records, [known[fold] for fold in done.folds])

    @classmethod
    def read(
        cls, records: Records, point: Point, *, controller: Controller | None, workers: Workers
    ) -> "Seen":
        """Votes as a controller weighs them, plain without one."""
        weigher = controller.weigher if controller else None
        settings = ReplaySettings(records.task, point.trajectories.schedule, weigher=weigher)
        parts = workers.map(partial(_read, settings), records.parts())
        found = {record.question.id: record for part in parts for record in part}
        voted = [found[key] for key in point.trajectories.question_ids]
        known = (controller.ahead if controller else None) or default_ahead()
        return cls(voted, [known] * len(voted))


def _read(settings: ReplaySettings, part: Iterable[Record]) -> list[VotedRecord]:
    last = settings.schedule.last
    return [record.first(last).without_texts() for record in settings.read(part)]


@dataclass(frozen=True, eq=False)
class Timing:
    """Everything that waiting depends on besides where policies stop."""

    server: Server
    seen: Seen
    hurries: Sequence[float] = HURRIES
    seed: int = 0

    def wait(self, point: Point, *, hurry: float = 0.0) -> Waited:
        """A policy's questions at one hurry; a fixed budget is one block."""
        schedule, stops = point.trajectories.schedule, point.columns
        if point.at_once:
            schedule, stops = Schedule((round(point.counts[0]),)), 0 * stops
        made = courses(self.seen.records, stops, schedule, self.seen.aheads if hurry else None)
        return simulate(made, self.server, hurry=hurry, seed=self.seed)

    def tell(self, frontier: Frontier, spoken: Point) -> dict[str, Any]:
        """Time and tokens of every policy, and at every hurry of the one spoken of."""
        rows = []
        for point in timed_points(frontier, spoken):
            hurries = {0.0, *self.hurries} if point.policy == spoken.policy else {0.0}
            for hurry in sorted(hurries if not point.at_once else {0.0}):
                time = self.wait(point, hurry=hurry).figures
                known = {"accuracy": point.accuracy, "agreement": point.agreement}
                told = {"policy": point.policy, "weighted": point.weighted, "hurry": hurry}
                rows.append({**told, **known, **time.as_json()})
        full = frontier.full_budget(weighted=spoken.weighted).policy
        named = {"policy": spoken.policy, "reference": full}
        return {"server": asdict(self.server), "told": str(self.server), **named, "rows": rows}


def timed_points(frontier: Frontier, spoken: Point) -> list[Point]:
    """Policies without sweeps and hindsight, and every fixed budget on the votes spoken of."""
    left = (Kind.SWEPT, Kind.HINDSIGHT)
    kept = [point for point in frontier.points if point.kind not in left and point is not spoken]
    fixed = fixed_points(spoken.trajectories, weighted=spoken.weighted)
    return [*{each.policy: each for each in (*kept, *fixed, spoken)}.values()]


def tell_hurries(
    records: Sequence[VotedRecord], stops: Columns, schedule: Schedule, ahead: Ahead
) -> list[dict[str, float]]:
    """What hurries take on an idle server, as ratios to blocks one after the other.

    None of them where the pool does not know its tokens.
    """
    made = courses(records, stops, schedule, [ahead] * len(records))
    calm = simulate(made, Server(1.0)).figures
    if not calm.mean:
        return []
    hurried = {
        hurry: simulate(made, Server(1.0), hurry=hurry).figures for hurry in HURRIES if hurry
    }
    return [
        {
            "hurry": hurry,
            "tokens": round(time.tokens / calm.tokens, 4),
            "seconds": round(time.mean / calm.mean, 4),
        }
        for hurry, time in hurried.items()
    ]


def tell_waiting(told: Mapping[str, Any]) -> str:
    """The policy spoken of beside its full budget, in one sentence."""
    own = [row for row in told["rows"] if row["policy"] == told["policy"]]
    full = [row for row in told["rows"] if row["policy"] == told["reference"]]
    said = [f"{row['policy']} {_seconds(row)}" for row in full]
    if told["policy"] != told["reference"]:
        said += [f"{row['policy']} at hurry {row['hurry']:g} {_seconds(row)}" for row in own]
    return f"seconds waited at the median and at p95 ({told['told']}): {'; '.join(said)}"


def _seconds(row: Mapping[str, Any]) -> str:
    return f"{row['p50']:.3g} and {row['p95']:.3g} for {row['tokens']:,.0f} tokens"
