"""The frozen rule that turns a prefix into the answer that is returned."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from aera.response import Prefix, Response


@dataclass(frozen=True)
class Aggregate:
    """The answer a rule selects, the weight behind it, and whether it won only by being first."""

    answer: str | None
    support: float
    total: float
    tied: bool = False


Rule = Callable[[Prefix], Aggregate]


def plain_vote(prefix: Prefix) -> Aggregate:
    """The answer with the most weight; the one seen first wins a tie; None without a vote."""
    leaders = prefix.tally.leaders
    return Aggregate(leaders.answer, leaders.weight, prefix.tally.total, leaders.tied)


def find_winner(prefix: Prefix, answer: str | None) -> Response | None:
    """The response that stands for an answer: the heaviest of those that gave it."""
    given = [
        (vote.weight, response)
        for vote, response in zip(prefix.votes, prefix.responses, strict=True)
        if vote.answer == answer and answer is not None
    ]
    return max(given, key=lambda pair: pair[0])[1] if given else None


def re2_vote(prefix: Prefix) -> Aggregate:
    """The Re2 evaluator's vote, kept for comparison: raw boxed text, redo filtered.

    When every response is a redo, all boxed contents vote. Ties go to the shortest string, then
    to the first in the alphabet.
    """
    boxed = [vote for vote in prefix.votes if vote.raw is not None]
    kept = [vote for vote in boxed if not vote.redo] or boxed
    counts = Counter(vote.raw for vote in kept if vote.raw is not None)
    if not counts:
        return Aggregate(None, 0.0, 0.0)
    best = max(counts.values())
    winners = sorted((len(raw), raw) for raw, count in counts.items() if count == best)
    return Aggregate(winners[0][1], float(best), float(len(kept)), tied=len(winners) > 1)


RULES: dict[str, Rule] = {"vote": plain_vote, "re2-vote": re2_vote}
