"""What the standing of a vote shows, from one table: the inputs of the vote gate."""

from collections import Counter
from functools import partial
from math import log, log1p, sqrt

import numpy as np

from aera.arrays import Floats
from aera.core import Prefix, beta_confidence
from aera.trace import Feature

TINY = 1e-6
"""Doubts below it are all the same: none."""

VOTE, COUNTS, SPEND = "weighted vote", "plain counts", "spend"


def _count(prefix: Prefix) -> tuple[int, int, int]:
    """Responses behind the leader, behind the largest other answer, and behind any.

    That other one need not be the rival by weight.
    """
    counts = Counter(vote.answer for vote in prefix.votes if vote.answer is not None)
    leader = prefix.tally.leaders.answer
    others = (n for answer, n in counts.items() if answer != leader)
    return counts[leader] if leader else 0, max(others, default=0), counts.total()


def _counted(prefix: Prefix) -> tuple[int, int, int]:
    return prefix.remember((_count,), _count)


def _doubt(lead: float, rival: float) -> float:
    """log of the chance that the leader is not ahead in truth, under the Beta posterior."""
    return log(TINY + 1 - beta_confidence(lead, rival))


def horizon(prefix: Prefix) -> float:
    """How many standard deviations of what is still to come would turn the vote around."""
    lead, rival = _lead(prefix), _rival(prefix)
    both, seen = lead + rival, len(prefix)
    left = (prefix.schedule.last - seen) * both / seen
    share = (lead + 1) / (both + 2)
    spread = left * share * (1 - share) * (both + 2 + left) / (both + 3)
    ahead = (lead - rival + left * (2 * share - 1)) / (2 * sqrt(spread + 0.05))
    return max(-4.0, min(6.0, ahead))


def _lead(prefix: Prefix) -> float:
    return prefix.tally.leaders.weight


def _rival(prefix: Prefix) -> float:
    return prefix.tally.leaders.runner_up


def _tokens_each(prefix: Prefix) -> float:
    return log1p(prefix.completion_tokens / len(prefix))


def _plain_doubt(prefix: Prefix) -> float:
    own, other, _ = _counted(prefix)
    return _doubt(float(own), float(other))


_vote = partial(Feature, group=VOTE)
VOTE_FEATURES: tuple[Feature, ...] = (
    Feature("log_responses", "log of the responses so far", lambda p: log(len(p)), SPEND),
    Feature("tokens_each", "log of the mean completion tokens of a response", _tokens_each, SPEND),
    _vote(
        "lead_share",
        "share of the leading answer in the valid weight",
        lambda p: p.tally.majority,
    ),
    _vote("lead_gap", "gap of the two largest shares", lambda p: p.tally.gap),
    _vote("lead_weight", "log(1 + weight of the leading answer)", lambda p: log1p(_lead(p))),
    _vote("rival_weight", "log(1 + weight of the answer behind it)", lambda p: log1p(_rival(p))),
    _vote(
        "lead_mean",
        "mean weight of the responses behind the leader",
        lambda p: _lead(p) / max(1, _counted(p)[0]),
    ),
    _vote(
        "mean_weight",
        "mean weight of all valid votes",
        lambda p: p.tally.total / max(1, _counted(p)[2]),
    ),
    _vote(
        "doubt",
        "log of the Beta posterior against the leader, by weight",
        lambda p: _doubt(_lead(p), _rival(p)),
    ),
    Feature("plain_doubt", "log of that posterior by plain counts", _plain_doubt, COUNTS),
    _vote(
        "persistence",
        "checkpoints in a row with this leading answer",
        lambda p: float(p.persistence),
        neutral=1.0,
    ),
    _vote("horizon", "standard deviations between the lead and a turn by the full budget", horizon),
    _vote(
        "horizon_later",
        "the same times the log of the responses so far",
        lambda p: horizon(p) * log(len(p)),
    ),
)
VOTE_FEATURE_NAMES: tuple[str, ...] = tuple(feature.name for feature in VOTE_FEATURES)
FEWER_NAMES = VOTE_FEATURE_NAMES[:11]
"""The inputs of gates that were trained before the horizon was one."""


def vote_features(prefix: Prefix) -> Floats:
    """The numbers of a prefix, in the order of VOTE_FEATURES."""
    return np.array([feature.measure(prefix) for feature in VOTE_FEATURES])
