"""Entry: one question of a file of recorded responses, whatever its format, and how fields read."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aera.errors import RecordError
from aera.pools.pool import Record
from aera.reading.json_values import canonical_json
from aera.sampling.replies import CHARACTERS_PER_TOKEN, choice_text

Row = dict[str, Any]

MOST = 10**15
"""No count is larger; what is comes from a damaged file."""
_WHOLE = re.compile(r"\s*([+-]?[0-9]{1,18})(?:\.0*)?\s*")


@dataclass(frozen=True)
class Entry:
    """One question of a file: where it stands, what came back, and what the file says is right."""

    where: str
    record: Record
    truth: str | None = None
    """As the file writes it."""
    truth_name: str = "answer"
    """The field it stands in."""
    task: object = None
    """The task the file names."""
    estimated: bool = False
    """Whether the tokens are guessed from the length of the texts."""


def join_entries(known: Entry | None, entry: Entry) -> Entry:
    """An entry with the responses of an earlier one to the same question before its own."""
    return entry if known is None else join_all([known, entry])


def join_all(entries: list[Entry]) -> Entry:
    """Entries of one question as one, in their order; two truths contradict each other."""
    told = {entry.truth: entry for entry in entries if entry.truth is not None}
    if len(told) > 1:
        entry = [*told.values()][1]
        name = shown_name(entry.record.question.id)
        raise RecordError(f"{entry.where}: the question {name} has another answer than before")
    last = next(iter(told.values()), entries[-1])
    responses = tuple(response for entry in entries for response in entry.record.responses)
    record = Record(entries[-1].record.question, responses)
    return replace(last, record=record, estimated=any(entry.estimated for entry in entries))


# --- fields ---------------------------------------------------------------------------------------


def shown(value: object) -> str:
    """A value in a sentence: short, on one line, and without what a terminal would obey."""
    try:
        return f"{value!r:.40}"
    except (RecursionError, ValueError):  # too deep, or a number of too many digits
        return type(value).__name__


def shown_name(name: str) -> str:
    """A name in a sentence, as it is where it can be."""
    return name if name.isprintable() and len(name) <= 80 else shown(name)


def need_field(row: Mapping[str, Any], name: str, *kinds: type, where: str) -> Any:
    """A field that must be there and be of one of these types."""
    value = row.get(name)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise bad_field(row, name, where=where)
    return value


def bad_field(row: Mapping[str, Any], name: str, *, where: str) -> RecordError:
    """What is said of a field that cannot be used."""
    problem = f"is {shown(row[name])}" if name in row else "is missing"
    return RecordError(f'{where}: the field "{name}" {problem}')


def given(row: Mapping[str, Any], name: str | None) -> Any:
    """What a field holds; not a number, as tables write what is missing, is nothing."""
    value = None if name is None else row.get(name)
    return None if isinstance(value, float) and math.isnan(value) else value


def whole_number(value: object) -> int | None:
    """A whole number, also as text or as a fraction without one; None for anything else."""
    if isinstance(value, str):
        match = _WHOLE.fullmatch(value)
        return int(match[1]) if match else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST:
        return None
    return int(value) if value == int(value) else None


def written(value: object) -> str | None:
    """An answer as a text, None where there is none; a list of one is what it holds."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        return canonical_json(value)
    except (TypeError, ValueError):  # a date of Arrow's, or a number of too many digits
        return shown(value)


def listed(value: object) -> list[Any] | None:
    """A list, also where a cell holds it as JSON; None for anything else."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


def choices_in(row: Mapping[str, Any], name: str | None, *, where: str) -> tuple[str, ...]:
    """The choices of a question, none where it has none; also by letter, or with their labels."""
    value = given(row, name)
    if isinstance(value, dict):
        value = value.get("text") if isinstance(value.get("text"), list) else [*value.values()]
    if name is None or not value:
        return ()
    choices = listed(value)
    if choices is None:
        raise bad_field(row, name, where=where)
    texts = [each.get("text") if isinstance(each, dict) else each for each in choices]
    return tuple(each if isinstance(each, str) else written(each) or "" for each in texts)


def estimated_tokens(text: str) -> int:
    """For responses whose tokens nobody counted; a zero would look free."""
    return len(text) // CHARACTERS_PER_TOKEN


# --- conversations --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What a prompt asks, what a system message says before, and what was replied, if anything."""

    text: str
    system: str | None = None
    before: tuple[str, ...] = ()
    """What was said in earlier turns, which tells questions apart that end alike."""
    reply: str | None = None


def asked_in(prompt: object) -> Asked:
    """A prompt that is a text, or a conversation: its last user messages are the question."""
    if isinstance(prompt, str) and not is_conversation(listed(prompt)):
        return Asked(prompt)
    rows = [row for row in listed(prompt) or () if isinstance(row, dict)]
    told = [(row.get("role"), choice_text({"message": row})) for row in rows]
    system = [text for role, text in told if role in ("system", "developer") and text]
    turns = [(role, text) for role, text in told if role in ("user", "assistant")]
    reply = turns.pop()[1] if turns and turns[-1][0] == "assistant" else None
    begin = max((i for i, (role, _) in enumerate(turns, start=1) if role == "assistant"), default=0)
    texts = [text for _, text in turns]
    question, said = "\n\n".join(texts[begin:]), "\n\n".join(system)
    return Asked(question, said or None, tuple(texts[:begin]), reply)


def is_conversation(value: object) -> bool:
    """Whether this is a list of messages, each with a role."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, dict) and "role" in row for row in value)
    )
