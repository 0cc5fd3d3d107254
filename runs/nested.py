"""Nested results: every policy calibrated by the same rule on the same questions, four pools."""

from pathlib import Path

import numpy as np
from pools import SEEDS, TASKS, interval, pools_argument, publish, study, table

from aera.lab import bootstrap_ratio, paired_bootstrap
from aera.lab.protocols import Demand, nested
from aera.lab.study import Study

SHOWN = ("aera", "asc", "esc", "lead", "majority", "entropy", "consensus")


def rows_of(data: Study, demand: Demand) -> list[list[str]]:
    """One row per dial: means over the split seeds, intervals over questions."""
    verdicts = [nested(data, seed=seed, demand=demand) for seed in SEEDS]
    full, full_tokens = data.grades[:, -1], data.trajectories.tokens[:, -1]
    rows = []
    for name in SHOWN:
        points = [verdict.point(name) for verdict in verdicts]
        scores = np.mean([point.scores for point in points], axis=0)
        spent = np.mean([point.spent for point in points], axis=0)
        gap = paired_bootstrap(100 * scores, 100 * full, seed=0)
        saved = bootstrap_ratio(spent, full_tokens, seed=0)
        choices = [choice for verdict in verdicts for choice in verdict.choices[name]]
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
    paper, certified = Demand(0.02), Demand(0.02, 0.1)
    for section, demand, names in (
        ("nested", paper, tuple(TASKS)),
        ("nested-certified", certified, ("gsm8k",)),
    ):
        rows = [row for name in names for row in rows_of(study(folder, name), demand)]
        publish(section, table(HEADER, rows))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
