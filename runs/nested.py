"""Nested results: every policy calibrated by the same rule on the same questions, four pools."""

from pathlib import Path

import numpy as np
from pools import SEEDS, TASKS, interval, paper_table, pools_argument, publish, table

from aera.lab import LossLimit, PaperLearner, bootstrap_ratio, nested, paired_bootstrap
from aera.lab.learning.paper import PaperTable

SHOWN = ("aera", "asc", "esc", "lead", "majority", "entropy", "consensus")


def rows_of(data: PaperTable, limit: LossLimit) -> list[list[str]]:
    """One row per policy: means over the split seeds, intervals over questions."""
    judged = [nested(PaperLearner(), data, [limit], seed=seed)[0] for seed in SEEDS]
    full, full_tokens = data.grades[:, -1], data.trajectories.tokens[:, -1]
    rows = []
    for name in SHOWN:
        points = [each.point(name) for each in judged]
        scores = np.mean([point.scores for point in points], axis=0)
        spent = np.mean([point.spent for point in points], axis=0)
        gap = paired_bootstrap(100 * scores, 100 * full, seed=0)
        saved = bootstrap_ratio(spent, full_tokens, seed=0)
        choices = [choice for each in judged for choice in each.choices[name]]
        kept = sum(not choice.feasible for choice in choices)
        rows.append(
            [
                f"{data.name} {name}",
                f"{100 * scores.mean():.2f}",
                f"{gap.difference:+.2f}",
                interval(gap.low, gap.high),
                f"{np.mean([point.responses for point in points]):.2f}",
                f"{saved.percent:.1f}",
                f"[{saved.low:.1f}, {saved.high:.1f}]",
                f"{kept} of {len(choices)}",
            ]
        )
    return rows


HEADER = [
    "policy",
    "accuracy %",
    "against Fixed-128",
    "95 %",
    "responses",
    "tokens saved %",
    "95 %",
    "infeasible",
]


def main(folder: Path) -> None:
    paper, certified = LossLimit(0.02), LossLimit(0.02, 0.1)
    for section, limit, names in (
        ("nested", paper, tuple(TASKS)),
        ("nested-certified", certified, ("gsm8k",)),
    ):
        rows = [row for name in names for row in rows_of(paper_table(folder, name), limit)]
        publish(section, table(HEADER, rows))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
