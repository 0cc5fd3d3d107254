"""Learned votes and the gate on them, nested, beside everything else: four pools, five seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from pools import (
    SEEDS,
    TASKS,
    held,
    interval,
    paper_table,
    pools_argument,
    publish,
    table,
    vote_table,
)

from aera import ASC, ESC, Fixed, Lead
from aera.arrays import Floats
from aera.lab import (
    Frontier,
    Judgement,
    LossLimit,
    PaperLearner,
    Point,
    VoteLearner,
    bootstrap_ratio,
    crossfit_bayes,
    evaluate,
    limit_for,
    nested,
    paired_bootstrap,
)
from aera.lab.replay.frontier import point_of

LOSSES = (0.0, 0.005, 0.01, 0.02, 0.03)


@dataclass(frozen=True)
class Mean:
    """One policy over the split seeds: expected grade and tokens of every question."""

    scores: Floats
    spent: Floats

    @classmethod
    def of(cls, points: Sequence[Point]) -> "Mean":
        scores = np.mean([point.scores for point in points], axis=0)
        return cls(scores, np.mean([point.spent for point in points], axis=0))


@cache
def judgements(folder: Path, name: str) -> list[list[Judgement]]:
    """Ours, by split seed and allowed loss."""
    learner, table = VoteLearner(), vote_table(folder, name)
    limits = [limit_for(learner, loss) for loss in LOSSES]
    return [nested(learner, table, limits, seed=seed) for seed in SEEDS]


def plain(folder: Path, name: str) -> Frontier:
    """Everything that needs no calibration, on plain votes."""
    records, truths = held(folder, name)
    policies = [ASC(0.95), ESC(5), crossfit_bayes(records, 0.95), Lead(3)]
    return evaluate(records, policies, truths=truths)


def full(frontier: Frontier, column: int = -1) -> Point:
    """A fixed budget on plain votes."""
    questions, checkpoints = frontier.trajectories.tokens.shape
    place = range(checkpoints)[column]
    budget = Fixed(frontier.trajectories.schedule.checkpoints[place])
    return point_of(budget, np.full(questions, place), frontier.trajectories)


def gap(one: Floats, other: Floats) -> tuple[str, str]:
    pair = paired_bootstrap(100 * one, 100 * other, seed=0)
    return f"{pair.difference:+.2f}", interval(pair.low, pair.high)


def share(spent: Floats, whole: Floats) -> str:
    return f"{100 * spent.sum() / whole.sum():.1f}"


def operating_rows(folder: Path, name: str) -> list[list[str]]:
    """The calibrated points, and ASC with the same weights calibrated by the same rule."""
    found, frontier = judgements(folder, name), plain(folder, name)
    fixed, asc = full(frontier), frontier["asc-0.95"]
    rows = []
    for place, loss in enumerate(LOSSES):
        for family, label in (("aera", "AERA"), ("asc", "ASC, same votes")):
            mean = Mean.of([by_loss[place].point(family) for by_loss in found])
            rows.append(
                [
                    f"{name} {label}, {100 * loss:g} allowed",
                    f"{100 * mean.scores.mean():.2f}",
                    share(mean.spent, fixed.spent),
                    *gap(mean.scores, fixed.scores),
                    share(mean.spent, asc.spent),
                    *gap(mean.scores, asc.scores),
                ]
            )
    return rows


def hull(points: Sequence[tuple[float, float]], at: float) -> float:
    """Accuracy that points of (tokens, accuracy) reach at so many tokens, by mixing neighbours."""
    ordered = sorted(points)
    best = np.maximum.accumulate([accuracy for _, accuracy in ordered])
    return float(np.interp(at, [tokens for tokens, _ in ordered], best))


def summary_row(folder: Path, name: str) -> list[str]:
    """Learned votes at the full budget, how often weights and gate were kept, and the frontier."""
    found, frontier = judgements(folder, name), plain(folder, name)
    fixed = full(frontier)
    learned = np.mean([by_loss[0].fixed()[-1].scores for by_loss in found], axis=0)
    choices = [choice for by_loss in found for choice in by_loss[0].choices["aera"]]
    kept = sum(choice.family == "aera" for choice in choices)
    ours = [Mean.of([by[i].point("aera") for by in found]) for i in range(len(LOSSES))]
    theirs = [Mean.of([by[i].point("asc") for by in found]) for i in range(len(LOSSES))]
    rival = [(m.spent.mean(), 100 * m.scores.mean()) for m in theirs]
    ahead = [100 * m.scores.mean() - hull(rival, m.spent.mean()) for m in ours]
    return [
        name,
        f"{fixed.accuracy:.2f}",
        f"{100 * learned.mean():.2f}",
        *gap(learned, fixed.scores),
        f"{kept} of {len(choices)}",
        " ".join(f"{value:+.2f}" for value in ahead),
    ]


def beside_rows(folder: Path, name: str) -> list[list[str]]:
    """Every policy with its share of what hindsight could gain and save on plain votes."""
    frontier = plain(folder, name)
    fixed, oracle = full(frontier), frontier["oracle"]
    learner, table = PaperLearner(), paper_table(folder, name, redo=False)
    judged = [nested(learner, table, [LossLimit(0.02)], seed=seed)[0] for seed in SEEDS]
    paper = [each.point("aera") for each in judged]
    ours = [by_loss[LOSSES.index(0.02)].point("aera") for by_loss in judgements(folder, name)]
    safer = [by_loss[LOSSES.index(0.01)].point("aera") for by_loss in judgements(folder, name)]
    shown = {
        "AERA, 2 points allowed": Mean.of(ours),
        "AERA, 1 point allowed": Mean.of(safer),
        "paper's AERA, 2 points allowed": Mean.of(paper),
        **{
            label: Mean.of([frontier[label]])
            for label in ("asc-0.95", "esc-5", "eb-0.95", "lead-3")
        },
        "fixed-4": Mean.of([full(frontier, 0)]),
        "fixed-16": Mean.of([full(frontier, 2)]),
        "fixed-128": Mean.of([fixed]),
        "oracle": Mean.of([oracle]),
    }
    gain, saving = (oracle.scores - fixed.scores).mean(), (fixed.spent - oracle.spent).sum()
    rows = []
    for label, mean in shown.items():
        saved = bootstrap_ratio(mean.spent, fixed.spent, seed=0)
        rows.append(
            [
                f"{name} {label}",
                f"{100 * mean.scores.mean():.2f}",
                *gap(mean.scores, fixed.scores),
                f"{mean.spent.mean():,.0f}",
                f"{saved.percent:.1f} [{saved.low:.1f}, {saved.high:.1f}]",
                f"{100 * (mean.scores - fixed.scores).mean() / gain:+.0f}",
                f"{100 * (fixed.spent - mean.spent).sum() / saving:.0f}",
            ]
        )
    return rows


def main() -> None:
    folder = pools_argument(__doc__ or "")
    header = ["pool", "plain votes, full budget %", "learned votes %", "difference", "95 %"]
    header += ["gate kept", "points above ASC on the same votes, at each allowed loss"]
    publish("beyond", table(header, [summary_row(folder, name) for name in TASKS]))
    columns = ["policy", "accuracy %", "tokens, % of Fixed-128", "against Fixed-128", "95 %"]
    columns += ["tokens, % of ASC(0.95)", "against ASC(0.95)", "95 %"]
    rows = [row for name in TASKS for row in operating_rows(folder, name)]
    publish("beyond-points", table(columns, rows))
    columns = ["policy", "accuracy %", "against Fixed-128", "95 %", "tokens", "saved %"]
    columns += ["of the oracle's gain %", "of the oracle's saving %"]
    rows = [row for name in TASKS for row in beside_rows(folder, name)]
    publish("side-by-side", table(columns, rows))


if __name__ == "__main__":
    main()
