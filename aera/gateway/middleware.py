"""Middleware of the gateway: who may come in, and a line in the log for everyone who did."""

import hmac
import json
import logging
import os
import time
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aera.gateway.openai import DeniedError, failure
from aera.gateway.options import HEADER, RAW_HEADER
from aera.gateway.telemetry import Telemetry

log = logging.getLogger("aera.gateway")
ROUTES = {"/v1/chat/completions": "chat", "/v1/models": "models", "/state": "state"}
"""What a path is counted as; the others may hold anything, and are "proxy"."""


class AccessMiddleware:
    """Lets requests in that have a key and find room; counts and logs how each one ended."""

    def __init__(
        self, app: ASGIApp, *, keys: tuple[str, ...], most: int, telemetry: Telemetry
    ) -> None:
        self.app, self.keys, self.most, self.telemetry = app, keys, most, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path.startswith("/v1/") or path == "/state"):
            await self.app(scope, receive, send)
            return
        name, began, begun = os.urandom(16).hex(), time.time(), time.monotonic()
        started: Message = {"status": 499, "headers": ()}

        async def note(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = message
                _identify(message, name)
            await send(message)

        refusal = self._refusal(scope)
        self.telemetry.active += 1
        try:
            await (failure(refusal) if refusal else self.app)(scope, receive, note)
        finally:
            self.telemetry.active -= 1
            route = ROUTES.get(path, "proxy")
            self.telemetry.counts["requests", route, str(started["status"])] += 1
            if log.isEnabledFor(logging.INFO):
                now = datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds")
                account = {"time": now, "id": name, "route": route, **_account(started)}
                took = round(1000 * (time.monotonic() - begun), 1)
                log.info(json.dumps({**account, "ms": took}))

    def _refusal(self, scope: Scope) -> DeniedError | None:
        if self.keys and not self._knows(dict(scope["headers"]).get(b"authorization", b"")):
            return DeniedError("a valid key is needed", status=401, code="invalid_api_key")
        if self.telemetry.active >= self.most:
            kind, code = "rate_limit_error", "too_many_requests"
            return DeniedError("too many requests are under way", status=429, kind=kind, code=code)
        return None

    def _knows(self, authorization: bytes) -> bool:
        scheme, _, key = authorization.partition(b" ")
        # Every key is compared, each in constant time: timing teaches nothing.
        same = [hmac.compare_digest(key.strip(), known.encode()) for known in self.keys]
        return any(same) and scheme.lower() == b"bearer"


def _identify(message: Message, name: str) -> None:
    """Give a reply an id if it has none."""
    headers = message["headers"]
    if not any(key == b"x-request-id" for key, _ in headers):
        message["headers"] = [*headers, (b"x-request-id", name.encode())]


def _account(message: Message) -> dict[str, Any]:
    """What a reply says of itself, never what was said."""
    told = {
        key.decode("latin-1")[len(HEADER) :]: value.decode("latin-1")
        for key, value in message["headers"]
        if key.startswith(RAW_HEADER)
    }
    return {"status": message["status"], **told}
