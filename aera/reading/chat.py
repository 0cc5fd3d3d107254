"""What a chat reply votes for: a tool call, a JSON value, or the answer a task reads in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aera.reading.find import visible
from aera.reading.json_values import canonical_json, parse_json
from aera.reading.task import Reader
from aera.response import Response
from aera.tally import Vote


@dataclass(frozen=True)
class ChatReader:
    """Reads replies for one vote. Tool calls come first, then JSON where it was asked for."""

    task: Reader
    wants_json: bool = False

    def read(self, response: Response) -> Vote:
        """The vote of one reply; what failed, was cut off or cannot be read abstains."""
        if response.error is not None:
            return Vote(None)
        calls = tool_calls(response)
        if calls:
            return Vote(None if response.truncated else canonical_json(calls))
        if self.wants_json:
            return Vote(None if response.truncated else _json_text(visible(response.text)))
        return self.task.read(response)


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


def _arguments(written: Any) -> Any:
    """Arguments as a value where they are JSON, as written where they are not."""
    if not isinstance(written, str):
        return written
    try:
        return parse_json(written)
    except (ValueError, RecursionError):
        return written


def _json_text(text: str) -> str | None:
    try:
        return canonical_json(parse_json(text))
    except (ValueError, RecursionError):
        return None
