"""Holdout results: fit and calibrate on 60 % of the questions, freeze, test once on the rest."""

from pathlib import Path

from paper_runs import FAMILIES, METRICS, QUALITY, RULES, SPEND, in_goal, quality_cells, spend_cells
from pools import TASKS, paper_table, pools_argument, publish, table

from aera.lab import PaperLearner, holdout

HEADER = ["policy, calibrated by", "setting", "calibration : Fixed-128 there", *QUALITY, *SPEND]


def rows_of(folder: Path, name: str) -> list[list[str]]:
    """One row per policy and metric; the calibration figure is in that metric."""
    data = paper_table(folder, name)
    judged = {
        metric: holdout(PaperLearner(), data, in_goal(RULES["2 points"], metric), seed=0)
        for metric in METRICS
    }
    rows = []
    for family in FAMILIES:
        for metric, each in judged.items():
            point, choice = each.point(family), each.choices[family][0]
            rows.append(
                [
                    f"{name} {family}, by {metric}",
                    "full budget" if choice.setting is None else f"{choice.setting:g}",
                    f"{100 * choice.accuracy:.2f} : {100 * choice.reference:.2f}",
                    *quality_cells([point]),
                    *spend_cells([point]),
                ]
            )
    return rows


def main(folder: Path) -> None:
    publish("holdout", table(HEADER, [row for name in TASKS for row in rows_of(folder, name)]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
