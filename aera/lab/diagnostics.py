"""Hindsight diagnostics: where a policy gains and loses. None of this is seen by any policy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Floats
from aera.lab.frontier import Point, Trajectories
from aera.lab.stats import paired_gap

Row = dict[str, Any]
"""As an evaluation file holds it; shares, gains and losses in percent."""
SUPPORTS = ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 0.9), (0.9, 1.01))


def residual_opportunity(point: Point, scores: Floats) -> list[Row]:
    """Do continued questions have more to gain than those stopped at the first checkpoint?

    `improvable` are those for which a later checkpoint scores higher, `gain` is the mean best one.
    """
    gains = np.maximum(scores[:, 1:].max(axis=1) - scores[:, 0], 0.0)
    continued = point.columns > 0
    groups = {"continued": continued, "stopped at the first checkpoint": ~continued}
    return [
        {
            "group": name,
            "questions": int(members.sum()),
            "improvable": _percent(gains[members] > 1e-12),
            "gain": _percent(gains[members]),
        }
        for name, members in groups.items()
    ]


def _percent(values: NDArray[np.generic]) -> float:
    return 100 * float(values.mean()) if len(values) else float("nan")


def collapsing(trajectories: Trajectories) -> NDArray[np.bool_]:
    """Questions that are right at some checkpoint and wrong at the next."""
    right = trajectories.right
    fell = (right[:, :-1] & ~right[:, 1:]).any(axis=1)
    return np.asarray(fell, dtype=np.bool_)


def loss_by_difficulty(point: Point) -> list[Row]:
    """Loss against the full budget, by the share that the leading answer holds there."""
    support = point.trajectories.evidence["majority_ratio"][:, -1]
    grades, rows = point.trajectories.known_grades, list[Row]()
    for low, high in SUPPORTS:
        members = (support >= low) & (support < high)
        if members.any():
            gap = paired_gap(grades[members, -1], point.scores[members])
            group = f"support {low:.2f}-{min(high, 1.0):.2f}"
            spent = {"responses": float(point.counts[members].mean())}
            rows.append({"group": group, **gap.as_json("loss"), **spent})
    return rows


def worst_group(rows: Sequence[Row]) -> Row:
    """The group that pays most for stopping early."""
    return max(rows, key=lambda row: row["loss"])


def counter_examples(trajectories: Trajectories) -> list[Row]:
    """Collapses while the evidence strengthens, recoveries while it weakens."""
    right = trajectories.right
    rising = {"majority_ratio": 1, "entropy": -1, "semantic_consensus": 1}
    known = [name for name in rising if name in trajectories.evidence]
    found = list[Row]()
    for transition, was, sign in (("collapse", True, 1), ("recovery", False, -1)):
        where = (right[:, :-1] == was) & (right[:, 1:] != was)
        moved = {n: sign * rising[n] * trajectories.changes(n)[where] > 0 for n in known}
        found.append(
            {
                "transition": transition,
                "count": int(where.sum()),
                "against": {name: int(each.sum()) for name, each in moved.items()},
                "all_against": int(np.logical_and.reduce([*moved.values()]).sum()),
            }
        )
    return found
