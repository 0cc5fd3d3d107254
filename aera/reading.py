"""What a chat reply votes for: a tool call, a JSON value, or the answer a task reads in it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aera.response import Response
from aera.tally import Vote
from aera.task import Task


@dataclass(frozen=True)
class ChatReader:
    """Reads replies to one request. Tool calls come first, then JSON where it was asked for."""

    task: Task
    wants_json: bool = False

    def read(self, response: Response) -> Vote:
        """The vote of one reply; what cannot be read abstains."""
        if response.error is not None:
            return Vote(None)
        calls = tool_calls(response)
        if calls:
            return Vote(canonical_json(calls))
        if self.wants_json:
            return Vote(_json_text(response.text) if not response.truncated else None)
        return self.task.read(response)


def wants_json(body: Mapping[str, Any]) -> bool:
    """Whether a request asks for JSON."""
    wanted = body.get("response_format")
    return isinstance(wanted, Mapping) and wanted.get("type") in ("json_object", "json_schema")


def tool_calls(response: Response) -> list[dict[str, Any]]:
    """Name and arguments of every tool call, in order; ids differ from reply to reply."""
    choice = response.source if isinstance(response.source, Mapping) else {}
    message = choice.get("message")
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    found = []
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            found.append({"name": function["name"], "arguments": _arguments(function)})
    return found


def _arguments(function: Mapping[str, Any]) -> Any:
    """Arguments as a value where they are JSON, as written where they are not."""
    written = function.get("arguments")
    if not isinstance(written, str):
        return written
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return written


def _json_text(text: str) -> str | None:
    try:
        return canonical_json(json.loads(text))
    except (ValueError, RecursionError):
        return None


def canonical_json(value: Any) -> str:
    """One text for equal JSON values, whatever the order of keys and the spacing."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
