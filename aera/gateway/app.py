"""The gateway: who is let in, where a request goes, its line in the log, and how all stops."""

import asyncio
import contextlib
import gc
import json
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aera.errors import AeraError, UsageError
from aera.files import fill_template
from aera.gateway import openai, proxy
from aera.gateway.audit import Auditor, open_record
from aera.gateway.config import Config, ModelConfig
from aera.gateway.keys import Client, Keys
from aera.gateway.metrics import Metrics
from aera.gateway.openai import DeniedError, Headers, Json, JsonReply, failure, too_many
from aera.gateway.vote import VotedChoice, Voter
from aera.reading.equivalence import question_reader
from aera.sampling.client import tls_context
from aera.sampling.replicas import Replicas

log = logging.getLogger("aera.gateway")
PAGE = Path(__file__).parent / "page.html"
CHAT, RESPONSES, MODELS = "/v1/chat/completions", "/v1/responses", "/v1/models"
# What a path is counted as; the others may hold anything, and are "proxy".
ROUTES = {CHAT: "chat", RESPONSES: "responses", MODELS: "models", "/state": "state"}
# Paths that answer whoever asks.
OPEN = ("/health", "/ready")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
LOCAL = ("localhost", "127.0.0.1", "::1")
# Bodies that a page of another origin can send without asking first.
FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
# Fields of a model in the list of models.
LISTED = {"object": "model", "created": 0, "owned_by": "aera"}
# Models that a refusal names at most.
NAMED = 20
# Characters of a model's name in the log; clients can make up any.
LONGEST_MODEL = 100
# Seconds for which /ready repeats what it said, however many ask.
CHECKED = 2.0
# Where a request has its client, the model it is for once that is known, and its id.
CLIENT, MODEL, ID = "aera.client", "aera.model", "aera.id"
# An id that can stand in any log and header.
SANE = re.compile(rb"[\x21-\x7e]([\x20-\x7e]{0,126}[\x21-\x7e])?")
TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
STOPPING = DeniedError(
    "the gateway is stopping; ask again", status=503, kind="api_error", code="stopping"
)


@dataclass(frozen=True, eq=False)
class Model:
    """A model that is served, with its connections."""

    config: ModelConfig
    replicas: Replicas
    forward_key: bool
    voter: Voter
    auditor: Auditor

    def translate(self, name: str) -> str:
        """What the model server calls the model that is asked for by this name."""
        return (self.config.model or name) if name == self.config.name else name

    def upstream(self, headers: Headers) -> Replicas:
        """The model servers, asked with the caller's own key where that is passed on."""
        if not self.forward_key:
            return self.replicas
        given = [value for name, value in headers if name == b"authorization"]
        if not given:
            raise DeniedError("the model server needs your key", status=401, code="invalid_api_key")
        return self.replicas.with_headers({"Authorization": given[0].decode("latin-1")})


class Exchange:
    """One request as it is answered: its id, and how the reply began.

    The id is the client's own where it gave one, so that both logs tell of the same request.
    """

    def __init__(self, scope: Scope, send: Send, gateway: "Gateway") -> None:
        given = self._trace = None
        for name, value in scope["headers"]:
            if name == proxy.REQUEST_ID:
                given = value if given is None and SANE.fullmatch(value) else given
            elif name == proxy.TRACEPARENT:
                self._trace = TRACE.fullmatch(value)
        self.id = given.decode() if given else os.urandom(16).hex()
        self._given, self._upstream_id = given, b""
        self._scope, self.client = scope, ""
        self._begun, self._began = time.monotonic(), time.time()
        self.status, self.headers = 499, list[tuple[bytes, bytes]]()
        self._send, self._gateway = send, gateway
        self._recorded = False

    async def send(self, message: Message) -> None:
        """Pass a reply on; its id is in the headers and in the log."""
        if message["type"] == "http.response.start":
            self._start(message)
        elif not message.get("more_body", False):
            self.record()  # counted before the client can know that it is over
        await self._send(message)

    def _start(self, message: Message) -> None:
        headers = list(message["headers"])
        own = next((value for name, value in headers if name == proxy.REQUEST_ID), None)
        if own is not None and self._given is None:
            self.id = own.decode("latin-1")[:200]
        elif own is None:
            headers.append((proxy.REQUEST_ID, self.id.encode()))
        elif own != self._given:
            self._upstream_id = own[:200]
            others = [(name, value) for name, value in headers if name != proxy.REQUEST_ID]
            headers = [*others, (proxy.REQUEST_ID, self._given)]
        if self._gateway.draining:
            headers.append((b"connection", b"close"))
        self.status, self.headers = message["status"], headers
        message["headers"] = headers

    def record(self) -> None:
        """Count and log how it ended, once: what a reply says of itself, never what was said."""
        if self._recorded:
            return
        self._recorded = True
        route, counts = ROUTES.get(self._scope["path"], "proxy"), self._gateway.metrics.counts
        name = str(self._scope.get(MODEL, ""))
        label = self._gateway.metrics.label(name)
        counts["requests", route, str(self.status), label] += 1
        if self.client:
            counts["key_requests", self.client, label] += 1
        if not log.isEnabledFor(logging.INFO):
            return
        named = {
            "key": self.client,
            "model": name[:LONGEST_MODEL],
            "trace": self._trace[1].decode() if self._trace else "",
            "upstream_id": self._upstream_id.decode("latin-1"),
        }
        told = {
            name.decode("latin-1")[len(openai.HEADER) :]: value.decode("latin-1")
            for name, value in self.headers
            if name.startswith(openai.RAW_HEADER)
        }
        now = datetime.fromtimestamp(self._began, UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "id": self.id, "route": route}
        line |= {name: value for name, value in named.items() if value}
        took = round(1000 * (time.monotonic() - self._begun), 1)
        log.info(json.dumps({**line, "status": self.status, **told, "ms": took}))


class Gateway:
    """The gateway as an ASGI application; everything it holds is in it.

    While it drains, requests are answered and their connections closed; `cut` ends them all.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.keys = config, Keys(config)
        self.metrics = Metrics(each.name for each in config.model)
        # The name of the model for requests that name none.
        self.default = config.default or config.model[0].name
        self.models: dict[str, Model] = {}
        self._others: Model | None = None
        self._forwarded = proxy.forwarded_names(config.server.keep_headers)
        names = [name.lower() for name in config.server.allowed_hosts]
        own = () if config.key else (*LOCAL, config.server.host.lower())
        self._hosts = frozenset((*own, *names))
        self._ready: asyncio.Task[list[dict[str, Any]]] | None = None
        self._ready_until = 0.0
        self.draining = self._cut = False
        self._under_way: set[asyncio.Task[Any]] = set()
        prepare(config)  # refuses before serving
        routes = {
            "/": self.page,
            "/state": self.state,
            "/health": self.health,
            "/ready": self.ready,
            "/metrics": self.show_metrics,
        }
        handlers: Any = {HTTPException: _refuse_route, Exception: _apologize}
        self.pages = Starlette(
            routes=[Route(path, page) for path, page in routes.items()],
            lifespan=self._lifespan,
            exception_handlers=handlers,
        )
        self.pages.router.redirect_slashes = False

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Connect all models; on an error nothing stays open."""
        async with contextlib.AsyncExitStack() as stack:
            opened: dict[str, Replicas] = {}

            async def connect(upstream: str) -> Replicas:
                """Whoever asks the same servers shares them and their permits."""
                found = self.config.find(upstream)
                if found.name not in opened:
                    made = await stack.enter_async_context(Replicas(found.endpoints))
                    opened[found.name] = made
                return opened[found.name]

            for each in self.config.model:
                replicas, second = await connect(each.upstream), None
                if each.escalate is not None:
                    second = await connect(each.escalate.upstream), each.escalate.model
                voter = Voter(replicas, each.decider, each, second)
                auditor = Auditor(each, voter, self.metrics.count_audit)
                stack.push_async_callback(auditor.stop)
                forwards = self.config.find(each.upstream).forward_key
                self.models[each.name] = made = Model(each, replicas, forwards, voter, auditor)
                if each.other_names:
                    self._others = made
                for name, servers in ((each.name, replicas), (f"{each.name}, second", second)):
                    found = servers[0] if isinstance(servers, tuple) else servers
                    if found is not None and found not in self.metrics.upstreams.values():
                        self.metrics.upstreams = {**self.metrics.upstreams, name: found}
            self.metrics.auditors = {
                name: m.auditor for name, m in self.models.items() if m.config.audit_share
            }
            yield

    # --- letting in -------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self._under_way)

    def cut(self) -> int:
        """End what is under way; those who have no reply yet are told. Returns how many."""
        self._cut = self.draining = True
        for task in self._under_way:
            task.cancel()
        return len(self._under_way)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.pages(scope, receive, send)
            return
        path, headers = scope["path"], scope["headers"]
        refusal = None if path in OPEN else self._refuse_origin(path, scope["method"], headers)
        if not (path.startswith("/v1/") or path == "/state"):
            await (failure(refusal) if refusal else self.pages)(scope, receive, send)
            return
        exchange = Exchange(scope, send, self)
        try:
            if refusal is not None:
                raise refusal
            client = self.keys.admit(headers)
            if self.metrics.active >= self.config.limits.max_requests:
                raise too_many("too many requests are under way", 1.0)
            client.enter()
        except DeniedError as error:
            await failure(error)(scope, receive, exchange.send)
            return
        exchange.client = client.name
        scope[CLIENT], scope[ID] = client, exchange.id
        await self._serve(scope, receive, exchange, client)

    def _refuse_origin(self, path: str, method: str, headers: Headers) -> DeniedError | None:
        """Why a request is refused, if so: pages of other origins may not ask without a key.

        A browser says where a page comes from that posts (`Origin`) or reads (`Sec-Fetch-Site`),
        and a name that was bound to this machine afterwards stands in `Host`.
        """
        if not self._hosts:
            return None
        told = {name: value.decode("latin-1").lower() for name, value in headers}
        host, origin = told.get(b"host", ""), told.get(b"origin", "")
        kind = told.get(b"content-type", "").partition(";")[0].strip()
        if sum(name == b"host" for name, _ in headers) > 1:
            text = "a request takes one Host header, but this one has several"
            return DeniedError(text, status=400, code="invalid_header")
        if _host_name(host) not in self._hosts:
            text = f'the host "{host:.80}" is not served here; allowed_hosts of [server] adds one'
            return DeniedError(text, status=421, code="unknown_host")
        crosses = told.get(b"sec-fetch-site") in ("cross-site", "same-site") and path != "/"
        if crosses or (origin and origin.partition("://")[2] != host):
            text = f'pages of "{origin or "another site":.80}" may not ask here'
            return DeniedError(text, status=403, code="foreign_origin")
        forms = FORMS if path in (CHAT, RESPONSES) else FORMS[:2]  # others take uploads
        if method == "POST" and path.startswith("/v1/") and kind in forms:
            text = f'the content type must be application/json, but is "{kind:.80}"'
            return DeniedError(text, status=415, code="unsupported_media_type")
        return None

    async def _serve(
        self, scope: Scope, receive: Receive, exchange: Exchange, client: Client
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        self.metrics.active += 1
        try:
            if scope["path"] == "/state":
                await self.pages(scope, receive, exchange.send)
            else:
                await self._answer(scope, receive, exchange.send)
        except asyncio.CancelledError:
            if not self._cut:
                raise
            if not exchange.headers:
                await failure(STOPPING)(scope, receive, exchange.send)
            elif any(value.startswith(b"text/event-stream") for _, value in exchange.headers):
                last = openai.event(openai.error_body(STOPPING))
                await exchange.send({"type": "http.response.body", "body": last})
        finally:
            client.leave()
            self.metrics.active -= 1
            self._under_way.discard(task)
            exchange.record()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is under /v1, past the layers that the pages need."""
        try:
            reply = await self._route(Request(scope, receive))
            await reply(scope, receive, send)
        except ClientDisconnect:
            await Response(status_code=499)(scope, receive, send)
        except AeraError as error:
            await failure(error)(scope, receive, send)
        except Exception as error:
            await (await _apologize(None, error))(scope, receive, send)
            raise

    async def _route(self, request: Request) -> ASGIApp:
        path, method = request.scope["path"], request.method
        if method not in METHODS:
            text = f"{method} is not answered here: method not allowed"
            raise DeniedError(text, status=405, code="method_not_allowed")
        content = await proxy.read_body(request.receive, self.config.limits.max_bytes)
        if path in (CHAT, RESPONSES) and method == "POST":
            return await self.chat(request, content)
        if method == "GET" and path == MODELS:
            return await self.list_models(request)
        if method == "GET" and path.startswith(f"{MODELS}/"):
            return await self.show_model(request)
        if path.startswith(f"{RESPONSES}/{openai.OWN_ID}"):
            text = "voted responses are not stored: send the whole conversation as input"
            raise DeniedError(text, status=404, code="not_found")
        return await self.other(request, content)

    def find(self, name: str, client: Client) -> Model:
        """The model that is asked for; DeniedError where there is none, or not for this client."""
        found = self.models.get(name) or self._others
        if found is None:
            known = ", ".join(list(self.models)[:NAMED])
            text = f'there is no model "{name:.80}" here; there are {known}'
            raise DeniedError(text, status=404, code="model_not_found")
        if client.models and name not in client.models:
            text = f'this key may not ask for "{name:.80}"'
            raise DeniedError(text, status=403, code="model_not_allowed")
        return found

    # --- /v1 --------------------------------------------------------------------------------------

    async def chat(self, request: Request, content: bytes) -> ASGIApp:
        """Vote, or pass on, as the model's name and the request say."""
        begun, scope = time.monotonic(), request.scope
        headers, client = scope["headers"], scope[CLIENT]
        body = await proxy.parse_body(content)
        named = body.get("model", self.default)
        name, votes = openai.split_model(named)
        model = self.find(name, client)
        scope[MODEL] = name
        theirs = model.translate(name)
        options = openai.RequestOptions.parse(body.get("aera"), headers)
        votes = (votes or model.config.vote_by_default) if options.vote is None else options.vote
        asked = body if scope["path"] == CHAT else openai.to_chat(body) if votes else None
        if not votes or asked is None:
            plain = {field: value for field, value in body.items() if field != "aera"}
            same = "aera" not in body and body.get("model") == theirs
            told = content if same else openai.write_body({**plain, "model": theirs})
            note = [(b"x-aera-not-voted", b"only text is voted on here")] if votes else []
            return await self.pass_on(request, told, {**plain, "model": theirs}, model, note)
        openai.check_chat(asked)
        asked = {**asked, "model": theirs}
        if model.config.instruction:
            asked = openai.add_instruction(asked, model.voter.controller.task)
        kept = proxy.find_forwarded(headers, scope[ID], self._forwarded)
        requests = model.voter.open(
            asked,
            options,
            size=len(content),
            upstream=model.upstream(headers).keeping(kept),
            above=client.ledgers,
            full=model.auditor.spends_all,
        )
        audit = model.auditor.draw(scope[ID], asked, options)
        reply = VotedReply(self, client, body, named, begun, is_chat=scope["path"] == CHAT)

        async def vote() -> list[VotedChoice]:
            voted: list[VotedChoice] = []
            try:
                voted = await model.voter.vote(requests)
                return voted
            finally:
                if audit is not None:
                    model.auditor.finish(audit, requests[0], voted[0] if voted else None)

        if body.get("stream"):
            return await reply.stream(request.receive, asyncio.create_task(vote()))
        async with proxy.DisconnectWatch(request.receive):
            found = await vote()
        return reply.whole(found)

    async def pass_on(
        self,
        request: Request,
        content: bytes,
        body: Json,
        model: Model,
        headers: Headers = (),
    ) -> ASGIApp:
        """Send a request on as it is and stream back what comes, counted where a key has limits."""
        scope, meter, hides = request.scope, None, False
        client: Client = scope[CLIENT]
        if client.ledgers and request.method == "POST":
            more = proxy.ask_for_usage(body, scope["path"])
            content, hides = more or content, more is not None
            held = await client.hold(*proxy.bound_of(body, len(content)))

            def estimated(tokens: int) -> None:
                self.metrics.counts["key_tokens_estimated", client.name] += tokens

            if held is not None:
                meter = proxy.Meter(held, hides=hides, estimated=estimated)

        def answered() -> None:
            if MODEL in scope:
                self.metrics.note(scope[MODEL])

        upstream, sent = model.upstream(scope["headers"]), proxy.forward_request(scope, content)
        return proxy.PassedOn(upstream, sent, meter=meter, answered=answered, headers=headers)

    async def other(self, request: Request, content: bytes) -> ASGIApp:
        """Any other route: sent on to the model's server, in its words; nothing is voted on."""
        client: Client = request.scope[CLIENT]
        body: dict[str, Any] = {}
        alone = len(self.models) == 1 and self._others and not self._others.config.model
        if content and (not alone or client.models or client.ledgers or b'"aera' in content):
            try:
                body = await proxy.parse_body(content)
            except proxy.NotJsonError:  # what it is instead is for the upstream to say
                if client.models:
                    text = "this key may ask for some models only: name one in a JSON request"
                    raise DeniedError(text, status=403, code="model_not_allowed") from None
        name, options = body.get("model"), body.get("aera")
        if isinstance(name, str) and name.startswith(openai.PREFIX):
            raise UsageError(
                f'"{name:.80}" votes on /v1/chat/completions and /v1/responses only; here ask for '
                f'"{name.removeprefix(openai.PREFIX):.80}"'
            )
        if options and options != {"vote": False}:
            raise UsageError('nothing is voted on here: leave "aera" out of the request')
        model = self.find(name if isinstance(name, str) else self.default, client)
        sent = {field: value for field, value in body.items() if field != "aera"}
        if isinstance(name, str):
            sent["model"] = model.translate(name)
        content = content if sent == body else openai.write_body(sent)
        return await self.pass_on(request, content, sent, model)

    async def list_models(self, request: Request) -> ASGIApp:
        """The models that may be asked for, each also under the name that votes."""
        client: Client = request.scope[CLIENT]
        others = self._others
        alone = len(self.models) == 1 and others is not None and not others.config.model
        told = [] if alone else list(self.models)  # else all are the upstream's own names
        listed: list[Json] = [{"id": name, **LISTED} for name in told]
        if others is not None:
            upstream, sent = (
                others.upstream(request.scope["headers"]),
                proxy.forward_request(request.scope, b""),
            )
            status, kind, content = await proxy.fetch(upstream, sent, request.receive)
            try:
                data = json.loads(content)["data"]
                listed += [model for model in data if model["id"] not in told]
            except (ValueError, KeyError, TypeError):
                if not told:
                    return Response(content, status, media_type=kind)
        if client.models:
            listed = [model for model in listed if model["id"] in client.models]
        plain = [model for model in listed if not str(model["id"]).startswith(openai.PREFIX)]
        voting = [{**model, "id": f"{openai.PREFIX}{model['id']}"} for model in plain]
        return JsonReply({"object": "list", "data": [*listed, *voting]})

    async def show_model(self, request: Request) -> ASGIApp:
        """One model, by its plain name or by the name that votes."""
        scope = request.scope
        asked = scope["path"].removeprefix(f"{MODELS}/")
        name = asked.removeprefix(openai.PREFIX)
        model = self.find(name, scope[CLIENT])
        theirs = model.translate(name)
        if asked == theirs:
            return await self.pass_on(request, b"", {}, model)
        sent = proxy.forward_request(scope, b"", f"{MODELS}/{quote(theirs, safe='')}")
        upstream = model.upstream(scope["headers"])
        status, kind, content = await proxy.fetch(upstream, sent, request.receive)
        with contextlib.suppress(ValueError, TypeError):
            if status == 200:
                content, kind = (
                    openai.dump({**json.loads(content), "id": asked}),
                    "application/json",
                )
        return Response(content, status, media_type=kind)

    # --- pages ------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """Alive."""
        return JsonReply({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether requests should come here: any replica takes them, and it is not stopping."""
        if self._ready is None or (self._ready.done() and time.monotonic() >= self._ready_until):
            self._ready = asyncio.create_task(self._check())
            self._ready_until = time.monotonic() + CHECKED
        # One who stops waiting must not end it for the others.
        rows = await asyncio.shield(self._ready)
        ready = not self.draining and any(row["answers"] and not row["refused"] for row in rows)
        told = {"ready": ready, "draining": self.draining, "replicas": rows}
        return JsonReply(told, status_code=200 if ready else 503)

    async def _check(self) -> list[dict[str, Any]]:
        """How each replica is doing, and for which models."""
        servers = list(dict.fromkeys(model.replicas for model in self.models.values()))
        rows = []
        for each, told in zip(
            servers, await asyncio.gather(*(each.check() for each in servers)), strict=True
        ):
            models = [model for model in self.models.values() if model.replicas is each]
            # One that refuses our key is of no use, unless callers bring their own.
            own = not models[0].forward_key
            rows += [
                {**row, "refused": own and row["refused"],
                 "models": [model.config.name for model in models]}
                for row in told
            ]  # fmt: skip
        return rows

    async def show_metrics(self, request: Request) -> Response:
        """For Prometheus."""
        return Response(self.metrics.exposition(), media_type="text/plain; version=0.0.4")

    async def state(self, request: Request) -> Response:
        """What the page shows: of the models that its client may ask for."""
        client, seen = request.scope[CLIENT], self.metrics
        visible = [
            m for m in self.models.values() if not client.models or m.config.name in client.models
        ]
        models = [
            {
                "name": each.config.name,
                "policy": each.voter.controller.label,
                "schedule": list(each.voter.controller.schedule),
                "drifted": each.voter.lookout.abroad,
                "audits": seen.audits(each.config.name),
            }
            for each in visible
        ]
        rows = [r for r in seen.latest if not client.models or r["model"] in client.models]
        return JsonReply(
            {
                "models": models,
                "since": round(seen.begun, 3),
                "active": seen.active - 1,  # this request is not worth showing
                "read": seen.read,
                "latest": rows,
            }
        )

    async def page(self, request: Request) -> Response:
        """The page itself; it asks for /state."""
        return Response(fill_template(PAGE), media_type="text/html")


def _host_name(host: str) -> str:
    """The name in a Host header, without its port and the dot of a full name."""
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name if port[:1] in ("", ":") else host
    name = host.rpartition(":")[0] if host.count(":") == 1 else host
    return name.removesuffix(".")


async def _refuse_route(request: Request, error: Exception) -> Response:
    """No such path, or no such method on it."""
    assert isinstance(error, HTTPException)
    text = f"{request.method} is not answered here: {error.detail.lower()}"
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    return failure(DeniedError(text, status=error.status_code, code=code))


async def _apologize(request: Request | None, error: Exception) -> Response:
    """Our own mistake; what it was is in the log only."""
    body = {"message": "the gateway failed", "type": "server_error", "param": None, "code": None}
    return JsonReply({"error": body}, status_code=500)


@dataclass(frozen=True, eq=False)
class VotedReply:
    """The reply to one voted request, whole or as a stream."""

    gateway: Gateway
    client: Client
    body: Json
    """As the client sent it."""
    model: str
    begun: float
    is_chat: bool

    def whole(self, voted: list[VotedChoice]) -> Response:
        """The reply in one piece."""
        headers = self._record(voted)
        return JsonReply(self._reply(voted), headers=headers)

    def _reply(self, voted: list[VotedChoice]) -> dict[str, Any]:
        made = openai.completion(voted, self.model, self.body)
        return made if self.is_chat else openai.to_response(made, self.body)

    def _record(self, voted: list[VotedChoice]) -> dict[str, str]:
        """Count what was voted; the headers that tell of it."""
        metrics, (name, _) = self.gateway.metrics, openai.split_model(self.model)
        waited = max(each.waited for each in voted)
        overhead = max(0.0, time.monotonic() - self.begun - waited)
        metrics.histograms["overhead_seconds"].observe(overhead)
        for each in voted:
            metrics.record(each, name)
        if self.client.name:
            spent = sum(sum(each.tokens) for each in voted)
            metrics.counts["key_tokens", self.client.name, metrics.label(name)] += spent
        return {
            "x-aera-samples": str(sum(each.allocation.responses for each in voted)),
            "x-aera-stop-reason": voted[0].allocation.reason,
            "x-aera-overhead-ms": f"{1000 * overhead:.1f}",
        }

    async def stream(
        self, receive: Receive, work: "asyncio.Task[list[VotedChoice]]"
    ) -> proxy.ClosingStream:
        """Keep-alive comments while voting, then the reply. What fails at once is an HTTP error."""
        try:
            async with proxy.DisconnectWatch(receive):
                await asyncio.wait([work], timeout=self.gateway.config.server.keep_alive)
        except (ClientDisconnect, asyncio.CancelledError):
            work.cancel()
            raise
        headers = self._record(work.result()) if work.done() else {}
        events = self._events(work, recorded=bool(headers))
        return proxy.ClosingStream(events, work.cancel, headers=headers)

    async def _events(
        self, work: "asyncio.Task[list[VotedChoice]]", *, recorded: bool
    ) -> AsyncIterator[bytes]:
        while not work.done():
            yield b": keep-alive\n\n"
            await asyncio.wait([work], timeout=self.gateway.config.server.keep_alive)
        try:
            voted = work.result()
        except AeraError as error:
            # The status went out as 200; what became of it is counted apart.
            label = self.gateway.metrics.label(openai.split_model(self.model)[0])
            self.gateway.metrics.counts[
                "requests", "stream", str(openai.status_of(error)), label
            ] += 1
            yield (
                openai.event(openai.error_body(error))
                if self.is_chat
                else openai.response_failed(error)
            )
            return
        if not recorded:
            self._record(voted)
        reply = self._reply(voted)
        for each in (
            openai.chat_events(reply, self.body) if self.is_chat else openai.response_events(reply)
        ):
            yield each


def prepare(config: Config) -> None:
    """Load what the models need, and refuse what cannot be served; this may take a while."""
    for each in config.model:
        question_reader(each.decider.task)  # refuses where math-verify is missing
        if each.record is not None:
            open_record(each).close()
        for endpoint in config.find(each.upstream).endpoints:
            tls_context(endpoint.ca_file)
    proxy.forwarded_names(config.server.keep_headers)


# --- the process ----------------------------------------------------------------------------------

# Clients that may wait to be let in.
BACKLOG = 2_048
# Sockets on which new clients are let in; all are the same address.
LISTENERS = 8
# Seconds an idle connection stays open: longer than in the pools of clients and balancers, for
# whichever side closes first makes the other fail.
IDLE = 75
# Seconds in which those who were cut off can be told.
CLOSING_SECONDS = 2
# Seconds after which threads that do not end are left behind.
THREAD_SECONDS = 5.0


class GatewayServer(uvicorn.Server):
    """Drains on SIGTERM or SIGINT: not ready, but answering, until all is done or time is up."""

    def __init__(self, config: Config) -> None:
        self.gateway = Gateway(config)
        self.drain = config.server.drain_seconds
        # Whether the process does nothing else, and ends with it.
        self.alone = False
        # Requests that were ended before they had their answer.
        self.cut_off = 0
        self._signals = 0
        self._until: float | None = None
        super().__init__(
            uvicorn.Config(
                self.gateway,
                ws="none",
                log_config=None,
                access_log=False,
                backlog=BACKLOG,
                timeout_keep_alive=IDLE,
                timeout_graceful_shutdown=CLOSING_SECONDS,
                server_header=False,
                proxy_headers=False,  # nobody asks for the client's address
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals of this process for as long as it serves."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        taken = (signal.SIGTERM, signal.SIGINT)
        former = {each: signal.signal(each, self.handle_exit) for each in taken}
        try:
            yield
        finally:
            for each, handler in former.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins to drain, the second ends it."""
        self._signals += 1

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: go on draining."""
        if self._signals:
            if self._until is None:
                self._until = time.monotonic() + self.drain
                self.gateway.draining = True
            over = time.monotonic() >= self._until or self._signals > 1
            if over or not self.gateway.busy:
                self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what is still under way, with a word to each, and leave."""
        if self.alone:
            # A thread that hangs in somebody else's code would keep the process for ever.
            end = threading.Timer(THREAD_SECONDS, os._exit, (1,))
            end.daemon = True
            end.start()
        self.cut_off = self.gateway.cut()
        if self.cut_off:
            log.warning("stopping: %d requests were cut off", self.cut_off)
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """Where clients will connect."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # Accepted sockets inherit it. Else a reply of two packets waits 40 ms for an acknowledgement:
    # asyncio sets it only on sockets that were made with the protocol's number.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def run(server: GatewayServer, listening: socket.socket) -> int:
    """Serve until told to stop; returns how many requests were cut off then."""
    server.alone = True
    # Requests make few reference cycles, and looking for them takes a tenth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    # uvloop lets one client in for each socket and round of its loop, and rounds are long when it
    # is busy: with one socket the last of a few hundred new clients would wait for seconds.
    server.run(sockets=[listening, *(listening.dup() for _ in range(LISTENERS - 1))])
    return server.cut_off
