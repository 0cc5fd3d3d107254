"""When residual gating helps: hindsight groups, out-of-fold gate at 0.3, fold seed 0."""

from pathlib import Path

from pools import TASKS, interval, pools_argument, publish, study, table

from aera.lab.diagnostics import (
    collapsing,
    loss_by_difficulty,
    on_subset,
    residual_opportunity,
    worst_group,
)
from aera.lab.protocols import crossfit


def main(folder: Path) -> None:
    chances, subsets, losses, heads = [], [], [], []
    for name in TASKS:
        data = study(folder, name)
        done = crossfit(data, seed=0)
        point = done.at(0.3)
        asc = data.point("asc-0.95", data.dials["asc"].stops(data.values["asc"], 0.95))
        for row in residual_opportunity(point, data.grades):
            chances.append(
                [f"{name} {row.group}", row.questions, f"{row.improvable:.1f}", f"{row.gain:.2f}"]
            )
        members = collapsing(data.trajectories)
        gap = on_subset(point, asc, members)
        if gap is not None:
            subsets.append(
                [
                    name,
                    int(members.sum()),
                    f"{100 * point.scores[members].mean():.2f} @ {point.counts[members].mean():.1f}",
                    f"{100 * asc.scores[members].mean():.2f} @ {asc.counts[members].mean():.1f}",
                    f"{gap.difference:+.2f}",
                    interval(gap.low, gap.high),
                ]
            )
        groups = loss_by_difficulty(point)
        worst = worst_group(groups).group
        for group in groups:
            mark = " (worst)" if group.group == worst else ""
            losses.append(
                [
                    f"{name} {group.group}{mark}",
                    group.questions,
                    f"{group.loss:+.2f}",
                    f"{group.responses:.1f}",
                ]
            )
        stops = data.point("one-shot", done.one_shot).stops
        heads.append([name, *stops.values()])
    schedule = ["4", "8", "16", "32", "64", "128"]
    collapse_header = ["pool", "questions", "aera-0.30", "asc-0.95", "difference", "95 %"]
    publish(
        "diagnostics",
        "\n".join(
            [
                table(["questions", "count", "improvable %", "mean best gain"], chances),
                "\nQuestions with a collapse, accuracy @ responses:\n",
                table(collapse_header, subsets),
                "\nLoss against the full budget by support of the answer at the full budget:\n",
                table(["group", "questions", "loss (points)", "responses"], losses),
                "\nWhere one-shot allocation sends questions:\n",
                table(["pool", *schedule], heads),
            ]
        ),
    )


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
