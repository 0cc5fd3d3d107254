"""Whether the gateway should get requests: it is not stopping, and an upstream answers it."""

import asyncio
import time
from typing import Any

from aera.sampling.replicas import Replicas

KEPT = 2.0
"""Seconds for which an answer is repeated, however many ask."""


class Readiness:
    """Asks the upstreams at most once in a while."""

    def __init__(self, upstream: Replicas, *, own_key: bool) -> None:
        self._upstream, self._own_key = upstream, own_key
        self._asked: asyncio.Task[list[dict[str, Any]]] | None = None
        self._until = 0.0

    async def check(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether any replica takes requests, and how each is doing."""
        if self._asked is None or (self._asked.done() and time.monotonic() >= self._until):
            self._asked = asyncio.create_task(self._upstream.check())
            self._until = time.monotonic() + KEPT
        # One who stops waiting must not end it for the others.
        replicas = await asyncio.shield(self._asked)
        return any(map(self._takes, replicas)), replicas

    def _takes(self, replica: dict[str, Any]) -> bool:
        """A server that refuses our key is of no use, unless callers bring their own."""
        refused = self._own_key and replica.get("refused", False)
        return bool(replica["answers"]) and not refused
