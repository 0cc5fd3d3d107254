"""OpenAI's shapes on the wire: error objects, and a finished completion as a stream of chunks."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Send

from aera.errors import AeraError, UpstreamError, UsageError

STRICT = json.JSONEncoder(check_circular=False, allow_nan=False, separators=(",", ":"))


UNREAD = 413
"""The refusal of a request that was not read to its end, after which nothing else can follow."""


class DeniedError(UsageError):
    """A request the gateway itself turns away, with the status that says why."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        kind: str = "invalid_request_error",
        code: str,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.code = status, kind, code
        self.retry_after = retry_after


class Json(JSONResponse):
    """JSON that anybody can read: plain ASCII, and null where a number is not finite."""

    def render(self, content: Any) -> bytes:
        """The bytes of a value, whatever strings and numbers it holds."""
        return dump(content)


def dump(content: Any) -> bytes:
    """A value as JSON."""
    try:
        return STRICT.encode(content).encode()
    except ValueError:
        finite = json.loads(json.dumps(content), parse_constant=lambda _: None)
        return STRICT.encode(finite).encode()


def status_of(error: AeraError) -> int:
    """The status an error is answered with: its own where it has one."""
    if isinstance(error, DeniedError):
        return error.status
    if isinstance(error, UpstreamError):
        # Anything but an error status means that nothing useful came back.
        return error.status if error.status and 400 <= error.status < 600 else 502
    return 400 if isinstance(error, UsageError) else 500


def error_body(error: AeraError) -> dict[str, Any]:
    """The error object; an upstream's own fields are kept."""
    kind = "invalid_request_error" if status_of(error) < 500 else "api_error"
    blank: dict[str, Any] = {"message": str(error), "type": kind, "param": None, "code": None}
    if isinstance(error, DeniedError):
        return {"error": {**blank, "type": error.kind, "code": error.code}}
    if not isinstance(error, UpstreamError):
        return {"error": blank}
    body = error.body if isinstance(error.body, dict) else {}
    said = body["error"] if isinstance(body.get("error"), dict) else {}
    own = {"message": error.message, "type": error.kind or "upstream_error", "code": error.code}
    return {**body, "error": {**blank, **said, **own}}


def failure(error: AeraError) -> Response:
    """The reply to a request that failed."""
    wait = error.retry_after if isinstance(error, UpstreamError | DeniedError) else None
    headers = {} if wait is None or not isfinite(wait) else {"Retry-After": str(ceil(wait))}
    if isinstance(error, DeniedError) and error.status == UNREAD:
        headers["Connection"] = "close"
    return Json(error_body(error), status_code=status_of(error), headers=headers)


async def send_json(send: Send, content: Any, headers: Mapping[str, str]) -> None:
    """A good reply, without the layers around a Response."""
    body = dump(content)
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    length = (b"content-length", str(len(body)).encode())
    raw += [(b"content-type", b"application/json"), length]
    await send({"type": "http.response.start", "status": 200, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def event(content: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(content) + b"\n\n"


@dataclass(frozen=True)
class ChatWire:
    """One chat request, and its reply in its own form."""

    chat: Mapping[str, Any]

    def whole(self, completion: dict[str, Any]) -> dict[str, Any]:
        """The completion itself."""
        return completion

    def events(self, completion: Mapping[str, Any]) -> Iterator[bytes]:
        """The same as a stream."""
        wanted = self.chat.get("stream_options")
        with_usage = isinstance(wanted, Mapping) and bool(wanted.get("include_usage"))
        for chunk in chunks(completion, with_usage=with_usage):
            yield event(chunk)
        yield b"data: [DONE]\n\n"

    def failed(self, error: AeraError) -> bytes:
        """The event of a stream that failed."""
        return event(error_body(error))


def chunks(reply: Mapping[str, Any], *, with_usage: bool) -> list[dict[str, Any]]:
    """A finished completion as the chunks of a stream; the account is on the last choice's end."""
    base = {key: reply[key] for key in ("id", "created", "model")}
    base["object"] = "chat.completion.chunk"
    if with_usage:
        base["usage"] = None
    made = [{**base, "choices": [row]} for c in reply["choices"] for row in _rows(c)]
    made[-1]["aera"] = reply["aera"]
    if with_usage:
        made.append({**base, "choices": [], "usage": reply["usage"]})
    return made


def _rows(choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The role, the content and the end of one choice."""
    told = choice.get("message")
    message = dict(told) if isinstance(told, Mapping) else {}
    calls = message.pop("tool_calls", None)
    delta = {name: value for name, value in message.items() if name != "role"}
    if isinstance(calls, list):
        called = [call for call in calls if isinstance(call, Mapping)]
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(called)]
    logprobs = {"logprobs": choice["logprobs"]} if choice.get("logprobs") else {}
    index = choice["index"]
    opening = {"role": "assistant", "content": ""}
    return [
        {"index": index, "delta": opening, "finish_reason": None},
        {"index": index, "delta": delta, "finish_reason": None, **logprobs},
        {"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")},
    ]
