"""When residual gating helps, in hindsight and in both metrics: the gate at 0.3.

Cross-fitted with fold seed 0, but for the questions with a collapse, where the gates are nested, as
in the paper, and the mean is over five split seeds.
"""

from pathlib import Path

import numpy as np
from paper_runs import METRICS, crossfits, gap, in_metric, in_track, judgements, scores_of, signed
from pools import TASKS, paper_table, pools_argument, publish, table

from aera import ASC
from aera.lab import (
    ASC_FAMILY,
    Point,
    collapsing,
    loss_by_difficulty,
    point_of,
    residual_opportunity,
    worst_group,
)

THRESHOLD = 0.3


def nested_gate(folder: Path, name: str) -> list[Point]:
    """The nested gates at 0.3, one point for each split seed."""
    runs = judgements(folder, name)["2 points", "vote"]
    return [p for run in runs for p in run.sweep() if p.setting == THRESHOLD]


def chance_rows(name: str, point: Point) -> list[list[object]]:
    """What lay ahead of the questions that went on, and of those that did not."""
    found = [
        residual_opportunity(point, in_track(point.trajectories, metric).known_grades)
        for metric in METRICS
    ]
    return [
        [f"{name} {rows[0]['group']}", rows[0]["questions"]]
        + [cell for row in rows for cell in (f"{row['improvable']:.1f}", f"{row['gain']:.2f}")]
        for rows in zip(*found, strict=True)
    ]


def collapse_row(folder: Path, name: str) -> list[object]:
    """The questions that turn from right to wrong: the gate, ASC and Fixed-8 in both metrics."""
    data = paper_table(folder, name)
    members = collapsing(data.trajectories)
    asc = point_of(
        ASC(0.95), ASC_FAMILY.stops(data.trajectories.values["asc"], 0.95), data.trajectories
    )
    gates, eight = nested_gate(folder, name), data.schedule.checkpoints.index(8)
    ours, theirs = (np.mean([p.counts[members] for p in own]) for own in (gates, [asc]))
    row: list[object] = [name, int(members.sum()), f"{ours:.1f} : {theirs:.1f}"]
    for metric in METRICS:
        mine, other = (scores_of(own, metric)[members] for own in (gates, [asc]))
        early = in_track(data.trajectories, metric).known_grades[members, eight]
        row += [f"{100 * mine.mean():.2f}", f"{100 * other.mean():.2f}", signed(gap(mine, other))]
        row += [f"{100 * early.mean():.2f}"]
    return row


def loss_rows(name: str, point: Point) -> list[list[object]]:
    """Loss against the full budget by difficulty, in both metrics."""
    votes, means = (loss_by_difficulty(in_metric(point, metric)) for metric in METRICS)
    worst = worst_group(votes)["group"]
    return [
        [
            f"{name} {vote['group']}{' (worst)' if vote['group'] == worst else ''}",
            vote["questions"],
            f"{vote['loss']:+.2f}",
            f"{mean['loss']:+.2f}",
            f"{vote['responses']:.1f}",
        ]
        for vote, mean in zip(votes, means, strict=True)
    ]


def main(folder: Path) -> None:
    chances, losses, heads = [], [], []
    for name in TASKS:
        done = crossfits(folder, name)[0]
        chances += chance_rows(name, done.at(THRESHOLD))
        losses += loss_rows(name, done.at(THRESHOLD))
        once = done.one_shot()
        assert once is not None
        scores = [f"{in_metric(once, metric).quality:.2f}" for metric in METRICS]
        heads.append([name, *once.stops.values(), *scores])
    gains = [f"{what}, {metric}" for metric in METRICS for what in ("improvable %", "mean gain")]
    subsets = ["pool", "questions", "responses, gate : ASC"]
    for metric in METRICS:
        subsets += [f"gate, {metric} %", "ASC %", "difference", "Fixed-8 %"]
    steps = ["4", "8", "16", "32", "64", "128", "vote %", "mean %"]
    publish(
        "diagnostics",
        table(["questions", "count", *gains], chances),
        "Questions with a collapse, nested gates at 0.3 against ASC(0.95):",
        table(subsets, [collapse_row(folder, name) for name in TASKS]),
        "Loss against the full budget by support of the answer at the full budget:",
        table(["group", "questions", "loss, vote", "loss, mean", "responses"], losses),
        "Where one-shot allocation sends questions:",
        table(["pool", *steps], heads),
    )


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
