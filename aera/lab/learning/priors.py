"""Learn the empirical-Bayes prior from the votes of past questions; no truth is needed."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from aera.lab.learning.folds import Foldwise, deal, group_questions
from aera.policies.baselines import EmpiricalBayes, Prior
from aera.pools.record import VotedRecord
from aera.tally import Tally

RANKS = 8
"""Answers kept per question; what lies beyond counts as neither of the two leaders."""


Row = NDArray[np.float64]


def learn_prior(records: Iterable[VotedRecord], *, ranks: int = RANKS) -> Prior:
    """Sorted answer shares of every question with a vote, softened by half a vote per rank."""
    return _prior((_shares(record, ranks) for record in records), ranks)


def _prior(rows: Iterable[Row | None], ranks: int) -> Prior:
    flat = np.full(ranks, 1.0 / ranks)
    return Prior(tuple(tuple(row) for row in (*rows, flat) if row is not None))


def _shares(record: VotedRecord, ranks: int) -> Row | None:
    tally = Tally().add(record.votes)
    if not len(tally):
        return None
    top = sorted(tally.weights.values(), reverse=True)[:ranks]
    counts = np.zeros(ranks)
    counts[: len(top)] = top
    return (counts + 0.5) / (tally.total + 0.5 * ranks)


def crossfit_bayes(
    records: Iterable[VotedRecord], confidence: float, *, folds: int = 5, seed: int = 0
) -> Foldwise:
    """Empirical Bayes with, for every question, the prior of the other folds."""
    known = [(record.question, _shares(record, RANKS)) for record in records]
    groups = group_questions([question for question, _ in known])
    dealt = deal(groups, folds=folds, seed=seed)
    fold_of = {known[row][0].id: fold.number for fold in dealt for row in fold.own}
    priors = [_prior((known[row][1] for row in fold.rest), RANKS) for fold in dealt]
    policies = [EmpiricalBayes(prior, confidence) for prior in priors]
    return Foldwise(str(policies[0]), policies, fold_of)
