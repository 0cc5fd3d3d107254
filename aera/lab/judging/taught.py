"""What a controller is told of its home, and whether a pool is another: before and after."""

from typing import Any

import numpy as np

from aera.arrays import Columns
from aera.lab.learning.learner import Table
from aera.lab.learning.votes import VoteTable
from aera.policies.domain import Home
from aera.pools.pool import Records
from aera.solving.controller import Controller
from aera.voting.rules import BestOfN
from aera.voting.traits import COUNTS, LOGPROBS, TEXT, TRACE
from aera.voting.weigher import Weigher, Weighting

TIERS = {
    TRACE: "traces, logprobs and text",
    LOGPROBS: "logprobs and text",
    TEXT: "text",
    COUNTS: "counts",
}
"""What a weigher looks at, by the most that it needs."""


def find_home(table: Table, weigher: Weighting | None, rows: Columns) -> Home | None:
    """The home that a table is; how many votes decide in effect is counted in these rows.

    Best-of-n has none: a scorer is somebody else's, and without it there is nothing to fall back
    to.
    """
    if isinstance(weigher, BestOfN):
        return None
    told: dict[str, Any] = {"read": round(table.readability.share, 4)}
    if isinstance(table, VoteTable):
        responses = (each for record in table.records for each in record.responses)
        told["models"] = tuple(sorted({each.model for each in responses if each.model}))
        if isinstance(weigher, Weigher):
            told["tier"] = TIERS[weigher.tier]
            told["deciding"] = _deciding(table, weigher, rows)
    return Home.of(table.questions, **told)


def find_abroad(controller: Controller, records: Records) -> str | None:
    """What a controller would say that was brought to a pool it does not know; None at home."""
    lookout = controller.make_lookout()
    for question in records.questions.values():
        lookout.see(question)
        if lookout.abroad:
            break
    if not lookout.doubt:
        return None
    return (
        "these questions are not like those it was taught on: they are "
        f"{lookout.reason}; aera solve and aera serve would let plain votes decide, and here it is "
        "shown as it stands"
    )


def _deciding(table: VoteTable, weigher: Weigher, rows: Columns) -> float:
    """How many equal votes would decide as surely as the weighted ones: Kish's effective size."""
    known = table.responses.subset(rows)
    weights = np.where(known.voted, weigher.weights(known.traits), 0.0)
    squares = np.maximum(1e-12, (weights**2).sum(axis=1))
    return round(float((weights.sum(axis=1) ** 2 / squares).mean()), 1)
