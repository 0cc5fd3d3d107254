"""Policies: given a prefix, stop or continue. A policy is a frozen value; its text is its label."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import ClassVar, Protocol

from aera.core import Prefix, Schedule
from aera.errors import UsageError, check_count, check_share


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


# --- what the rules look at -----------------------------------------------------------------------

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


# --- the rules ------------------------------------------------------------------------------------


class Rule:
    """A policy that stops as soon as a number of the prefix has reached its setting."""

    kind: ClassVar[str]
    """What its labels begin with: rules of a kind differ in their setting only."""
    reason: ClassVar[str]
    measure: ClassVar[Measure]
    falls: ClassVar[bool] = False
    """Whether the number falls to its setting."""
    counts: ClassVar[bool] = False
    """Whether the setting is a number of responses, and not a share."""

    def __post_init__(self) -> None:
        if self.counts:
            check_count(self.kind, int(self.setting))
        else:
            check_share(self.kind, self.setting)

    @classmethod
    def parse(cls, setting: str) -> "Rule":
        """The rule with a setting as its labels hold it."""
        return cls(int(setting) if cls.counts else float(setting))  # type: ignore[call-arg]

    @property
    def setting(self) -> float:
        """The first field."""
        return float(next(iter(vars(self).values())))

    def reached(self, prefix: Prefix) -> bool:
        """Whether the number is there."""
        found = type(self).measure(prefix)
        return found <= self.setting if self.falls else found >= self.setting

    def decide(self, prefix: Prefix) -> Decision:
        found = self.reached(prefix)
        return Decision(found, self.reason if found else f"not yet: {self.reason}")

    def __str__(self) -> str:
        # The shortest text that reads back as the same number.
        return f"{self.kind}-{repr(self.setting).removesuffix('.0').replace('e+', 'e')}"


@dataclass(frozen=True)
class Fixed(Rule):
    """Stop at a fixed number of responses."""

    kind, reason, measure, counts = "fixed", "fixed budget", len, True
    responses: int
    rule: str | None = None
    """What selects the answer (aera/voting/rules.py), by its name; None is the vote."""

    def __str__(self) -> str:
        return f"{self.rule or self.kind}-{self.responses}"


@dataclass(frozen=True)
class FirstValid:
    """Stop as soon as any response can be read."""

    def decide(self, prefix: Prefix) -> Decision:
        found = len(prefix.tally) > 0
        return Decision(found, "a valid vote" if found else "not yet: a valid vote")

    def __str__(self) -> str:
        return "first-valid"


@dataclass(frozen=True)
class Majority(Rule):
    """Stop when the leader holds at least this share of the valid votes."""

    kind, reason, measure = "majority", "majority", majority
    share: float


@dataclass(frozen=True)
class Entropy(Rule):
    """Stop when the normalised entropy of the valid votes has fallen this low."""

    kind, reason, measure, falls = "entropy", "low entropy", entropy, True
    ceiling: float


@dataclass(frozen=True)
class Lead(Rule):
    """Stop when the leader is this many votes ahead of the runner-up."""

    kind, reason, measure = "lead", "lead", lead
    margin: float

    def __post_init__(self) -> None:
        if not 0 < self.margin < inf:
            raise UsageError(f"lead needs a margin above 0, but got {self.margin}")


@dataclass(frozen=True)
class ASC(Rule):
    """Adaptive-Consistency: stop when the leader beats the runner-up with this confidence."""

    kind, reason, measure = "asc", "confident leader", confidence
    confidence: float = 0.95
    weighted: bool = field(default=False, compare=False)
    """Whether the confidence was chosen on weighted votes."""


@dataclass(frozen=True)
class ESC(Rule):
    """Early-Stopping Self-Consistency: stop when the last `window` responses all agree.

    A response that cannot be read breaks the agreement; the answer is the vote of the prefix.
    """

    kind, reason, measure, counts = "esc", "unanimous window", unanimous_tail, True
    window: int = 5


UNTRAINED: Policy = Lead(4)
"""Decides where nothing was learned: the cheapest that loses little on any pool (docs/results.md).

Who is careful takes asc-0.95, which loses next to nothing for two fifths more tokens.
"""


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
        decision, beyond = self.policy.decide(prefix), prefix.next_checkpoint or inf
        if self.minimum is not None and len(prefix) < self.minimum:
            decision = Decision(False, "below the minimum", decision.p_continue)
        elif decision.stop and self.need_vote and not len(prefix.tally):
            decision = Decision(False, "no vote yet", decision.p_continue)
        if not decision.stop and self.maximum is not None and beyond > self.maximum:
            return decision.force("maximum reached")
        return decision

    def __str__(self) -> str:
        bounds = (("min", self.minimum), ("max", self.maximum))
        limits = [f"+{name}{value}" for name, value in bounds if value is not None]
        return f"{self.policy}{''.join(limits)}{'+vote' if self.need_vote else ''}"


UNREADABLE = "nothing could be read"
"""Why a run ended in which two blocks brought nothing that can be voted on."""


def inside(policy: Policy) -> Policy:
    """A policy without the limits around it."""
    while isinstance(policy, Bounded):
        policy = policy.policy
    return policy


def within(limits: Policy, policy: Policy) -> Policy:
    """A policy with the limits that are around another one, if any are."""
    return replace(limits, policy=policy) if isinstance(limits, Bounded) else policy


def is_weighted(policy: Policy) -> bool:
    """Whether a policy's setting was chosen on weighted votes, and means nothing on others."""
    return bool(getattr(inside(policy), "weighted", False))


def fixed_in(policy: Policy) -> Fixed | None:
    """The fixed budget within the limits around it, if it is one: nothing is decided on the way."""
    return inner if isinstance(inner := inside(policy), Fixed) else None


def bounds_of(policy: Policy, last: int) -> tuple[int, int]:
    """The fewest and the most responses that the limits around a policy allow."""
    limits = policy if isinstance(policy, Bounded) else Bounded(policy)
    return limits.minimum or 0, min(last, limits.maximum or last)


def range_of(policy: Policy, last: int) -> tuple[int, int]:
    """The same for the policy itself: a fixed budget within its limits takes what it says."""
    least, most = bounds_of(policy, last)
    if (fixed := fixed_in(policy)) is not None:
        least = most = max(least, min(fixed.responses, most))
    return least, most


# --- labels ---------------------------------------------------------------------------------------

Maker = Callable[[str], Policy]

_MAKERS: dict[str, Maker] = {
    **{rule.kind: rule.parse for rule in (Fixed, ASC, ESC, Majority, Entropy, Lead)},
    "cisc": lambda setting: Fixed(int(setting), "cisc"),
    "deepconf": lambda setting: Fixed(int(setting), "deepconf"),
}
GATED, FIXED, WEIGHTED = "aera-", "fixed-", "weighted-"
"""How the labels of a gate, of a plain and of a weighted fixed budget begin."""
ON_WEIGHTS = "+weighted"
"""What stands behind the label of any other policy that looks at weighted votes."""
_LIMIT = re.compile(r"(min|max)(\d+)|vote")


DESCRIPTIONS = {
    "fixed-N": ("after N responses: self-consistency by majority vote", "Wang 2023"),
    "asc-C": (
        "when the leader beats the runner-up with confidence C, by a Beta posterior",
        "Adaptive-Consistency, Aggarwal 2023",
    ),
    "esc-W": ("when the last W responses all agree", "Early-Stopping Self-Consistency, Li 2024"),
    "majority-S": ("when the leader holds a share S of the valid votes", ""),
    "entropy-E": ("when the normalised entropy of the valid votes is at most E", ""),
    "lead-M": ("when the leader is M votes ahead of the runner-up", ""),
    "first-valid": ("as soon as any response can be read", ""),
    "cisc-N": (
        "after N responses, each weighing exp(mean confidence of its tokens / 2); needs traces",
        "CISC, Taubenfeld 2025",
    ),
    "deepconf-N": (
        "after N responses, of which the surest tenth votes, at least 16; needs traces",
        "DeepConf, Fu 2025",
    ),
    "consensus-S": ("when the mean cosine of all pairs of responses is S (evaluate only)", ""),
    "aera-T": ("when a controller's gate says a chance below T that continuing pays", ""),
}
"""Every kind of label: when it stops, and the paper it comes from."""
LIMITS = {
    "+minN": "not before N responses",
    "+maxN": "not beyond N responses",
    "+vote": "not without a vote, as long as more may be asked for",
    "+weighted": "on votes that carry a controller's learned weights, or those of --weights",
}


def standard_policies(schedule: Schedule) -> list[Policy]:
    """What an evaluation shows when nobody says otherwise."""
    fixed = [Fixed(checkpoint) for checkpoint in schedule]
    asc = [ASC(confidence) for confidence in (0.8, 0.9, 0.95, 0.99)]
    return [*fixed, *asc, ESC(3), ESC(5), UNTRAINED, FirstValid()]


def parse_policy(label: str, more: Mapping[str, Maker] = MappingProxyType({})) -> Policy:
    """The policy behind a canonical label; `more` makes those of evaluate only."""
    label = label.strip()
    if label != (plain := strip_weighted(label)):
        raise UsageError(
            f'"{label}" is on weighted votes, and weights belong to a controller; '
            f'without one the policy is "{plain}"'
        )
    name, *limits = label.split("+")
    policy = _parse_plain(name, {**_MAKERS, **more})
    return _limit(policy, limits, label=label) if limits else policy


_ONLY_REPLAYED = {
    "oracle": "it knows the right answers",
    "consensus": "it compares all pairs of responses, and only evaluate does that",
    "one-shot": "it is fitted by crossfit only",
    "matched-random": "it deals the stops of another policy at random",
}


def check_runs_live(label: str) -> None:
    """Refuse, with the reason, a label that is shown in tables and cannot answer questions."""
    name = label.partition("+")[0]
    kind = name if name in _ONLY_REPLAYED else name.rpartition("-")[0]
    if name.endswith("-calibrated"):
        raise UsageError(
            f'"{label}" was chosen fold by fold, so there is no one setting to run; aera train '
            "chooses one"
        )
    if kind in _ONLY_REPLAYED:
        raise UsageError(f'"{label}" cannot answer questions: {_ONLY_REPLAYED[kind]}')


def label_of(policy: Policy, *, weighted: bool) -> str:
    """The label of a policy on plain or on weighted votes: asc-0.71+weighted, weighted-128.

    A gate's label is the same on both, for a gate knows only the votes that it was trained on.
    """
    text = str(policy)
    if not weighted or text.startswith(GATED):
        return text
    return text.replace(FIXED, WEIGHTED) if text.startswith(FIXED) else text + ON_WEIGHTS


def confident_rule(policy: Policy) -> str | None:
    """The rule that selects a policy's answer from the surest votes; None for the vote itself."""
    fixed = fixed_in(policy)
    return fixed.rule if fixed else None


def strip_weighted(label: str) -> str:
    """The label of the same policy on plain votes."""
    if label.startswith(WEIGHTED):
        return FIXED + label.removeprefix(WEIGHTED)
    return label.removesuffix(ON_WEIGHTS)


def _parse_plain(name: str, makers: Mapping[str, Maker]) -> Policy:
    if name == "first-valid":
        return FirstValid()
    kind, _, setting = name.partition("-")
    try:
        return makers[kind](setting)
    except (KeyError, ValueError):
        check_runs_live(name)
        known = ", ".join(f"{kind}-N" for kind in makers)
        raise UsageError(
            f'no policy is called "{name}"; known are {known} and first-valid, '
            "each with +minN, +maxN or +vote behind it"
        ) from None


def _limit(policy: Policy, limits: list[str], *, label: str) -> Bounded:
    found = [match for limit in limits if (match := _LIMIT.fullmatch(limit))]
    if len(found) < len(limits):
        raise UsageError(f'the limits in "{label}" must be +minN, +maxN or +vote')
    numbers = {match[1]: int(match[2]) for match in found if match[1]}
    return Bounded(policy, numbers.get("min"), numbers.get("max"), need_vote="vote" in limits)


def family_of(policy: Policy) -> str:
    """What the labels of policies begin with that differ in their setting only."""
    inner = inside(policy)
    return str(getattr(inner, "rule", None) or getattr(inner, "kind", inner))


def setting_of(policy: Policy) -> float | None:
    """Its place in its family; None where it has no setting, or limits beside it."""
    return getattr(policy, "setting", None)


def is_fixed(policy: Policy) -> bool:
    """Whether it always takes the same number of responses, and they vote."""
    return isinstance(policy, Fixed) and policy.rule is None
