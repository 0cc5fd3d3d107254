"""The gateway as a proxy: reading requests, passing them on, and noticing who has left."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import aiohttp
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from aera.errors import UsageError
from aera.gateway.openai import DeniedError
from aera.gateway.options import RAW_HEADER
from aera.gateway.request import bound_values
from aera.sampling.replicas import ProxiedRequest

HOP_HEADERS = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host", "expect",
     "proxy-authorization", "proxy-authenticate", "content-length", "accept-encoding",
     "authorization", "cookie"}
)  # fmt: skip
"""What belongs to one connection, or to the gateway and its own clients, and is not passed on."""
RAW_HOP_HEADERS = frozenset(name.encode() for name in HOP_HEADERS)
RAW_REPLY_HEADERS = (RAW_HOP_HEADERS - {b"content-length"}) | {
    b"content-encoding",
    b"date",
    b"server",
}
DEEPEST = 64
"""Levels of nesting beyond which a request is refused; Python's own limit lies far above."""
PATIENCE = 4
"""How many times the size limit is read and thrown away, so that a client hears its refusal."""
LARGE = 256 * 2**10
"""Bytes of a request beyond which it is parsed in another thread."""
SMALL = 64 * 2**10
"""Bytes of a reply up to which it is passed on in one piece."""
Seen = Callable[[bytes], None]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


STRICT = json.JSONDecoder(parse_constant=_refuse)


async def read_body(receive: Receive, limit: int) -> bytes:
    """The body of a request, unless it is too large."""
    size, content, more = 0, bytearray(), True
    while more and size <= PATIENCE * limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size <= limit:
            content += chunk
    if size > limit:
        code = "request_too_large"
        raise DeniedError(f"the request is larger than {limit} bytes", status=413, code=code)
    return bytes(content)


async def parse_large(content: bytes) -> dict[str, Any]:
    """The JSON object of a request; a large one is read where others do not wait for it."""
    if len(content) < LARGE:
        return parse_body(content)
    return await asyncio.to_thread(parse_body, content)


def parse_body(content: bytes) -> dict[str, Any]:
    """The JSON object of a request."""
    bound_values(content)
    usual = content[:1] == b"{" and b"\0" not in content[:4]
    try:
        encoding = "utf-8" if usual else json.detect_encoding(content)
        body = STRICT.decode(content.decode(encoding, "surrogatepass"))
    except (ValueError, RecursionError):
        raise UsageError("the request is not JSON") from None
    if not isinstance(body, dict):
        raise UsageError("the request must be a JSON object")
    if content.count(b"{") + content.count(b"[") <= DEEPEST:  # it cannot be nested deeper
        return body
    level: list[Any] = [body]
    for _ in range(DEEPEST + 1):
        if not level:
            return body
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
    raise UsageError(f"the request is nested deeper than {DEEPEST} levels")


def check_chat(body: Mapping[str, Any]) -> None:
    """Refuse a request that cannot be voted on; all else is for the upstream to judge."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise UsageError('"messages" must be a list of objects')
    if not isinstance(body.get("stream", False), bool | None):
        raise UsageError('"stream" must be true or false')


def forward_request(scope: Scope, content: bytes) -> ProxiedRequest:
    """A request as the upstream gets it: path, query and content unchanged."""
    path, raw = str(scope["path"]), scope["raw_path"].decode("ascii")
    # A path that climbs would leave the part of the upstream that is offered here.
    if not raw.startswith("/v1/") or {".", ".."} & set(path.replace("\\", "/").split("/")):
        raise DeniedError("there is nothing at this path", status=404, code="not_found")
    query = scope["query_string"].decode("latin-1")
    dropped = RAW_HOP_HEADERS
    for name, value in scope["headers"]:
        if name == b"connection" and value.lower() != b"keep-alive":
            dropped = dropped | named_hops(value)
    headers = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name not in dropped and not name.startswith(RAW_HEADER)
    }
    target = raw.removeprefix("/v1") + (f"?{query}" if query else "")
    return ProxiedRequest(scope["method"], target, headers, content or None)


def named_hops(value: bytes) -> frozenset[bytes]:
    """The headers that a Connection header says are for one connection only."""
    return frozenset(name.strip().lower() for name in value.split(b","))


def filter_headers(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of an upstream's reply as the client gets them, repeated ones repeated."""
    named = [(name.lower(), value) for name, value in raw]
    dropped = RAW_REPLY_HEADERS
    for name, value in named:
        if name == b"connection":
            dropped = dropped | named_hops(value)
        elif name in (b"content-encoding", b"transfer-encoding"):
            # It is unpacked on the way, so its length is another.
            dropped = dropped | {b"content-length"}
    return [
        (name, value)
        for name, value in named
        if name not in dropped and not name.startswith(RAW_HEADER)
    ]


async def pass_reply(reply: aiohttp.ClientResponse, send: Send, seen: Seen | None = None) -> None:
    """Stream an upstream's reply to the client; `seen` is told of every piece.

    A reply that breaks off is left unfinished, which is how the client can tell.
    """
    headers = filter_headers(reply.raw_headers)
    start = {"type": "http.response.start", "status": reply.status, "headers": headers}
    length = None if "Content-Encoding" in reply.headers else reply.content_length
    if length is not None and length <= SMALL:
        content = await reply.read()  # one piece, before anything is promised
        await send(start)
        if seen is not None:
            seen(content)
        await send({"type": "http.response.body", "body": content})
        return
    await send(start)
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async for piece in reply.content.iter_any():
            if seen is not None:
                seen(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class ClosingStream(StreamingResponse):
    """A stream that ends with its client: what feeds it is closed as soon as the client leaves."""

    def __init__(self, content: AsyncIterator[bytes], close: Callable[[], Any], **kind: Any):
        super().__init__(content, **kind)
        self.close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with contextlib.suppress(ClientDisconnect):
                async with DisconnectWatch(receive):
                    await self.stream_response(send)
        finally:
            self.close()


class DisconnectWatch:
    """Work that somebody waits for: when the client leaves, it is cancelled.

    async with DisconnectWatch(receive):   # ClientDisconnect, once the client has left
        ...

    It works as asyncio.timeout does, in the task that it finds itself in.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive, self._left = receive, False

    async def __aenter__(self) -> None:
        work = asyncio.current_task()
        assert work is not None
        self._work = work
        self._watch = asyncio.create_task(self._watch_client())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._watch.cancel()
        # Somebody else may have cancelled the work too, and is not to be told of a client.
        if self._left and not self._work.uncancel() and kind is asyncio.CancelledError:
            raise ClientDisconnect

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left = True
        self._work.cancel()
