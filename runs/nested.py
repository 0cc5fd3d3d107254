"""Nested results: every policy calibrated by the same rules on the same questions, four pools.

Each rule calibrates twice, once in the vote and once in the paper's mean score, and what comes out
is judged in both.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from paper_runs import (
    CERTIFIED,
    FAMILIES,
    METRICS,
    QUALITY,
    SPEND,
    gap,
    in_track,
    judgements,
    quality_cells,
    scores_of,
    signed,
    spend_cells,
)
from pools import TASKS, pools_argument, publish, table

from aera.lab import Judgement

HEADER = ["policy, calibrated by", *QUALITY, *SPEND, "infeasible"]
BOTH = ("aera", "asc")
PAPERS = ("gsm8k", "csqa")
"""The pools that stand beside the paper's."""


def rows_of(
    folder: Path, name: str, rule: str, families: Sequence[str] = FAMILIES, note: str = ""
) -> list[list[str]]:
    """One row per policy and metric: means over the split seeds, intervals over questions."""
    rows = []
    for family in families:
        for metric in METRICS:
            found = judgements(folder, name, certified=rule in CERTIFIED)
            judged = found[rule, metric]
            points = [each.point(family) for each in judged]
            choices = [choice for each in judged for choice in each.choices[family]]
            kept = sum(not choice.feasible for choice in choices)
            told = [*quality_cells(points), *spend_cells(points), f"{kept} of {len(choices)}"]
            rows.append([f"{name} {family}{note}, by {metric}", *told])
    return rows


def rival_row(folder: Path, name: str, rule: str, metric: str) -> list[str]:
    """AERA against ASC, paired by question, in the metric that calibrated both."""
    judged = judgements(folder, name)[rule, metric]
    ours, asc = ([each.point(family) for each in judged] for family in BOTH)
    apart = signed(gap(scores_of(ours, metric), scores_of(asc, metric)))
    spent = " : ".join(f"{np.mean([p.responses for p in own]):.2f}" for own in (ours, asc))
    return [f"{name}, {rule}, by {metric}", apart, spent]


def fold_rows(folder: Path, name: str, rule: str, metric: str) -> list[list[str]]:
    """Split seed 0, one row per outer fold, in the metric it was calibrated by."""
    judged = judgements(folder, name)[rule, metric][0]
    folds = range(len(judged.choices["aera"]))
    return [
        [
            f"{name}, {rule}, by {metric}, fold {fold + 1}",
            *(cell for family in BOTH for cell in _fold_cells(judged, family, fold, metric)),
        ]
        for fold in folds
    ]


def _fold_cells(judged: Judgement, family: str, fold: int, metric: str) -> list[str]:
    choice, own = judged.choices[family][fold], judged.folds == fold
    point = judged.point(family)
    grades = in_track(judged.trajectories, metric).known_grades
    return [
        "full budget" if choice.setting is None else f"{choice.setting:g}",
        f"{100 * choice.accuracy:.2f} : {100 * choice.reference:.2f}",
        f"{100 * point.pick(grades)[own].mean():.2f} : {100 * grades[own, -1].mean():.2f}",
        f"{point.counts[own].mean():.2f}",
    ]


def main(folder: Path) -> None:
    publish("nested", table(HEADER, [r for n in TASKS for r in rows_of(folder, n, "2 points")]))
    rivals = [
        rival_row(folder, name, rule, metric)
        for name in TASKS
        for rule in ("2 points", "no loss", "most utility")
        for metric in METRICS
    ]
    header = ["pool, rule", "AERA against ASC, in that metric", "responses, AERA : ASC"]
    publish("nested-rivals", table(header, rivals))
    others = [
        row
        for name in TASKS
        for rule in ("no loss", "most utility")
        for row in rows_of(folder, name, rule, BOTH, f", {rule}")
    ]
    publish("nested-rules", table(HEADER, others))
    publish("nested-certified", table(HEADER, rows_of(folder, "gsm8k", "certified")))
    folds = [
        row
        for name in PAPERS
        for rule in ("2 points", "no loss")
        for metric in METRICS
        for row in fold_rows(folder, name, rule, metric)
    ]
    seen = ["setting", "calibration : Fixed-128", "test : Fixed-128", "responses"]
    header = [f"{who} {what}" for who in ("AERA", "ASC") for what in seen]
    publish("nested-folds", table(["outer fold", *header], folds))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
