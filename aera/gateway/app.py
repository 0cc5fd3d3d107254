"""The gateway: who is let in, where a request goes, its line in the log, and how all stops."""

import asyncio
import contextlib
import gc
import json
import logging
import math
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from aera.errors import AeraError, UpstreamError, UsageError
from aera.files import Json, fill_template
from aera.gateway import openai, proxy
from aera.gateway.config import LOCAL, Config, KeyConfig
from aera.gateway.keys import Client, admit, kept, restore
from aera.gateway.metrics import Metrics
from aera.gateway.openai import CHAT, RESPONSES, DeniedError, Headers, failure, json_reply
from aera.gateway.vote import Model, VotedChoice, completion
from aera.reading.task import question_reader
from aera.sampling.replicas import Replicas
from aera.solving.controller import Controller, default_controller

log = logging.getLogger("aera.gateway")
PAGE = Path(__file__).parent / "page.html"
MODELS, BATCHES = "/v1/models", "/v1/batches"
# What a path is counted as; the others may hold anything, and are "proxy".
ROUTES = {CHAT: "chat", RESPONSES: "responses", MODELS: "models", "/state": "state"}
# Paths that answer whoever asks.
OPEN = ("/health", "/ready")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
# Bodies that a page of another origin can send without asking first.
FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
# Fields of a model in the list of models.
LISTED = {"object": "model", "created": 0, "owned_by": "aera"}
# Models that a refusal names at most.
NAMED = 20
# Characters of a model's name or of another server's id in the log; they can make up any.
LONGEST_MODEL, LONGEST_ID = 100, 200
# An id that can stand in any log and header.
SANE = re.compile(rb"[\x21-\x7e]([\x20-\x7e]{0,126}[\x21-\x7e])?")
TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
STOPPING = DeniedError(
    "the gateway is stopping; ask again", status=503, kind="api_error", code="stopping"
)


class Exchange:
    """One request as it is answered: who asks for what, its id, and how the reply began.

    The id is the client's own where it gave one, so that both logs tell of the same request.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, gateway: "Gateway") -> None:
        self.scope, self.receive, self._send, self._gateway = scope, receive, send, gateway
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.path: str = scope["path"]
        self.asked: Headers = scope["headers"]
        ids = [value for name, value in self.asked if name == openai.REQUEST_ID]
        self._given = next((value for value in ids if SANE.fullmatch(value)), None)
        self.id = self._given.decode() if self._given else os.urandom(16).hex()
        self.client, self.model = gateway.anybody, ""
        self.begun, self._began = time.monotonic(), time.time()
        self.status, self.headers = 499, list[tuple[bytes, bytes]]()
        # Headers of our own that the reply gets.
        self.own = dict[str, str]()
        self._upstream_id = ""
        # Whether it is counted and logged, which is done once.
        self.counts = self.path.startswith("/v1/") or self.path == "/state"
        self._over = False

    async def reply(self, reply: Response) -> None:
        """Answer with this."""
        await reply(self.scope, self.receive, self.send)

    async def send(self, message: Message) -> None:
        """Pass a reply on; its id is in the headers and in the log."""
        if message["type"] == "http.response.start":
            message["headers"] = self._begin(message)
        elif not message.get("more_body", False):
            self._over = True
            self.record()  # counted before the client can know that it is over
        await self._send(message)

    def _begin(self, message: Message) -> list[tuple[bytes, bytes]]:
        headers = [each for each in message["headers"] if each[0] != openai.REQUEST_ID]
        theirs = [value for name, value in message["headers"] if name == openai.REQUEST_ID]
        told = theirs[0].decode("latin-1")[:LONGEST_ID] if theirs else ""
        if self._given is None:
            self.id = told or self.id
        elif told != self.id:
            self._upstream_id = told
        if self.counts or theirs:
            headers.append((openai.REQUEST_ID, self.id.encode("latin-1")))
        headers += [(name.encode(), value.encode("latin-1")) for name, value in self.own.items()]
        if self._gateway.draining:
            headers.append((b"connection", b"close"))
        self.status, self.headers = message["status"], headers
        return headers

    @contextlib.asynccontextmanager
    async def attended(self) -> AsyncIterator[None]:
        """Work that somebody waits for: when the client leaves, it is cancelled.

        async with exchange.attended():   # ClientDisconnect, once the client has left
            ...

        It works as asyncio.timeout does.
        """
        left = False

        async def watch() -> None:
            nonlocal left
            while (await self.receive())["type"] != "http.disconnect":
                pass
            if not self._over:
                left = True
                self.task.cancel()

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
            # Somebody else may have cancelled the work too, and is not to be told of a client.
            if (
                left
                and not self.task.uncancel()
                and isinstance(sys.exception(), asyncio.CancelledError)
            ):
                raise ClientDisconnect

    def record(self) -> None:
        """Count and log how it ended, once: what a reply says of itself, never what was said."""
        if not self.counts:
            return
        self.counts = False
        route, metrics = ROUTES.get(self.path, "proxy"), self._gateway.metrics
        label = metrics.label(self.model)
        metrics.count("requests", route, str(self.status), label)
        if self.client.name:
            metrics.count("key_requests", self.client.name, label)
        if not log.isEnabledFor(logging.INFO):
            return
        traces = [TRACE.fullmatch(v) for name, v in self.asked if name == openai.TRACEPARENT]
        now = datetime.fromtimestamp(self._began, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": now,
            "id": self.id,
            "route": route,
            "key": self.client.name,
            "model": self.model[:LONGEST_MODEL],
            "trace": traces[-1][1].decode() if traces and traces[-1] else "",
            "upstream_id": self._upstream_id,
            "status": self.status,
            **openai.own_headers(self.headers),
            "ms": round(1000 * (time.monotonic() - self.begun), 1),
        }
        log.info(json.dumps({name: value for name, value in line.items() if value != ""}))


class Gateway:
    """The gateway as an ASGI application; everything it holds is in it.

    What cannot be served is refused when it is made, which may take a while. Plain votes decide
    for models without a controller. While it drains, requests are answered and their connections
    closed; `cut` ends them all.
    """

    def __init__(self, config: Config, controllers: Mapping[str, Controller]) -> None:
        self.config = config
        self.anybody = Client(KeyConfig(), config)
        self._clients = [Client(key, config) for key in config.key]
        limited = any(client.ledgers for client in self._clients)
        self._spent = config.keys.spent if limited else None
        if self._spent is not None and self._spent.exists():
            restore(self._spent, self._clients)
        self.metrics = Metrics(each.name for each in config.model)
        # The name of the model for requests that name none.
        self.default = config.default or config.model[0].name
        self.models: dict[str, Model] = {}
        # Who asks the same servers shares them and their permits; metrics name them by a model.
        servers = {each.name: Replicas(each.endpoints) for each in config.upstream}
        self._servers: dict[Replicas, str] = {}
        for each in config.model:
            controller = controllers.get(each.name) or default_controller()
            question_reader(controller.task)  # refuses where math-verify is missing
            upstream, second = config.find(each.upstream), None
            self._servers.setdefault(servers[upstream.name], each.name)
            if each.escalate:
                second = servers[config.find(each.escalate["upstream"]).name]
                self._servers.setdefault(second, f"{each.name}, second")
            asked, told = (servers[upstream.name], second), self.metrics.count
            model = Model(each, controller, *asked, told, forward_key=upstream.forward_key)
            self.models[each.name] = model
        # The model that takes the names of no other, and whether all names are the upstream's own.
        self._others = next((m for m in self.models.values() if m.config.other_names), None)
        passes = self._others is not None and not self._others.config.model
        self._passes_names = passes and len(config.model) == 1
        self._forwarded = openai.forwarded_names(config.server.keep_headers)
        names = [name.lower() for name in config.server.allowed_hosts]
        own = () if config.key else (*LOCAL, config.server.host.lower())
        self._hosts = frozenset((*own, *names))
        self.draining = self._cut = False
        self.under_way: set[Exchange] = set()
        self._pages = {"/": self.page, "/state": self.state, "/health": self.health}
        self._pages |= {"/ready": self.ready, "/metrics": self.show_metrics}
        self._router = Router(lifespan=self._lifespan)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Any) -> AsyncIterator[None]:
        """Connect all servers; on an error nothing stays open."""
        async with contextlib.AsyncExitStack() as stack:
            for servers in self._servers:
                await stack.enter_async_context(servers)
            for model in self.models.values():
                stack.push_async_callback(model.auditor.stop)
            if self._spent is not None:
                await stack.enter_async_context(kept(self._spent, self._clients))
            yield

    # --- letting in -------------------------------------------------------------------------------

    def cut(self) -> int:
        """End what is under way; those who have no reply yet are told. Returns how many."""
        self._cut = self.draining = True
        for exchange in self.under_way:
            exchange.task.cancel()
        return len(self.under_way)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self)
        try:
            if exchange.path not in OPEN:
                self._check_origin(exchange.path, scope["method"], exchange.asked)
            if exchange.counts:
                self._let_in(exchange)
            await self._answer(exchange)
        except ClientDisconnect:
            await exchange.reply(Response(status_code=499))
        except AeraError as error:
            await exchange.reply(failure(error))
        except asyncio.CancelledError:
            if not self._cut:
                raise
            if not exchange.headers:
                await exchange.reply(failure(STOPPING))
            elif any(value.startswith(b"text/event-stream") for _, value in exchange.headers):
                last = openai.failed_event(STOPPING, is_chat=exchange.path == CHAT)
                await exchange.send({"type": "http.response.body", "body": last})
        except Exception:  # our own mistake; what it was is in the log only
            await exchange.reply(failure(AeraError("the gateway failed")))
            raise
        finally:
            if exchange in self.under_way:
                self.under_way.discard(exchange)
                exchange.client.active -= 1
            exchange.record()

    def _let_in(self, exchange: Exchange) -> None:
        """A place for a request, where its client may have it."""
        client = admit(self._clients, exchange.asked) if self._clients else self.anybody
        if len(self.under_way) >= self.config.limits.max_requests:
            raise openai.too_many("too many requests are under way", 1.0)
        client.enter()
        exchange.client = client
        self.under_way.add(exchange)

    def _check_origin(self, path: str, method: str, headers: Headers) -> None:
        """Refuse pages of other origins, which may not ask without a key.

        A browser says where a page comes from that posts (`Origin`) or reads (`Sec-Fetch-Site`),
        and a name that was bound to this machine afterwards stands in `Host`.
        """
        if not self._hosts:
            return
        told = {name: value.decode("latin-1").lower() for name, value in headers}
        host, origin = told.get(b"host", ""), told.get(b"origin", "")
        kind = told.get(b"content-type", "").partition(";")[0].strip()
        if sum(name == b"host" for name, _ in headers) > 1:
            text = "a request takes one Host header, but this one has several"
            raise DeniedError(text, status=400, code="invalid_header")
        if _host_name(host) not in self._hosts:
            text = f'the host "{host:.80}" is not served here; allowed_hosts of [server] adds one'
            raise DeniedError(text, status=421, code="unknown_host")
        crosses = told.get(b"sec-fetch-site") in ("cross-site", "same-site") and path != "/"
        if crosses or (origin and origin.partition("://")[2] != host):
            text = f'pages of "{origin or "another site":.80}" may not ask here'
            raise DeniedError(text, status=403, code="foreign_origin")
        forms = FORMS if path in (CHAT, RESPONSES) else FORMS[:2]  # others take uploads
        if method == "POST" and path.startswith("/v1/") and kind in forms:
            text = f'the content type must be application/json, but is "{kind:.80}"'
            raise DeniedError(text, status=415, code="unsupported_media_type")

    async def _answer(self, exchange: Exchange) -> None:
        path, method = exchange.path, exchange.scope["method"]
        page = self._pages.get(path)
        if page is None and not path.startswith("/v1/"):
            text = "there is nothing at this path: those of the API begin with /v1/"
            raise DeniedError(text, status=404, code="not_found")
        if method not in (METHODS if page is None else ("GET", "HEAD")):
            text = f"{method} is not answered here: method not allowed"
            raise DeniedError(text, status=405, code="method_not_allowed")
        if page is not None:
            await exchange.reply(await page(exchange))
            return
        content = await openai.read_body(exchange.receive, self.config.limits.max_bytes)
        async with exchange.attended():
            if path in (CHAT, RESPONSES) and method == "POST":
                await self.chat(exchange, content)
            elif method == "GET" and f"{path}/".startswith(f"{MODELS}/"):
                await self.show_models(exchange, path.removeprefix(MODELS).strip("/"))
            elif path.startswith(f"{RESPONSES}/{openai.OWN_ID}"):
                text = "voted responses are not stored: send the whole conversation as input"
                raise DeniedError(text, status=404, code="not_found")
            else:
                await self.other(exchange, content)

    def find(self, name: str, client: Client) -> Model:
        """The model that is asked for; DeniedError where there is none, or not for this client."""
        found = self.models.get(name) or self._others
        if found is None:
            known = ", ".join(list(self.models)[:NAMED])
            text = f'there is no model "{name:.80}" here; there are {known}'
            raise DeniedError(text, status=404, code="model_not_found")
        if not client.may_see(name):
            text = f'this key may not ask for "{name:.80}"'
            raise DeniedError(text, status=403, code="model_not_allowed")
        return found

    # --- /v1 --------------------------------------------------------------------------------------

    async def chat(self, exchange: Exchange, content: bytes) -> None:
        """Vote, or pass on, as the model's name and the request say."""
        body, is_chat = openai.check_object(await openai.parse_body(content)), exchange.path == CHAT
        named = body.get("model", self.default)
        name, votes = openai.split_model(named)
        model = self.find(name, exchange.client)
        exchange.model = name
        options = openai.RequestOptions.parse(body.get("aera"), exchange.asked)
        votes = (votes or model.config.vote_by_default) if options.vote is None else options.vote
        asked = body if is_chat else openai.to_chat(body) if votes else None
        if not votes or asked is None:
            if votes:
                exchange.own["x-aera-not-voted"] = "only text is voted on here"
            await self.pass_on(exchange, content, body, model, name)
            return
        openai.check_chat(asked)
        asked = {**asked, "model": model.translate(name)}
        if model.config.instruction:
            asked = openai.add_instruction(asked, model.controller.task)
        kept = openai.find_forwarded(exchange.asked, exchange.id, self._forwarded)
        choices = model.open(
            asked,
            options,
            size=len(content),
            upstream=model.upstream(exchange.asked).with_headers(kept),
            above=exchange.client.ledgers,
        )

        async def answer() -> Json:
            try:
                voted = await model.answer(choices, asked, options, exchange.id)
            except UpstreamError as error:
                if not error.unbilled:  # it was repeated here, and may be paid for each time
                    exchange.own["x-should-retry"] = "false"
                raise
            self._record(exchange, voted)
            made = completion(voted, named, body)
            return made if is_chat else openai.to_response(made, body)

        if body.get("stream"):
            await self._stream(exchange, asyncio.create_task(answer()), body)
        else:
            await exchange.reply(json_reply(await answer()))

    async def _stream(self, exchange: Exchange, work: "asyncio.Task[Json]", body: Json) -> None:
        """Keep-alive comments while voting, then the reply; what fails at once is an HTTP error."""
        is_chat, pause = exchange.path == CHAT, self.config.server.keep_alive

        async def events() -> AsyncIterator[bytes]:
            while not work.done():
                yield b": keep-alive\n\n"
                await asyncio.wait([work], timeout=pause)
            try:
                told = work.result()
            except AeraError as error:
                # The status went out as 200; what became of it is counted apart.
                status, label = str(openai.status_of(error)), self.metrics.label(exchange.model)
                self.metrics.count("requests", "stream", status, label)
                yield openai.failed_event(error, is_chat=is_chat)
                return
            for each in openai.chunks(told, body) if is_chat else openai.response_events(told):
                yield each

        try:
            await asyncio.wait([work], timeout=pause)
            if work.done():
                work.result()
            reply = StreamingResponse(events(), media_type="text/event-stream")
            await reply.stream_response(exchange.send)
        finally:
            work.cancel()

    def _record(self, exchange: Exchange, voted: list[VotedChoice]) -> None:
        """Count what was voted, and tell of it in the headers of the reply."""
        metrics, client, model = self.metrics, exchange.client, exchange.model
        waited = max(each.waited for each in voted)
        overhead = max(0.0, time.monotonic() - exchange.begun - waited)
        metrics.observe("overhead_seconds", overhead)
        for each in voted:
            metrics.record(model, each.allocation, {**each.account, **each.observed})
        if client.name:
            spent = sum(sum(each.tokens) for each in voted)
            metrics.count("key_tokens", client.name, metrics.label(model), by=spent)
        exchange.own |= {
            "x-aera-samples": str(sum(each.allocation.responses for each in voted)),
            "x-aera-stop-reason": voted[0].allocation.reason,
            "x-aera-overhead-ms": f"{1000 * overhead:.1f}",
        }

    async def pass_on(
        self, exchange: Exchange, content: bytes, body: Json, model: Model, name: str | None
    ) -> None:
        """Send a request on as it is and stream back what comes, counted where a key has limits."""
        client, held, hides = exchange.client, None, False
        own = {} if name is None else {"model": model.translate(name)}
        sent = {field: value for field, value in body.items() if field != "aera"} | own
        upstream = model.upstream(exchange.asked)
        if client.ledgers and exchange.scope["method"] == "POST":
            if sent.get("background") or exchange.path.startswith(BATCHES):
                text = "what runs in the background is not counted: this key, with a limit, may not"
                raise DeniedError(text, status=403, code="not_counted")
            held = await client.hold(*proxy.bound_of(sent, len(content), exchange.path))
            hides = proxy.lacks_usage(sent, exchange.path)
            if held.max_tokens is not None:
                sent = proxy.cut(sent, held.max_tokens, exchange.path)
            if hides:
                options = sent.get("stream_options") or {}
                sent["stream_options"] = {**options, "include_usage": True}
        content = content if sent == body else openai.write_body(sent)
        request = proxy.forward_request(exchange.scope, content)
        estimated = partial(self.metrics.count, "key_tokens_estimated", client.name)
        meter = proxy.Meter(held, hides=hides, estimated=estimated)
        answered = partial(self.metrics.note, exchange.model)
        await proxy.pass_on(upstream, request, exchange.send, meter=meter, answered=answered)

    async def other(self, exchange: Exchange, content: bytes) -> None:
        """Any other route: sent on to the model's server, in its words; nothing is voted on."""
        client, body = exchange.client, Json()
        known = client.models or client.ledgers or not self._passes_names
        if content and (known or b'"aera' in content):
            parsed = await openai.parse_body(content)
            if isinstance(parsed, dict):
                body = parsed
            elif client.models:
                text = "this key may ask for some models only: name one in a JSON request"
                raise DeniedError(text, status=403, code="model_not_allowed")
            elif client.ledgers and not openai.is_upload(exchange.asked):
                openai.check_object(parsed)  # servers may read what we cannot, as UTF-16
        name, options = body.get("model"), body.get("aera")
        if isinstance(name, str) and name.startswith(openai.PREFIX):
            raise UsageError(
                f'"{name:.80}" votes on /v1/chat/completions and /v1/responses only; here ask for '
                f'"{name.removeprefix(openai.PREFIX):.80}"'
            )
        if options and options != {"vote": False}:
            raise UsageError('nothing is voted on here: leave "aera" out of the request')
        named = name if isinstance(name, str) else None
        model = self.find(self.default if named is None else named, client)
        await self.pass_on(exchange, content, body, model, named)

    async def show_models(self, exchange: Exchange, asked: str) -> None:
        """The models that may be asked for, each also under the name that votes; or one of them.

        Servers list their models, and not all of them show one. What is not listed is passed on.
        """
        told = [] if self._passes_names else list(self.models)
        listed: list[Json] = [{"id": name, **LISTED} for name in told]
        if self._others is not None:
            sent = proxy.forward_request(exchange.scope, b"", MODELS)
            said = await proxy.fetch(self._others.upstream(exchange.asked), sent)
            with contextlib.suppress(ValueError, KeyError, TypeError):
                listed += [row for row in json.loads(said)["data"] if row["id"] not in told]
        seen = [row for row in listed if exchange.client.may_see(row["id"])]
        plain = [row for row in seen if not str(row["id"]).startswith(openai.PREFIX)]
        seen += [{**row, "id": f"{openai.PREFIX}{row['id']}"} for row in plain]
        found = [row for row in seen if row["id"] == asked] if asked else listed
        if found:
            content = found[0] if asked else {"object": "list", "data": seen}
            await exchange.reply(json_reply(content))
        else:
            name = asked.removeprefix(openai.PREFIX) or self.default
            await self.pass_on(exchange, b"", {}, self.find(name, exchange.client), None)

    # --- pages ------------------------------------------------------------------------------------

    async def health(self, exchange: Exchange) -> Response:
        """Alive."""
        return json_reply({"status": "ok"})

    async def ready(self, exchange: Exchange) -> Response:
        """Whether requests should come here: any replica takes them, and it is not stopping."""
        rows = []
        for servers in dict.fromkeys(model.replicas for model in self.models.values()):
            models = [model for model in self.models.values() if model.replicas is servers]
            names = [model.config.name for model in models]
            for row in await servers.check():
                # One that refuses our key is of no use, unless callers bring their own.
                refused = row["refused"] and not models[0].forward_key
                rows.append({**row, "refused": refused, "models": names})
        ready = not self.draining and any(row["answers"] and not row["refused"] for row in rows)
        told = {"ready": ready, "draining": self.draining, "replicas": rows}
        return json_reply(told, 200 if ready else 503)

    def _audits(self) -> dict[str, dict[str, float]]:
        """What audits say of each model that has any."""
        audited = [each for each in self.models.values() if each.config.audit_share]
        return {each.config.name: each.auditor.numbers() for each in audited}

    async def show_metrics(self, exchange: Exchange) -> Response:
        """For Prometheus."""
        told = self.metrics.exposition(len(self.under_way), self._servers, self._audits())
        return Response(told, media_type="text/plain; version=0.0.4")

    async def state(self, exchange: Exchange) -> Response:
        """What the page shows: of the models that its client may ask for."""
        may_see, seen, audits = exchange.client.may_see, self.metrics, self._audits()
        models = [
            {
                "name": name,
                "policy": each.controller.label,
                "schedule": list(each.controller.schedule),
                "drifted": each.lookout.abroad,
                "audits": audits.get(name),
            }
            for name, each in self.models.items()
            if may_see(name)
        ]
        return json_reply(
            {
                "models": models,
                "since": round(seen.begun, 3),
                "active": len(self.under_way) - 1,  # this request is not worth showing
                "read": seen.read,
                "latest": [row for row in seen.latest if may_see(row["model"])],
                "prices": self.config.limits.prices,
                "points": [
                    {"time": at, **sum((each for m, each in rows.items() if may_see(m)), Counter())}
                    for at, rows in seen.points
                ],
            }
        )

    async def page(self, exchange: Exchange) -> Response:
        """The page itself; it asks for /state."""
        return Response(fill_template(PAGE), media_type="text/html")


def _host_name(host: str) -> str:
    """The name in a Host header, without its port and the dot of a full name."""
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name if port[:1] in ("", ":") else host
    name = host.rpartition(":")[0] if host.count(":") == 1 else host
    return name.removesuffix(".")


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
    """Drains when told to stop: not ready, but answering, until all is done or time is up."""

    def __init__(self, config: Config, controllers: Mapping[str, Controller]) -> None:
        self.gateway = Gateway(config, controllers)
        # Whether the process does nothing else, and ends with it.
        self.alone = False
        # Requests that were ended before they had their answer.
        self.cut_off = 0
        # When draining ends.
        self._until = math.inf
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

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins to drain, the second ends it."""
        more = 0.0 if self.gateway.draining else self.gateway.config.server.drain_seconds
        self._until, self.gateway.draining = time.monotonic() + more, True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether draining is over."""
        done = self.gateway.draining and not self.gateway.under_way
        self.should_exit |= done or time.monotonic() >= self._until
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
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        signal.signal(signal.SIGHUP, server.handle_exit)
    # Requests make few reference cycles, and looking for them takes a tenth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    # Threads that weigh long replies give way to the loop sooner than after 5 ms.
    sys.setswitchinterval(0.0005)
    # uvloop lets one client in for each socket and round of its loop, and rounds are long when it
    # is busy: with one socket the last of a few hundred new clients would wait for seconds.
    server.run(sockets=[listening, *(listening.dup() for _ in range(LISTENERS - 1))])
    return server.cut_off
