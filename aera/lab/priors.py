"""Learn the empirical-Bayes prior from the votes of past questions; no truth is needed."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from aera.baselines import EmpiricalBayes, Prior
from aera.lab.evaluation import Ballot
from aera.lab.folds import Foldwise, fold_numbers
from aera.tally import Tally

RANKS = 8
"""Answers kept per question; what lies beyond counts as neither of the two leaders."""


Row = NDArray[np.float64]


def learn_prior(ballots: Iterable[Ballot], *, ranks: int = RANKS) -> Prior:
    """Sorted answer shares of every question with a vote, softened by half a vote per rank."""
    return _prior((_shares(ballot, ranks) for ballot in ballots), ranks)


def _prior(rows: Iterable[Row | None], ranks: int) -> Prior:
    flat = np.full(ranks, 1.0 / ranks)
    return Prior(tuple(tuple(row) for row in (*rows, flat) if row is not None))


def _shares(ballot: Ballot, ranks: int) -> Row | None:
    tally = Tally().adding(ballot.votes)
    if not len(tally):
        return None
    top = sorted(tally.weights.values(), reverse=True)[:ranks]
    counts = np.zeros(ranks)
    counts[: len(top)] = top
    return (counts + 0.5) / (tally.total + 0.5 * ranks)


def crossfit_bayes(
    ballots: Iterable[Ballot], confidence: float, *, folds: int = 5, seed: int = 0
) -> Foldwise:
    """Empirical Bayes with, for every question, the prior of the other folds."""
    rows = {ballot.record.question.id: _shares(ballot, RANKS) for ballot in ballots}
    fold_of = dict(zip(rows, fold_numbers(len(rows), folds, seed=seed).tolist(), strict=True))
    priors = [
        _prior((row for name, row in rows.items() if fold_of[name] != fold), RANKS)
        for fold in range(folds)
    ]
    policies = [EmpiricalBayes(prior, confidence) for prior in priors]
    return Foldwise(str(policies[0]), policies, fold_of)
