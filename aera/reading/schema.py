"""Schemas: what a request says of the JSON it wants, as far as a vote needs to know it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CLOSED = ("enum", "const", "format", "pattern")
"""What makes a string one of a set, and not somebody's words."""
SHORT = 60
"""Characters up to which a string is a word on which replies may agree; longer ones are text."""
DEEPEST = 8
"""References and alternatives in a row that are followed."""


@dataclass(frozen=True)
class Schema:
    """A part of a JSON schema: all that may hold at one place."""

    root: Any = None
    parts: tuple[Any, ...] = ()

    @classmethod
    def of(cls, schema: Any) -> "Schema":
        """A whole schema; what is none says nothing."""
        return cls(schema, tuple(_expand(schema, schema, DEEPEST)))

    def at(self, key: str | int) -> "Schema":
        """What holds for a property, or for an element of a list."""
        found = [part for each in self.parts for part in _inside(each, key)]
        expanded = [part for each in found for part in _expand(each, self.root, DEEPEST)]
        return Schema(self.root, tuple(expanded))

    @property
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
        described = [*_functions(body.get("tools")), *_listed(body.get("functions"))]
        tools = {
            each["name"]: Schema.of(each.get("parameters"))
            for each in described
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


def _expand(schema: Any, root: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """A schema and all that it refers to or allows as alternatives."""
    if not isinstance(schema, Mapping) or not depth:
        return
    yield schema
    if isinstance(schema.get("$ref"), str):
        yield from _expand(_resolve(schema["$ref"], root), root, depth - 1)
    for name in ("anyOf", "oneOf", "allOf"):
        for each in _listed(schema.get(name)):
            yield from _expand(each, root, depth - 1)


def _resolve(reference: str, root: Any) -> Any:
    """What a reference within the schema points at."""
    found = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        if name:
            found = found.get(name) if isinstance(found, Mapping) else None
    return found if reference.startswith("#") else None


def _inside(part: Mapping[str, Any], key: str | int) -> Iterator[Any]:
    if isinstance(key, int):
        yield part.get("items")
        return
    properties = part.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        yield properties[key]
    else:
        yield part.get("additionalProperties")
