"""The door of the gateway: who may come in, and a line in the log for everyone who did."""

import hmac
import json
import logging
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aera.gateway.telemetry import Telemetry
from aera.gateway.wire import DeniedError, failure
from aera.gateway.wishes import HEADER

log = logging.getLogger("aera.gateway")


class Door:
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
        name = uuid.uuid4().hex
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        account: dict[str, Any] = {"time": now, "id": name, "route": _route(path), "status": 499}

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                _note(message, account, name)
            await send(message)

        begun = time.monotonic()
        refusal = self._refusal(scope)
        self.telemetry.active += 1
        try:
            await (failure(refusal) if refusal else self.app)(scope, receive, noting)
        finally:
            self.telemetry.active -= 1
            self.telemetry.requests.labels(account["route"], str(account["status"])).inc()
            took = round(1000 * (time.monotonic() - begun), 1)
            log.info(json.dumps({**account, "ms": took}))

    def _refusal(self, scope: Scope) -> DeniedError | None:
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, key = given.partition(b" ")
        # Every key is compared, each in constant time: timing teaches nothing.
        same = [hmac.compare_digest(key.strip(), known.encode()) for known in self.keys]
        if same and not (any(same) and scheme.lower() == b"bearer"):
            return DeniedError("a valid key is needed", status=401, code="invalid_api_key")
        if self.telemetry.active >= self.most:
            kind, code = "rate_limit_error", "too_many_requests"
            return DeniedError("too many requests are under way", status=429, kind=kind, code=code)
        return None


def _route(path: str) -> str:
    """What a path is counted as; paths themselves may hold anything."""
    routes = {"/v1/chat/completions": "chat", "/v1/models": "models", "/state": "state"}
    return routes.get(path, "proxy")


def _note(message: Message, account: dict[str, Any], name: str) -> None:
    """Remember what a reply says of itself, never what was said; give it an id if it has none."""
    headers = [(key.lower(), value) for key, value in message["headers"]]
    account["status"] = message["status"]
    for key, value in headers:
        if key.startswith(HEADER.encode()):
            account[key.decode("latin-1")[len(HEADER) :]] = value.decode("latin-1")
    if not any(key == b"x-request-id" for key, _ in headers):
        headers.append((b"x-request-id", name.encode()))
    message["headers"] = headers
