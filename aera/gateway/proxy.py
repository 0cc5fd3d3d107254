"""The gateway as a proxy: reading requests, passing them on, and noticing who has left."""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import aiohttp
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from aera.core import Response as Sample
from aera.errors import UpstreamError, UsageError
from aera.gateway.openai import RAW_HEADER, DeniedError, Headers, Json
from aera.sampling.budget import Bound, Held, Usage
from aera.sampling.client import read_reply
from aera.sampling.replicas import ProxiedRequest, Replicas
from aera.sampling.sampler import request_bound

# What belongs to one connection, or to the gateway and its own clients, and is not passed on.
RAW_HOP_HEADERS = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"host",
     b"expect", b"proxy-authorization", b"proxy-authenticate", b"content-length",
     b"accept-encoding", b"authorization", b"cookie"}
)  # fmt: skip
RAW_REPLY_HEADERS = (RAW_HOP_HEADERS - {b"content-length"}) | {
    b"content-encoding",
    b"date",
    b"server",
}
# Levels of nesting beyond which a request is refused; Python's own limit lies far above.
DEEPEST = 64
# Values in a request, each of which takes memory beside its bytes.
MOST_VALUES = 1_000_000
# Values that one with a name counts for beside itself, as it takes so much more.
NAMED = 3
# How many times the size limit is read and thrown away, so that a client hears its refusal.
PATIENCE = 4
# Bytes of a request beyond which it is parsed in another thread.
LARGE = 256 * 2**10
# Bytes of a reply up to which it is passed on in one piece.
SMALL = 64 * 2**10

# --- requests -------------------------------------------------------------------------------------


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
        raise _too_large(f"the request is larger than {limit} bytes")
    return bytes(content)


def _too_large(text: str) -> DeniedError:
    return DeniedError(text, status=413, code="request_too_large")


class NotJsonError(UsageError):
    """A request that is something else than a JSON object."""


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a name that stands twice, servers differ in which one counts."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f'the request names "{twice:.40}" twice in one object')
    return made


STRICT = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_pairs)


async def parse_body(content: bytes) -> dict[str, Any]:
    """The JSON object of a request; a large one is read where others do not wait for it."""
    if len(content) < LARGE:
        return _parse(content)
    return await asyncio.to_thread(_parse, content)


def _parse(content: bytes) -> dict[str, Any]:
    if sum(map(content.count, (b",", b"[", b"{"))) + NAMED * content.count(b":") > MOST_VALUES:
        raise _too_large(f"the request has more than {MOST_VALUES:,} values")
    usual = content[:1] == b"{" and b"\0" not in content[:4]
    try:
        encoding = "utf-8" if usual else json.detect_encoding(content)
        body = STRICT.decode(content.decode(encoding, "surrogatepass"))
    except (ValueError, RecursionError):
        raise NotJsonError("the request is not JSON") from None
    if not isinstance(body, dict):
        raise NotJsonError("the request must be a JSON object")
    if content.count(b"{") + content.count(b"[") <= DEEPEST:  # it cannot be nested deeper
        return body
    level: list[Any] = [body]
    for _ in range(DEEPEST + 1):
        if not level:
            return body
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
    raise UsageError(f"the request is nested deeper than {DEEPEST} levels")


def forward_request(scope: Scope, content: bytes, path: str | None = None) -> ProxiedRequest:
    """A request as the upstream gets it: path, query and content unchanged."""
    raw = path or scope["raw_path"].decode("ascii")
    # A path that climbs would leave the part of the upstream that is offered here.
    climbs = {".", ".."} & set(str(scope["path"]).replace("\\", "/").split("/"))
    if not raw.startswith("/v1/") or climbs:
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


def _filter_headers(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of an upstream's reply as the client gets them, repeated ones repeated."""
    named = [(name.lower(), value) for name, value in raw]
    dropped = RAW_REPLY_HEADERS
    for name, value in named:
        if name == b"connection":
            dropped = dropped | named_hops(value)
        elif name in (b"content-encoding", b"transfer-encoding"):
            # It is unpacked on the way, so its length is another.
            dropped = dropped | {b"content-length"}
    return [(n, v) for n, v in named if n not in dropped and not n.startswith(RAW_HEADER)]


# --- headers that go along ------------------------------------------------------------------------

REQUEST_ID, TRACEPARENT = b"x-request-id", b"traceparent"
OURS = RAW_HOP_HEADERS | {b"set-cookie", b"content-type", b"content-encoding"}
SECRET = frozenset({b"authorization", b"api-key", b"x-api-key", b"cookie"})
NAME = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]+")


def forwarded_names(given: Iterable[str]) -> frozenset[bytes]:
    """The headers of a client that its samples carry: those of a trace, and those named here."""
    names = {TRACEPARENT, b"tracestate"}
    for name in given:
        raw = name.lower().encode()
        if not NAME.fullmatch(raw):
            raise UsageError(f'"{name:.80}" is no name of a header: keep_headers takes X-Team')
        if raw in SECRET:
            raise UsageError(
                f'the header "{name}" holds a key or a session and is not kept; forward_key sends '
                "each client's own key to the model server"
            )
        if raw in OURS or raw.startswith(RAW_HEADER):
            raise UsageError(f'the header "{name}" is made anew for each call and cannot be kept')
        names.add(raw)
    return frozenset(names - {REQUEST_ID})


def find_forwarded(headers: Headers, request_id: str, names: frozenset[bytes]) -> dict[str, str]:
    """What the samples of a request carry; its id is ours where the client gave none."""
    kept: dict[str, str] = {"x-request-id": request_id}
    hops: frozenset[bytes] = frozenset()
    for raw, value in headers:
        if raw == b"connection":
            hops |= named_hops(value)
        elif raw in names:
            name, text = raw.decode("latin-1"), value.decode("latin-1")
            kept[name] = f"{kept[name]}, {text}" if name in kept else text
    return {name: text for name, text in kept.items() if name.encode() not in hops}


# --- what a reply took ----------------------------------------------------------------------------

OVERLAP, REMEMBERED = 64, 2**20
PROMPT = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
COMPLETION = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
TEXT = re.compile(
    rb'"(?:content|text|reasoning|reasoning_content|arguments|delta)"\s*:\s*"((?:[^"\\]|\\.)*)'
)
NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
# Paths whose streams say what they took only where they are asked to.
STREAMS = ("/v1/chat/completions", "/v1/completions")


def bound_of(body: Json, size: int) -> tuple[int, Bound]:
    """Choices that a request asks for, and what each can take at most."""
    bound = request_bound(body)
    if "messages" not in body:
        bound.prompt_tokens = size + 256
    n = body.get("n")
    return (n if isinstance(n, int) and 0 < n < 1_000 else 1), bound


def lacks_usage(body: Json, path: str) -> bool:
    """Whether a stream is not asked to say what it takes."""
    asked = body.get("stream_options")
    says = isinstance(asked, Mapping) and asked.get("include_usage")
    return path in STREAMS and body.get("stream") is True and not says


class Meter:
    """Books what a reply that is passed on took: as it says, else as its text is long."""

    def __init__(self, held: Held, *, hides: bool, estimated: Callable[..., None]) -> None:
        self.held, self.hides, self._estimated = held, hides, estimated
        self._prompt = self._completion = -1
        self._tail, self._seen, self.rest = b"", b"", b""  # the last: what no client has yet
        self._beyond = 0

    def see(self, piece: bytes) -> bytes:
        """A piece of the reply; returns what of it the client gets."""
        text = self._tail + piece
        self._prompt = max([self._prompt, *map(int, PROMPT.findall(text))])
        self._completion = max([self._completion, *map(int, COMPLETION.findall(text))])
        self._tail = text[-OVERLAP:]
        if len(self._seen) < REMEMBERED:
            self._seen += piece
        else:
            self._beyond += len(piece)
        return self._without_usage(piece) if self.hides else piece

    def _without_usage(self, piece: bytes) -> bytes:
        """Whole events, without the one that only we asked for."""
        *events, self.rest = re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)", self.rest + piece)
        return b"".join(e for e in events if not (b'"usage"' in e and NO_CHOICES.search(e)))

    def settle(self, status: int) -> None:
        """Book it; a refusal cost nothing."""
        held, n = self.held, self.held.responses
        if status >= 300:
            held.give_back(n)
        elif self._prompt >= 0 or self._completion >= 0:
            self._book(max(0, self._prompt), max(0, self._completion))
        elif self._seen:
            length = self._beyond + sum(map(len, TEXT.findall(self._seen)))
            most = held.bound.max_tokens if held.max_tokens is None else held.max_tokens
            spent = length if most is None else min(length, n * most)
            self._estimated(by=spent + n * (held.bound.prompt_tokens or 0))
            self._book(held.bound.prompt_tokens or 0, spent)

    def _book(self, prompt: int, completion: int) -> None:
        n = self.held.responses
        self.held.receive(0, [Sample("")] * n, Usage(prompt, completion, n))


# --- passing on -----------------------------------------------------------------------------------


def passed_on(
    upstream: Replicas,
    request: ProxiedRequest,
    *,
    meter: Meter | None,
    answered: Callable[[], object],
    headers: Headers,
) -> ASGIApp:
    """A request sent on as it is; what comes back is streamed to the client."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        status = 0
        if meter is not None:
            meter.held.begin(meter.held.responses)
        try:
            async with while_attended(receive):
                reply, place = await upstream.send(request)
                status = reply.status
                if status < 300:
                    answered()
                try:
                    await _pass_reply(reply, send, meter, headers)
                except (aiohttp.ClientError, OSError):
                    raise UpstreamError("the model server broke off", status=502) from None
                finally:
                    reply.close()
                    upstream.release(place)
        finally:
            if meter is not None:
                if status:
                    meter.settle(status)
                meter.held.close()

    return answer


async def _pass_reply(
    reply: aiohttp.ClientResponse, send: Send, meter: Meter | None, more: Headers
) -> None:
    """A reply that breaks off is left unfinished, which is how the client can tell."""
    headers = [*_filter_headers(reply.raw_headers), *more]
    start = {"type": "http.response.start", "status": reply.status, "headers": headers}
    length = None if "Content-Encoding" in reply.headers else reply.content_length
    if meter is not None and meter.hides:
        start["headers"] = [(n, v) for n, v in headers if n != b"content-length"]
    elif length is not None and length <= SMALL:
        content = await reply.read()  # one piece, before anything is promised
        await send(start)
        if meter is not None:
            meter.see(content)
        await send({"type": "http.response.body", "body": content})
        return
    await send(start)
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async for piece in reply.content.iter_any():
            told = meter.see(piece) if meter is not None else piece
            if told:
                await send({"type": "http.response.body", "body": told, "more_body": True})
        # Then what is held back for whole events.
        await send({"type": "http.response.body", "body": meter.rest if meter else b""})


async def fetch(
    upstream: Replicas, request: ProxiedRequest, receive: Receive
) -> tuple[int, str, bytes]:
    """What an upstream says, read to its end: status, type and content."""
    async with while_attended(receive):
        reply, place = await upstream.send(request)
        try:
            content = await read_reply(reply, upstream.upstreams[0].endpoint.largest_reply)
        except (aiohttp.ClientError, OSError):
            raise UpstreamError("the model server broke off", status=502) from None
        finally:
            reply.close()
            upstream.release(place)
    return reply.status, reply.content_type, content


@contextlib.asynccontextmanager
async def while_attended(receive: Receive) -> AsyncIterator[None]:
    """Work that somebody waits for: when the client leaves, it is cancelled.

    async with while_attended(receive):   # ClientDisconnect, once the client has left
        ...

    It works as asyncio.timeout does, in the task that it finds itself in.
    """
    work, left = asyncio.current_task(), False
    assert work is not None

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        work.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        # Somebody else may have cancelled the work too, and is not to be told of a client.
        if left and not work.uncancel() and isinstance(sys.exception(), asyncio.CancelledError):
            raise ClientDisconnect
