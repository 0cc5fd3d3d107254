"""Holdout results: fit and calibrate on 60 % of the questions, freeze, test once on the rest."""

from pathlib import Path

from pools import TASKS, interval, pools_argument, publish, study, table

from aera.lab import bootstrap_ratio, paired_bootstrap
from aera.lab.protocols import holdout

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
        verdict = holdout(study(folder, name), seed=0)
        full = verdict.trajectories
        assert full.grades is not None
        for dial in SHOWN:
            point, choice = verdict.point(dial), verdict.choices[dial][0]
            gap = paired_bootstrap(100 * point.scores, 100 * full.grades[:, -1], seed=0)
            saved = bootstrap_ratio(point.spent, full.tokens[:, -1], seed=0)
            rows.append(
                [
                    f"{name} {dial}",
                    "full budget" if choice.setting is None else f"{choice.setting:g}",
                    f"{100 * choice.accuracy:.2f}",
                    f"{100 * point.scores.mean():.2f}",
                    f"{100 * full.grades[:, -1].mean():.2f}",
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
