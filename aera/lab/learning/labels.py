"""Residual utility and the labels made from it (Eq. 1-3): hindsight, for training only."""

import numpy as np

from aera.arrays import Columns, Flags, Floats

DUST = 1e-12
"""Differences of equal utilities leave dust of the last bits, which is no gain."""


def _utilities(grades: Floats, costs: Floats, cost_weight: float) -> Floats:
    """Grade minus the weighted cost, which is cumulative, as a share of each question's full cost.

    Rows are questions, columns checkpoints.
    """
    utility: Floats = grades - cost_weight * (costs / np.maximum(costs[:, -1:], 1e-12))
    return utility


def continuation_labels(
    grades: Floats, costs: Floats, *, cost_weight: float = 0.1, margin: float = 0.0
) -> Flags:
    """Whether continuing pays at each checkpoint (Eq. 2): a later one gains more than the margin.

    The best advantage of any later checkpoint over stopping now is Eq. 1; behind the last nothing
    lies.
    """
    utility = _utilities(grades, costs, cost_weight)
    best_later = np.maximum.accumulate(utility[:, ::-1], axis=1)[:, ::-1]
    labels: Flags = np.zeros(grades.shape, dtype=np.bool_)
    labels[:, :-1] = best_later[:, 1:] - utility[:, :-1] > margin + DUST
    return labels


def one_shot_targets(grades: Floats, costs: Floats, *, cost_weight: float = 0.1) -> Columns:
    """The cheapest checkpoint of highest utility, which one-shot allocation must predict."""
    utility = _utilities(grades, costs, cost_weight)
    targets: Columns = np.argmax(utility >= utility.max(axis=1, keepdims=True) - DUST, axis=1)
    return targets
