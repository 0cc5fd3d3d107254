"""What a chat request asks for: how many choices, of which model, and in what words."""

import json
from collections.abc import Mapping
from typing import Any

from aera.errors import UsageError
from aera.gateway.openai import DeniedError
from aera.reading.task import Task

PREFIX = "aera/"
MOST_VALUES = 1_000_000
"""Values in a request, each of which takes memory beside its bytes."""


def count_choices(body: Mapping[str, Any], most: int) -> int:
    """How many choices are wanted; what the seeds of their samples are made from is checked too."""
    seed, wanted = body.get("seed"), body.get("n")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise UsageError(f'"seed" must be a whole number, but got {seed!r:.40}')
    if wanted is None:
        return 1
    whole = isinstance(wanted, int) and not isinstance(wanted, bool)
    if not whole or not 1 <= wanted <= most:
        raise UsageError(f'"n" must be a whole number from 1 to {most}, but got {wanted!r:.40}')
    return int(wanted)


def find_last_words(body: Mapping[str, Any]) -> str:
    """The text of the last user message."""
    messages = body.get("messages")
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, Mapping) and message.get("role") == "user":
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
            return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def find_system(body: Mapping[str, Any]) -> str | None:
    """The text of a system message at the beginning."""
    messages = body.get("messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    if not isinstance(first, Mapping) or first.get("role") not in ("system", "developer"):
        return None
    content = first.get("content")
    return content if isinstance(content, str) else None


def split_model(model: Any) -> tuple[str, bool]:
    """The upstream's name of a model, and whether it was asked to vote."""
    if not isinstance(model, str) or not model.removeprefix(PREFIX):
        raise UsageError('"model" must be a name')
    return model.removeprefix(PREFIX), model.startswith(PREFIX)


def write_body(body: Mapping[str, Any]) -> bytes:
    """The JSON of a request that is passed on with other fields than it came with."""
    try:
        return json.dumps(body, allow_nan=False).encode()
    except ValueError:  # a number beyond all bounds was read as Infinity
        raise UsageError("the request cannot be sent as JSON: it holds Infinity") from None


def plain_request(body: Mapping[str, Any], model: str, content: bytes) -> bytes:
    """A request as it is passed on: under the upstream's name of the model, without our options."""
    if "aera" not in body and body.get("model") == model:
        return content
    plain = {name: value for name, value in body.items() if name != "aera"}
    return write_body({**plain, "model": model})


def bound_values(content: bytes) -> None:
    """Refuse JSON that would take many times its size in memory, by its commas and brackets."""
    if content.lstrip(b" \t\r\n\0\xef\xbb\xbf\xff\xfe")[:1] not in (b"{", b"["):
        return  # no JSON of several values, whatever its encoding
    if sum(map(content.count, (b",", b"[", b"{"))) > MOST_VALUES:
        text = f"the request has more than {MOST_VALUES:,} values"
        raise DeniedError(text, status=413, code="request_too_large")


def refuse_vote(content: bytes) -> bytes:
    """What is sent to a route where nothing is voted on; refuses to vote there."""
    if b'"aera' not in content:
        return content
    bound_values(content)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return content  # what it is instead is for the upstream to say
    if not isinstance(body, dict):
        return content
    model, options = body.get("model"), body.get("aera")
    if isinstance(model, str) and model.startswith(PREFIX):
        raise UsageError(
            f'"{model:.80}" votes on /v1/chat/completions and /v1/responses only; here ask for '
            f'"{model.removeprefix(PREFIX):.80}"'
        )
    if "aera" not in body:
        return content
    if options and options != {"vote": False}:
        raise UsageError('nothing is voted on here: leave "aera" out of the request')
    return write_body({name: value for name, value in body.items() if name != "aera"})


def add_instruction(body: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The request with the task's answer instruction behind its last user message."""
    messages = [dict(message) for message in body["messages"]]
    asked = task.template.replace("{question}", "").strip()
    for message in reversed(messages):
        if message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, str):
                message["content"] = f"{content}\n\n{asked}"
            elif isinstance(content, list):
                message["content"] = [*content, {"type": "text", "text": asked}]
            break
    return {**body, "messages": messages}
