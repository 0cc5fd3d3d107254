"""Vote and Tally: what responses say, and how much weight stands behind each answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import log
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Vote:
    """What one response says. `answer` is None when it abstains; an abstention never wins."""

    answer: str | None
    redo: bool = False
    raw: str | None = None
    """The last boxed content as written, also of a redo; only the Re2 rules look at it."""
    weight: float = 1.0
    scored: bool = False
    """Whether the weight is a score, of which the best counts: equal answers do not add up."""


@dataclass(frozen=True)
class Leaders:
    """The two answers with the most weight. `tied` says that the first won only by being first."""

    answer: str | None
    weight: float
    runner_up: float
    tied: bool


@dataclass(frozen=True, eq=False)
class Tally:
    """Weight per answer, in the order in which the answers were first seen."""

    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def adding(self, votes: Iterable[Vote]) -> "Tally":
        """A new tally with these votes counted; abstentions leave it unchanged."""
        weights = dict(self.weights)
        for vote in votes:
            if vote.answer is not None:
                known = weights.get(vote.answer, 0.0)
                weights[vote.answer] = (
                    max(known, vote.weight) if vote.scored else known + vote.weight
                )
        return Tally(MappingProxyType(weights))

    @cached_property
    def total(self) -> float:
        """The weight of all valid votes."""
        return sum(self.weights.values())

    @cached_property
    def leaders(self) -> Leaders:
        """The leading answer and the weight behind it and behind its closest rival."""
        answer, first, second = None, 0.0, 0.0
        for candidate, weight in self.weights.items():
            if answer is None or weight > first:
                answer, first, second = candidate, weight, first
            elif weight > second:
                second = weight
        return Leaders(answer, first, second, tied=answer is not None and first == second)

    @property
    def majority(self) -> float:
        """Share of the valid weight behind the leader, 0 without a vote."""
        return self.leaders.weight / self.total if self.total else 0.0

    @property
    def gap(self) -> float:
        """Difference of the two largest shares, 0 without a vote."""
        return (self.leaders.weight - self.leaders.runner_up) / self.total if self.total else 0.0

    @cached_property
    def entropy(self) -> float:
        """Entropy of the shares divided by its maximum for that many answers; 0 when unanimous."""
        shares = [w / self.total for w in self.weights.values() if w > 0] if self.total else []
        if len(shares) < 2:
            return 0.0
        return min(1.0, -sum(share * log(share) for share in shares) / log(len(shares)))

    def __len__(self) -> int:
        return len(self.weights)
