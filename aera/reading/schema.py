"""Schemas: what a request says of the JSON it wants, as far as a vote needs to know it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import Any

CLOSED = ("enum", "const", "format", "pattern")
"""What makes a string one of a set, and not somebody's words."""
SHORT = 60
"""Characters up to which a string is a word on which replies may agree; longer ones are text."""
MOST_PARTS = 1_000
"""Alternatives for one place, and tools, that are looked at; a client can write any number."""


@dataclass(frozen=True, eq=False)
class Schema:
    """A part of a JSON schema: all that may hold at one place."""

    root: Any = None
    parts: tuple[Mapping[str, Any], ...] = ()
    _known: "dict[str | int, Schema]" = field(default_factory=dict, repr=False)
    """What was found inside: every reply has the same fields."""

    @classmethod
    def of(cls, schema: Any) -> "Schema":
        """A whole schema; what is none says nothing."""
        return cls(schema, _expand([schema], schema))

    def at(self, key: str | int) -> "Schema":
        """What holds for a property, or for the elements of a list."""
        if not self.parts:
            return self
        place = 0 if isinstance(key, int) else key
        if place not in self._known:
            found = [_inside(part, key) for part in self.parts]
            self._known[place] = Schema(self.root, _expand(found, self.root))
        return self._known[place]

    @cached_property
    def closed(self) -> bool:
        """Whether a string here is one of a set, or short by order."""
        for part in self.parts:
            longest = part.get("maxLength")
            if any(name in part for name in CLOSED):
                return True
            if isinstance(longest, int) and longest <= SHORT:
                return True
        return False


ANYTHING = Schema()


@dataclass(frozen=True)
class Schemas:
    """The schemas of one request: of its reply, and of the arguments of each tool by name."""

    reply: Schema = ANYTHING
    tools: Mapping[str, Schema] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Schemas":
        """Those that a chat request gives."""
        wanted = body.get("response_format")
        inner = wanted.get("json_schema") if isinstance(wanted, Mapping) else None
        reply = Schema.of(inner.get("schema")) if isinstance(inner, Mapping) else ANYTHING
        described = chain(_functions(body.get("tools")), _listed(body.get("functions")))
        tools = {
            each["name"]: Schema.of(each.get("parameters"))
            for each in islice(described, MOST_PARTS)
            if isinstance(each.get("name"), str)
        }
        return cls(reply, tools)


def _listed(value: Any) -> list[Mapping[str, Any]]:
    rows: Sequence[Any] = value if isinstance(value, list) else []
    return [each for each in rows if isinstance(each, Mapping)]


def _functions(tools: Any) -> Iterator[Mapping[str, Any]]:
    for tool in _listed(tools):
        function = tool.get("function")
        if isinstance(function, Mapping):
            yield function


def _expand(schemas: Iterable[Any], root: Any) -> tuple[Mapping[str, Any], ...]:
    """Schemas and all that they refer to or allow as alternatives; each once."""
    found: dict[int, Mapping[str, Any]] = {}
    left = list(schemas)
    for schema in left:  # it grows meanwhile
        if len(found) == MOST_PARTS:
            break
        if not isinstance(schema, Mapping) or id(schema) in found:
            continue
        found[id(schema)] = schema
        if isinstance(schema.get("$ref"), str):
            left.append(_resolve(schema["$ref"], root))
        for name in ("anyOf", "oneOf", "allOf"):
            given = schema.get(name)
            left += islice(given if isinstance(given, list) else (), MOST_PARTS)
    return tuple(found.values())


def _resolve(reference: str, root: Any) -> Any:
    """What a reference within the schema points at."""
    found = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        if name:
            found = found.get(name) if isinstance(found, Mapping) else None
    return found if reference.startswith("#") else None


def _inside(part: Mapping[str, Any], key: str | int) -> Any:
    if isinstance(key, int):
        return part.get("items")
    properties = part.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    return part.get("additionalProperties")
