"""Fit the weigher on graded responses: the truth's share of the vote, and each one's own grade.

It is linear. The loss is the mean over contested questions of minus the log share of the right
answers in the weighted vote, plus a little of the cross-entropy of single responses, which makes a
weight mean the same from question to question, plus a ridge.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.errors import ProtocolError
from aera.lab.learning.folds import Fold, out_of_fold
from aera.network import Network, sigmoid
from aera.voting.traits import (
    COUNTS,
    GROUPS,
    TRACE,
    TRAIT_NAMES,
    TRAITS,
    UNTRACED,
    columns_of,
    having,
)
from aera.voting.weigher import Weigher
from aera.workers import SERIAL, Workers

EDGES = (0.001, 0.999)
"""Traits beyond these quantiles of training count as the quantile."""
NEARLY_ALL = 0.95
"""Share of the responses that must bring what a group of traits needs for it to be learned from."""
OWN = 0.2
"""What the cross-entropy of single responses weighs beside the share of the vote."""
RIDGE = 3e-3
STEPS = 100
"""Of the descent, which needs about 15."""
ENOUGH = 1e-6
"""Slope at which it ends."""
MEMORY = 10
"""Steps from which the descent knows how the loss bends."""


@dataclass(frozen=True, eq=False)
class Responses:
    """Responses to some questions: their traits, whether each votes, and what it is worth."""

    traits: Floats
    """Shape (questions, responses, traits)."""
    voted: Flags
    grades: Floats

    def __len__(self) -> int:
        return len(self.traits)

    def taught(self, without: Container[str] = ()) -> tuple[tuple[str, ...], Floats]:
        """The traits of the votes to learn from; those that too few have are missing in all."""
        votes = self.traits[self.voted]
        had = {g for g in GROUPS if g not in without and having(votes, g).mean() > NEARLY_ALL}
        features = TRAIT_NAMES if TRACE in had else UNTRACED
        lost = [each.group not in (COUNTS, *had) for each in TRAITS if each.name in features]
        seen = votes[:, columns_of(features)]
        seen[:, lost] = np.nan
        return features, seen

    def subset(self, rows: Columns) -> "Responses":
        """The responses to some of the questions."""
        return Responses(self.traits[rows], self.voted[rows], self.grades[rows])


def find_medians(evidence: Floats) -> Floats:
    """Of what is known of every input; 0 where nothing is."""
    known = ~np.isnan(evidence)
    columns = (values[there] for values, there in zip(evidence.T, known.T, strict=True))
    return np.array([float(np.median(each)) if len(each) else 0.0 for each in columns])


def statistics(evidence: Floats) -> tuple[Floats, Floats, Floats]:
    """Medians, then means and deviations after imputation, of the training partition."""
    medians = find_medians(evidence)
    filled = np.where(np.isnan(evidence), medians, evidence)
    deviations = filled.std(axis=0)
    return medians, filled.mean(axis=0), np.where(deviations > 1e-12, deviations, 1.0)


def fit_weigher(learned: Responses, *, without: Container[str] = ()) -> Weigher:
    """A weigher of all these questions, from what nearly all of their responses bring.

    The groups of traits in `without` are left out.
    """
    voted = learned.voted
    if not voted.any():
        raise ProtocolError(
            "none of the responses to learn from can be read, so there is nothing to weigh; "
            "look at the task of the pool"
        )
    features, seen = learned.taught(without)
    medians = find_medians(seen)
    filled = np.where(np.isnan(seen), medians, seen)
    lows, highs = np.quantile(filled, EDGES, axis=0)
    scaled = np.clip(filled, lows, highs, out=filled)
    means, deviations = scaled.mean(axis=0), scaled.std(axis=0)
    deviations = np.where(deviations > 1e-12, deviations, 1.0)
    scaled -= means
    scaled /= deviations
    weights = fit_shares(scaled, learned.grades[voted], voted.sum(axis=1))
    outputs = (weights[None, :-1], weights[-1:])
    network = Network(medians, means, deviations, (), *outputs, lows=lows, highs=highs)
    return Weigher(network, features)


def fit_tiers(learned: Responses) -> Weigher:
    """The same with a lower weigher for responses that bring less, as long as any is left."""
    best = fit_weigher(learned)
    needed = [group for group in reversed(GROUPS) if group in best.needs]
    lost = [needed[:count] for count in range(1, len(needed))]
    return replace(best, lower=tuple(fit_weigher(learned, without=without) for without in lost))


def weigh_out_of_fold(
    learned: Responses, *, groups: Columns, seed: int, workers: Workers = SERIAL
) -> Floats:
    """Weights for these questions, each by a weigher of the other folds."""
    return out_of_fold(partial(_weigh_fold, learned), groups, seed=seed, workers=workers)


def _weigh_fold(learned: Responses, fold: Fold) -> Floats:
    return fit_weigher(learned.subset(fold.rest)).weights(learned.traits[fold.own])


def fit_shares(inputs: Floats, grades: Floats, counts: Columns) -> Floats:
    """The weights of the inputs, and the constant behind them, that make the loss small.

    `inputs` and `grades` are those of the votes, question by question; `counts` how many each has.
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    right = np.bincount(owner, grades, len(counts))
    contested = (right > 0) & (right < counts)
    questions = max(1, int(contested.sum()))
    inputs = np.column_stack([inputs, np.ones(len(inputs))])
    # In coordinates in which the inputs are alike and uncorrelated the loss bends alike everywhere.
    moment = inputs.T @ inputs / len(inputs) + 1e-9 * np.eye(inputs.shape[1])
    back = np.linalg.inv(np.linalg.cholesky(moment)).T
    white, penalty = inputs @ back, np.diag([*[RIDGE] * (inputs.shape[1] - 1), 0.0])

    each = np.where(contested, 1.0, np.nan)

    def loss(place: Floats) -> tuple[float, Floats]:
        scores, weights = white @ place, back @ place
        chance = np.clip(sigmoid(scores), 1e-12, 1 - 1e-12)
        whole = np.bincount(owner, chance, len(counts)) * each
        truth = np.bincount(owner, chance * grades, len(counts)) * each
        shares = float(np.nansum(np.log(whole / truth))) / questions
        own = -np.log(np.where(grades > 0.5, chance, 1 - chance)).mean()
        pull = np.nan_to_num((1 / whole)[owner] - grades * (1 / truth)[owner])
        slope = pull * chance * (1 - chance) / questions + OWN * (chance - grades) / len(grades)
        value = shares + OWN * float(own) + float(weights @ penalty @ weights)
        return value, white.T @ slope + 2 * back.T @ penalty @ weights

    found: Floats = back @ descend(loss, np.zeros(inputs.shape[1]))
    return found


def descend(loss: Callable[[Floats], tuple[float, Floats]], place: Floats) -> Floats:
    """Where a smooth loss is smallest, by L-BFGS; `loss` gives a value and its slope."""
    value, slope = loss(place)
    steps: list[tuple[Floats, Floats]] = []
    for _ in range(STEPS):
        if float(np.abs(slope).max()) < ENOUGH:
            break
        direction = -_bend(slope, steps)
        length, fall = 1.0, float(direction @ slope)
        while (found := loss(place + length * direction))[0] > value + 1e-4 * length * fall:
            length /= 2
            if length < 1e-9:
                return place
        step = length * direction
        change = found[1] - slope
        if float(step @ change) > 0:
            steps = [*steps[1 - MEMORY :], (step, change)]
        place, (value, slope) = place + step, found
    return place


def _bend(slope: Floats, steps: list[tuple[Floats, Floats]]) -> Floats:
    """The slope divided by the curvature that the latest steps have shown."""
    found, shares = slope.copy(), []
    for step, change in reversed(steps):
        share = float(step @ found) / float(step @ change)
        shares.append(share)
        found -= share * change
    if steps:
        step, change = steps[-1]
        found *= float(step @ change) / float(change @ change)
    for (step, change), share in zip(steps, reversed(shares), strict=True):
        found += step * (share - float(change @ found) / float(step @ change))
    return found
