"""The gateway behind HTTP: OpenAI routes, health, metrics and the page."""

import asyncio
import contextlib
import gc
import json
import logging
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
from aera.gateway.clients import Clients
from aera.gateway.full_vote import finish_audit
from aera.gateway.middleware import ID, MODEL, AccessMiddleware
from aera.gateway.models import MODELS, fetch, list_models, route_body
from aera.gateway.openai import (
    ChatWire,
    DeniedError,
    Json,
    dump,
    failure,
)
from aera.gateway.options import RequestOptions, find_headers
from aera.gateway.origin import CHAT, RESPONSES, OriginCheck
from aera.gateway.proxy import (
    DisconnectWatch,
    check_chat,
    forward_request,
    parse_large,
    pass_reply,
    read_body,
)
from aera.gateway.reply import VotedReply, Wire
from aera.gateway.request import (
    PREFIX,
    add_instruction,
    plain_request,
    refuse_vote,
    split_model,
)
from aera.gateway.responses import ResponsesWire, refuse_retrieval
from aera.gateway.serving import SERVING, OpenModel, Serving, prepare
from aera.gateway.settings import GatewaySettings
from aera.gateway.telemetry import Telemetry
from aera.gateway.usage import UsageTail
from aera.web.template import fill_template

__all__ = ["Application", "GatewaySettings", "collect_seldom", "create_app"]
log = logging.getLogger("aera.gateway")
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
    return Application(settings).app


class Application:
    """Everything one gateway holds; nothing of it is global."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings, self.telemetry = settings, Telemetry()
        prepare(settings)  # refuses before serving
        self._serving: Serving | None = None
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
        most, limits = settings.most_requests, settings.open_limits
        self.app = AccessMiddleware(
            self.dispatch,
            clients=Clients(settings.keys, most=most, limits=limits),
            most=most,
            origins=OriginCheck(frozenset(settings.hosts)),
            telemetry=self.telemetry,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with Serving(self.settings) as serving:
            self._serving = serving
            self.telemetry.models.configure(serving.models)
            self.telemetry.upstreams = serving.upstreams
            self.telemetry.watch_audits(
                {name: model.gateway.auditor for name, model in serving.models.items()}
            )
            yield

    @property
    def serving(self) -> Serving:
        """What new requests get."""
        assert self._serving is not None
        return self._serving

    # --- requests ---------------------------------------------------------------------------------

    async def dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is under /v1 goes straight to its route, past the layers that the others need."""
        path = scope.get("path", "")
        if not path.startswith("/v1/"):
            await self.routed(scope, receive, send)
            return
        scope[SERVING] = self.serving
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
        content = await read_body(receive, self.settings.largest_request)
        if path in (CHAT, RESPONSES) and method == "POST":
            await self.chat(scope, receive, send, content)
        elif method == "GET" and path == MODELS:
            await (await list_models(scope, receive))(scope, receive, send)
        elif method == "GET" and path.startswith(f"{MODELS}/"):
            await self.model(scope, receive, send)
        else:
            refuse_retrieval(path)
            model, content = await route_body(scope, refuse_vote(content))
            await self._pass_on(scope, receive, send, content, model)

    # --- routes -----------------------------------------------------------------------------------

    async def chat(self, scope: Scope, receive: Receive, send: Send, content: bytes) -> None:
        """Vote, or pass on, as the model's name and the request say."""
        begun, serving = time.monotonic(), scope[SERVING]
        body = await parse_large(content)
        asked_for = body.get("model", serving.default)
        name, votes = split_model(asked_for)
        model = serving.find(name, scope["aera.client"])
        scope[MODEL] = name
        served, theirs = model.served, model.translate(name)
        options = RequestOptions.parse(body.get("aera"), find_headers(scope["headers"]))
        default = votes or served.votes_by_default
        if not (default if options.vote is None else options.vote):
            await self._pass_on(scope, receive, send, plain_request(body, theirs, content), model)
            return
        wire: Wire = ResponsesWire.open(body) if scope["path"] == RESPONSES else ChatWire(body)
        check_chat(wire.chat)
        asked = {**wire.chat, "model": theirs}
        if served.instruction:
            asked = add_instruction(asked, served.controller.task)
        kept = serving.settings.kept.find(scope["headers"], scope[ID])
        upstream = model.upstream(scope["headers"]).keeping(kept)
        audit = model.gateway.auditor.draw(scope[ID], asked, options)
        voting = model.gateway.vote(
            asked, options, size=len(content), upstream=upstream, audit=audit
        )
        reply = VotedReply(served, self.telemetry, scope["aera.client"], wire, asked_for, begun)
        try:
            if body.get("stream"):
                made = await reply.stream(scope, receive, asyncio.create_task(voting))
                await made(scope, receive, send)
                return
            async with DisconnectWatch(receive):
                voted = await voting
            await reply.send(voted, send)
        finally:
            if audit is not None:
                finish_audit(model.gateway, audit)

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, content: bytes, model: OpenModel
    ) -> None:
        """Send a request on as it is and stream back what comes."""
        proxied, upstream = forward_request(scope, content), model.upstream(scope["headers"])
        tail = UsageTail.of(scope["aera.client"])
        async with DisconnectWatch(receive):
            reply, place = await upstream.send(proxied)
            if reply.status < 300 and MODEL in scope:
                self.telemetry.models.note(scope[MODEL])
            try:
                await pass_reply(reply, send, tail.see if tail else None)
            except (aiohttp.ClientError, OSError):
                raise UpstreamError("the model server broke off", status=502) from None
            finally:
                reply.close()
                upstream.release(place)
                if tail is not None:
                    tail.count()

    async def model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One model, by its plain name or by the name that votes."""
        asked = scope["path"].removeprefix(f"{MODELS}/")
        name = asked.removeprefix(PREFIX)
        model = scope[SERVING].find(name, scope["aera.client"])
        theirs = model.translate(name)
        if asked == theirs:
            await self._pass_on(scope, receive, send, b"", model)
            return
        raw = f"{MODELS}/{quote(theirs, safe='')}".encode()
        there = {**scope, "path": f"{MODELS}/{theirs}", "raw_path": raw}
        status, kind, content = await fetch(there, receive, model)
        with contextlib.suppress(ValueError, TypeError):
            if status == 200:
                content, kind = dump({**json.loads(content), "id": asked}), "application/json"
        await Response(content, status, media_type=kind)(scope, receive, send)

    async def health(self, request: Request) -> Response:
        """Alive."""
        return Json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether requests should come here: any replica takes them, and it is not stopping."""
        draining = self.app.draining
        able, replicas = await self.serving.check()
        ready = able and not draining
        told = {"ready": ready, "draining": draining, "replicas": replicas}
        return Json(told, status_code=200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """For Prometheus."""
        return Response(self.telemetry.exposition(), media_type="text/plain; version=0.0.4")

    async def state(self, request: Request) -> Response:
        """What the page shows."""
        serving, seen = self.serving, self.telemetry
        audits = seen.audits()
        models = [
            {
                "name": served.name,
                "policy": served.controller.label,
                "schedule": list(served.controller.schedule),
                "abroad": serving.models[served.name].gateway.lookout.abroad,
                "audits": audits.get(served.name),
            }
            for served in serving.settings.models
        ]
        default = next(each for each in models if each["name"] == serving.default)
        return Json(
            {
                "policy": default["policy"],
                "schedule": default["schedule"],
                "abroad": default["abroad"],
                "models": models,
                "since": round(seen.begun, 3),
                "active": seen.active - 1,  # this request is not worth showing
                "read": seen.read,
                "latest": list(seen.latest),
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
