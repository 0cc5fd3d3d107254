"""Holdout results: fit and calibrate on 60 % of the questions, freeze, test once on the rest."""

from pathlib import Path

from pools import TASKS, interval, paper_table, pools_argument, publish, table

from aera.lab import LossLimit, PaperLearner, bootstrap_ratio, holdout, paired_bootstrap

SHOWN = ("aera", "asc", "esc", "lead", "majority", "entropy", "consensus")
HEADER = [
    "policy",
    "setting",
    "calibration %",
    "test %",
    "Fixed-128 %",
    "difference",
    "95 %",
    "responses",
    "tokens saved %",
    "95 %",
]


def main(folder: Path) -> None:
    rows = []
    for name in TASKS:
        judged = holdout(PaperLearner(), paper_table(folder, name), LossLimit(0.02), seed=0)
        full, grades = judged.trajectories, judged.trajectories.known_grades
        for family in SHOWN:
            point, choice = judged.point(family), judged.choices[family][0]
            gap = paired_bootstrap(100 * point.scores, 100 * grades[:, -1], seed=0)
            saved = bootstrap_ratio(point.spent, full.tokens[:, -1], seed=0)
            rows.append(
                [
                    f"{name} {family}",
                    "full budget" if choice.setting is None else f"{choice.setting:g}",
                    f"{100 * choice.accuracy:.2f}",
                    f"{100 * point.scores.mean():.2f}",
                    f"{100 * grades[:, -1].mean():.2f}",
                    f"{gap.difference:+.2f}",
                    interval(gap.low, gap.high),
                    f"{point.responses:.2f}",
                    f"{saved.percent:.1f}",
                    f"[{saved.low:.1f}, {saved.high:.1f}]",
                ]
            )
    publish("holdout", table(HEADER, rows))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
