"""Is the promise kept? 120 times, 500 of the 800 gsm8k questions teach and calibrate, 300 test.

A loss is one against the policy's own full budget, in the mean over 20 orders of the responses.
Splits overlap, so what is said here holds for these 800 questions. "True" losses are those of the
test questions, drawn together as far as the chance of which 300 of them test spreads them: rough.
Each split is kept in out/ once it is done.
"""

from functools import partial
from pathlib import Path

import numpy as np
from pools import made_once, pools_argument, publish, table, vote_table

from aera.lab import (
    ASC_FAMILY,
    GATE_FAMILY,
    Columns,
    Dataset,
    Floats,
    Point,
    Trajectories,
    VoteLearner,
    fixed_points,
    limit_for,
    split_rows,
)

SPLITS, SHARES = 120, (500 / 800, 300 / 800)
ALLOWED = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.03)
REALISED = (0.25, 0.5, 1.0, 2.0, 3.0)
SHOWN = np.geomspace(95, 4, 1000)
"""Tokens, in percent of the full budget's, between which losses are compared."""
Row = dict[str, Floats]
"""What was measured, by the policy and its allowed loss, and of a family at every setting."""


def measure(stops: Columns, seen: Trajectories) -> Floats:
    """Tokens in percent, loss in points and its standard error."""
    point, full = Point("", stops, seen), fixed_points(seen)[-1]
    lost = 100 * (full.scores - point.scores)
    spent = 100 * point.spent.sum() / full.spent.sum()
    return np.array([spent, lost.mean(), lost.std() / np.sqrt(len(lost))])


def judge(known: Dataset, number: int) -> Row:
    """One split: what both families lose at every setting, and what is chosen at every limit."""
    learner, rows = VoteLearner(), np.arange(len(known))
    taught, tested = split_rows(rows, SHARES, groups=known.groups, seed=number)
    model = learner.fit(known, taught, seed=number)
    seen, done = model.values(known, tested), Row()
    for family in (GATE_FAMILY, ASC_FAMILY):
        every = [family.stops(seen.values[family.name], each) for each in model.grid(family)]
        done[family.name] = np.array([measure(stops, seen) for stops in every])
    for loss in ALLOWED:
        limit = limit_for(learner, loss)
        for name, family in model.families(limit).items():
            choice = limit.choose(family, model.own, grid=model.grid(family))
            stops = choice.stops(family, seen.values[family.name])
            done[f"{name} {loss}"] = measure(stops, seen)
    return done


def share_at(rows: list[Row], loss: float) -> float:
    """The gate's tokens over ASC's where both lose as much in the mean over splits."""

    def tokens(family: str) -> float:
        points = (np.vstack([row[family], [100.0, 0.0, 0.0]]) for row in rows)
        curves = [np.interp(SHOWN, *each[each[:, 0].argsort(), :2].T) for each in points]
        return float(SHOWN[np.argmax(np.mean(curves, axis=0) >= loss)])

    return tokens(GATE_FAMILY.name) / tokens(ASC_FAMILY.name)


def equal_row(rows: list[Row], loss: float) -> list[str]:
    """That share, with its jackknife error over tenths of the splits."""
    without = [share_at([r for i, r in enumerate(rows) if i % 10 != k], loss) for k in range(10)]
    return [f"{loss:g}", f"{share_at(rows, loss):.2f} ± {np.sqrt(9 * np.var(without)):.2f}"]


def row_of(rows: list[Row], allowed: float) -> list[str]:
    """What one allowed loss brings."""
    spent, lost, errors = np.array([row[f"aera {allowed}"] for row in rows]).T
    beside = np.array([row[f"asc {allowed}"][0] for row in rows])
    kept = np.sqrt(max(0.0, 1 - float((errors**2).mean() / max(1e-12, lost.var()))))
    true = lost.mean() + kept * (lost - lost.mean())
    ratio = spent / beside
    return [
        f"{100 * allowed:g}",
        f"{spent.mean():.1f} ({spent.std():.1f})",
        f"{lost.mean():+.2f}",
        f"{(lost > 100 * allowed + 1e-9).mean():.3f}",
        f"{(true > 100 * allowed + 1e-9).mean():.3f}",
        f"{ratio.mean():.2f}",
        f"{(ratio > 1.02).mean():.3f}",
    ]


HEADER = ["points allowed", "tokens, % of the full budget's (SD)", "loss, points"]
HEADER += ["splits above on the test part", "true loss above, rough", "tokens over ASC's"]
HEADER += ["splits in which dearer than ASC by 2 %"]


def main(folder: Path) -> None:
    known = vote_table(folder, "gsm8k")
    rows = [
        made_once(f"promise/{number}", partial(judge, known, number)) for number in range(SPLITS)
    ]
    chosen = table(HEADER, [row_of(rows, allowed) for allowed in ALLOWED])
    equal = ["points lost by both", "the gate's tokens over ASC's"]
    publish("promise", chosen, table(equal, [equal_row(rows, loss) for loss in REALISED]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
