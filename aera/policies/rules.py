"""Policies: given a prefix, stop or continue. A policy is a frozen value; its text is its label."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

from aera.core import Prefix, beta_confidence
from aera.errors import UsageError, check_count, check_share
from aera.paper.encoder import Encoder
from aera.paper.features import semantics


@dataclass(frozen=True, slots=True)
class Decision:
    """Stop or continue, why, and for a gate the estimated chance that continuing pays."""

    stop: bool
    reason: str
    p_continue: float | None = None
    forced: bool = False
    """Nobody wanted to stop: the last allowed checkpoint was reached."""
    outside: bool = False
    """The gate was asked beyond its training range, and was not trusted."""

    def force(self, reason: str) -> "Decision":
        """The stop at the last allowed checkpoint; an untrusted gate stays the reason."""
        kept = self.reason if self.outside else reason
        return replace(self, stop=True, reason=kept, forced=True)


class Policy(Protocol):
    """Anything with `decide`. Make it frozen and give it a `__str__`: that is its label."""

    def decide(self, prefix: Prefix) -> Decision:
        """Look at the prefix, and at nothing else, and decide."""
        ...


def when(stop: bool, reason: str) -> Decision:
    """Stop for this reason, or go on because it does not hold."""
    return Decision(stop, reason if stop else f"not yet: {reason}")


def write_number(setting: float) -> str:
    """A setting as labels hold it: the shortest text that reads back as the same number."""
    return repr(float(setting)).removesuffix(".0").replace("e+", "e")


@dataclass(frozen=True)
class Fixed:
    """Stop at a fixed number of responses."""

    responses: int

    def __post_init__(self) -> None:
        check_count("fixed", self.responses)

    def decide(self, prefix: Prefix) -> Decision:
        return when(len(prefix) >= self.responses, "fixed budget")

    def __str__(self) -> str:
        return f"fixed-{self.responses}"


@dataclass(frozen=True)
class Confident(Fixed):
    """A fixed budget whose answer a rule of aera/voting/confident.py selects, by its name."""

    rule: str = "cisc"

    def __str__(self) -> str:
        return f"{self.rule}-{self.responses}"


@dataclass(frozen=True)
class FirstValid:
    """Stop as soon as any response can be read."""

    def decide(self, prefix: Prefix) -> Decision:
        return when(len(prefix.tally) > 0, "a valid vote")

    def __str__(self) -> str:
        return "first-valid"


@dataclass(frozen=True)
class Majority:
    """Stop when the leader holds at least this share of the valid votes."""

    share: float

    def __post_init__(self) -> None:
        check_share("majority", self.share)

    def decide(self, prefix: Prefix) -> Decision:
        tally = prefix.tally
        return when(len(tally) > 0 and tally.majority >= self.share, "majority")

    def __str__(self) -> str:
        return f"majority-{write_number(self.share)}"


@dataclass(frozen=True)
class Entropy:
    """Stop when the normalised entropy of the valid votes has fallen this low."""

    ceiling: float

    def __post_init__(self) -> None:
        check_share("entropy", self.ceiling)

    def decide(self, prefix: Prefix) -> Decision:
        tally = prefix.tally
        return when(len(tally) > 0 and tally.entropy <= self.ceiling, "low entropy")

    def __str__(self) -> str:
        return f"entropy-{write_number(self.ceiling)}"


@dataclass(frozen=True)
class Lead:
    """Stop when the leader is this many votes ahead of the runner-up."""

    margin: float

    def __post_init__(self) -> None:
        if not 0 < self.margin < inf:
            raise UsageError(f"lead needs a margin above 0, but got {self.margin}")

    def decide(self, prefix: Prefix) -> Decision:
        leaders = prefix.tally.leaders
        return when(leaders.weight - leaders.runner_up >= self.margin, "lead")

    def __str__(self) -> str:
        return f"lead-{write_number(self.margin)}"


@dataclass(frozen=True)
class Bounded:
    """Any policy within limits: a minimum, a maximum, and no stop without a vote before that.

    A stop that the policy wanted keeps its reason, also at the maximum. `need_vote` is off in the
    paper's protocol and on wherever people get the answer.
    """

    policy: Policy
    minimum: int | None = None
    maximum: int | None = None
    need_vote: bool = True

    def __post_init__(self) -> None:
        for name, value in (("min", self.minimum), ("max", self.maximum)):
            if value is not None:
                check_count(name, value)
        if self.minimum and self.maximum and self.minimum > self.maximum:
            raise UsageError(f"the minimum {self.minimum} is above the maximum {self.maximum}")

    def decide(self, prefix: Prefix) -> Decision:
        decision, beyond = self._hold_back(prefix), prefix.next_checkpoint
        if decision.stop or self.maximum is None:
            return decision
        if beyond is None or beyond > self.maximum:
            return decision.force("maximum reached")
        return decision

    def _hold_back(self, prefix: Prefix) -> Decision:
        """What the policy decides, kept from stopping too early or without a vote."""
        decision = self.policy.decide(prefix)
        if self.minimum is not None and len(prefix) < self.minimum:
            return Decision(False, "below the minimum", decision.p_continue)
        if decision.stop and self.need_vote and not len(prefix.tally):
            return Decision(False, "no vote yet", decision.p_continue)
        return decision

    def __str__(self) -> str:
        limits = [
            f"+min{self.minimum}" if self.minimum is not None else "",
            f"+max{self.maximum}" if self.maximum is not None else "",
            "+vote" if self.need_vote else "",
        ]
        return f"{self.policy}{''.join(limits)}"


UNREADABLE = "nothing could be read"
"""Why a run ended in which two blocks brought nothing that can be voted on."""


def layers(policy: Policy) -> Iterator[Policy]:
    """A policy and those inside it, the outermost first; what wraps another names it `policy`."""
    inside: Policy | None = policy
    while inside is not None:
        yield inside
        inside = getattr(inside, "policy", None)


def is_weighted(policy: Policy) -> bool:
    """Whether a policy's setting was chosen on weighted votes, and means nothing on others."""
    return any(getattr(each, "weighted", False) for each in layers(policy))


def bounds_of(policy: Policy, last: int) -> tuple[int, int]:
    """The fewest and the most responses that the limits around a policy allow."""
    limits = [each for each in layers(policy) if isinstance(each, Bounded)]
    least = max((each.minimum or 0 for each in limits), default=0)
    return least, min([last, *(each.maximum or last for each in limits)])


def range_of(policy: Policy, last: int) -> tuple[int, int]:
    """The same for the policy itself: a fixed budget within its limits takes what it says."""
    least, most = bounds_of(policy, last)
    for fixed in (each for each in layers(policy) if isinstance(each, Fixed)):
        least = most = max(least, min(fixed.responses, most))
    return least, most


@dataclass(frozen=True)
class ASC:
    """Adaptive-Consistency: stop when the leader beats the runner-up with this confidence."""

    confidence: float = 0.95
    weighted: bool = field(default=False, compare=False)
    """Whether the confidence was chosen on weighted votes."""

    def __post_init__(self) -> None:
        check_share("asc", self.confidence)

    def decide(self, prefix: Prefix) -> Decision:
        leaders = prefix.tally.leaders
        sure = leaders.answer is not None and (
            beta_confidence(leaders.weight, leaders.runner_up) >= self.confidence
        )
        return when(sure, "confident leader")

    def __str__(self) -> str:
        return f"asc-{write_number(self.confidence)}"


@dataclass(frozen=True)
class ESC:
    """Early-Stopping Self-Consistency: stop when the last `window` responses all agree.

    A response that cannot be read breaks the agreement; the answer is the vote of the prefix.
    """

    window: int = 5

    def __post_init__(self) -> None:
        check_count("esc", self.window)

    def decide(self, prefix: Prefix) -> Decision:
        recent = prefix.votes[-self.window :]
        answers = {vote.answer for vote in recent}
        agree = len(recent) == self.window and len(answers) == 1 and None not in answers
        return when(agree, "unanimous window")

    def __str__(self) -> str:
        return f"esc-{self.window}"


@dataclass(frozen=True)
class Consensus:
    """Stop when the mean cosine over all pairs of responses has risen this high."""

    encoder: Encoder
    share: float

    def __post_init__(self) -> None:
        check_share("consensus", self.share)

    def decide(self, prefix: Prefix) -> Decision:
        close = semantics(prefix, self.encoder).consensus >= self.share
        return when(len(prefix.tally) > 0 and close, "semantic consensus")

    def __str__(self) -> str:
        return f"consensus-{self.share:g}"


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
