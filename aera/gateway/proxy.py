"""The gateway as a proxy: requests that are passed on as they are, and what they took."""

import contextlib
import re
from collections.abc import Callable, Mapping

import aiohttp
from starlette.types import Scope, Send

from aera.core import Response as Sample
from aera.files import Json
from aera.gateway.openai import CHAT, HOP_HEADERS, RESPONSES, DeniedError, end_to_end
from aera.sampling.budget import Bound, Held, Usage
from aera.sampling.client import RequestBody, read_reply
from aera.sampling.replicas import ProxiedRequest, Replicas
from aera.sampling.replies import is_whole
from aera.sampling.sampler import check_whole, request_bound

REPLY_HEADERS = (HOP_HEADERS - {b"content-length"}) | {b"content-encoding", b"date", b"server"}
PACKED = (b"content-encoding", b"transfer-encoding")
# Bytes of a reply up to which it is passed on in one piece.
SMALL = 64 * 2**10

# --- requests -------------------------------------------------------------------------------------


def forward_request(scope: Scope, content: bytes, path: str | None = None) -> ProxiedRequest:
    """A request as the upstream gets it: path, query and content unchanged."""
    raw = path or scope["raw_path"].decode("ascii")
    # A path that climbs would leave the part of the upstream that is offered here.
    climbs = {".", ".."} & set(str(scope["path"]).replace("\\", "/").split("/"))
    if not raw.startswith("/v1/") or climbs:
        raise DeniedError("there is nothing at this path", status=404, code="not_found")
    query = scope["query_string"].decode("latin-1")
    kept = end_to_end(scope["headers"])
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in kept}
    target = raw.removeprefix("/v1") + (f"?{query}" if query else "")
    return ProxiedRequest(scope["method"], target, headers, content or None)


# --- what a reply took ----------------------------------------------------------------------------

OVERLAP, REMEMBERED = 64, 2**20
PROMPT = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
COMPLETION = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
TEXT = re.compile(
    rb'"(?:content|text|reasoning|reasoning_content|arguments|delta)"\s*:\s*"((?:[^"\\]|\\.)*)'
)
NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
# Paths whose streams say what they took only where they are asked to.
STREAMS = (CHAT, "/v1/completions")
# What a response calls its length.
LENGTH = "max_output_tokens"


def bound_of(body: Json, size: int, path: str) -> tuple[int, Bound]:
    """Choices that may be made for all prompts of a request, and what each can take at most."""
    bound, told, prompts = request_bound(body), body.get("prompt"), 1
    if isinstance(told, list) and told and not is_whole(told[0]):
        prompts = len(told)
    if "messages" not in body:
        bound.prompt_tokens = size // prompts + 256
    if path not in STREAMS:  # what bounds a reply there is not max_tokens, if anything is
        length = body.get(LENGTH) if path == RESPONSES else None
        bound.max_tokens = length if is_whole(length) and length > 0 else None
    for name in ("n", "best_of", LENGTH):
        check_whole(body, name)
    return prompts * max(1, body.get("n") or 1, body.get("best_of") or 1), bound


def cut(body: Json, most: int, path: str) -> Json:
    """The request with its responses no longer than that."""
    return {**body, LENGTH: most} if path == RESPONSES else {**RequestBody(body).cut(most)}


def lacks_usage(body: Json, path: str) -> bool:
    """Whether a stream is not asked to say what it takes."""
    asked = body.get("stream_options")
    says = isinstance(asked, Mapping) and asked.get("include_usage")
    return path in STREAMS and body.get("stream") is True and not says


class Meter:
    """Books what a reply that is passed on took: as it says, else as its text is long.

    With nothing held it lets everything through.
    """

    def __init__(self, held: Held | None, *, hides: bool, estimated: Callable[..., None]) -> None:
        self.held, self.hides, self._estimated = held, hides, estimated
        self.status = 0
        self._prompt = self._completion = -1
        self._tail, self._seen, self.rest = b"", b"", b""  # the last: what no client has yet
        self._beyond = 0
        if held is not None:
            held.begin(held.responses)

    def see(self, piece: bytes) -> bytes:
        """A piece of the reply; returns what of it the client gets."""
        if self.held is None:
            return piece
        text = self._tail + piece
        self._prompt = max([self._prompt, *map(int, PROMPT.findall(text))])
        self._completion = max([self._completion, *map(int, COMPLETION.findall(text))])
        self._tail = text[-OVERLAP:]
        if len(self._seen) < REMEMBERED:
            self._seen += piece
        else:
            self._beyond += len(piece)
        if not self.hides:
            return piece
        # Whole events, without the one that only we asked for.
        *events, self.rest = re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)", self.rest + piece)
        return b"".join(e for e in events if not (b'"usage"' in e and NO_CHOICES.search(e)))

    @property
    def _says(self) -> bool:
        """Whether the reply says what it took; a text of no tokens is a field nobody filled in."""
        if self._completion == 0 and any(TEXT.findall(self._seen)):
            return False
        return self._prompt >= 0 or self._completion >= 0

    def close(self) -> None:
        """Book it; a refusal cost nothing, and what never began to come counts as lost."""
        held = self.held
        if held is None:
            return
        n, prompt, completion = held.responses, max(0, self._prompt), max(0, self._completion)
        if self.status >= 300:
            held.give_back(n)
        elif self._seen and not self._says:
            length = self._beyond + sum(map(len, TEXT.findall(self._seen)))
            most = held.longest
            prompt = held.bound.prompt_tokens or 0
            completion = length if most is None else min(length, n * most)
            self._estimated(by=completion + n * prompt)
        if self._seen and self.status < 300:
            held.receive(0, [Sample("")] * n, Usage(prompt, completion, n))
        held.close()


# --- passing on -----------------------------------------------------------------------------------


async def pass_on(
    upstream: Replicas,
    request: ProxiedRequest,
    send: Send,
    *,
    meter: Meter,
    answered: Callable[[], object],
) -> None:
    """Send a request on as it is, and stream back what comes."""
    try:
        async with upstream.send(request) as reply:
            meter.status = reply.status
            if reply.status < 300:
                answered()
            await _pass_reply(reply, send, meter)
    finally:
        meter.close()


async def _pass_reply(reply: aiohttp.ClientResponse, send: Send, meter: Meter) -> None:
    """A reply that breaks off is left unfinished, which is how the client can tell."""
    named = [(name.lower(), value) for name, value in reply.raw_headers]
    # What is unpacked on the way, or not passed on whole, has another length.
    changed = meter.hides or not dict(named).keys().isdisjoint(PACKED)
    headers = end_to_end(named, REPLY_HEADERS | {b"content-length"} if changed else REPLY_HEADERS)
    start = {"type": "http.response.start", "status": reply.status, "headers": headers}
    length = reply.content_length
    if not changed and length is not None and length <= SMALL:
        content = await reply.read()  # one piece, before anything is promised
        await send(start)
        await send({"type": "http.response.body", "body": meter.see(content)})
        return
    await send(start)
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async for piece in reply.content.iter_any():
            if told := meter.see(piece):
                await send({"type": "http.response.body", "body": told, "more_body": True})
        # Then what is held back for whole events.
        await send({"type": "http.response.body", "body": meter.rest})


async def fetch(upstream: Replicas, request: ProxiedRequest) -> bytes:
    """What an upstream says, read to its end."""
    async with upstream.send(request) as reply:
        return await read_reply(reply, upstream.servers[0].endpoint.largest_reply)
