"""The way through the gateway: reading requests, passing them on, and noticing who has left."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import aiohttp
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from aera.errors import UsageError
from aera.gateway.replicas import Sent
from aera.gateway.wire import DeniedError
from aera.gateway.wishes import HEADER

HOP_HEADERS = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host", "expect",
     "proxy-authorization", "proxy-authenticate", "content-length", "accept-encoding",
     "authorization", "cookie"}
)  # fmt: skip
"""What belongs to one connection, or to the gateway and its own clients, and is not passed on."""
REPLY_HEADERS = HOP_HEADERS | {"content-encoding", "date", "server"}
DEEPEST = 64
"""Levels of nesting beyond which a request is refused; Python's own limit lies far above."""
PATIENCE = 4
"""How many times the size limit is read and thrown away, so that a client hears its refusal."""

Result = TypeVar("Result")


async def bounded(request: Request, limit: int) -> bytes:
    """The body of a request, unless it is too large."""
    size, content = 0, bytearray()
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            content += chunk
        elif size > PATIENCE * limit:
            break
    if size > limit:
        code = "request_too_large"
        raise DeniedError(f"the request is larger than {limit} bytes", status=413, code=code)
    return bytes(content)


def parsed(content: bytes) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        body = json.loads(content, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise UsageError("the request is not JSON") from None
    if not isinstance(body, dict):
        raise UsageError("the request must be a JSON object")
    level: list[Any] = [body]
    for _ in range(DEEPEST + 1):
        if not level:
            return body
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
    raise UsageError(f"the request is nested deeper than {DEEPEST} levels")


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def check(body: Mapping[str, Any]) -> None:
    """Refuse a request that cannot be voted on; all else is for the upstream to judge."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise UsageError('"messages" must be a list of objects')
    if not isinstance(body.get("stream", False), bool | None):
        raise UsageError('"stream" must be true or false')


def passed_on(request: Request, content: bytes) -> Sent:
    """A request as the upstream gets it: path, query and content unchanged."""
    path = str(request.scope["path"])
    raw = request.scope["raw_path"].decode("ascii")
    # A path that climbs would leave the part of the upstream that is offered here.
    if not raw.startswith("/v1/") or {".", ".."} & set(path.replace("\\", "/").split("/")):
        raise DeniedError("there is nothing at this path", status=404, code="not_found")
    query = request.scope["query_string"].decode("latin-1")
    headers = {
        name: value
        for name, value in request.headers.items()
        if name not in HOP_HEADERS and not name.startswith(HEADER)
    }
    target = raw.removeprefix("/v1") + (f"?{query}" if query else "")
    return Sent(request.method, target, headers, content or None)


def passed_back(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an upstream's reply as the client gets them."""
    kept = {name: value for name, value in headers.items() if name.lower() not in REPLY_HEADERS}
    if "Content-Encoding" not in headers and "Content-Length" in headers:
        kept["Content-Length"] = headers["Content-Length"]
    return kept


class Live(StreamingResponse):
    """A stream that ends with its client: what feeds it is closed as soon as the client leaves."""

    def __init__(self, content: AsyncIterator[bytes], close: Callable[[], Any], **kind: Any):
        super().__init__(content, **kind)
        self.close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self.stream_response(send))
        try:
            with contextlib.suppress(ClientDisconnect, aiohttp.ClientError, OSError):
                # A reply that breaks off is left unfinished, which is how the client can tell.
                await unless_gone(receive, sending)
        finally:
            self.close()


async def unless_gone(receive: Receive, work: "asyncio.Task[Result]") -> Result:
    """The result, unless the client leaves first: then the work is cancelled."""
    gone = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        gone.cancel()
        work.cancel()
        await asyncio.gather(gone, work, return_exceptions=True)


async def _left(receive: Receive) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
