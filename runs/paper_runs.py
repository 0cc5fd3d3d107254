"""What the recipes of the paper share: fits that are made once, and a policy in both metrics.

The vote is the share of returned answers that are right. The mean is the paper's own score
(`re2_mean`): the mean grade of the responses seen that are no redo. Each calibrates and judges.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from pools import SEEDS, held, interval, paper_table

from aera import Vote
from aera.lab import (
    Estimate,
    Floats,
    Goal,
    Judgement,
    LossLimit,
    MostUtility,
    PaperLearner,
    Point,
    Trajectories,
    bootstrap_ratio,
    crossfit,
    nested,
    paired_bootstrap,
)

METRICS = ("vote", "mean")
FAMILIES = ("aera", "asc", "esc", "lead", "majority", "entropy", "consensus")
QUALITY = ["vote %", "against Fixed-128", "mean %", "against Fixed-128"]
SPEND = ["responses", "tokens saved %"]
RULES: dict[str, Goal] = {
    "2 points": LossLimit(0.02),
    "no loss": LossLimit(0.0),
    "most utility": MostUtility(0.1),
}
"""Ways to choose a threshold. The paper's first nested row does not say which it used."""
CERTIFIED = {"certified": LossLimit(0.02, 0.1)}


def in_goal(goal: Goal, metric: str) -> Goal:
    """The same goal, losses measured in this metric."""
    return replace(goal, metric="vote" if metric == "vote" else "re2_mean")


def in_track(trajectories: Trajectories, metric: str) -> Trajectories:
    """The same questions, graded in this metric."""
    return trajectories if metric == "vote" else trajectories.by_mean


def in_metric(point: Point, metric: str) -> Point:
    """The same stops, graded in this metric."""
    return replace(point, seen=in_track(point.seen, metric))


# --- fits -----------------------------------------------------------------------------------------


@cache
def crossfits(folder: Path, name: str) -> list[Judgement]:
    """Out-of-fold gates, one for each fold seed; the first has the one-shot head too."""
    data = paper_table(folder, name)
    return [crossfit(PaperLearner(one_shot=seed == SEEDS[0]), data, seed=seed) for seed in SEEDS]


@cache
def judgements(
    folder: Path, name: str, *, certified: bool = False
) -> dict[tuple[str, str], list[Judgement]]:
    """Nested, by rule and metric, one for each split seed; the gates are the same for all."""
    rules: Mapping[str, Goal] = CERTIFIED if certified else RULES
    goals = {(rule, m): in_goal(goal, m) for rule, goal in rules.items() for m in METRICS}
    data = paper_table(folder, name)
    runs = [nested(PaperLearner(), data, [*goals.values()], seed=seed) for seed in SEEDS]
    return {key: [run[place] for run in runs] for place, key in enumerate(goals)}


# --- responses ------------------------------------------------------------------------------------


def count_by(folder: Path, name: str, counts: Callable[[Vote], bool]) -> Floats:
    """How many responses count, by each checkpoint."""
    records, _ = held(folder, name, redo=True)
    kept = np.array([[counts(vote) for vote in record.votes] for record in records])
    found: Floats = kept.cumsum(axis=1)[:, np.array(records.schedule.checkpoints) - 1]
    return found


def valid_share(folder: Path, name: str) -> Floats:
    """The share of all responses that have an answer, by each checkpoint."""
    found = count_by(folder, name, lambda vote: vote.answer is not None)
    share: Floats = found / np.array(paper_table(folder, name).schedule.checkpoints)
    return share


def unseen_means(folder: Path, name: str) -> Floats:
    """The mean score of the responses beyond each checkpoint; at the last one, of all."""
    means = paper_table(folder, name).trajectories.by_mean.known_grades
    kept = count_by(folder, name, lambda vote: not vote.redo)
    right = np.where(kept > 0, means * kept, 0.0)
    left = kept[:, -1:] - kept
    unseen: Floats = np.where(
        left > 0, (right[:, -1:] - right) / np.maximum(left, 1), means[:, -1:]
    )
    return unseen


# --- cells ----------------------------------------------------------------------------------------


def signed(gap: Estimate) -> str:
    """A difference with its interval, in points."""
    return f"{gap.value:+.2f} {interval(gap.low, gap.high)}"


def gap(scores: Floats, other: Floats) -> Estimate:
    """In points, paired by question."""
    return paired_bootstrap(100 * scores, 100 * other, seed=0)


def scores_of(points: Sequence[Point], metric: str) -> Floats:
    """The grade of every question in a metric, mean over the points."""
    scores: Floats = np.mean([in_metric(point, metric).scores for point in points], axis=0)
    return scores


def against_full(points: Sequence[Point], metric: str) -> Estimate:
    """A policy against all responses, in one metric."""
    full = in_track(points[0].trajectories, metric).known_grades[:, -1]
    return gap(scores_of(points, metric), full)


def quality_cells(points: Sequence[Point]) -> list[str]:
    """A policy in both metrics, each against Fixed-128."""
    return [
        cell
        for metric in METRICS
        for cell in (
            f"{100 * scores_of(points, metric).mean():.2f}",
            signed(against_full(points, metric)),
        )
    ]


def spend_cells(points: Sequence[Point]) -> list[str]:
    """What a policy spends: responses, and the tokens it saves."""
    spent = np.mean([point.spent for point in points], axis=0)
    saved = bootstrap_ratio(spent, points[0].trajectories.tokens[:, -1], seed=0)
    responses = float(np.mean([point.responses for point in points]))
    return [f"{responses:.2f}", f"{saved.value:.1f} [{saved.low:.1f}, {saved.high:.1f}]"]
