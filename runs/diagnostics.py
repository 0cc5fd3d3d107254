"""When residual gating helps: hindsight groups, out-of-fold gate at 0.3, fold seed 0."""

from pathlib import Path

from pools import TASKS, interval, paper_table, pools_argument, publish, table

from aera import ASC
from aera.lab import PaperLearner, crossfit
from aera.lab.calibrating.families import ASC_FAMILY
from aera.lab.judging.diagnostics import (
    collapsing,
    loss_by_difficulty,
    on_subset,
    residual_opportunity,
    worst_group,
)
from aera.lab.replay.frontier import point_of


def main(folder: Path) -> None:
    chances, subsets, losses, heads = [], [], [], []
    for name in TASKS:
        data = paper_table(folder, name)
        done = crossfit(PaperLearner(one_shot=True), data, seed=0)
        point = done.at(0.3)
        stops = ASC_FAMILY.stops(data.measures["asc"], 0.95)
        asc = point_of(ASC(0.95), stops, data.trajectories)
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
        once = done.one_shot()
        assert once is not None
        heads.append([name, *once.stops.values()])
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
