"""Fit the vote gate: a linear rule for when another block is worth its tokens.

The target is the value of going on, found backwards: what following the rule from the next
checkpoint brings (grade minus the price of its tokens), minus what stopping now brings. A logistic
regression learns its sign, every example weighing as much as there is to win or lose. The rule
shapes its own targets, so it is fitted a few times over.
"""

import numpy as np
from numpy.typing import NDArray

from aera.gate import Network, VoteGate
from aera.lab.labels import utilities
from aera.lab.training import statistics
from aera.lab.trajectory import Floats

Flags = NDArray[np.bool_]

PRICE = 1.0
"""What the mean full budget costs, in units of grade, unless somebody says otherwise."""
ROUNDS = 4
RIDGE = 20.0
STEPS = 25


def fit_vote_gate(
    evidence: Floats, grades: Floats, tokens: Floats, *, price: float = PRICE
) -> VoteGate:
    """Fit on all rows; shapes (questions, checkpoints, features) and (questions, checkpoints)."""
    utility = utilities(grades, tokens / max(1e-12, float(tokens[:, -1].mean())), price)
    examples = evidence[:, :-1].reshape(-1, evidence.shape[2])
    medians, means, deviations = statistics(examples)
    filled = np.where(np.isnan(examples), medians, examples)
    scaled = (filled - means) / deviations
    inputs = np.column_stack([scaled, np.ones(len(scaled))])
    goes_on: Flags = np.ones(utility[:, :-1].shape, dtype=np.bool_)
    for _ in range(ROUNDS):
        worth = advantages(utility, goes_on).ravel()
        weights = logistic(inputs, worth > 0, np.abs(worth))
        goes_on = (inputs @ weights > 0).reshape(goes_on.shape)
    return VoteGate(
        Network(
            medians,
            means,
            deviations,
            (),
            weights[None, :-1],
            weights[-1:],
            lows=filled.min(axis=0),
            highs=filled.max(axis=0),
        )
    )


def advantages(
    utility: Floats, goes_on: "np.ndarray[tuple[int, int], np.dtype[np.bool_]]"
) -> Floats:
    """What going on brings over stopping, if the rule decides from the next checkpoint on."""
    value = utility[:, -1]
    worth: Floats = np.empty((len(utility), utility.shape[1] - 1))
    for column in range(utility.shape[1] - 2, -1, -1):
        worth[:, column] = value - utility[:, column]
        value = np.where(goes_on[:, column], value, utility[:, column])
    return worth


def logistic(
    inputs: Floats, wanted: "np.ndarray[tuple[int], np.dtype[np.bool_]]", stakes: Floats
) -> Floats:
    """Ridge logistic regression by Newton's method; the last input is the constant, free."""
    penalty = np.diag([*[RIDGE] * (inputs.shape[1] - 1), 1e-6])
    weights: Floats = np.zeros(inputs.shape[1])
    for _ in range(STEPS):
        chance = 0.5 * (1 + np.tanh(0.5 * (inputs @ weights)))
        slope = inputs.T @ (stakes * (chance - wanted)) + penalty @ weights
        bend = stakes * np.maximum(chance * (1 - chance), 1e-4)
        step = np.linalg.solve((inputs * bend[:, None]).T @ inputs + penalty, slope)
        weights = weights - step
        if np.abs(step).max() < 1e-8:
            break
    return weights
