"""What a chat reply votes for: a tool call, a JSON value, or the answer a task reads in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aera.reading.find import visible
from aera.reading.json_values import canonical_json, parse_json
from aera.reading.schema import Schemas
from aera.reading.structure import (
    Structure,
    StructureVote,
    structure_of_calls,
    structure_of_json,
)
from aera.reading.task import Reader
from aera.response import Response
from aera.tally import Vote


@dataclass(frozen=True)
class ChatReader:
    """Reads replies for one vote. Tool calls come first, then JSON where it was asked for."""

    task: Reader
    wants_json: bool = False
    schemas: Schemas = field(default_factory=Schemas)
    """What the request says of its JSON and of the arguments of its tools."""

    def read(self, response: Response) -> Vote:
        """The vote of one reply; what failed, was cut off or cannot be read abstains."""
        if response.error is not None:
            return Vote(None)
        calls = tool_calls(response)
        if calls:
            return self._write(response, calls, structure_of_calls(calls, self.schemas))
        if self.wants_json:
            try:
                value = parse_json(visible(response.text))
            except (ValueError, RecursionError):
                return Vote(None)
            return self._write(response, value, structure_of_json(value, self.schemas))
        vote = self.task.read(response)
        silent = vote.answer is None and not response.truncated and response.text.strip()
        # Where a tool might have been called, a text says at least that none was.
        return StructureVote(None, structure=Structure()) if silent and self.schemas.tools else vote

    def _write(self, response: Response, value: Any, structure: Structure) -> Vote:
        answer = None if response.truncated else canonical_json(value)
        return Vote(None) if answer is None else StructureVote(answer, structure=structure)


def is_structured(body: Mapping[str, Any]) -> bool:
    """Whether a request is answered by tool calls or JSON, on which one votes field by field."""
    return wants_json(body) or bool(body.get("tools") or body.get("functions"))


def wants_json(body: Mapping[str, Any]) -> bool:
    """Whether a request asks for JSON."""
    wanted = body.get("response_format")
    return isinstance(wanted, dict) and wanted.get("type") in ("json_object", "json_schema")


def tool_calls(response: Response) -> list[dict[str, Any]]:
    """Name and arguments of every tool call, in order; ids differ from reply to reply."""
    choice = response.source if isinstance(response.source, dict) else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        return []
    calls = message.get("tool_calls")
    functions = [
        call.get("function") if isinstance(call, dict) else None
        for call in (calls if isinstance(calls, list) else [])
    ]
    return [
        {"name": function["name"], "arguments": _arguments(function.get("arguments"))}
        for function in [*functions, message.get("function_call")]
        if isinstance(function, dict) and isinstance(function.get("name"), str)
    ]


def words_of(response: Response) -> str:
    """What a reply says: its text, or what it calls."""
    return response.text or canonical_json(tool_calls(response)) or ""


def _arguments(written: Any) -> Any:
    """Arguments as a value where they are JSON, as written where they are not."""
    if not isinstance(written, str):
        return written
    try:
        return parse_json(written)
    except (ValueError, RecursionError):
        return written
