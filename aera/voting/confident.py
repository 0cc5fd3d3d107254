"""Votes that look at how sure the model was of its tokens: softmax weights, and the surest alone.

Both look at a whole fixed budget at once. A vote that came without a trace is as sure as the mean
of the others; where nobody has one, all weigh the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, exp, isfinite

from aera.response import Prefix
from aera.tally import Tally, Vote
from aera.voting.aggregation import Aggregate
from aera.voting.trace_weights import SCALE, confidence_of

SUREST = 0.1
"""Share of the votes that the filter keeps."""
FEWEST = 16
"""Votes that it keeps in any case: a handful of the surest is no vote."""


def cisc_vote(prefix: Prefix) -> Aggregate:
    """Confidence-informed self-consistency: softmax weights of the mean confidence."""
    votes, sureness = _sure_votes(prefix)
    most = max(sureness, default=0.0)
    weights = [exp((each - most) / SCALE) for each in sureness]
    return _count(votes, weights)


def deepconf_vote(prefix: Prefix) -> Aggregate:
    """DeepConf's filter: the surest tenth, at least sixteen, each weighing its confidence."""
    votes, sureness = _sure_votes(prefix)
    keep = max(FEWEST, ceil(SUREST * len(votes)))
    order = sorted(range(len(votes)), key=lambda place: (-sureness[place], place))
    kept = sorted(order[:keep])
    return _count([votes[place] for place in kept], [sureness[place] for place in kept])


def _sure_votes(prefix: Prefix) -> tuple[list[Vote], list[float]]:
    """The votes that say something, and how sure each is."""
    pairs = [
        (vote, confidence_of(response))
        for vote, response in zip(prefix.votes, prefix.responses, strict=True)
        if vote.answer is not None
    ]
    known = [sure for _, sure in pairs if isfinite(sure)]
    usual = sum(known) / len(known) if known else 1.0
    return [vote for vote, _ in pairs], [s if isfinite(s) else usual for _, s in pairs]


def _count(votes: Sequence[Vote], weights: Sequence[float]) -> Aggregate:
    weighed = [replace(v, weight=w, scored=False) for v, w in zip(votes, weights, strict=True)]
    tally = Tally().add(weighed)
    leaders = tally.leaders
    return Aggregate(leaders.answer, leaders.weight, tally.total, leaders.tied)


CONFIDENT = {"cisc": cisc_vote, "deepconf": deepconf_vote}
"""By the names that labels begin with, as cisc-64."""
