"""A model server that answers by what it is asked and by the seed alone, whoever asks when.

Directives stand in the last user message, in square brackets:
[say 7 8 7]     sample i (its seed and its place in the call) gives the i-th word, in a circle;
                "nothing" gives no answer
[refuse 429]    every call is refused with this status; [after 30] adds Retry-After
[long]          it thinks aloud, each sample in other figures and at the same length
[echo]          what was asked, and the headers that matter, are the answer
[interrupt]     the process named in the header X-Interrupt gets SIGINT, and its call no answer
"""

import asyncio
import json
import os
import re
import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from aiohttp import web
from fakes import in_background, serving

SHOWN = ("authorization", "traceparent", "x-request-id", "x-team")
Body = Mapping[str, Any]


def _asked(body: Body) -> str:
    """The words of the last user message, or of the input of a response."""
    said = [m["content"] for m in body.get("messages", []) if m["role"] == "user"]
    last = body.get("input") or (said or [""])[-1]
    return last if isinstance(last, str) else json.dumps(last)


def _directive(asked: str, name: str) -> str | None:
    found = re.search(rf"\[{name}([^\]]*)\]", asked)
    return found[1].strip() if found else None


def _message(body: Body, place: int, headers: Mapping[str, str]) -> dict[str, Any]:
    """What sample `place` of a call says: a text, a call of the first tool, or JSON."""
    asked, sample = _asked(body), (body.get("seed") or 0) + place
    words = (_directive(asked, "say") or "7").split()
    word = words[sample % len(words)]
    text = f"Let me see. It is \\boxed{{{word}}}."
    if _directive(asked, "echo") is not None:
        kept = {key: body[key] for key in body if key not in ("seed", "n")}
        seen = {name: headers[name] for name in SHOWN if name in headers}
        text = json.dumps({"body": kept, "headers": seen}, sort_keys=True) + " \\boxed{1}"
    elif word == "nothing":
        text = "I cannot say."
    elif body.get("tools"):
        name, _, value = word.partition(":")
        call = {"name": name, "arguments": json.dumps({"city": value, "unit": "C"})}
        calls = [{"id": "call_1", "type": "function", "function": call}]
        return {"content": None, "tool_calls": calls}
    elif body.get("response_format"):
        text = json.dumps({"answer": word, "sure": True})
    elif _directive(asked, "long") is not None:
        steps = [f"Step {i}: {i} + {sample:03} = {i + sample:03}." for i in range(8)]
        text = " ".join([*steps, f"It is \\boxed{{{word}}}."])
    return {"content": text}


def _completion(body: Body, headers: Mapping[str, str]) -> dict[str, Any]:
    count = body.get("n") or 1
    choices = []
    for place in range(count):
        message = {"role": "assistant", **_message(body, place, headers)}
        end = "tool_calls" if "tool_calls" in message else "stop"
        choices.append({"index": place, "message": message, "finish_reason": end})
    tokens = count * (150 if _directive(_asked(body), "long") is not None else 10)
    usage = {"prompt_tokens": 11, "completion_tokens": tokens, "total_tokens": 11 + tokens}
    about = {"id": "chatcmpl-standin", "object": "chat.completion", "created": 1}
    return {**about, "model": body.get("model"), "choices": choices, "usage": usage}


def _response(body: Body, headers: Mapping[str, str]) -> dict[str, Any]:
    text = {"type": "output_text", "text": _message(body, 0, headers)["content"], "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [text]}
    about = {"id": "resp_standin", "object": "response", "created_at": 1, "status": "completed"}
    return {**about, "model": body.get("model"), "output": [item]}


def _chunks(reply: Body) -> bytes:
    """A chat as two chunks and the end."""
    choice = reply["choices"][0]
    base = {**reply, "object": "chat.completion.chunk"}
    del base["usage"]
    rows = [
        {"index": 0, "delta": choice["message"], "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]},
    ]
    events = [json.dumps({**base, "choices": [row]}) for row in rows]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def _refusal(status: int, asked: str) -> web.Response:
    after = _directive(asked, "after")
    error = {"message": f"refused with {status}", "type": "standin_error", "code": "refused"}
    headers = {"Retry-After": after} if after else {}
    return web.json_response({"error": error}, status=status, headers=headers)


async def _post(request: web.Request) -> web.StreamResponse:
    body, path = await request.json(), request.path
    asked = _asked(body)
    refused, waiting = _directive(asked, "refuse"), request.headers.get("X-Interrupt")
    if refused:
        return _refusal(int(refused), asked)
    if waiting and _directive(asked, "interrupt") is not None:
        await asyncio.sleep(0.5)  # what came before is written by now
        os.kill(int(waiting), signal.SIGINT)
        await asyncio.sleep(60)
    headers = {name.lower(): value for name, value in request.headers.items()}
    if path == "/v1/embeddings":
        data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]
        return web.json_response({"object": "list", "data": data, "model": body["model"]})
    if path == "/v1/responses":
        return web.json_response(_response(body, headers))
    if path != "/v1/chat/completions":
        return _refusal(404, asked)
    reply = _completion(body, headers)
    if body.get("stream"):
        return web.Response(body=_chunks(reply), content_type="text/event-stream")
    return web.json_response(reply)


async def _get(request: web.Request) -> web.Response:
    about = {"object": "model", "created": 1, "owned_by": "us"}
    listed = [{"id": name, **about} for name in ("m", "p")]
    if request.path == "/v1/models":
        return web.json_response({"object": "list", "data": listed})
    return _refusal(404, "")  # as vLLM, which shows none of them alone


async def _answer(request: web.Request) -> web.StreamResponse:
    return await (_get if request.method == "GET" else _post)(request)


def standin() -> AbstractContextManager[str]:
    """The server in a thread of its own; gives its address."""
    return in_background(serving(_answer))
