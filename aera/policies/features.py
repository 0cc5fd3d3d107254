"""What the standing of a vote shows, from one table: the inputs of the vote gate."""

from collections import Counter
from dataclasses import dataclass
from math import log, log1p, sqrt

import numpy as np

from aera.arrays import Floats
from aera.core import Prefix, beta_confidence
from aera.trace import Feature

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


def horizon(prefix: Prefix) -> float:
    """How many standard deviations of what is still to come would turn the vote around."""
    lead, rival = prefix.tally.leaders.weight, prefix.tally.leaders.runner_up
    both, seen = lead + rival, len(prefix)
    left = (prefix.schedule.last - seen) * both / seen
    share = (lead + 1) / (both + 2)
    spread = left * share * (1 - share) * (both + 2 + left) / (both + 3)
    ahead = (lead - rival + left * (2 * share - 1)) / (2 * sqrt(spread + 0.05))
    return max(-4.0, min(6.0, ahead))


VOTE_FEATURES: tuple[Feature, ...] = (
    Feature("log_responses", "log of the responses so far", lambda s: log(len(s.prefix)), SPEND),
    Feature(
        "tokens_each",
        "log of the mean completion tokens of a response",
        lambda s: log1p(s.prefix.completion_tokens / len(s.prefix)),
        SPEND,
    ),
    Feature(
        "lead_share",
        "share of the leading answer in the valid weight",
        lambda s: s.prefix.tally.majority,
        VOTE,
    ),
    Feature("lead_gap", "gap of the two largest shares", lambda s: s.prefix.tally.gap, VOTE),
    Feature("lead_weight", "log(1 + weight of the leading answer)", lambda s: log1p(s.lead), VOTE),
    Feature(
        "rival_weight", "log(1 + weight of the answer behind it)", lambda s: log1p(s.rival), VOTE
    ),
    Feature(
        "lead_mean",
        "mean weight of the responses behind the leader",
        lambda s: s.lead / max(1, s.lead_count),
        VOTE,
    ),
    Feature(
        "mean_weight",
        "mean weight of all valid votes",
        lambda s: s.prefix.tally.total / max(1, s.valid),
        VOTE,
    ),
    Feature(
        "doubt",
        "log of the Beta posterior against the leader, by weight",
        lambda s: _doubt(s.lead, s.rival),
        VOTE,
    ),
    Feature(
        "plain_doubt",
        "log of that posterior by plain counts",
        lambda s: _doubt(float(s.lead_count), float(s.rival_count)),
        COUNTS,
    ),
    Feature(
        "persistence",
        "checkpoints in a row with this leading answer",
        lambda s: float(s.prefix.persistence),
        VOTE,
        1.0,
    ),
    Feature(
        "horizon",
        "standard deviations between the lead and a turn by the full budget",
        lambda s: horizon(s.prefix),
        VOTE,
    ),
    Feature(
        "horizon_later",
        "the same times the log of the responses so far",
        lambda s: horizon(s.prefix) * log(len(s.prefix)),
        VOTE,
    ),
)
VOTE_FEATURE_NAMES: tuple[str, ...] = tuple(feature.name for feature in VOTE_FEATURES)
FEWER_NAMES = VOTE_FEATURE_NAMES[:11]
"""The inputs of gates that were trained before the horizon was one."""


def vote_features(prefix: Prefix) -> Floats:
    """The numbers of a prefix, in the order of VOTE_FEATURES."""
    counted = VoteCounts.of(prefix)
    return np.array([feature.measure(counted) for feature in VOTE_FEATURES])
