"""The gateway behind HTTP: OpenAI routes, health, metrics and the page."""

import asyncio
import contextlib
import gc
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import aiohttp
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from aera.errors import AeraError, UpstreamError
from aera.evidence.encoder import Encoder, StaticEncoder
from aera.gateway.clients import Clients
from aera.gateway.middleware import AccessMiddleware
from aera.gateway.openai import (
    DeniedError,
    Json,
    failure,
)
from aera.gateway.options import RequestOptions, find_headers
from aera.gateway.origin import CHAT, OriginCheck
from aera.gateway.proxy import (
    DisconnectWatch,
    check_chat,
    forward_request,
    parse_large,
    pass_reply,
    read_body,
)
from aera.gateway.readiness import Readiness
from aera.gateway.reply import ChatReply
from aera.gateway.request import add_instruction, refuse_vote, split_model
from aera.gateway.settings import GatewaySettings
from aera.gateway.telemetry import Telemetry
from aera.gateway.usage import UsageTail
from aera.gateway.voting import Escalation, Gateway
from aera.policies.gate import PaperGate
from aera.reading.equivalence import question_reader
from aera.sampling.exchange import read_reply
from aera.sampling.replicas import Replicas
from aera.web.template import fill_template

__all__ = ["GatewaySettings", "collect_seldom", "create_app"]
MODELS = "/v1/models"
VOTING_MODEL = f"{MODELS}/aera/"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
PAGE = Path(__file__).parent / "page.html"


def collect_seldom() -> None:
    """Look for reference cycles less often: requests make few, and the search takes a tenth.

    A setting of the whole process, so only a process that does nothing but serve calls it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def create_app(settings: GatewaySettings) -> AccessMiddleware:
    """The gateway as an ASGI application."""
    return _Application(settings).app


class _Application:
    """Everything one gateway holds; nothing of it is global."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.telemetry = Telemetry()
        self.upstream = Replicas(settings.upstreams)
        self.readiness = Readiness(self.upstream, own_key=not settings.forward_key)
        self.second = Replicas([settings.escalation[0]]) if settings.escalation else None
        self.gateway = self._make_gateway()
        routes = [
            Route("/", self.page),
            Route("/state", self.state),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
        ]
        self.routed = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={
                AeraError: _explain,
                HTTPException: _refuse_route,
                Exception: _apologize,
            },
        )
        self.routed.router.redirect_slashes = False
        most, limits = settings.most_requests, settings.key_limits
        self.app = AccessMiddleware(
            self.dispatch,
            clients=Clients(settings.keys, most=most, limits=limits),
            most=most,
            origins=OriginCheck(frozenset(settings.hosts)),
            telemetry=self.telemetry,
        )

    def _make_gateway(self) -> Gateway:
        settings, controller = self.settings, self.settings.controller
        question_reader(controller.task)  # where math-verify is missing, refuse before serving
        gate = controller.gate
        encoder: Encoder = gate.encoder if isinstance(gate, PaperGate) else StaticEncoder.load()
        model = settings.escalation[1] if settings.escalation else ""
        return Gateway(
            self.upstream,
            controller,
            encoder,
            minimum=settings.minimum,
            escalation=Escalation(self.second, model) if self.second else None,
            ceilings=settings.ceilings,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.upstream)
            if self.second is not None:
                await stack.enter_async_context(self.second)
            yield

    async def dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is under /v1 goes straight to its route, past the layers that the others need."""
        path = scope.get("path", "")
        if not path.startswith("/v1/"):
            await self.routed(scope, receive, send)
            return
        try:
            await self._answer(path, scope, receive, send)
        except ClientDisconnect:
            await Response(status_code=499)(scope, receive, send)
        except AeraError as error:
            await failure(error)(scope, receive, send)
        except Exception as error:
            await (await _apologize(None, error))(scope, receive, send)
            raise

    async def _answer(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method not in METHODS:
            text = f"{method} is not answered here: method not allowed"
            raise DeniedError(text, status=405, code="method_not_allowed")
        settings = self.settings
        content = await read_body(
            receive, settings.largest_request, patience=settings.body_patience
        )
        if path == CHAT and method == "POST":
            await self.chat(scope, receive, send, content)
        elif method == "GET" and (path == MODELS or path.startswith(VOTING_MODEL)):
            await (await self.models(scope, receive))(scope, receive, send)
        else:
            refuse_vote(content)
            await self._pass_on(scope, receive, send, content)

    def _upstream_for(self, scope: Scope) -> Replicas:
        """The model servers, asked with the caller's own key where that is passed on."""
        if not self.settings.forward_key:
            return self.upstream
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if not given:
            raise DeniedError("the model server needs your key", status=401, code="invalid_api_key")
        return self.upstream.with_headers({"Authorization": given[0].decode("latin-1")})

    # --- routes -----------------------------------------------------------------------------------

    async def chat(self, scope: Scope, receive: Receive, send: Send, content: bytes) -> None:
        """Vote, or pass on, as the model's name says."""
        begun = time.monotonic()
        body = await parse_large(content)
        model, votes = split_model(body.get("model", self.settings.model))
        options = RequestOptions.parse(body.get("aera"), find_headers(scope["headers"]))
        if not (votes or self.settings.votes_by_default):
            if "aera" in body or "model" not in body:
                plain = {name: value for name, value in body.items() if name != "aera"}
                content = json.dumps({"model": model, **plain}).encode()
            await self._pass_on(scope, receive, send, content)
            return
        check_chat(body)
        asked = {**body, "model": model}
        if self.settings.instruction:
            asked = add_instruction(asked, self.settings.controller.task)
        voting = self.gateway.vote(
            asked, options, size=len(content), upstream=self._upstream_for(scope)
        )
        reply = ChatReply(self.settings, self.telemetry, scope["aera.client"], body, begun)
        if body.get("stream"):
            made = await reply.stream(scope, receive, asyncio.create_task(voting))
            await made(scope, receive, send)
            return
        async with DisconnectWatch(scope, receive):
            voted = await voting
        await reply.send(voted, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, content: bytes) -> None:
        """Send a request on as it is and stream back what comes."""
        proxied, upstream = forward_request(scope, content), self._upstream_for(scope)
        tail = UsageTail.of(scope["aera.client"])
        async with DisconnectWatch(scope, receive):
            reply, place = await upstream.send(proxied)
            try:
                await pass_reply(reply, send, tail.see if tail else None)
            except (aiohttp.ClientError, OSError):
                raise UpstreamError("the model server broke off", status=502) from None
            finally:
                reply.close()
                upstream.release(place)
                if tail is not None:
                    tail.count()

    async def models(self, scope: Scope, receive: Receive) -> Response:
        """The upstream's models, each also under the name that votes; or one by that name."""
        one = scope["path"].removeprefix(VOTING_MODEL) if scope["path"] != MODELS else None
        if one is not None:
            raw = f"{MODELS}/{quote(one, safe='')}".encode()
            scope = {**scope, "path": f"{MODELS}/{one}", "raw_path": raw}
        proxied, upstream = forward_request(scope, b""), self._upstream_for(scope)
        async with DisconnectWatch(scope, receive):
            reply, place = await upstream.send(proxied)
            try:
                content = await read_reply(reply, self.settings.upstreams[0].largest_reply)
            except (aiohttp.ClientError, OSError):
                raise UpstreamError("the model server broke off", status=502) from None
            finally:
                reply.close()
                upstream.release(place)
        try:
            told = json.loads(content)
            if one is not None:
                return Json({**told, "id": f"aera/{told['id']}"}, status_code=reply.status)
            listed = told["data"]
            plain = [model for model in listed if not str(model["id"]).startswith("aera/")]
            data = [*listed, *({**model, "id": f"aera/{model['id']}"} for model in plain)]
        except (ValueError, KeyError, TypeError):
            return Response(content, reply.status, media_type=reply.content_type)
        return Json({"object": "list", "data": data})

    async def health(self, request: Request) -> Response:
        """Alive."""
        return Json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether requests should come here: any replica takes them, and it is not stopping."""
        draining = self.app.draining
        able, replicas = await self.readiness.check()
        ready = able and not draining
        told = {"ready": ready, "draining": draining, "replicas": replicas}
        return Json(told, status_code=200 if ready else 503)

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
                "abroad": self.gateway.lookout.abroad,
                "latest": list(self.telemetry.latest),
            }
        )

    async def page(self, request: Request) -> Response:
        """The page itself; it asks for /state."""
        return Response(fill_template(PAGE), media_type="text/html")


async def _explain(request: Request, error: Exception) -> Response:
    """What went wrong on purpose."""
    assert isinstance(error, AeraError)
    return failure(error)


async def _refuse_route(request: Request, error: Exception) -> Response:
    """No such path, or no such method on it."""
    assert isinstance(error, HTTPException)
    text = f"{request.method} is not answered here: {error.detail.lower()}"
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    return failure(DeniedError(text, status=error.status_code, code=code))


async def _apologize(request: Request | None, error: Exception) -> Response:
    """Our own mistake; what it was is in the log only."""
    body = {"message": "the gateway failed", "type": "server_error", "param": None, "code": None}
    return Json({"error": body}, status_code=500)
