"""Votes on tool calls and JSON: by name, then by canonical arguments without long strings.

The answer of such a vote is one string, the name and behind it the arguments, so that every policy
can look at it as at any other answer. No two texts are alike, so long strings do not vote.
"""

from dataclasses import dataclass, replace
from typing import Any

from aera.core import Leaders, Prefix, Reader, Response, Tally, Vote
from aera.reading.canonical import JSON, canonical_json
from aera.reading.find import visible

TEXT = "(text)"
"""The name of a reply that calls no tool where it could have."""
SHORT = 60
"""Characters up to which a string is a word on which replies may agree; longer ones are text."""


@dataclass(frozen=True)
class StructureReader:
    """Reads replies for one vote: tool calls first, then JSON where it was asked for."""

    task: Reader
    wants_json: bool = False
    tools: bool = False

    def read(self, response: Response) -> Vote:
        """The vote of one reply; what failed, was cut off or cannot be read abstains."""
        if response.error is not None:
            return Vote(None)
        if calls := tool_calls(response):
            name = ", ".join(name.replace("\n", " ") for name, _ in calls)
            return _write(response, name, [arguments for _, arguments in calls])
        if self.wants_json:
            try:
                value = JSON.decode(visible(response.text))
            except (ValueError, RecursionError):
                return Vote(None)
            return _write(response, "", value)
        vote = self.task.read(response)
        if not self.tools:
            return vote
        if vote.answer is None and (response.truncated or not response.text.strip()):
            return vote
        # Where a tool might have been called, a text says at least that none was.
        return Vote(f"{TEXT}\n{vote.answer or ''}")


def _write(response: Response, name: str, value: Any) -> Vote:
    try:
        told = canonical_json(_without_texts(value))
    except RecursionError:
        told = None
    return Vote(None if response.truncated or told is None else f"{name}\n{told}".lstrip("\n"))


def _without_texts(value: Any) -> Any:
    """A value without its long strings: fields go, elements of lists become null."""
    if isinstance(value, dict):
        return {name: _without_texts(each) for name, each in value.items() if not _is_text(each)}
    if isinstance(value, list):
        return [None if _is_text(each) else _without_texts(each) for each in value]
    return None if _is_text(value) else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) > SHORT


def structure_vote(prefix: Prefix) -> Leaders:
    """The name that most replies have, and the arguments that most of those with it have."""
    names = Tally().add(Vote(name_of(vote.answer)) for vote in prefix.votes)
    name = names.leaders.answer
    own = Tally().add(v for v in prefix.votes if v.answer and name_of(v.answer) == name)
    tied = names.leaders.tied or own.leaders.tied
    return replace(own.leaders, tied=tied)


def name_of(answer: str | None) -> str | None:
    """What a reply does, without its arguments."""
    if answer is None:
        return None
    name, found, _ = answer.partition("\n")
    return name if found else ""


def tool_calls(response: Response) -> list[tuple[str, Any]]:
    """Name and arguments of every tool call, in order; ids differ from reply to reply."""
    choice = response.source if isinstance(response.source, dict) else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        return []
    calls = message.get("tool_calls")
    calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return [
        (function["name"], _arguments(function.get("arguments")))
        for function in [*(call.get("function") for call in calls), message.get("function_call")]
        if isinstance(function, dict) and isinstance(function.get("name"), str)
    ]


def _arguments(written: Any) -> Any:
    """Arguments as a value where they are JSON, as written where they are not."""
    if not isinstance(written, str):
        return written
    try:
        return JSON.decode(written)
    except (ValueError, RecursionError):
        return written
