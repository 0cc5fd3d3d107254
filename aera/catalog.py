"""From policy labels to policies: `asc-0.95`, `esc-5+min8+max64+vote`."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from aera.baselines import ASC, ESC
from aera.errors import UsageError
from aera.policy import Bounded, Entropy, FirstValid, Fixed, Lead, Majority, Policy
from aera.schedule import Schedule

Maker = Callable[[str], Policy]

_MAKERS: dict[str, Maker] = {
    "fixed": lambda dial: Fixed(int(dial)),
    "asc": lambda dial: ASC(float(dial)),
    "esc": lambda dial: ESC(int(dial)),
    "majority": lambda dial: Majority(float(dial)),
    "entropy": lambda dial: Entropy(float(dial)),
    "lead": lambda dial: Lead(float(dial)),
}
_LIMIT = re.compile(r"(min|max)(\d+)|(vote)")


def standard_policies(schedule: Schedule) -> list[Policy]:
    """What an evaluation shows when nobody says otherwise."""
    fixed = [Fixed(checkpoint) for checkpoint in schedule]
    asc = [ASC(confidence) for confidence in (0.8, 0.9, 0.95, 0.99)]
    return [*fixed, *asc, ESC(3), ESC(5), Lead(3), FirstValid()]


def parse_policy(label: str, learned: Mapping[str, Maker] = MappingProxyType({})) -> Policy:
    """The policy behind a canonical label; `learned` makes those that need data, as eb-0.95."""
    name, *limits = label.strip().split("+")
    policy = _parse_plain(name, {**_MAKERS, **learned})
    return _bounded(policy, limits, label=label) if limits else policy


def _parse_plain(name: str, makers: Mapping[str, Maker]) -> Policy:
    if name == "first-valid":
        return FirstValid()
    kind, _, dial = name.partition("-")
    try:
        return makers[kind](dial)
    except (KeyError, ValueError):
        known = ", ".join(f"{kind}-N" for kind in makers)
        raise UsageError(
            f'no policy is called "{name}"; known are {known} and first-valid, '
            "each with +minN, +maxN or +vote behind it"
        ) from None


def _bounded(policy: Policy, limits: list[str], *, label: str) -> Bounded:
    found = [_LIMIT.fullmatch(limit) for limit in limits]
    if not all(found):
        raise UsageError(f'the limits in "{label}" must be +minN, +maxN or +vote')
    numbers = {match[1]: int(match[2]) for match in found if match and match[1]}
    vote = any(match and match[3] for match in found)
    return Bounded(policy, minimum=numbers.get("min"), maximum=numbers.get("max"), need_vote=vote)
