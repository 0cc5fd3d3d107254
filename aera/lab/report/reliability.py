"""Reliability: does continuing pay as often as the gate says it does?"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Columns, Floats
from aera.lab.calibrating.calibration import Choice
from aera.lab.judging.difference import share_interval
from aera.lab.learning.labels import continuation_labels
from aera.lab.replay.trajectory import Trajectories

BINS = 10


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a gate that never saw a question said at its checkpoints."""

    p_continue: Floats
    """Shape (questions, checkpoints); NaN where the gate was not asked."""
    folds: Columns
    choices: Mapping[str, tuple[Choice, ...]]
    """By name: what calibration chose, once per fold; empty where nothing was calibrated."""


@dataclass(frozen=True)
class Bin:
    """Decisions with a similar p_continue; chances and shares are fractions."""

    p_continue: float
    """Mean of what the gate said."""
    paid: float
    """Share of the decisions after which continuing paid."""
    low: float
    high: float
    decisions: int
    questions: int


def reliability(seen: Predictions, trajectories: Trajectories) -> list[Bin]:
    """Tenths of all decisions by p_continue; the last checkpoint is no decision.

    The intervals are Wilson's and count each question once, for its decisions hang together.
    """
    labels = continuation_labels(trajectories.known_grades, trajectories.tokens)
    chance, paid = seen.p_continue[:, :-1], labels[:, :-1]
    asked = ~np.isnan(chance)
    rows = np.broadcast_to(np.arange(len(chance))[:, None], chance.shape)[asked]
    chance, paid = chance[asked], paid[asked]
    order = np.argsort(chance, kind="stable")
    parts = [part for part in np.array_split(order, BINS) if len(part)]
    return [_bin(chance[part], paid[part], len(np.unique(rows[part]))) for part in parts]


def _bin(chance: Floats, paid: NDArray[np.bool_], questions: int) -> Bin:
    share = float(paid.mean())
    low, high = share_interval(share, questions)
    return Bin(float(chance.mean()), share, low, high, len(chance), questions)
