"""Feature-group ablations, cost sensitivity with graded rewards, and transfer between pools."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from pools import SEEDS, TASKS, paper_table, pools_argument, publish, table

from aera.lab import Frontier, LossLimit, PaperLearner, crossfit
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.learning.folds import split_rows
from aera.lab.learning.paper import GROUPS, PaperModel, PaperTable, without_group

BUDGETS = (8, 16, 32, 64)
WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)


def accuracy_at(data: PaperTable, scored: PaperTable) -> list[str]:
    """Vote accuracy of out-of-fold gates at equal responses, mean over three fold seeds."""
    sweeps = []
    for seed in SEEDS[:3]:
        done = crossfit(PaperLearner(), scored, seed=seed)
        points = tuple(replace(p, trajectories=data.trajectories) for p in done.sweep())
        sweeps.append(Frontier(points, data.trajectories))
    cells = []
    for budget in BUDGETS:
        found = [sweep.mixture(budget) for sweep in sweeps]
        known = [mixture.accuracy for mixture in found if mixture is not None]
        cells.append(f"{np.mean(known):.2f}" if known else "-")
    return cells


def ablations(data: PaperTable) -> str:
    rows = [["all 55", *accuracy_at(data, data)]]
    rows += [[f"without {g}", *accuracy_at(data, without_group(data, g))] for g in GROUPS]
    semantic = without_group(without_group(data, "semantic state"), "projection")
    rows.append(["without both semantic groups", *accuracy_at(data, semantic)])
    return table(["features", *[f"{budget} responses" for budget in BUDGETS]], rows)


def costs(data: PaperTable) -> str:
    """Labels from the Re2 mean score, a grade between 0 and 1, under several cost weights."""
    assert data.trajectories.re2_mean is not None
    rows = []
    for weight in WEIGHTS:
        graded = data.graded_by(data.trajectories.re2_mean, cost_weight=weight)
        binary = data.graded_by(data.grades, cost_weight=weight)
        shares = [f"{100 * s.labels[:, :-1].mean():.1f}" for s in (binary, graded)]
        rows.append([f"{weight:g}", *shares, *accuracy_at(data, graded)])
    header = ["cost weight", "binary labels continue %", "graded labels continue %"]
    return table([*header, *[f"{budget} responses" for budget in BUDGETS]], rows)


def transfer(tables: dict[str, PaperTable]) -> str:
    """Fit on one pool, calibrate and judge on another: 2 points allowed, seed 0."""
    models: dict[str, PaperModel] = {}
    for name, data in tables.items():
        fit, stop = split_rows(np.arange(len(data)), (0.8, 0.2), groups=data.groups, seed=0)
        models[name] = PaperLearner().fit(data, fit, held=stop, seed=0)
    rows = []
    for source, model in models.items():
        cells = [f"fitted on {source}"]
        for target, data in tables.items():
            if source == target:
                cells.append("-")
                continue
            tune, judged = split_rows(np.arange(len(data)), (0.4, 0.6), groups=data.groups, seed=0)
            choice = model.values(data, tune).choose(GATE_FAMILY, LossLimit(), seed=0)
            values = model.values(data, judged).values[GATE_FAMILY.name]
            columns = choice.stops(GATE_FAMILY, values)
            scores = data.grades[judged, columns].mean() - data.grades[judged, -1].mean()
            spent = np.array(data.trajectories.schedule.checkpoints)[columns].mean()
            cells.append(f"{100 * scores:+.2f} @ {spent:.1f}")
        rows.append(cells)
    return table(["loss against Fixed-128 @ responses", *[f"on {name}" for name in tables]], rows)


def main(folder: Path) -> None:
    tables = {name: paper_table(folder, name) for name in TASKS}
    publish("ablations", ablations(tables["gsm8k"]))
    publish("costs", costs(tables["gsm8k"]))
    publish("transfer", transfer(tables))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
