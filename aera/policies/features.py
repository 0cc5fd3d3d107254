"""What the standing of a vote shows, from one table: the inputs of the vote gate."""

from collections import Counter
from math import log, log1p, sqrt

import numpy as np

from aera.arrays import Floats
from aera.core import Prefix, beta_confidence
from aera.trace import Feature

TINY = 1e-6
"""Doubts below it are all the same: none."""

VOTE, COUNTS, SPEND = "weighted vote", "plain counts", "spend"


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


_TABLE: dict[str, tuple[str, str]] = {
    "log_responses": (SPEND, "log of the responses so far"),
    "tokens_each": (SPEND, "log of the mean completion tokens of a response"),
    "lead_share": (VOTE, "share of the leading answer in the valid weight"),
    "lead_gap": (VOTE, "gap of the two largest shares"),
    "lead_weight": (VOTE, "log(1 + weight of the leading answer)"),
    "rival_weight": (VOTE, "log(1 + weight of the answer behind it)"),
    "lead_mean": (VOTE, "mean weight of the responses behind the leader"),
    "mean_weight": (VOTE, "mean weight of all valid votes"),
    "doubt": (VOTE, "log of the Beta posterior against the leader, by weight"),
    "plain_doubt": (COUNTS, "log of that posterior by plain counts"),
    "persistence": (VOTE, "checkpoints in a row with this leading answer"),
    "horizon": (VOTE, "standard deviations between the lead and a turn by the full budget"),
    "horizon_later": (VOTE, "the same times the log of the responses so far"),
}
VOTE_FEATURES: tuple[Feature, ...] = tuple(
    Feature(name, meaning, group, 1.0 if name == "persistence" else None)
    for name, (group, meaning) in _TABLE.items()
)
VOTE_FEATURE_NAMES: tuple[str, ...] = tuple(feature.name for feature in VOTE_FEATURES)
FEWER_NAMES = VOTE_FEATURE_NAMES[:11]
"""The inputs of gates that were trained before the horizon was one."""


def _measure(prefix: Prefix) -> dict[str, float]:
    """All of them by name."""
    tally, leaders, size = prefix.tally, prefix.tally.leaders, len(prefix)
    counts = Counter(vote.answer for vote in prefix.votes if vote.answer is not None)
    behind = 0 if leaders.answer is None else counts[leaders.answer]
    # The largest count of any other answer, which need not be the rival by weight.
    other = max((n for answer, n in counts.items() if answer != leaders.answer), default=0)
    ahead = horizon(prefix)
    return {
        "log_responses": log(size),
        "tokens_each": log1p(prefix.completion_tokens / size),
        "lead_share": tally.majority,
        "lead_gap": tally.gap,
        "lead_weight": log1p(leaders.weight),
        "rival_weight": log1p(leaders.runner_up),
        "lead_mean": leaders.weight / max(1, behind),
        "mean_weight": tally.total / max(1, counts.total()),
        "doubt": _doubt(leaders.weight, leaders.runner_up),
        "plain_doubt": _doubt(float(behind), float(other)),
        "persistence": float(prefix.persistence),
        "horizon": ahead,
        "horizon_later": ahead * log(size),
    }


def vote_features(prefix: Prefix) -> Floats:
    """The numbers of a prefix, in the order of VOTE_FEATURES."""
    found = _measure(prefix)
    return np.array([found[feature.name] for feature in VOTE_FEATURES])
