"""Policy labels: from `asc-0.95` or `esc-5+min8+max64+vote` to a policy, and back."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aera.core import Schedule
from aera.errors import UsageError
from aera.policies.gate import Gated, OneShot
from aera.policies.rules import (
    ASC,
    ESC,
    Bounded,
    Confident,
    Consensus,
    Entropy,
    FirstValid,
    Fixed,
    Lead,
    Majority,
    Policy,
)

Maker = Callable[[str], Policy]

_MAKERS: dict[str, Maker] = {
    "fixed": lambda setting: Fixed(int(setting)),
    "asc": lambda setting: ASC(float(setting)),
    "esc": lambda setting: ESC(int(setting)),
    "majority": lambda setting: Majority(float(setting)),
    "entropy": lambda setting: Entropy(float(setting)),
    "lead": lambda setting: Lead(float(setting)),
    "cisc": lambda setting: Confident(int(setting), "cisc"),
    "deepconf": lambda setting: Confident(int(setting), "deepconf"),
}
GATED, FIXED, WEIGHTED = "aera-", "fixed-", "weighted-"
"""How the labels of a gate, of a plain and of a weighted fixed budget begin."""
ON_WEIGHTS = "+weighted"
"""What stands behind the label of any other policy that looks at weighted votes."""
_LIMIT = re.compile(r"(min|max)(\d+)|(vote)")


@dataclass(frozen=True)
class Description:
    """One kind of label, as `aera policies` and the documentation show it."""

    label: str
    meaning: str
    source: str = ""
    """The paper it comes from."""


DESCRIPTIONS = (
    Description("fixed-N", "after N responses: self-consistency by majority vote", "Wang 2023"),
    Description(
        "asc-C",
        "when the leader beats the runner-up with confidence C, by a Beta posterior",
        "Adaptive-Consistency, Aggarwal 2023",
    ),
    Description(
        "esc-W",
        "when the last W responses all agree",
        "Early-Stopping Self-Consistency, Li 2024",
    ),
    Description("majority-S", "when the leader holds a share S of the valid votes"),
    Description("entropy-E", "when the normalised entropy of the valid votes is at most E"),
    Description("lead-M", "when the leader is M votes ahead of the runner-up"),
    Description("first-valid", "as soon as any response can be read"),
    Description(
        "cisc-N",
        "after N responses, each weighing exp(mean confidence of its tokens / 2); needs traces",
        "CISC, Taubenfeld 2025",
    ),
    Description(
        "deepconf-N",
        "after N responses, of which the surest tenth votes, at least 16; needs traces",
        "DeepConf, Fu 2025",
    ),
    Description(
        "consensus-S", "when the mean cosine of all pairs of responses is S (evaluate only)"
    ),
    Description("aera-T", "when a controller's gate says a chance below T that continuing pays"),
)
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
    return [*fixed, *asc, ESC(3), ESC(5), Lead(3), FirstValid()]


def parse_policy(label: str, more: Mapping[str, Maker] = MappingProxyType({})) -> Policy:
    """The policy behind a canonical label; `more` makes those of evaluate only."""
    if label.strip() != strip_weighted(label.strip()):
        raise UsageError(
            f'"{label}" is on weighted votes, and weights belong to a controller; '
            f'without one the policy is "{strip_weighted(label.strip())}"'
        )
    name, *limits = label.strip().split("+")
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
    if text.startswith(FIXED):
        return WEIGHTED + text.removeprefix(FIXED)
    return text + ON_WEIGHTS


def confident_rule(policy: Policy) -> str | None:
    """The rule that selects a policy's answer from the surest votes; None for the vote itself."""
    inner: Policy | None = policy
    while inner is not None and not isinstance(inner, Confident):
        inner = getattr(inner, "policy", None)  # what stands around it: limits, the gateway's
    return None if inner is None else inner.rule


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
    found = [_LIMIT.fullmatch(limit) for limit in limits]
    if not all(found):
        raise UsageError(f'the limits in "{label}" must be +minN, +maxN or +vote')
    numbers = {match[1]: int(match[2]) for match in found if match and match[1]}
    vote = any(match and match[3] for match in found)
    return Bounded(policy, minimum=numbers.get("min"), maximum=numbers.get("max"), need_vote=vote)


_FAMILIES: dict[type, tuple[str, str | None]] = {
    Fixed: ("fixed", "responses"),
    ASC: ("asc", "confidence"),
    ESC: ("esc", "window"),
    Majority: ("majority", "share"),
    Entropy: ("entropy", "ceiling"),
    Lead: ("lead", "margin"),
    FirstValid: ("first-valid", None),
    Confident: ("confident", "responses"),
    Consensus: ("consensus", "share"),
    Gated: ("aera", "threshold"),
    OneShot: ("one-shot", None),
}
"""Every family with the name of its setting."""


@dataclass(frozen=True)
class Name:
    """What tables call a policy, and what it is a setting of."""

    label: str
    family: str
    """What its label begins with: policies that differ in their setting only."""
    setting: float | None
    """Its place in the family; None where it has no setting, or limits beside it."""
    fixed: bool
    """Whether it always takes the same number of responses."""


def name_policies(policies: Iterable[Policy], *, weighted: bool = False) -> list[Name]:
    """The names of some policies on plain or on weighted votes."""
    return [_name(policy, weighted=weighted) for policy in policies]


def _name(policy: Policy, *, weighted: bool) -> Name:
    inner = policy.policy if isinstance(policy, Bounded) else policy
    family, setting = _FAMILIES.get(type(inner), (str(inner), None))
    family = inner.rule if isinstance(inner, Confident) else family
    return Name(
        label_of(policy, weighted=weighted),
        family,
        float(getattr(policy, setting)) if setting and inner is policy else None,
        type(policy) is Fixed,
    )
