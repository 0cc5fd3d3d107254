"""Middleware of the gateway: who may come in, and a line in the log for everyone who did."""

import asyncio
import json
import logging
import os
import time
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aera.gateway.clients import Client, Clients, too_many
from aera.gateway.kept import REQUEST_ID, TRACEPARENT, is_sane, trace_id
from aera.gateway.openai import DeniedError, error_body, event, failure
from aera.gateway.options import HEADER, RAW_HEADER
from aera.gateway.origin import CHAT, RESPONSES, OriginCheck
from aera.gateway.telemetry import Telemetry

log = logging.getLogger("aera.gateway")
ROUTES = {CHAT: "chat", RESPONSES: "responses", "/v1/models": "models", "/state": "state"}
"""What a path is counted as; the others may hold anything, and are "proxy"."""
OPEN = ("/health", "/ready")
"""Paths that answer whoever asks."""
STOPPING = DeniedError(
    "the gateway is stopping; ask again", status=503, kind="api_error", code="stopping"
)
CLOSE = (b"connection", b"close")
LONGEST_MODEL = 100
"""Characters of a model's name in the log; clients can make up any."""


MODEL, ID = "aera.model", "aera.id"
"""Where a request has the model it is for, once that is known, and its id."""


class Exchange:
    """One request as it is answered: its id, and how the reply began.

    The id is the client's own where it gave one, so that both logs tell of the same request.
    """

    def __init__(self, scope: Scope, send: Send, access: "AccessMiddleware") -> None:
        given = self._trace = None
        for name, value in scope["headers"]:
            if name == REQUEST_ID:
                given = value if given is None and is_sane(value) else given
            elif name == TRACEPARENT:
                self._trace = value
        self.id = given.decode() if given else os.urandom(16).hex()
        self._given, self._upstream_id = given, b""
        self._scope, self.client = scope, ""
        self.begun, self.began = time.monotonic(), time.time()
        self.status, self.headers = 499, []  # type: int, list[tuple[bytes, bytes]]
        self._send, self._access = send, access
        self.path: str = scope["path"]
        self.recorded = False

    @property
    def started(self) -> bool:
        """Whether the client has got a status."""
        return bool(self.headers)

    async def send(self, message: Message) -> None:
        """Pass a reply on; its id is in the headers and in the log."""
        if message["type"] == "http.response.start":
            self._start(message)
        elif not message.get("more_body", False):
            self._access.record(self)  # counted before the client can know that it is over
        await self._send(message)

    def _start(self, message: Message) -> None:
        headers = list(message["headers"])
        own = next((value for name, value in headers if name == REQUEST_ID), None)
        if own is not None and self._given is None:
            self.id = own.decode("latin-1")[:200]
        elif own is None:
            headers.append((REQUEST_ID, self.id.encode()))
        elif own != self._given:
            self._upstream_id = own[:200]
            others = [(name, value) for name, value in headers if name != REQUEST_ID]
            headers = [*others, (REQUEST_ID, self._given)]
        if self._access.draining:
            headers.append(CLOSE)
        self.status, self.headers = message["status"], headers
        message["headers"] = headers

    def line(self, route: str) -> dict[str, Any]:
        """The line of the log: what a reply says of itself, never what was said."""
        now = datetime.fromtimestamp(self.began, UTC).isoformat(timespec="milliseconds")
        told = {
            name.decode("latin-1")[len(HEADER) :]: value.decode("latin-1")
            for name, value in self.headers
            if name.startswith(RAW_HEADER)
        }
        took = round(1000 * (time.monotonic() - self.begun), 1)
        about = {"time": now, "id": self.id, "route": route, **self._names()}
        return {**about, "status": self.status, **told, "ms": took}

    def _names(self) -> dict[str, str]:
        """Whose request it is, for which model, and what others call it."""
        named = {
            "key": self.client,
            "model": self.model[:LONGEST_MODEL],
            "trace": trace_id(self._trace) if self._trace else None,
            "upstream_id": self._upstream_id.decode("latin-1"),
        }
        return {name: value for name, value in named.items() if value}

    @property
    def model(self) -> str:
        """The model it is for, "" where nobody has looked."""
        return str(self._scope.get(MODEL, ""))


class AccessMiddleware:
    """Lets requests in that have a key and find room; counts and logs how each one ended.

    While it drains, requests are answered and their connections closed; `cut` ends them all.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        clients: Clients,
        most: int,
        origins: OriginCheck,
        telemetry: Telemetry,
    ) -> None:
        self.app, self.clients, self.most = app, clients, most
        self.origins, self.telemetry = origins, telemetry
        self.draining = False
        self._cut = False
        self._under_way: set[asyncio.Task[Any]] = set()

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
            await self.app(scope, receive, send)
            return
        path, headers = scope["path"], scope["headers"]
        refusal = None
        if path not in OPEN:
            refusal = self.origins.refusal(path, scope["method"], headers)
        if not (path.startswith("/v1/") or path == "/state"):
            await (failure(refusal) if refusal else self.app)(scope, receive, send)
            return
        exchange = Exchange(scope, send, self)
        try:
            client = None if refusal else self._admit(headers)
        except DeniedError as error:
            refusal, client = error, None
        if client is None:
            assert refusal is not None
            await failure(refusal)(scope, receive, exchange.send)
            return
        scope["aera.client"], scope[ID] = client, exchange.id
        await self._serve(scope, receive, exchange, client)

    def _admit(self, headers: list[tuple[bytes, bytes]]) -> Client:
        client = self.clients.find(headers)
        if self.telemetry.active >= self.most:
            raise too_many("too many requests are under way", 1.0)
        refusal = client.refusal()
        if refusal is not None:
            raise refusal
        return client

    async def _serve(
        self, scope: Scope, receive: Receive, exchange: Exchange, client: Client
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        self.telemetry.active += 1
        client.enter()
        exchange.client = client.name
        try:
            await self.app(scope, receive, exchange.send)
        except asyncio.CancelledError:
            if not self._cut:
                raise
            await _say_stopping(scope, receive, exchange)
        finally:
            client.leave()
            self.telemetry.active -= 1
            self._under_way.discard(task)
            self.record(exchange)

    def record(self, exchange: Exchange) -> None:
        """Count and log how a request ended, once."""
        if exchange.recorded:
            return
        exchange.recorded = True
        route, counts = ROUTES.get(exchange.path, "proxy"), self.telemetry.counts
        model = self.telemetry.models.label(exchange.model)
        counts["requests", route, str(exchange.status), model] += 1
        if exchange.client:
            counts["key_requests", exchange.client, model] += 1
        if log.isEnabledFor(logging.INFO):
            log.info(json.dumps(exchange.line(route)))


async def _say_stopping(scope: Scope, receive: Receive, exchange: Exchange) -> None:
    """The error for a request that was cut off; half a reply that is no stream just ends."""
    if not exchange.started:
        await failure(STOPPING)(scope, receive, exchange.send)
    elif any(value.startswith(b"text/event-stream") for _, value in exchange.headers):
        last = event(error_body(STOPPING))
        await exchange.send({"type": "http.response.body", "body": last, "more_body": False})
