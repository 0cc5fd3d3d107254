"""Is the promise kept? 120 times, 500 of the 800 gsm8k questions teach and calibrate, 300 test.

A loss is one against the policy's own full budget, in the mean over 20 orders of the responses.
Splits overlap, so what is said here holds for these 800 questions. "True" losses are those of the
test questions, drawn together as far as the chance of which 300 of them test spreads them: rough.
Each split is kept in out/promise once it is done.
"""

import json
from pathlib import Path

import numpy as np
from pools import ROOT, pools_argument, publish, table, vote_table

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
SETTINGS = np.geomspace(95, 4, 1000)
"""Tokens, in percent of the full budget's, between which losses are compared."""
DONE = ROOT / "out" / "promise"
Row = dict[str, list[float]]


def measure(stops: Columns, seen: Trajectories) -> list[float]:
    """Tokens in percent, loss in points and its standard error."""
    point, full = Point("", stops, seen), fixed_points(seen)[-1]
    lost = 100 * (full.scores - point.scores)
    spent = 100 * point.spent.sum() / full.spent.sum()
    return [float(spent), float(lost.mean()), float(lost.std() / np.sqrt(len(lost)))]


def judge(known: Dataset, number: int) -> Row:
    """One split: what both families lose at every setting, and what is chosen at every limit."""
    learner, rows = VoteLearner(), np.arange(len(known))
    taught, tested = split_rows(rows, SHARES, groups=known.groups, seed=number)
    model = learner.fit(known, taught, seed=number)
    seen, done = model.values(known, tested), Row()
    for family in (GATE_FAMILY, ASC_FAMILY):
        for place, setting in enumerate(model.grid(family)):
            stops = family.stops(seen.values[family.name], setting)
            done[f"{family.name} setting {place}"] = measure(stops, seen)
    for loss in ALLOWED:
        limit = limit_for(learner, loss)
        for name, family in model.families(limit).items():
            choice = limit.choose(family, model.own, grid=model.grid(family))
            stops = choice.stops(family, seen.values[family.name])
            done[f"{name} {loss}"] = measure(stops, seen)
    return done


def read(known: Dataset, number: int) -> Row:
    """The same, from its file where there is one."""
    file = DONE / f"{number}.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(judge(known, number)), "utf-8")
    found: Row = json.loads(file.read_text("utf-8"))
    return found


def curve(rows: list[Row], family: str) -> Floats:
    """The mean loss of a family at each share of the tokens."""
    losses = []
    for row in rows:
        points = sorted(each for name, each in row.items() if name.startswith(f"{family} setting"))
        spent, lost, _ = np.array([*points, [100.0, 0.0, 0.0]]).T
        losses.append(np.interp(SETTINGS, spent, lost))
    mean: Floats = np.mean(losses, axis=0)
    return mean


def share_at(rows: list[Row], loss: float) -> float:
    """The gate's tokens over ASC's where both lose as much."""
    gate, asc = (
        float(SETTINGS[np.argmax(curve(rows, family) >= loss)]) for family in ("aera", "asc")
    )
    return gate / asc


def spread(rows: list[Row], loss: float) -> tuple[float, float]:
    """A share, and its jackknife error over tenths of the splits."""
    without = [share_at([r for i, r in enumerate(rows) if i % 10 != k], loss) for k in range(10)]
    return share_at(rows, loss), float(np.sqrt(9 * np.var(without)))


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
    rows = [read(known, number) for number in range(SPLITS)]
    found = [[f"{loss:g}", "{:.2f} ± {:.2f}".format(*spread(rows, loss))] for loss in REALISED]
    publish("promise", table(HEADER, [row_of(rows, allowed) for allowed in ALLOWED]))
    publish("promise-gate", table(["points lost by both", "the gate's tokens over ASC's"], found))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
