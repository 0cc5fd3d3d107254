"""The paper's gate against ASC and fixed budgets at equal responses, and every sweep complete."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from paper_runs import (
    METRICS,
    crossfits,
    gap,
    in_metric,
    in_track,
    signed,
    valid_share,
)
from pools import SEEDS, TASKS, paper_table, pools_argument, publish, table

from aera.lab import Floats, Frontier, PaperTable, Point, fixed_points, matched_random, sweep

BUDGETS = (8, 16, 24, 32, 48, 64)
PAPERS = ("gsm8k", "csqa")
OVER_ALL = "majority over all n"


def mean_scores(frontiers: list[Frontier], budget: float) -> Floats:
    """Expected grade per question at this mean spend, averaged over the fold seeds."""
    mixtures = [frontier.mixture(budget) for frontier in frontiers]
    scores: Floats = np.mean([m.scores for m in mixtures if m is not None], axis=0)
    return scores


def frontier_of(points: list[Point], metric: str) -> Frontier:
    """Points as one metric grades them."""
    graded = tuple(in_metric(point, metric) for point in points)
    return Frontier(graded, graded[0].trajectories)


def equal_rows(folder: Path, name: str, metric: str) -> list[list[str]]:
    """The gate, mixtures of ASC and fixed budgets at equal responses, in one metric."""
    data = paper_table(folder, name)
    ours = [frontier_of(run.sweep(), metric) for run in crossfits(folder, name)]
    asc = frontier_of(data.sweep("asc"), metric)
    points = fixed_points(in_track(data.trajectories, metric))
    fixed = dict(zip(data.schedule, points, strict=True))
    rows = []
    for budget in BUDGETS:
        scores = mean_scores(ours, budget)
        cells = [f"{name}, {metric}, {budget}", f"{100 * scores.mean():.2f}"]
        for reference in (asc.mixture(budget), fixed.get(budget)):
            cells += (
                ["-", "-"]
                if reference is None
                else [f"{reference.accuracy:.2f}", signed(gap(scores, reference.scores))]
            )
        rows.append(cells)
    return rows


def routing_rows(folder: Path, name: str) -> list[list[str]]:
    """Matched random, by fold seed, in both metrics."""
    rows = []
    for seed, run in zip(SEEDS, crossfits(folder, name), strict=True):
        point = run.at(0.3)
        cells = [f"{name}, {seed}", f"{point.responses:.2f}"]
        for metric in METRICS:
            grades = in_track(run.trajectories, metric).known_grades
            test = matched_random(100 * grades, point.columns, folds=run.folds, seed=seed)
            cells += [f"{test['observed']:.2f}", f"{test['mean']:.2f}", f"{test['p']:.5f}"]
        rows.append(cells)
    return rows


# --- complete sweeps ------------------------------------------------------------------------------


def sweeps_of(folder: Path, name: str) -> dict[str, list[list[Point]]]:
    """By family, every setting with its points; the gate has one for each fold seed."""
    data = paper_table(folder, name)
    runs = [run.sweep() for run in crossfits(folder, name)]
    found = {"the paper's gate": [list(same) for same in zip(*runs, strict=True)]}
    for family in data.families:
        found[family] = [[point] for point in data.sweep(family)]
        if family == "majority":
            found[OVER_ALL] = [[point] for point in over_all(folder, data)]
    return found


def over_all(folder: Path, data: PaperTable) -> list[Point]:
    """The threshold on the leading share of all responses, as the paper writes its formula."""
    seen = data.trajectories.evidence["majority_ratio"] * valid_share(folder, data.name)
    known = replace(data.trajectories, values={"majority": seen})
    return sweep(data.families["majority"], known)


def sweep_rows(folder: Path) -> list[list[str]]:
    """One row per family and setting: vote, mean and responses on every pool."""
    swept = {name: sweeps_of(folder, name) for name in TASKS}
    rows = []
    for family, settings in swept["gsm8k"].items():
        for place, points in enumerate(settings):
            row = [f"{family} {points[0].setting:g}"]
            for name in TASKS:
                own = swept[name][family][place]
                votes, means = (np.mean([in_metric(p, m).quality for p in own]) for m in METRICS)
                spent = np.mean([p.responses for p in own])
                row += [f"{votes:.2f}", f"{means:.2f}", f"{spent:.1f}"]
            rows.append(row)
    return rows


def main(folder: Path) -> None:
    rows = [r for name in PAPERS for m in METRICS for r in equal_rows(folder, name, m)]
    header = ["pool, metric, responses", "AERA %", "ASC mixture %", "difference"]
    routed = ["pool, fold seed", "responses"]
    for metric in METRICS:
        routed += [f"aera-0.30, {metric} %", "same stops shuffled %", "p (one-sided)"]
    publish(
        "frontier",
        "Descriptive: out-of-fold gates with held-out-fold early stopping, thresholds swept, "
        "mean over fold seeds 0-4; intervals are paired bootstrap over questions "
        "(20,000 resamples, seed 0).",
        table([*header, "Fixed %", "difference"], rows),
        "Matched random: the same stops dealt to other questions of the fold, 20,000 times.",
        table(routed, [row for name in PAPERS for row in routing_rows(folder, name)]),
    )
    columns = [f"{name} {what}" for name in TASKS for what in (*METRICS, "resp.")]
    publish("sweeps", table(["policy", *columns], sweep_rows(folder)))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
