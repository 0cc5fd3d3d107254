"""Replicas: several upstreams that serve the same model, each trusted as long as it answers."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from aera.errors import UpstreamError, UsageError
from aera.response import Response
from aera.sampling.spending import UNRESERVED, Reservation, Unreserved
from aera.sampling.upstream import Endpoint, Upstream

REST = 10.0
"""Seconds for which a replica that could not be reached is left alone."""
BROKEN = frozenset({None, 502, 503, 504})
"""What a server that does not work answers, None being nothing at all."""


@dataclass(frozen=True)
class ProxiedRequest:
    """A request to pass on as it is."""

    method: str
    target: str
    """Path and query behind the base URL, as they came."""
    headers: Mapping[str, str]
    content: bytes | None


class Replicas:
    """Asks the least busy healthy replica; one that cannot be reached rests for a while."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        alone = len(endpoints) == 1  # else the next one is asked instead of trying again
        self.upstreams = [
            Upstream(endpoint, retry_unreached=alone, shared=True) for endpoint in endpoints
        ]
        self.passing = [0] * len(endpoints)
        """Requests that each replica answers on the straight way through."""
        self._resting = [0.0] * len(endpoints)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Replicas":
        for upstream in self.upstreams:
            await self._stack.enter_async_context(upstream)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    @property
    def healthy(self) -> list[bool]:
        """Which replicas are trusted right now."""
        now = time.monotonic()
        return [until <= now for until in self._resting]

    @property
    def busy(self) -> list[int]:
        """Calls under way at each replica."""
        return [
            upstream.permits.active + passing
            for upstream, passing in zip(self.upstreams, self.passing, strict=True)
        ]

    def order(self) -> list[int]:
        """Replicas in the order in which to ask them: healthy first, then the least busy."""
        if len(self.upstreams) == 1:
            return [0]
        healthy, busy = self.healthy, self.busy
        return sorted(range(len(busy)), key=lambda i: (not healthy[i], busy[i]))

    async def complete(
        self,
        body: Mapping[str, Any],
        n: int,
        *,
        start: int = 0,
        deadline: float | None = None,
        reservation: Reservation | Unreserved = UNRESERVED,
    ) -> list[Response]:
        """As Upstream.complete; where a replica does not work, the next one is asked."""
        got: list[Response] = []
        unreached: UpstreamError | None = None
        for place in self.order():
            try:
                got = await self.upstreams[place].complete(
                    body, n, start=start, deadline=deadline, reservation=reservation
                )
                unreached = None
            except UpstreamError as error:
                if error.status is not None:
                    raise
                unreached = error
            late = deadline is not None and time.monotonic() >= deadline
            if unreached is None and (late or not all(map(_broken, got))):
                return got
            self.rest(place)
        if unreached is not None:
            raise unreached
        return got

    async def send(self, request: ProxiedRequest) -> tuple[aiohttp.ClientResponse, int]:
        """Pass a request on as it is; who asks reads the reply, closes it and calls `release`."""
        for place in self.order():
            self.passing[place] += 1
            reply = None
            try:
                reply = await _send(self.upstreams[place], request)
                return reply, place
            except aiohttp.ClientConnectorError:
                self.rest(place)
            finally:
                if reply is None:
                    self.release(place)
        raise UpstreamError("the model server cannot be reached", status=502)

    def release(self, place: int) -> None:
        """A request that was passed on is over."""
        self.passing[place] -= 1

    def rest(self, place: int) -> None:
        """Leave a replica alone for a while."""
        self._resting[place] = time.monotonic() + REST

    async def check(self) -> list[dict[str, Any]]:
        """Ask every replica whether it answers, and say how each is doing."""
        answers = await asyncio.gather(*map(_answers, self.upstreams))
        return [
            {"answers": answer, "resting": not healthy, "active": busy}
            for answer, healthy, busy in zip(answers, self.healthy, self.busy, strict=True)
        ]


async def _send(upstream: Upstream, request: ProxiedRequest) -> aiohttp.ClientResponse:
    """Pass a request on to one upstream."""
    # Configured headers win over the client's, and so does the upstream's own key.
    own = {name.lower() for name in upstream.session.headers}
    headers = {k: v for k, v in request.headers.items() if k.lower() not in own}
    url = URL(upstream.endpoint.base_url.rstrip("/") + request.target, encoded=True)
    patience = aiohttp.ClientTimeout(total=None, sock_read=upstream.endpoint.timeout)
    try:
        return await upstream.session.request(
            request.method,
            url,
            data=request.content,
            headers=headers,
            skip_auto_headers=("User-Agent", "Content-Type"),
            allow_redirects=False,
            timeout=patience,
        )
    except aiohttp.ClientConnectorError:
        raise
    except TimeoutError:
        raise UpstreamError("the model server did not answer in time", status=504) from None
    except (aiohttp.ClientError, OSError) as error:
        kind = type(error).__name__
        raise UpstreamError(f"the model server broke off ({kind})", status=502) from None
    except ValueError:
        raise UsageError("a header of the request cannot be passed on as it is") from None


async def _answers(upstream: Upstream) -> bool:
    url = upstream.endpoint.base_url.rstrip("/") + "/models"
    try:
        async with upstream.session.get(url, timeout=aiohttp.ClientTimeout(total=2)) as reply:
            return reply.status < 500
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


def _broken(response: Response) -> bool:
    """Whether the server did not work, as against one that works and refuses."""
    return isinstance(response.source, UpstreamError) and response.source.status in BROKEN
