"""A voted reply as /v1/responses gives it: one object, or the events of a stream."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aera.errors import AeraError
from aera.gateway.openai import DeniedError, dump, error_body
from aera.gateway.origin import RESPONSES
from aera.gateway.responses_request import ChatRequest, to_chat

OWN_ID = "resp_aera_"
"""How the ids of voted responses begin, which nobody keeps."""
UNFINISHED = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a reply ended before its time, in the words of either route."""
ECHOED: Mapping[str, Any] = {
    "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None}, "temperature": None, "top_p": None,
    "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "user": None,
}  # fmt: skip
"""Fields of a request that its response repeats, and what they are where it is silent."""


@dataclass(frozen=True)
class ResponsesWire:
    """One request to /v1/responses: as a chat to be voted on, and its reply in its own form."""

    asked: Mapping[str, Any]
    request: ChatRequest

    @classmethod
    def open(cls, body: Mapping[str, Any]) -> "ResponsesWire":
        """Read a request, or refuse it."""
        return cls(body, to_chat(body))

    @property
    def chat(self) -> Mapping[str, Any]:
        """The chat request."""
        return self.request.body

    def whole(self, completion: Mapping[str, Any]) -> dict[str, Any]:
        """The response that says what a completion says."""
        mark = str(completion["id"]).removeprefix("chatcmpl-")
        choice = completion["choices"][0]
        reason = UNFINISHED.get(str(choice.get("finish_reason")))
        status = "incomplete" if reason else "completed"
        account = dict(completion["aera"])
        account["warnings"] = [*account["warnings"], *self.request.notes]
        own = {name: self.asked.get(name) for name in ECHOED}
        return {
            "id": f"{OWN_ID}{mark}",
            "object": "response",
            "created_at": completion["created"],
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": completion["model"],
            "output": list(_items(choice, mark, status)),
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            **{name: ECHOED[name] if told is None else told for name, told in own.items()},
            **({"service_tier": s} if (s := completion.get("service_tier")) else {}),
            "usage": _usage(completion["usage"]),
            "aera": account,
        }

    def events(self, completion: Mapping[str, Any]) -> Iterator[bytes]:
        """The same as a stream."""
        response, numbers = self.whole(completion), itertools.count()
        for kind, told in _events(response):
            yield _event(kind, {**told, "sequence_number": next(numbers)})

    def failed(self, error: AeraError) -> bytes:
        """The event of a stream that failed."""
        told = error_body(error)["error"]
        named = {name: told.get(name) for name in ("code", "message", "param")}
        return _event("error", {**named, "error": told, "sequence_number": 0})


def refuse_retrieval(path: str) -> None:
    """Refuse to look for a voted response: they are not kept."""
    if path.startswith(f"{RESPONSES}/{OWN_ID}"):
        text = "voted responses are not stored: send the whole conversation as input"
        raise DeniedError(text, status=404, code="not_found")


def _event(kind: str, told: Mapping[str, Any]) -> bytes:
    return f"event: {kind}\ndata: ".encode() + dump({"type": kind, **told}) + b"\n\n"


# --- the object -----------------------------------------------------------------------------------


def _items(choice: Mapping[str, Any], mark: str, status: str) -> Iterator[dict[str, Any]]:
    """What a chat's message holds, item by item: reasoning, text, calls."""
    message = choice.get("message")
    message = message if isinstance(message, Mapping) else {}
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str):
        content = [{"type": "reasoning_text", "text": thought}]
        yield {"id": f"rs_{mark}", "type": "reasoning", "summary": [], "content": content}
    calls = list(_calls(message))
    parts = list(_parts(message, choice.get("logprobs")))
    if parts or not calls:
        made = {"id": f"msg_{mark}", "type": "message", "role": "assistant"}
        yield {**made, "status": status, "content": parts}
    for place, (call_id, function) in enumerate(calls):
        own = f"fc_{mark}_{place}"
        given = function.get("arguments")
        written = given if isinstance(given, str) else json.dumps(given)
        told = {"name": function["name"], "arguments": written}
        made = {"id": own, "type": "function_call", "call_id": call_id or own}
        yield {**made, **told, "status": status}


def _parts(message: Mapping[str, Any], logprobs: Any) -> Iterator[dict[str, Any]]:
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, str) and content:
        told = logprobs.get("content") if isinstance(logprobs, Mapping) else None
        rows = told if isinstance(told, list) else []
        yield {"type": "output_text", "text": content, "annotations": [], "logprobs": rows}
    if isinstance(refusal, str) and refusal:
        yield {"type": "refusal", "refusal": refusal}


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    calls = message.get("tool_calls")
    listed = [each for each in (calls if isinstance(calls, list) else []) if isinstance(each, dict)]
    for call in [*listed, {"function": message.get("function_call")}]:
        function, call_id = call.get("function"), call.get("id")
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            yield call_id if isinstance(call_id, str) else None, function


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    prompt, spent = usage["prompt_tokens"], usage["completion_tokens"]
    cached = {"cached_tokens": 0, "cache_write_tokens": 0}
    return {
        "input_tokens": prompt,
        "input_tokens_details": {**cached, **usage.get("prompt_tokens_details", {})},
        "output_tokens": spent,
        "output_tokens_details": {
            "reasoning_tokens": 0, **usage.get("completion_tokens_details", {})
        },
        "total_tokens": prompt + spent,
    }  # fmt: skip


# --- the stream -----------------------------------------------------------------------------------

Event = tuple[str, dict[str, Any]]


def _events(response: Mapping[str, Any]) -> Iterator[Event]:
    """Kind and content of every event, in order."""
    hidden: dict[str, Any] = {
        "status": "in_progress",
        "output": [],
        "usage": None,
        "incomplete_details": None,
    }
    begun = {name: value for name, value in response.items() if name != "aera"} | hidden
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for place, item in enumerate(response["output"]):
        empty = {**item, "status": "in_progress"}
        if item["type"] == "function_call":
            empty["arguments"] = ""
        else:
            empty["content"] = []
        yield "response.output_item.added", {"output_index": place, "item": empty}
        at = {"item_id": item["id"], "output_index": place}
        if item["type"] == "function_call":
            yield from _argument_events(item, at)
        else:
            for index, part in enumerate(item["content"]):
                yield from _part_events(part, {**at, "content_index": index})
        yield "response.output_item.done", {"output_index": place, "item": item}
    yield f"response.{response['status']}", {"response": response}


def _argument_events(item: Mapping[str, Any], at: Mapping[str, Any]) -> Iterator[Event]:
    kind, told = "response.function_call_arguments", item["arguments"]
    yield f"{kind}.delta", {**at, "delta": told}
    yield f"{kind}.done", {**at, "name": item["name"], "arguments": told}


def _part_events(part: Mapping[str, Any], at: Mapping[str, Any]) -> Iterator[Event]:
    """One part: it begins empty, is told at once, and is done."""
    name = "refusal" if part["type"] == "refusal" else "text"
    kind, told = f"response.{part['type']}", part[name]
    more = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
    empty = {**part, name: "", **({"logprobs": []} if more else {})}
    yield "response.content_part.added", {**at, "part": empty}
    yield f"{kind}.delta", {**at, "delta": told, **more}
    yield f"{kind}.done", {**at, name: told, **more}
    yield "response.content_part.done", {**at, "part": part}
