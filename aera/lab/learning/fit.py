"""Fit the weigher and the gate; both are linear.

The weigher learns from graded responses. Its loss is the mean over contested questions of minus the
log share of the right answers in the weighted vote, plus a little of the cross-entropy of single
responses, which makes a weight mean the same from question to question, plus a ridge.

The gate learns when another block is worth its tokens. Its target is the value of going on, found
backwards: what following the rule from the next checkpoint brings (grade minus the price of its
tokens), minus what stopping now brings. A logistic regression learns its sign, every example
weighing as much as there is to win or lose. The rule shapes its own targets, so it is fitted a few
times over.
"""

from collections.abc import Callable, Container
from dataclasses import replace

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.errors import ProtocolError
from aera.lab.frontier import Trajectories
from aera.lab.learning.folds import Fold, out_of_fold
from aera.network import Network, sigmoid
from aera.policies.gate import Gate
from aera.voting.traits import COUNTS, TEXT, TRACE, TRAITS, columns_of, having
from aera.voting.weigher import Weigher

LEARNED = (TEXT, TRACE)
"""The groups of traits that are learned from. Sums of logprobs are not: beside the text they
brought nothing clear on any pool, and listing them took vLLM's front end six times the CPU."""
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
PRICE = 1.0
"""What the mean full budget costs, in units of grade, where nobody says otherwise."""
ROUNDS = 4
"""How often the rule is fitted to the targets that it shapes itself."""
GATE_RIDGE = 1.0
GATE_STEPS = 25
"""Of Newton's method, which needs a handful."""

Scale = dict[str, Floats]
"""Medians, means, deviations, lows and highs of the inputs of a network."""


def standardize(evidence: Floats, edges: tuple[float, float] = (0, 1)) -> tuple[Floats, Scale]:
    """Inputs made alike, and what a network needs to do the same to others.

    What is missing becomes the median, 0 where nothing is known; what lies beyond the quantiles at
    the `edges` becomes the quantile.
    """
    known = ~np.isnan(evidence)
    columns = (values[there] for values, there in zip(evidence.T, known.T, strict=True))
    medians = np.array([float(np.median(each)) if len(each) else 0.0 for each in columns])
    scaled = np.where(known, evidence, medians)
    lows, highs = np.quantile(scaled, edges, axis=0)
    np.clip(scaled, lows, highs, out=scaled)
    means, deviations = scaled.mean(axis=0), scaled.std(axis=0)
    deviations = np.where(deviations > 1e-12, deviations, 1.0)
    scaled -= means
    scaled /= deviations
    scale = {"medians": medians, "means": means, "deviations": deviations}
    return scaled, {**scale, "lows": lows, "highs": highs}


def linear(weights: Floats, scale: Scale) -> Network:
    """A network without layers; the last of the weights is the constant."""
    return Network(layers=(), weight=weights[None, :-1], bias=weights[-1:], **scale)


def fit_weigher(
    traits: Floats, grades: Floats, voted: Flags, *, without: Container[str] = ()
) -> Weigher:
    """A weigher of the votes of some questions, from what nearly all of their responses bring.

    The groups of traits in `without` are left out.
    """
    if not voted.any():
        raise ProtocolError(
            "none of the responses to learn from can be read, so there is nothing to weigh; "
            "look at the task of the pool"
        )
    votes = traits[voted]
    had = {g for g in LEARNED if g not in without and having(votes, g).mean() > NEARLY_ALL}
    features = tuple(each.name for each in TRAITS if each.group in (COUNTS, *had))
    scaled, scale = standardize(votes[:, columns_of(features)], EDGES)
    weights = fit_shares(scaled, grades[voted], voted.sum(axis=1))
    return Weigher(linear(weights, scale), features)


def fit_tiers(traits: Floats, grades: Floats, voted: Flags) -> Weigher:
    """The same with a lower weigher for responses that bring a text and no trace."""
    best = fit_weigher(traits, grades, voted)
    if best.needs != {TEXT, TRACE}:
        return best
    return replace(best, lower=(fit_weigher(traits, grades, voted, without=(TRACE,)),))


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


# --- the gate -------------------------------------------------------------------------------------


def fit_gate(known: Trajectories, price: float = PRICE) -> Gate:
    """A gate of all these questions, whose orders share their stakes."""
    orders = known.mixed
    assert orders.features is not None
    evidence = orders.features.reshape(-1, *orders.features.shape[2:])
    tokens = orders.tokens.reshape(len(evidence), -1)
    share = tokens / max(1e-12, float(tokens[:, -1].mean()))
    utility = orders.known_grades.reshape(len(evidence), -1) - price * share
    scaled, scale = standardize(evidence[:, :-1].reshape(-1, evidence.shape[2]))
    inputs = np.column_stack([scaled, np.ones(len(scaled))])
    goes_on: Flags = np.ones(utility[:, :-1].shape, dtype=np.bool_)
    for _ in range(ROUNDS):
        worth = advantages(utility, goes_on).ravel()
        stakes = np.abs(worth) / orders.tokens.shape[1]
        weights = logistic(inputs, worth > 0, stakes)
        goes_on = (inputs @ weights > 0).reshape(goes_on.shape)
    return Gate(linear(weights, scale))


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
    penalty = np.diag([*[GATE_RIDGE] * (inputs.shape[1] - 1), 1e-6])
    weights: Floats = np.zeros(inputs.shape[1])
    for _ in range(GATE_STEPS):
        chance = sigmoid(inputs @ weights)
        slope = inputs.T @ (stakes * (chance - wanted)) + penalty @ weights
        bend = stakes * np.maximum(chance * (1 - chance), 1e-4)
        step = np.linalg.solve((inputs * bend[:, None]).T @ inputs + penalty, slope)
        weights = weights - step
        if np.abs(step).max() < 1e-8:
            break
    return weights
