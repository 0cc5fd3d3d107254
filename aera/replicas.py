"""Replicas: several upstreams that serve the same model, each trusted as long as it answers."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

from aera.errors import UpstreamError
from aera.response import Response
from aera.upstream import Endpoint, Upstream

REST = 10.0
"""Seconds for which a replica that could not be reached is left alone."""


class Replicas:
    """Asks the least busy healthy replica; one that cannot be reached rests for a while."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.upstreams = [Upstream(endpoint) for endpoint in endpoints]
        self._resting = [0.0] * len(endpoints)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Replicas":
        for upstream in self.upstreams:
            await self._stack.enter_async_context(upstream)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    @property
    def healthy(self) -> list[bool]:
        """Which replicas are trusted right now."""
        now = time.monotonic()
        return [until <= now for until in self._resting]

    def order(self) -> list[int]:
        """Replicas in the order in which to ask them: healthy first, then the least busy."""
        healthy = self.healthy
        busy = [upstream.permits.active for upstream in self.upstreams]
        return sorted(range(len(busy)), key=lambda i: (not healthy[i], busy[i]))

    async def complete(
        self, body: Mapping[str, Any], n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        """As Upstream.complete; where a replica cannot be reached, the next one is asked."""
        last: list[Response] = []
        for place in self.order():
            last = await self.upstreams[place].complete(body, n, start=start, deadline=deadline)
            if not all(_unreached(response) for response in last):
                self._resting[place] = 0.0
                return last
            self.rest(place)
        return last

    def rest(self, place: int) -> None:
        """Leave a replica alone for a while."""
        self._resting[place] = time.monotonic() + REST


def _unreached(response: Response) -> bool:
    """Whether no server answered at all."""
    return isinstance(response.source, UpstreamError) and response.source.status is None
