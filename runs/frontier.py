"""The paper's gate against ASC and fixed budgets at equal responses, gsm8k, five fold seeds."""

from pathlib import Path

import numpy as np
from pools import SEEDS, interval, paper_table, pools_argument, publish, table

from aera.arrays import Floats
from aera.lab import Frontier, PaperLearner, crossfit, paired_bootstrap
from aera.lab.judging.bootstrap import matched_random
from aera.lab.replay.frontier import fixed_points

BUDGETS = (8, 16, 24, 32, 48, 64)


def mean_scores(frontiers: list[Frontier], budget: float) -> Floats:
    """Expected grade per question at this mean spend, averaged over the fold seeds."""
    mixtures = [frontier.mixture(budget) for frontier in frontiers]
    scores: Floats = np.mean([m.scores for m in mixtures if m is not None], axis=0)
    return scores


def main(folder: Path) -> None:
    data = paper_table(folder, "gsm8k")
    runs = [crossfit(PaperLearner(), data, seed=seed) for seed in SEEDS]
    ours = [Frontier(tuple(run.sweep()), data.trajectories) for run in runs]
    asc = Frontier(tuple(data.sweep("asc")), data.trajectories)
    fixed = dict(zip(data.schedule, fixed_points(data.trajectories), strict=True))
    rows = []
    for budget in BUDGETS:
        scores, rival = mean_scores(ours, budget), asc.mixture(budget)
        cells = [f"{budget}", f"{100 * scores.mean():.2f}"]
        for reference in (rival, fixed.get(budget)):
            if reference is None:
                cells += ["-", "-", "-"]
                continue
            gap = paired_bootstrap(100 * scores, 100 * reference.scores, seed=0)
            cells += [
                f"{reference.accuracy:.2f}",
                f"{gap.difference:+.2f}",
                interval(gap.low, gap.high),
            ]
        rows.append(cells)
    header = [
        "responses",
        "AERA %",
        "ASC mixture %",
        "difference",
        "95 %",
        "Fixed %",
        "difference",
        "95 %",
    ]
    routing = []
    for seed, run in zip(SEEDS, runs, strict=True):
        point = run.at(0.3)
        test = matched_random(100 * data.grades, point.columns, folds=run.folds, seed=seed)
        routing.append(
            [
                seed,
                f"{point.responses:.2f}",
                f"{test.observed:.2f}",
                f"{test.mean:.2f}",
                f"{test.p:.5f}",
            ]
        )
    routed = ["fold seed", "responses", "aera-0.30 %", "same stops shuffled %", "p (one-sided)"]
    publish(
        "frontier",
        "\n".join(
            [
                "Descriptive: out-of-fold gates with held-out-fold early stopping, thresholds swept, "
                "mean over fold seeds 0-4; intervals are paired bootstrap over questions "
                "(20,000 resamples, seed 0).\n",
                table(header, rows),
                "\nMatched random: the same stops dealt to other questions of the fold, 20,000 times.\n",
                table(routed, routing),
            ]
        ),
    )


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
