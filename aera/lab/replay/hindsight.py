"""References that need the future: the oracle, and stops shuffled between questions."""

import numpy as np

from aera.arrays import Columns, Floats
from aera.lab.replay.trajectory import Trajectories


def oracle(trajectories: Trajectories) -> Columns:
    """The cheapest checkpoint with the best grade, question by question."""
    columns: Columns = np.argmax(trajectories.known_grades, axis=1)
    return columns


def shuffle(columns: Columns, folds: Columns, *, seed: int) -> Columns:
    """The same stops dealt to other questions of the same fold, so that only routing is lost."""
    rng = np.random.default_rng(seed)
    dealt = columns.copy()
    for fold in np.unique(folds):
        members = np.flatnonzero(folds == fold)
        dealt[members] = columns[rng.permutation(members)]
    return dealt


def best_future(grades: Floats, column: int) -> Floats:
    """The highest grade still to come after a checkpoint."""
    best: Floats = grades[:, column + 1 :].max(axis=1)
    return best
