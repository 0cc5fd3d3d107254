"""The gateway behind HTTP: OpenAI routes, health, metrics and the page."""

import asyncio
import contextlib
import gc
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from aera.errors import AeraError, UpstreamError
from aera.evidence.encoder import Encoder, StaticEncoder
from aera.gateway.middleware import AccessMiddleware
from aera.gateway.openai import DeniedError, Json, chunks, error_body, event, failure, status_of
from aera.gateway.options import RequestOptions, find_headers
from aera.gateway.proxy import (
    ClosingStream,
    DisconnectWatch,
    check_chat,
    filter_headers,
    forward_request,
    parse_body,
    read_body,
)
from aera.gateway.request import add_instruction, split_model
from aera.gateway.telemetry import Telemetry
from aera.gateway.voting import Escalation, Gateway, VotedChoice, completion
from aera.policies.gate import PaperGate
from aera.reading.equivalence import question_reader
from aera.sampling.replicas import Replicas
from aera.sampling.upstream import Endpoint
from aera.solving.controller import Controller, default_controller
from aera.web.template import fill_template

CHAT = "/v1/chat/completions"
PAGE = Path(__file__).parent / "page.html"


@dataclass(frozen=True)
class GatewaySettings:
    """How to serve."""

    upstreams: tuple[Endpoint, ...]
    """Replicas of one model server."""
    model: str
    """For requests that name none."""
    controller: Controller = field(default_factory=default_controller)
    votes_by_default: bool = False
    """Whether a plain model name votes too."""
    instruction: bool = False
    """Whether the task's answer instruction is put behind the last user message."""
    keys: tuple[str, ...] = field(default=(), repr=False)
    """Keys clients must present; none: anybody on this machine may ask."""
    largest_request: int = 16 * 2**20
    most_requests: int = 512
    """Requests under way at once; more are answered with 429."""
    escalation: tuple[Endpoint, str] | None = None
    """A second upstream and its model, for undecided questions."""
    minimum: int | None = None
    """Minimum samples before a vote may stop."""
    keep_alive: float = 5.0
    """Seconds of silence after which a stream sends a comment; what fails before is a status."""


def collect_seldom() -> None:
    """Look for reference cycles less often: requests make few, and the search takes a tenth.

    A setting of the whole process, so only a process that does nothing but serve calls it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def create_app(settings: GatewaySettings) -> ASGIApp:
    """The gateway as an ASGI application."""
    return _Application(settings).app


class _Application:
    """Everything one gateway holds; nothing of it is global."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.telemetry = Telemetry()
        self.upstream = Replicas(settings.upstreams)
        self.second = Replicas([settings.escalation[0]]) if settings.escalation else None
        controller = settings.controller
        question_reader(controller.task)  # where math-verify is missing, refuse before serving
        gate = controller.gate
        encoder: Encoder = gate.encoder if isinstance(gate, PaperGate) else StaticEncoder.load()
        model = settings.escalation[1] if settings.escalation else ""
        escalation = Escalation(self.second, model) if self.second else None
        minimum = settings.minimum
        self.gateway = Gateway(
            self.upstream, controller, encoder, minimum=minimum, escalation=escalation
        )
        routes = [
            Route("/", self.page),
            Route("/state", self.state),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            Route(CHAT, self.chat, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/v1/{path:path}", self.proxy, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]
        self.routed = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={
                AeraError: _explain,
                ClientDisconnect: _explain,
                HTTPException: _refuse_route,
                Exception: _apologize,
            },
        )
        self.routed.router.redirect_slashes = False
        self.app = AccessMiddleware(
            self.dispatch, keys=settings.keys, most=settings.most_requests, telemetry=self.telemetry
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.upstream)
            if self.second is not None:
                await stack.enter_async_context(self.second)
            yield

    async def dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Chats go straight to their route, past the layers that the other routes need."""
        if scope.get("path") != CHAT or scope["method"] != "POST":
            await self.routed(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            reply = await self.chat(request)
        except (AeraError, ClientDisconnect) as error:
            reply = await _explain(request, error)
        except Exception as error:
            reply = await _apologize(request, error)
            await reply(scope, receive, send)
            raise
        await reply(scope, receive, send)

    # --- routes -----------------------------------------------------------------------------------

    async def chat(self, request: Request) -> Response:
        """Vote, or pass on, as the model's name says."""
        begun = time.monotonic()
        content = await read_body(request.receive, self.settings.largest_request)
        body = parse_body(content)
        model, votes = split_model(body.get("model", self.settings.model))
        options = RequestOptions.parse(body.get("aera"), find_headers(request.scope["headers"]))
        if not (votes or self.settings.votes_by_default):
            if "aera" in body or "model" not in body:
                plain = {name: value for name, value in body.items() if name != "aera"}
                content = json.dumps({"model": model, **plain}).encode()
            return await self._pass_on(request, content)
        check_chat(body)
        asked = {**body, "model": model}
        if self.settings.instruction:
            asked = add_instruction(asked, self.settings.controller.task)
        shown, voting = body.get("model", model), self.gateway.vote(asked, options)
        if body.get("stream"):
            return await self._stream(request, asyncio.create_task(voting), body, shown)
        async with DisconnectWatch(request.receive):
            voted = await voting
        headers = self._record(voted, begun)
        reply = completion(voted, shown, logprobs=self._shows_logprobs(body))
        return Json(reply, headers=headers)

    def _shows_logprobs(self, body: Mapping[str, Any]) -> bool:
        """Not where only the weigher asked for them."""
        return "logprobs" in body or not self.settings.controller.asks

    def _record(self, voted: list[VotedChoice], begun: float) -> dict[str, str]:
        """Count what was voted; the headers that tell of it."""
        overhead = max(0.0, time.monotonic() - begun - max(each.waited for each in voted))
        self.telemetry.overhead.observe(overhead)
        for each in voted:
            self.telemetry.record(each)
        return {
            "x-aera-samples": str(sum(each.allocation.responses for each in voted)),
            "x-aera-stop-reason": voted[0].allocation.reason,
            "x-aera-overhead-ms": f"{1000 * overhead:.1f}",
        }

    async def _stream(
        self,
        request: Request,
        work: "asyncio.Task[list[VotedChoice]]",
        body: Mapping[str, Any],
        model: str,
    ) -> Response:
        """Keep-alive comments while voting, then chunks. What fails at once is an HTTP error."""
        begun = time.monotonic()
        try:
            async with DisconnectWatch(request.receive):
                await asyncio.wait([work], timeout=self.settings.keep_alive)
        except (ClientDisconnect, asyncio.CancelledError):
            work.cancel()
            raise
        headers = self._record(work.result(), begun) if work.done() else {}
        wanted = body.get("stream_options")
        with_usage = isinstance(wanted, Mapping) and bool(wanted.get("include_usage"))

        async def events() -> AsyncIterator[bytes]:
            while not work.done():
                yield b": keep-alive\n\n"
                await asyncio.wait([work], timeout=self.settings.keep_alive)
            try:
                voted = work.result()
            except AeraError as error:
                # The status went out as 200; what became of it is counted apart.
                self.telemetry.counts["requests", "stream", str(status_of(error))] += 1
                yield event(error_body(error))
                return
            if not headers:
                self._record(voted, begun)
            reply = completion(voted, model, logprobs=self._shows_logprobs(body))
            for chunk in chunks(reply, with_usage=with_usage):
                yield event(chunk)
            yield b"data: [DONE]\n\n"

        kind = {"media_type": "text/event-stream", "headers": headers}
        return ClosingStream(events(), work.cancel, **kind)

    async def proxy(self, request: Request) -> Response:
        """Any other route, unchanged."""
        content = await read_body(request.receive, self.settings.largest_request)
        return await self._pass_on(request, content)

    async def _pass_on(self, request: Request, content: bytes) -> Response:
        """Send a request on as it is and stream back what comes."""
        reply, place = await self._forward(request, content)

        def close() -> None:
            reply.close()
            self.upstream.release(place)

        return ClosingStream(
            reply.content.iter_any(),
            close,
            status_code=reply.status,
            headers=filter_headers(reply.headers),
        )

    async def _forward(
        self, request: Request, content: bytes
    ) -> tuple[aiohttp.ClientResponse, int]:
        """The upstream's reply to a request, and which replica gave it."""
        proxied = forward_request(request, content)
        async with DisconnectWatch(request.receive):
            return await self.upstream.send(proxied)

    async def models(self, request: Request) -> Response:
        """The upstream's models, each also under the name that votes."""
        reply, place = await self._forward(request, b"")
        try:
            content = await reply.read()
        except (aiohttp.ClientError, OSError):
            raise UpstreamError("the model server broke off", status=502) from None
        finally:
            reply.close()
            self.upstream.release(place)
        try:
            listed = json.loads(content)["data"]
            plain = [model for model in listed if not str(model["id"]).startswith("aera/")]
            data = [*listed, *({**model, "id": f"aera/{model['id']}"} for model in plain)]
        except (ValueError, KeyError, TypeError):
            return Response(content, reply.status, media_type=reply.content_type)
        return Json({"object": "list", "data": data})

    async def health(self, request: Request) -> Response:
        """Alive."""
        return Json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether any replica answers, and how each is doing."""
        replicas = await self.upstream.check()
        ready = any(replica["answers"] for replica in replicas)
        return Json({"ready": ready, "replicas": replicas}, status_code=200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """For Prometheus."""
        return Response(self.telemetry.exposition(), media_type="text/plain; version=0.0.4")

    async def state(self, request: Request) -> Response:
        """What the page shows."""
        controller = self.settings.controller
        return Json(
            {
                "policy": controller.label,
                "schedule": list(controller.schedule),
                "active": self.telemetry.active - 1,  # this request is not worth showing
                "read": self.telemetry.read,
                "latest": list(self.telemetry.latest),
            }
        )

    async def page(self, request: Request) -> Response:
        """The page itself; it asks for /state."""
        return Response(fill_template(PAGE), media_type="text/html")


async def _explain(request: Request, error: Exception) -> Response:
    """What went wrong on purpose; who has left will not read it."""
    return failure(error) if isinstance(error, AeraError) else Response(status_code=499)


async def _refuse_route(request: Request, error: Exception) -> Response:
    """No such path, or no such method on it."""
    assert isinstance(error, HTTPException)
    text = f"{request.method} is not answered here: {error.detail.lower()}"
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    return failure(DeniedError(text, status=error.status_code, code=code))


async def _apologize(request: Request, error: Exception) -> Response:
    """Our own mistake; what it was is in the log only."""
    body = {"message": "the gateway failed", "type": "server_error", "param": None, "code": None}
    return Json({"error": body}, status_code=500)
