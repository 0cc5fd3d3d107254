"""Measures: the one number of a prefix that each policy with a threshold looks at."""

from collections.abc import Callable, Sequence
from math import inf

from aera.evidence.encoder import Encoder
from aera.evidence.semantics import semantics
from aera.response import Prefix

Measure = Callable[[Prefix], float]


def confidence(prefix: Prefix) -> float:
    """Adaptive-Consistency's: the chance that the leader is ahead of the runner-up in truth."""
    leaders = prefix.tally.leaders
    return -inf if leaders.answer is None else leaders.confidence


def unanimous_tail(prefix: Prefix) -> float:
    """Early-Stopping Self-Consistency's: how many of the latest responses agree without a gap."""
    votes = prefix.votes
    count = 0
    while count < len(votes) and votes[-1 - count].answer == votes[-1].answer is not None:
        count += 1
    return float(count)


def lead(prefix: Prefix) -> float:
    """Weight of the leader beyond that of the runner-up."""
    return prefix.tally.leaders.weight - prefix.tally.leaders.runner_up


def majority(prefix: Prefix) -> float:
    """Share of the leader among the valid votes."""
    return prefix.tally.majority if len(prefix.tally) else -inf


def entropy(prefix: Prefix) -> float:
    """Normalised entropy of the valid votes."""
    return prefix.tally.entropy if len(prefix.tally) else inf


def consensus(encoder: Encoder, prefix: Prefix) -> float:
    """Mean cosine over all pairs of responses."""
    return semantics(prefix, encoder).consensus if len(prefix.tally) else -inf


def measure_all(
    measures: Sequence[Measure], chains: Sequence[Sequence[Prefix]]
) -> list[list[list[float]]]:
    """Every measure of every prefix, by measure, question and checkpoint."""
    return [[[measure(prefix) for prefix in chain] for chain in chains] for measure in measures]
