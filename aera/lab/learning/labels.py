"""Residual utility and the labels made from it (Eq. 1-3): hindsight, for training only."""

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Columns, Floats


def utility_gains(grades: Floats, costs: Floats, *, cost_weight: float = 0.1) -> Floats:
    """The best advantage of any later checkpoint over stopping now (Eq. 1).

    Rows are questions, columns checkpoints; costs are cumulative and normalised by the last one.
    Nothing lies behind the last checkpoint, so its column is minus infinity.
    """
    utility = utilities(grades, _shares(costs), cost_weight)
    best_later = np.maximum.accumulate(utility[:, ::-1], axis=1)[:, ::-1]
    gains: Floats = np.full(grades.shape, -np.inf)
    gains[:, :-1] = best_later[:, 1:] - utility[:, :-1]
    return gains


def utilities(grades: Floats, costs: Floats, cost_weight: float) -> Floats:
    """Grade minus the weighted cost."""
    utility: Floats = grades - cost_weight * costs
    return utility


def _shares(costs: Floats) -> Floats:
    """Cumulative costs as shares of each question's full cost."""
    shares: Floats = costs / np.maximum(costs[:, -1:], 1e-12)
    return shares


def continuation_labels(
    grades: Floats, costs: Floats, *, cost_weight: float = 0.1, margin: float = 0.0
) -> NDArray[np.bool_]:
    """Whether continuing pays at each checkpoint (Eq. 2)."""
    gains = utility_gains(grades, costs, cost_weight=cost_weight)
    # Differences of equal utilities leave dust of the last bits, which is no gain.
    return gains > margin + 1e-12


def one_shot_targets(grades: Floats, costs: Floats, *, cost_weight: float = 0.1) -> Columns:
    """The cheapest checkpoint of highest utility, which one-shot allocation must predict."""
    utility = utilities(grades, _shares(costs), cost_weight)
    best = utility.max(axis=1, keepdims=True)
    targets: Columns = np.argmax(utility >= best - 1e-12, axis=1)
    return targets
