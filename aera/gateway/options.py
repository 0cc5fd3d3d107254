"""RequestOptions: what one request may decide for itself, in its `aera` object or in headers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf, nan
from typing import Any

from aera.errors import UsageError

HEADER = "x-aera-"
RAW_HEADER = HEADER.encode()
MAY_BE_ZERO = ("threshold", "min_samples")
FRACTIONS = ("threshold", "deadline_s")


@dataclass(frozen=True)
class RequestOptions:
    """None leaves it to the gateway. Prompts are never looked at."""

    vote: bool | None = None
    """Whether to vote, whatever the model's name and the gateway's default say."""
    policy: str | None = None
    threshold: float | None = None
    min_samples: int | None = None
    max_samples: int | None = None
    max_tokens_total: int | None = None
    """Completion tokens after which no further block is asked for."""
    deadline_s: float | None = None

    @classmethod
    def parse(cls, given: Any, headers: Mapping[str, str]) -> "RequestOptions":
        """From the request's `aera` object, and from x-aera-* headers where it is silent."""
        if given is not None and not isinstance(given, dict):
            raise UsageError('the field "aera" must be an object')
        chosen = {
            name[len(HEADER) :].replace("-", "_"): value
            for name, value in headers.items()
            if name.startswith(HEADER)
        }
        chosen |= {name: value for name, value in (given or {}).items() if value is not None}
        if not chosen:
            return SILENT
        unknown = sorted(chosen.keys() - KNOWN)
        if unknown:
            known = ", ".join(KNOWN)
            raise UsageError(f'no option is called "{unknown[0]:.40}"; known are {known}')
        return cls(**{name: _parse_option(name, value) for name, value in chosen.items()})


KNOWN = tuple(field.name for field in fields(RequestOptions))
SILENT = RequestOptions()


def find_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a request that are options; of several with one name the first counts."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in reversed(headers)
        if name.startswith(RAW_HEADER)
    }


def _parse_option(name: str, value: Any) -> Any:
    """An option as what it must be."""
    if name == "vote":
        written = str(value).lower() if isinstance(value, bool | str) else ""
        if written not in ("true", "false"):
            raise UsageError(f'"aera.vote" must be true or false, but got {value!r:.40}')
        return written == "true"
    if name == "policy":
        if not isinstance(value, str) or len(value) > 100:
            raise UsageError(f'"aera.policy" must be a label, but got {value!r:.40}')
        return value
    number = _number(value)
    whole = name not in FRACTIONS
    low_enough = number >= 0 if name in MAY_BE_ZERO else number > 0
    if not low_enough or number == inf or (whole and not number.is_integer()):
        kind = "a whole number" if whole else "a number"
        least = "from 0 up" if name in MAY_BE_ZERO else "above 0"
        raise UsageError(f'"aera.{name}" must be {kind} {least}, but got {value!r:.40}')
    return int(number) if whole else number


def _number(value: Any) -> float:
    """A number, also one written as text, as headers hold it; else not a number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return nan
