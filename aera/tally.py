"""Vote and Tally: what responses say, and how much weight stands behind each answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import comb, exp, lgamma, log
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

    @property
    def confidence(self) -> float:
        """The chance that the first is ahead in truth, under a Beta posterior (ASC's measure)."""
        return beta_confidence(self.weight, self.runner_up)


@dataclass(frozen=True, eq=False)
class Tally:
    """Weight per answer, in the order in which the answers were first seen."""

    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def add(self, votes: Iterable[Vote]) -> "Tally":
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
        """The leading answer and the weight behind it and behind the runner-up."""
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


@lru_cache(maxsize=65_536)
def beta_confidence(first: float, second: float) -> float:
    """P(p > 1/2) under Beta(first + 1, second + 1), exact for whole counts.

    For whole counts this is P(Binomial(first + second + 1, 1/2) <= first). Learned weights make
    fractional counts; for those it is the regularised incomplete beta function at 1/2.
    """
    if first == int(first) and second == int(second):
        trials = int(first) + int(second) + 1
        # The upper tail mirrors the lower one and is the shorter sum: the runner-up has less.
        unfavourable = sum(comb(trials, k) for k in range(int(second) + 1))
        return float((2**trials - unfavourable) / 2**trials)
    return _beta_half(second + 1, first + 1)


def _beta_half(a: float, b: float) -> float:
    """I_{1/2}(a, b) by its continued fraction, on the side where that converges fast."""
    if a < b:
        return 1.0 - _beta_half(b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) - (a + b) * log(2)) / a
    return front / _beta_fraction(a, b)


def _beta_fraction(a: float, b: float) -> float:
    """1 + d1/(1 + d2/(1 + ...)) at x = 1/2, evaluated from the tail upwards."""
    value = 1.0
    for m in range(200, 0, -1):
        even = m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)) / 2
        odd = -(a + m - 1) * (a + b + m - 1) / ((a + 2 * m - 2) * (a + 2 * m - 1)) / 2
        value = 1.0 + odd / (1.0 + even / value)
    return value
