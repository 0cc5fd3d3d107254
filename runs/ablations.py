"""Feature-group ablations, cost sensitivity with graded rewards, and transfer between pools."""

from dataclasses import replace
from itertools import combinations
from math import sqrt
from pathlib import Path

import numpy as np
from paper_runs import METRICS, RULES, gap, in_goal, in_metric, in_track, signed, valid_share
from pools import SEEDS, TASKS, paper_table, pools_argument, publish, table
from published import Table

from aera.lab import (
    GATE_FAMILY,
    GROUPS,
    SCALARS,
    Estimate,
    Floats,
    Frontier,
    PaperLearner,
    PaperModel,
    PaperTable,
    States,
    crossfit,
    pick,
    split_rows,
    without_group,
)

BUDGETS = (8, 16, 32, 64)
WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
AT = [f"{budget}, {metric} %" for metric in METRICS for budget in BUDGETS]


def scores_at(data: PaperTable, scored: PaperTable) -> list[str]:
    """Out-of-fold gates at equal responses in both metrics, mean over three fold seeds."""
    done = [crossfit(PaperLearner(), scored, seed=seed) for seed in SEEDS[:3]]
    sweeps = [[replace(p, seen=data.trajectories) for p in run.sweep()] for run in done]
    cells = []
    for metric in METRICS:
        tracks = in_track(data.trajectories, metric)
        graded = [Frontier(tuple(in_metric(p, metric) for p in own), tracks) for own in sweeps]
        for budget in BUDGETS:
            found = [frontier.mixture(budget) for frontier in graded]
            known = [mixture.accuracy for mixture in found if mixture is not None]
            cells.append(f"{np.mean(known):.2f}" if known else "-")
    return cells


def over_all(folder: Path, data: PaperTable) -> PaperTable:
    """The same table with shares of all responses in the place of shares of the valid votes."""
    share = valid_share(folder, data.name)
    names = [feature.name for feature in SCALARS]
    values = data.states.scalars.copy()
    for name in ("majority_ratio", "top_two_gap"):
        values[:, :, names.index(name)] *= share
    majority = values[:, :, names.index("majority_ratio")]
    values[:, 1:, names.index("majority_change")] = np.diff(majority, axis=1)
    return replace(data, states=States(values, data.states.centroids))


def ablations(folder: Path, data: PaperTable) -> Table:
    rows = [["all 55", *scores_at(data, data)]]
    rows += [[f"without {g}", *scores_at(data, without_group(data, g))] for g in GROUPS]
    semantic = without_group(without_group(data, "semantic state"), "projection")
    rows.append(["without both semantic groups", *scores_at(data, semantic)])
    rows.append(["all 55, shares over all n", *scores_at(data, over_all(folder, data))])
    return table(["features", *AT], rows)


def costs(data: PaperTable) -> Table:
    """Labels from the Re2 mean score, a grade between 0 and 1, under several cost weights."""
    means, rows = data.trajectories.by_mean.known_grades, []
    for weight in WEIGHTS:
        graded = data.graded_by(means, cost_weight=weight)
        binary = data.graded_by(data.grades, cost_weight=weight)
        shares = [f"{100 * s.labels[:, :-1].mean():.1f}" for s in (binary, graded)]
        rows.append([f"{weight:g}", *shares, *scores_at(data, graded)])
    header = ["cost weight", "binary labels continue %", "graded labels continue %"]
    return table([*header, *AT], rows)


# --- transfer -------------------------------------------------------------------------------------


def moved(model: PaperModel, data: PaperTable, metric: str) -> tuple[Floats, Estimate, float]:
    """Calibrated (2 points, one metric) and judged on other questions of another pool.

    What each question gains against Fixed-128 in that metric, the interval, and the responses.
    """
    tune, judged = split_rows(np.arange(len(data)), (0.4, 0.6), groups=data.groups, seed=0)
    goal = in_goal(RULES["2 points"], metric)
    choice = goal.choose(GATE_FAMILY, model.values(data, tune), seed=0)
    columns = choice.stops(GATE_FAMILY, model.values(data, judged).values[GATE_FAMILY.name])
    grades = in_track(data.trajectories, metric).known_grades[judged]
    scores = pick(grades, columns)
    spent = float(np.array(data.schedule.checkpoints)[columns].mean())
    return scores - grades[:, -1], gap(scores, grades[:, -1]), spent


def transfer(tables: dict[str, PaperTable]) -> Table:
    """Fit on one pool, calibrate and judge on another, both ways; 2 points allowed, seed 0."""
    models: dict[str, PaperModel] = {}
    for name, data in tables.items():
        fit, stop = split_rows(np.arange(len(data)), (0.8, 0.2), groups=data.groups, seed=0)
        models[name] = PaperLearner().fit(data, fit, held=stop, seed=0)
    rows = []
    for metric in METRICS:
        for one, other in combinations(tables, 2):
            there, back = (
                moved(models[source], tables[target], metric)
                for source, target in ((one, other), (other, one))
            )
            cells = [f"{signed(told)} @ {spent:.1f}" for _, told, spent in (there, back)]
            rows.append([f"{metric}: {one}, {other}", *cells, apart(there[0], back[0])])
    header = ["metric: pools", "first to second @ responses", "second to first @ responses"]
    return table([*header, "asymmetry"], rows)


def apart(one: Floats, other: Floats) -> str:
    """The difference of two means over different questions, with its 95 % interval, in points."""
    between = 100 * float(one.mean() - other.mean())
    half = 196 * sqrt(one.var() / len(one) + other.var() / len(other))
    return f"{between:+.2f} [{between - half:+.2f}, {between + half:+.2f}]"


def main(folder: Path) -> None:
    tables = {name: paper_table(folder, name) for name in TASKS}
    publish("ablations", ablations(folder, tables["gsm8k"]))
    publish("costs", costs(tables["gsm8k"]))
    publish("transfer", transfer(tables))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
