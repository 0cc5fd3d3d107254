"""From policy labels to policies: `asc-0.95`, `esc-5+min8+max64+vote`."""

import re
from collections.abc import Callable

from aera.baselines import ASC, ESC
from aera.errors import UsageError
from aera.policy import Bounded, Entropy, FirstValid, Fixed, Lead, Majority, Policy
from aera.schedule import Schedule

_MAKERS: dict[str, Callable[[str], Policy]] = {
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


def parse_policy(label: str) -> Policy:
    """The policy behind a canonical label."""
    name, *limits = label.strip().split("+")
    policy = _parse_plain(name)
    return _bounded(policy, limits, label=label) if limits else policy


def _parse_plain(name: str) -> Policy:
    if name == "first-valid":
        return FirstValid()
    kind, _, dial = name.partition("-")
    try:
        return _MAKERS[kind](dial)
    except (KeyError, ValueError):
        known = ", ".join(f"{kind}-N" for kind in _MAKERS)
        raise UsageError(
            f'no policy is called "{name}"; known are {known}, eb-N and first-valid, '
            "each with +minN, +maxN or +vote behind it"
        ) from None


def _bounded(policy: Policy, limits: list[str], *, label: str) -> Bounded:
    found = [_LIMIT.fullmatch(limit) for limit in limits]
    if not all(found):
        raise UsageError(f'the limits in "{label}" must be +minN, +maxN or +vote')
    numbers = {match[1]: int(match[2]) for match in found if match and match[1]}
    vote = any(match and match[3] for match in found)
    return Bounded(policy, minimum=numbers.get("min"), maximum=numbers.get("max"), need_vote=vote)
