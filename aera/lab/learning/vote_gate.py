"""Fit the vote gate: a linear rule for when another block is worth its tokens.

The target is the value of going on, found backwards: what following the rule from the next
checkpoint brings (grade minus the price of its tokens), minus what stopping now brings. A logistic
regression learns its sign, every example weighing as much as there is to win or lose. The rule
shapes its own targets, so it is fitted a few times over.
"""

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.lab.learning.folds import Fold, out_of_fold
from aera.lab.learning.weigher import statistics
from aera.lab.replay.trajectory import Trajectories
from aera.network import Network, sigmoid
from aera.policies.gate import Gate

PRICE = 1.0
"""What the mean full budget costs, in units of grade, where nobody says otherwise."""
ROUNDS = 4
"""How often the rule is fitted to the targets that it shapes itself."""
RIDGE = 20.0
STEPS = 25
"""Of Newton's method, which needs a handful."""


def fit_gate(known: Trajectories, price: float = PRICE) -> Gate:
    """A gate of all these questions, whose orders share their stakes."""
    orders = known.mixed
    assert orders.features is not None
    evidence = orders.features.reshape(-1, *orders.features.shape[2:])
    tokens = orders.tokens.reshape(len(evidence), -1)
    share = tokens / max(1e-12, float(tokens[:, -1].mean()))
    utility = orders.known_grades.reshape(len(evidence), -1) - price * share
    examples = evidence[:, :-1].reshape(-1, evidence.shape[2])
    medians, means, deviations = statistics(examples)
    filled = np.where(np.isnan(examples), medians, examples)
    inputs = np.column_stack([(filled - means) / deviations, np.ones(len(filled))])
    goes_on: Flags = np.ones(utility[:, :-1].shape, dtype=np.bool_)
    for _ in range(ROUNDS):
        worth = advantages(utility, goes_on).ravel()
        stakes = np.abs(worth) / orders.tokens.shape[1]
        weights = logistic(inputs, worth > 0, stakes)
        goes_on = (inputs @ weights > 0).reshape(goes_on.shape)
    outputs = (weights[None, :-1], weights[-1:])
    seen = {"lows": filled.min(axis=0), "highs": filled.max(axis=0)}
    return Gate(Network(medians, means, deviations, (), *outputs, **seen))


def judge_out_of_fold(
    known: Trajectories, *, groups: Columns, seed: int, price: float = PRICE
) -> Floats:
    """p_continue of every question by a gate of the other folds."""

    def judge(fold: Fold) -> Floats:
        features = known.take(fold.own).features
        assert features is not None
        return fit_gate(known.take(fold.rest), price).chances(features)

    return out_of_fold(judge, groups, seed=seed)


def advantages(utility: Floats, goes_on: Flags) -> Floats:
    """What going on brings over stopping, if the rule decides from the next checkpoint on."""
    value = utility[:, -1]
    worth: Floats = np.empty((len(utility), utility.shape[1] - 1))
    for column in range(utility.shape[1] - 2, -1, -1):
        worth[:, column] = value - utility[:, column]
        value = np.where(goes_on[:, column], value, utility[:, column])
    return worth


def logistic(inputs: Floats, wanted: Flags, stakes: Floats) -> Floats:
    """Ridge logistic regression by Newton's method; the last input is the constant, free."""
    penalty = np.diag([*[RIDGE] * (inputs.shape[1] - 1), 1e-6])
    weights: Floats = np.zeros(inputs.shape[1])
    for _ in range(STEPS):
        chance = sigmoid(inputs @ weights)
        slope = inputs.T @ (stakes * (chance - wanted)) + penalty @ weights
        bend = stakes * np.maximum(chance * (1 - chance), 1e-4)
        step = np.linalg.solve((inputs * bend[:, None]).T @ inputs + penalty, slope)
        weights = weights - step
        if np.abs(step).max() < 1e-8:
            break
    return weights
