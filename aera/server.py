"""The gateway behind HTTP: OpenAI routes, health, metrics and the page."""

import asyncio
import contextlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from aera.controller import Controller
from aera.embedding import Encoder, StaticEncoder
from aera.errors import AeraError, UpstreamError, UsageError
from aera.gateway import (
    Escalation,
    Gateway,
    Voted,
    Wishes,
    completion,
    default_controller,
    named,
    with_instruction,
)
from aera.replicas import Replicas
from aera.telemetry import Telemetry
from aera.upstream import Endpoint, Upstream

PAGE = Path(__file__).parent / "page.html"
HOP_HEADERS = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host",
     "proxy-authorization", "proxy-authenticate", "content-length", "content-encoding",
     "accept-encoding", "authorization"}
)  # fmt: skip
KEEP_ALIVE = 5.0

log = logging.getLogger("aera.gateway")


@dataclass(frozen=True)
class Serving:
    """How to serve."""

    upstreams: tuple[Endpoint, ...]
    """Replicas of one model server."""
    model: str
    controller: Controller = field(default_factory=default_controller)
    votes_by_default: bool = False
    """Whether a plain model name votes too."""
    instruction: bool = False
    """Whether the task's answer instruction is put behind the last user message."""
    keys: tuple[str, ...] = ()
    """Keys clients must present; none: anybody on this machine may ask."""
    largest_request: int = 16 * 2**20
    most_requests: int = 512
    """Requests under way at once; more are answered with 429."""
    escalation: tuple[Endpoint, str] | None = None
    """A second upstream and its model, for undecided questions."""


def create_app(serving: Serving) -> Starlette:
    """The gateway as an ASGI application."""
    return _Application(serving).app


class _Application:
    """Everything one gateway holds; nothing of it is global."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.telemetry = Telemetry()
        self.upstream = Replicas(serving.upstreams)
        self.second = Replicas([serving.escalation[0]]) if serving.escalation else None
        controller = serving.controller
        encoder: Encoder = controller.gate.encoder if controller.gate else StaticEncoder.load()
        model = serving.escalation[1] if serving.escalation else ""
        escalation = Escalation(self.second, model) if self.second else None
        self.gateway = Gateway(self.upstream, controller, encoder=encoder, escalation=escalation)
        routes = [
            Route("/", self.page),
            Route("/state", self.state),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/v1/{path:path}", self.proxy, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]
        self.app = Starlette(routes=routes, lifespan=self._lifespan)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.upstream)
            if self.second is not None:
                await stack.enter_async_context(self.second)
            yield

    # --- who may ask ------------------------------------------------------------------------------

    def _refused(self, request: Request) -> Response | None:
        """The refusal of a request without a right key, if keys are asked for."""
        if not self.serving.keys:
            return None
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        # Every key is compared, each in constant time: timing teaches nothing.
        matches = [hmac.compare_digest(given.encode(), key.encode()) for key in self.serving.keys]
        if any(matches):
            return None
        return _error(401, "a valid key is needed", "invalid_request_error", code="invalid_api_key")

    async def _body(self, request: Request) -> dict[str, Any]:
        """The JSON object of a request of bounded size."""
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > self.serving.largest_request:
                limit = self.serving.largest_request
                raise UpstreamError(f"the request is larger than {limit} bytes", status=413)
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            raise UsageError("the request is not JSON") from None
        if not isinstance(body, dict):
            raise UsageError("the request must be a JSON object")
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise UsageError('"messages" must be a list of objects')
        return body

    # --- routes -----------------------------------------------------------------------------------

    async def chat(self, request: Request) -> Response:
        """Vote, or pass on, as the model's name says."""
        begun = time.monotonic()
        refusal = self._refused(request)
        if refusal is None and self.telemetry.active >= self.serving.most_requests:
            refusal = _error(429, "too many requests under way", "rate_limit_error", retry_after=1)
        if refusal is not None:
            return self._counted("chat", refusal)
        self.telemetry.active += 1
        try:
            reply = await self._chat(request, begun)
        except (AeraError, ClientDisconnect) as error:
            reply = _failure(error)
        finally:
            self.telemetry.active -= 1
        return self._counted("chat", reply)

    async def _chat(self, request: Request, begun: float) -> Response:
        body = await self._body(request)
        model, votes = named(body.get("model"))
        wishes = Wishes.parse(body.get("aera"), request.headers)
        if not (votes or self.serving.votes_by_default):
            passed = {name: value for name, value in body.items() if name != "aera"}
            return await self._pass_on(request, json.dumps(passed).encode())
        asked = {**body, "model": model}
        if self.serving.instruction:
            asked = with_instruction(asked, self.serving.controller.task)
        work = asyncio.create_task(self.gateway.vote(asked, wishes))
        if body.get("stream"):
            return await self._streamed(request, work, body)
        voted = await _unless_gone(request, work)
        return self._replied(voted, body, begun)

    def _replied(self, voted: list[Voted], body: Mapping[str, Any], begun: float) -> Response:
        for each in voted:
            self.telemetry.record(each)
        reply = completion(voted, body["model"])
        return JSONResponse(reply, headers=_account_headers(voted, begun))

    async def _streamed(
        self, request: Request, work: "asyncio.Task[list[Voted]]", body: Mapping[str, Any]
    ) -> Response:
        """Keep-alive comments while voting, then chunks. What fails at once is an HTTP error."""
        await asyncio.wait([work], timeout=KEEP_ALIVE / 10)
        if work.done():
            work.result()  # raises before the first byte

        async def events() -> AsyncIterator[bytes]:
            try:
                while not work.done():
                    yield b": keep-alive\n\n"
                    await asyncio.wait([work], timeout=KEEP_ALIVE)
                try:
                    voted = work.result()
                except AeraError as error:
                    yield _event(_error_body(*_described(error)))
                    return
                for each in voted:
                    self.telemetry.record(each)
                for chunk in _chunks(completion(voted, body["model"]), body):
                    yield _event(chunk)
                yield b"data: [DONE]\n\n"
            finally:
                work.cancel()

        return StreamingResponse(events(), media_type="text/event-stream")

    async def proxy(self, request: Request) -> Response:
        """Any other route, unchanged."""
        refusal = self._refused(request)
        if refusal is not None:
            return self._counted("proxy", refusal)
        try:
            return self._counted("proxy", await self._pass_on(request, await request.body()))
        except (AeraError, ClientDisconnect) as error:
            return self._counted("proxy", _failure(error))

    async def _pass_on(self, request: Request, content: bytes) -> Response:
        """Send a request on as it is and stream back what comes."""
        place = self.upstream.order()[0]
        replica = self.upstream.upstreams[place]
        url = replica.endpoint.base_url.rstrip("/") + request.url.path.removeprefix("/v1")
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_HEADERS}
        try:
            reply = await replica.session.request(
                request.method, url, params=request.query_params, data=content, headers=headers
            )
        except (aiohttp.ClientError, OSError) as error:
            self.upstream.rest(place)
            raise UpstreamError(f"the connection failed: {error}", status=502) from None
        kept = {k: v for k, v in reply.headers.items() if k.lower() not in HOP_HEADERS}

        async def content_of() -> AsyncIterator[bytes]:
            try:
                async for chunk in reply.content.iter_any():
                    yield chunk
            finally:
                reply.close()

        return StreamingResponse(content_of(), status_code=reply.status, headers=kept)

    async def models(self, request: Request) -> Response:
        """The upstream's models, each also under the name that votes."""
        reply = await self.proxy(request)
        if reply.status_code != 200 or not isinstance(reply, StreamingResponse):
            return reply
        content = b"".join([_bytes(chunk) async for chunk in reply.body_iterator])
        try:
            listed = json.loads(content)["data"]
            data = [*listed, *({**model, "id": f"aera/{model['id']}"} for model in listed)]
        except (ValueError, KeyError, TypeError):
            return Response(content, media_type="application/json")
        return JSONResponse({"object": "list", "data": data})

    async def health(self, request: Request) -> Response:
        """Alive."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether any replica answers."""
        checks = await asyncio.gather(*map(_answers, self.upstream.upstreams))
        status = 200 if any(checks) else 503
        return JSONResponse({"ready": any(checks), "replicas": checks}, status_code=status)

    async def metrics(self, request: Request) -> Response:
        """For Prometheus."""
        return Response(self.telemetry.exposition(), media_type="text/plain; version=0.0.4")

    async def state(self, request: Request) -> Response:
        """What the page shows."""
        refusal = self._refused(request)
        if refusal is not None:
            return refusal
        controller = self.serving.controller
        return JSONResponse(
            {
                "policy": str(controller.policy),
                "schedule": list(controller.schedule),
                "active": self.telemetry.active,
                "latest": list(self.telemetry.latest),
            }
        )

    async def page(self, request: Request) -> Response:
        """The page itself; it asks for /state."""
        return Response(PAGE.read_text("utf-8"), media_type="text/html")

    def _counted(self, route: str, reply: Response) -> Response:
        """Count and log a reply: what happened, never what was said."""
        self.telemetry.requests.labels(route, str(reply.status_code)).inc()
        told = {name[7:]: value for name, value in reply.headers.items() if name[:7] == "x-aera-"}
        log.info(json.dumps({"route": route, "status": reply.status_code, **told}))
        return reply


async def _answers(upstream: Upstream) -> bool:
    url = upstream.endpoint.base_url.rstrip("/") + "/models"
    try:
        async with upstream.session.get(url, timeout=aiohttp.ClientTimeout(total=2)) as reply:
            return reply.status < 500
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


async def _unless_gone(request: Request, work: "asyncio.Task[list[Voted]]") -> list[Voted]:
    """The result, unless the client leaves first: then all upstream work is cancelled."""
    gone = asyncio.create_task(_left(request))
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        gone.cancel()
        work.cancel()
        await asyncio.gather(gone, work, return_exceptions=True)


async def _left(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return


def _account_headers(voted: list[Voted], begun: float) -> dict[str, str]:
    spent = sum(each.allocation.seconds for each in voted)
    overhead = 1000 * max(0.0, time.monotonic() - begun - spent)
    return {
        "x-aera-samples": str(sum(each.allocation.responses for each in voted)),
        "x-aera-stop-reason": voted[0].allocation.reason,
        "x-aera-overhead-ms": f"{overhead:.1f}",
    }


def _chunks(reply: dict[str, Any], body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A finished completion as the chunks of a stream."""
    base = {key: reply[key] for key in ("id", "created", "model")}
    base["object"] = "chat.completion.chunk"
    chunks = []
    for choice in reply["choices"]:
        message = dict(choice.get("message") or {})
        calls = [
            {**call, "index": i} for i, call in enumerate(message.pop("tool_calls", None) or [])
        ]
        delta = {**message, **({"tool_calls": calls} if calls else {})}
        opening = {"role": "assistant", "content": ""}
        steps: tuple[tuple[dict[str, Any], Any], ...] = (
            (opening, None),
            (delta, None),
            ({}, choice.get("finish_reason")),
        )
        for part, finish in steps:
            row = {"index": choice["index"], "delta": part, "finish_reason": finish}
            chunks.append({**base, "choices": [row]})
    chunks[-1]["aera"] = reply["aera"]
    options = body.get("stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        chunks.append({**base, "choices": [], "usage": reply["usage"]})
    return chunks


def _event(content: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()


def _bytes(chunk: Any) -> bytes:
    return chunk.encode() if isinstance(chunk, str) else bytes(chunk)


def _described(error: AeraError) -> tuple[int, str, str | None, Any]:
    """Status, message, type and code of an error, the upstream's own where it has them."""
    if isinstance(error, UpstreamError):
        return error.status or 502, error.message, error.kind or "upstream_error", error.code
    return 400, str(error), "invalid_request_error", None


def _failure(error: AeraError | ClientDisconnect) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    retry_after = error.retry_after if isinstance(error, UpstreamError) else None
    if isinstance(error, UpstreamError) and isinstance(error.body, dict) and error.status:
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        return JSONResponse(error.body, status_code=error.status, headers=headers)
    status, message, kind, code = _described(error)
    return _error(status, message, kind, code=code, retry_after=retry_after)


def _error_body(status: int, message: str, kind: str | None, code: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _error(
    status: int,
    message: str,
    kind: str | None,
    *,
    code: Any = None,
    retry_after: float | None = None,
) -> Response:
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    content = _error_body(status, message, kind, code)
    return JSONResponse(content, status_code=status, headers=headers)
