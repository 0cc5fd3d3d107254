"""Fit the vote gate: a linear rule for when another block is worth its tokens.

The target is the value of going on, found backwards: what following the rule from the next
checkpoint brings (grade minus the price of its tokens), minus what stopping now brings. A logistic
regression learns its sign, every example weighing as much as there is to win or lose. The rule
shapes its own targets, so it is fitted a few times over.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.lab.learning.folds import Fold, out_of_fold
from aera.lab.learning.labels import utilities
from aera.lab.learning.perceptron import statistics
from aera.network import Network
from aera.policies.gate import VoteGate

STEPS = 25
"""Of Newton's method, which needs a handful."""


@dataclass(frozen=True, eq=False)
class VoteStates:
    """How the vote stands at every checkpoint, and what stopping there is worth."""

    evidence: Floats
    """Shape (questions, checkpoints, features of the vote)."""
    grades: Floats
    tokens: Floats

    def __len__(self) -> int:
        return len(self.grades)

    def subset(self, rows: Columns) -> "VoteStates":
        """The same for some of the questions."""
        return VoteStates(self.evidence[rows], self.grades[rows], self.tokens[rows])


@dataclass(frozen=True)
class VoteGateFit:
    """How a gate on the vote features is fitted."""

    price: float = 1.0
    """What the mean full budget costs, in units of grade."""
    rounds: int = 4
    """How often the rule is fitted to the targets that it shapes itself."""
    ridge: float = 20.0

    def fit(self, states: VoteStates) -> VoteGate:
        """A gate of all these questions."""
        evidence, tokens = states.evidence, states.tokens
        share = tokens / max(1e-12, float(tokens[:, -1].mean()))
        utility = utilities(states.grades, share, self.price)
        examples = evidence[:, :-1].reshape(-1, evidence.shape[2])
        medians, means, deviations = statistics(examples)
        filled = np.where(np.isnan(examples), medians, examples)
        scaled = (filled - means) / deviations
        inputs = np.column_stack([scaled, np.ones(len(scaled))])
        goes_on: Flags = np.ones(utility[:, :-1].shape, dtype=np.bool_)
        for _ in range(self.rounds):
            worth = advantages(utility, goes_on).ravel()
            weights = logistic(inputs, worth > 0, np.abs(worth), ridge=self.ridge)
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

    def out_of_fold(self, states: VoteStates, *, groups: Columns, seed: int) -> Floats:
        """p_continue of every question by a gate of the other folds."""
        return out_of_fold(partial(self._fold, states), groups, seed=seed)

    def _fold(self, states: VoteStates, fold: Fold) -> Floats:
        gate = self.fit(states.subset(fold.rest))
        return gate.chances(states.evidence[fold.own])


def advantages(utility: Floats, goes_on: Flags) -> Floats:
    """What going on brings over stopping, if the rule decides from the next checkpoint on."""
    value = utility[:, -1]
    worth: Floats = np.empty((len(utility), utility.shape[1] - 1))
    for column in range(utility.shape[1] - 2, -1, -1):
        worth[:, column] = value - utility[:, column]
        value = np.where(goes_on[:, column], value, utility[:, column])
    return worth


def logistic(inputs: Floats, wanted: Flags, stakes: Floats, *, ridge: float) -> Floats:
    """Ridge logistic regression by Newton's method; the last input is the constant, free."""
    penalty = np.diag([*[ridge] * (inputs.shape[1] - 1), 1e-6])
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
