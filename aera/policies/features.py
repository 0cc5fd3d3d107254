"""Feature: one row of a table of evidence; the tables generate their own documentation."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, log1p

import numpy as np

from aera.arrays import Floats
from aera.core import Prefix, beta_confidence


@dataclass(frozen=True)
class Feature:
    """One row of the table. `neutral` is what it is where there is no predecessor."""

    name: str
    group: str
    neutral: float | None
    meaning: str


TINY = 1e-6
"""Doubts below it are all the same: none."""

VOTE, COUNTS, SPEND = "weighted vote", "plain counts", "spend"


@dataclass(frozen=True)
class VoteCounts:
    """What the measures share: leading weights, and how many responses stand behind them."""

    prefix: Prefix
    lead: float
    rival: float
    lead_count: int
    rival_count: int
    """The largest count of any other answer, which need not be the rival by weight."""
    valid: int

    @classmethod
    def of(cls, prefix: Prefix) -> "VoteCounts":
        """Count a prefix."""
        counts = Counter(vote.answer for vote in prefix.votes if vote.answer is not None)
        leaders = prefix.tally.leaders
        others = (n for answer, n in counts.items() if answer != leaders.answer)
        own = counts[leaders.answer] if leaders.answer is not None else 0
        return cls(
            prefix, leaders.weight, leaders.runner_up, own, max(others, default=0), counts.total()
        )


def _doubt(lead: float, rival: float) -> float:
    """log of the chance that the leader is not ahead in truth, under the Beta posterior."""
    return log(TINY + 1 - beta_confidence(lead, rival))


Measure = Callable[[VoteCounts], float]

_TABLE: tuple[tuple[Feature, Measure], ...] = (
    (
        Feature("log_responses", SPEND, None, "log of the responses so far"),
        lambda s: log(len(s.prefix)),
    ),
    (
        Feature("tokens_each", SPEND, None, "log of the mean completion tokens of a response"),
        lambda s: log1p(s.prefix.completion_tokens / len(s.prefix)),
    ),
    (
        Feature("lead_share", VOTE, None, "share of the leading answer in the valid weight"),
        lambda s: s.prefix.tally.majority,
    ),
    (
        Feature("lead_gap", VOTE, None, "gap of the two largest shares"),
        lambda s: s.prefix.tally.gap,
    ),
    (
        Feature("lead_weight", VOTE, None, "log(1 + weight of the leading answer)"),
        lambda s: log1p(s.lead),
    ),
    (
        Feature("rival_weight", VOTE, None, "log(1 + weight of the answer behind it)"),
        lambda s: log1p(s.rival),
    ),
    (
        Feature("lead_mean", VOTE, None, "mean weight of the responses behind the leader"),
        lambda s: s.lead / max(1, s.lead_count),
    ),
    (
        Feature("mean_weight", VOTE, None, "mean weight of all valid votes"),
        lambda s: s.prefix.tally.total / max(1, s.valid),
    ),
    (
        Feature("doubt", VOTE, None, "log of the Beta posterior against the leader, by weight"),
        lambda s: _doubt(s.lead, s.rival),
    ),
    (
        Feature("plain_doubt", COUNTS, None, "log of that posterior by plain counts"),
        lambda s: _doubt(float(s.lead_count), float(s.rival_count)),
    ),
    (
        Feature("persistence", VOTE, 1.0, "checkpoints in a row with this leading answer"),
        lambda s: float(s.prefix.persistence),
    ),
)

VOTE_FEATURES: tuple[Feature, ...] = tuple(feature for feature, _ in _TABLE)
VOTE_FEATURE_NAMES: tuple[str, ...] = tuple(feature.name for feature in VOTE_FEATURES)


def vote_features(prefix: Prefix) -> Floats:
    """The numbers of a prefix, in the order of VOTE_FEATURES."""
    counted = VoteCounts.of(prefix)
    return np.array([measure(counted) for _, measure in _TABLE])


def describe_votes(chains: Sequence[Sequence[Prefix]]) -> Floats:
    """The features of every prefix, shape (questions, checkpoints, features)."""
    return np.array([[vote_features(prefix) for prefix in chain] for chain in chains])
