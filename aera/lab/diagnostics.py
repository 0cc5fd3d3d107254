"""Hindsight diagnostics: where a policy gains and loses. None of this is seen by any policy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Floats
from aera.lab.replay.frontier import Point
from aera.lab.replay.hindsight import best_future
from aera.lab.replay.trajectory import Trajectories
from aera.lab.stats import Estimate, paired_bootstrap, paired_gap


@dataclass(frozen=True)
class Opportunity:
    """What lay ahead of questions at the first checkpoint; shares and gains in percent."""

    group: str
    questions: int
    improvable: float
    """Share of the questions for which a later checkpoint scores higher."""
    gain: float
    """Mean of the best future gain."""


def residual_opportunity(point: Point, scores: Floats) -> list[Opportunity]:
    """Do continued questions have more to gain than those stopped at the first checkpoint?"""
    gains = np.maximum(best_future(scores, 0) - scores[:, 0], 0.0)
    continued = point.columns > 0
    groups = {"continued": continued, "stopped at the first checkpoint": ~continued}
    return [
        Opportunity(
            name,
            int(members.sum()),
            _percent(gains[members] > 1e-12),
            _percent(gains[members]),
        )
        for name, members in groups.items()
    ]


def _percent(values: NDArray[np.generic]) -> float:
    return 100 * float(values.mean()) if len(values) else float("nan")


def collapsing(trajectories: Trajectories) -> NDArray[np.bool_]:
    """Questions that are right at some checkpoint and wrong at the next."""
    right = trajectories.right
    fell = (right[:, :-1] & ~right[:, 1:]).any(axis=1)
    return np.asarray(fell, dtype=np.bool_)


def on_subset(
    one: Point, other: Point, members: NDArray[np.bool_], *, seed: int = 0
) -> Estimate | None:
    """Paired difference of two policies on some of the questions, in points."""
    if not members.any():
        return None
    return paired_bootstrap(100 * one.scores[members], 100 * other.scores[members], seed=seed)


@dataclass(frozen=True)
class DifficultyLoss:
    """Loss against the full budget among questions of similar difficulty, in points."""

    group: str
    questions: int
    loss: float
    responses: float
    low: float
    high: float
    """The ends of the loss's 95 % interval."""


SUPPORTS = ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 0.9), (0.9, 1.01))


def loss_by_difficulty(point: Point) -> list[DifficultyLoss]:
    """Loss by the share the leading answer holds at the full budget."""
    support = point.trajectories.evidence["majority_ratio"][:, -1]
    grades = point.trajectories.known_grades
    rows = []
    for low, high in SUPPORTS:
        members = (support >= low) & (support < high)
        if members.any():
            name = f"support {low:.2f}-{min(high, 1.0):.2f}"
            counts = float(point.counts[members].mean())
            gap = paired_gap(grades[members, -1], point.scores[members])
            rows.append(DifficultyLoss(name, gap.questions, gap.value, counts, gap.low, gap.high))
    return rows


def worst_group(rows: Sequence[DifficultyLoss]) -> DifficultyLoss:
    """The group that pays most for stopping early."""
    return max(rows, key=lambda row: row.loss)


@dataclass(frozen=True)
class CounterExamples:
    """Evidence against correctness: how often each observable moved the wrong way."""

    transition: str
    count: int
    against: dict[str, int]
    all_against: int


def counter_examples(trajectories: Trajectories) -> list[CounterExamples]:
    """Collapses while the evidence strengthens, recoveries while it weakens."""
    right = trajectories.right
    rising = {"majority_ratio": 1, "entropy": -1, "semantic_consensus": 1}
    stronger = {
        name: sign * trajectories.changes(name) for name, sign in rising.items()
        if name in trajectories.evidence
    }  # fmt: skip
    found = []
    for name, was, sign in (("collapse", True, 1), ("recovery", False, -1)):
        where = (right[:, :-1] == was) & (right[:, 1:] != was)
        against = {key: sign * change[where] > 0 for key, change in stronger.items()}
        everything = np.logical_and.reduce(list(against.values()))
        counts = {key: int(moved.sum()) for key, moved in against.items()}
        found.append(CounterExamples(name, int(where.sum()), counts, int(everything.sum())))
    return found
