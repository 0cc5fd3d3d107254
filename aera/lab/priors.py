"""Learn the empirical-Bayes prior from the votes of past questions; no truth is needed."""

from collections.abc import Sequence

import numpy as np

from aera.baselines import EmpiricalBayes, Prior
from aera.lab.evaluation import Ballot
from aera.lab.folds import Foldwise, fold_numbers
from aera.tally import Tally

RANKS = 8
"""Answers kept per question; what lies beyond counts as neither of the two leaders."""


def learn_prior(ballots: Sequence[Ballot], *, ranks: int = RANKS) -> Prior:
    """Sorted answer shares of every question with a vote, softened by half a vote per rank."""
    rows = [_shares(Tally().adding(ballot.votes), ranks) for ballot in ballots]
    flat = np.full(ranks, 1.0 / ranks)
    return Prior(tuple(tuple(row) for row in (*rows, flat) if row is not None))


def _shares(tally: Tally, ranks: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]] | None":
    if not len(tally):
        return None
    top = sorted(tally.weights.values(), reverse=True)[:ranks]
    counts = np.zeros(ranks)
    counts[: len(top)] = top
    return (counts + 0.5) / (tally.total + 0.5 * ranks)


def crossfit_bayes(
    ballots: Sequence[Ballot], confidence: float, *, folds: int = 5, seed: int = 0
) -> Foldwise:
    """Empirical Bayes with, for every question, the prior of the other folds."""
    numbers = fold_numbers(len(ballots), folds, seed=seed)
    policies = [
        EmpiricalBayes(
            learn_prior([b for b, n in zip(ballots, numbers, strict=True) if n != fold]),
            confidence,
        )
        for fold in range(folds)
    ]
    fold_of = {b.record.question.id: int(n) for b, n in zip(ballots, numbers, strict=True)}
    return Foldwise(str(policies[0]), policies, fold_of)
