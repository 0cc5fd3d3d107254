"""Structure: what a tool call or a JSON reply says, field by field."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aera.reading.json_values import canonical_json
from aera.reading.schema import ANYTHING, SHORT, Schema, Schemas
from aera.tally import Vote

TEXT = "(text)"
"""The name of a reply that calls no tool; a function that is called so stands in quotes."""
PLAIN = re.compile(r"[\w.:/-]+")
"""Names of functions that cannot be taken for a text, or for several."""
WHOLE = "value"
"""The field of a value that has none."""
MOST_FIELDS = 200
"""Fields of a reply beyond which each value is voted on as a whole."""
DEEPEST = 8
"""Levels beyond which a value is one field."""
Path = tuple[str, ...]


class Kind(Enum):
    """What a field holds."""

    VALUE = "value"
    """A number, a boolean, null, a list of them, or one of a set of strings."""
    WORD = "word"
    """A short string, on which replies may agree."""
    TEXT = "text"
    """A long string, on which they do not."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The value of one field, as canonical JSON."""

    value: str
    kind: Kind = Kind.VALUE


@dataclass(frozen=True)
class Structure:
    """One reply as it is voted on: by its name first, then field by field.

    A field's path leads to it in the value that the reply's vote is written of.
    """

    calls: tuple[str, ...] = ()
    """The functions that are called, in order; none: it is text."""
    fields: Mapping[Path, Leaf] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it does."""
        names = (name if PLAIN.fullmatch(name) else json.dumps(name) for name in self.calls)
        return ", ".join(names) or TEXT

    def show(self, path: Path) -> str:
        """A field as people call it: its dotted path, behind the function it is an argument of."""
        if not self.calls or not path:
            return ".".join(path) or WHOLE
        name = self.calls[int(path[0])]
        label = name if self.calls.count(name) == 1 else f"{name}[{path[0]}]"
        return ".".join((label, *path[2:]))


@dataclass(frozen=True, slots=True)
class StructureVote(Vote):
    """A vote that can be taken apart; a text without an answer still counts by its name."""

    structure: Structure | None = field(default=None, compare=False)


def structure_of_calls(calls: Sequence[Mapping[str, Any]], schemas: Schemas) -> Structure:
    """Tool calls by the names of their functions, and by every argument of each."""
    fields: dict[Path, Leaf] = {}
    for place, call in enumerate(calls):
        found = _fields(call["arguments"], schemas.tools.get(call["name"], ANYTHING))
        fields |= {(str(place), "arguments", *path): leaf for path, leaf in found.items()}
        if len(fields) > MOST_FIELDS:
            fields = _whole_calls(calls)
            break
    return Structure(tuple(call["name"] for call in calls), fields)


def _whole_calls(calls: Sequence[Mapping[str, Any]]) -> dict[Path, Leaf]:
    """The arguments of each call as one field; where there are too many calls, all as one."""
    if len(calls) > MOST_FIELDS:
        return {(): Leaf(canonical_json(calls) or "")}
    return {
        (str(place), "arguments"): Leaf(canonical_json(call["arguments"]) or "")
        for place, call in enumerate(calls)
    }


def structure_of_json(value: Any, schemas: Schemas) -> Structure:
    """A JSON reply by its fields."""
    return Structure(fields=_fields(value, schemas.reply))


def structure_of_text(answer: str) -> Structure:
    """A text by the answer that was read in it."""
    return Structure(fields={("answer",): Leaf(answer)})


def prune(value: Any, paths: Iterable[Path]) -> Any:
    """A value without some of its fields; it is changed in place."""
    for path in paths:
        inner = value
        for key in path[:-1]:
            if isinstance(inner, list):
                inner = inner[int(key)] if int(key) < len(inner) else None
            else:
                inner = inner.get(key) if isinstance(inner, dict) else None
        if path and isinstance(inner, dict):
            inner.pop(path[-1], None)
        elif path and isinstance(inner, list) and int(path[-1]) < len(inner):
            inner[int(path[-1])] = None  # those behind it keep their places
        elif not path:
            value = None
    return value


def _fields(value: Any, schema: Schema) -> dict[Path, Leaf]:
    """The leaves of a value; where there are too many, all of it as one."""
    found: dict[Path, Leaf] = {}
    for path, leaf in _leaves(value, schema, ()):
        found[path] = leaf
        if len(found) > MOST_FIELDS:
            return {(): Leaf(canonical_json(value) or "")}
    return found


def _leaves(value: Any, schema: Schema, path: Path) -> Iterator[tuple[Path, Leaf]]:
    if value == {} and not path:
        return  # a call without arguments has no field
    nested = isinstance(value, list) and any(isinstance(each, dict | list) for each in value)
    if len(path) >= DEEPEST or not (nested or (value and isinstance(value, dict))):
        yield path, _leaf(value, schema)
        return
    keys: Sequence[str | int] = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield from _leaves(value[key], schema.at(key), (*path, str(key)))


def _leaf(value: Any, schema: Schema) -> Leaf:
    written = canonical_json(value) or ""
    rule, parts = (schema.at(0), value) if isinstance(value, list) else (schema, [value])
    lengths = [len(each) for each in parts if isinstance(each, str)]
    if not lengths or rule.closed:
        return Leaf(written)
    return Leaf(written, Kind.WORD if max(lengths) <= SHORT else Kind.TEXT)
