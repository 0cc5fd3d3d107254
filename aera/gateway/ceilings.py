"""Ceilings: what one voted request may take at most, whatever it asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aera.errors import check_count
from aera.gateway.options import RequestOptions

LENGTHS = ("max_completion_tokens", "max_tokens")
"""Fields of a request that bound the length of a response."""


@dataclass(frozen=True)
class Ceilings:
    """The operator's limits; None is no limit."""

    samples: int = 512
    """Of one request, all its choices together."""
    choices: int = 16
    """The largest `n`."""
    tokens: int | None = None
    """Completion tokens of one response."""
    tokens_total: int | None = None
    """Completion tokens of one request."""
    deadline: float | None = 1_800.0
    """The longest deadline in seconds; also that of a request without one."""
    usual_deadline: float | None = None
    """The deadline of a request that names none, where it is another."""

    def __post_init__(self) -> None:
        check_count("samples", self.samples)
        check_count("choices", self.choices)

    def limit_options(self, options: RequestOptions) -> tuple[RequestOptions, tuple[str, ...]]:
        """The options as far as they are allowed, and a sentence for each that was cut."""
        notes: list[str] = []
        tokens = _lower("max_tokens_total", options.max_tokens_total, self.tokens_total, notes)
        seconds = _lower("deadline_s", options.deadline_s, self.deadline, notes)
        if options.deadline_s is None and self.usual_deadline is not None:
            seconds = min(self.usual_deadline, self.deadline or self.usual_deadline)
        limits = {"max_tokens_total": tokens, "deadline_s": seconds}
        return replace(options, **limits), tuple(notes)  # type: ignore[arg-type]

    def limit_lengths(self, body: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """A request whose responses are no longer than allowed, and what was cut."""
        most = self.tokens
        if most is None:
            return body, ()
        asked = {name: body[name] for name in LENGTHS if isinstance(body.get(name), int)}
        cut = {name: most for name, length in asked.items() if length > most}
        notes = [f"{name} was cut from {asked[name]} to {most}" for name in cut]
        if not asked:
            cut = {"max_tokens": most}
        return ({**body, **cut} if cut else body), tuple(notes)


def _lower(
    name: str, asked: float | None, most: float | None, notes: list[str]
) -> float | int | None:
    """The smaller of what is asked for and what is allowed; says where something was cut."""
    if asked is not None and most is not None and asked > most:
        notes.append(f"{name} was cut from {asked:g} to {most:g}, the most allowed here")
        return most
    return most if asked is None else asked
