"""Replicas: several servers of the same model. The least busy one that works is asked first."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import aiohttp

from aera.core import Response
from aera.errors import UpstreamError
from aera.files import Json
from aera.sampling.budget import Held
from aera.sampling.client import (
    Endpoint,
    Upstream,
    cancel_all,
    failed_responses,
    read_reply,
    run_together,
    unless_refused,
)
from aera.sampling.replies import origin_of

log = logging.getLogger("aera.sampling")
BROKEN = frozenset({None, 502, 503, 504})
"""What a server that does not work answers, None being nothing at all."""
GENERATING = ("/chat/completions", "/completions", "/embeddings")
"""What may be asked of a second server when the first keeps silent: it changes nothing there."""
TRACING = ("traceparent", "tracestate", "x-request-id")
"""Headers by which one request is followed from server to server."""
COOL_DOWN, DOUBLINGS = 10.0, 4
"""Seconds for which a server that does not work is asked last; doubled each time in a row."""
SILENT, SLOWER, UNHEARD = 3.0, 4.0, 6.0
"""A server is silent after so many seconds, and so many times those that replies take elsewhere;
where nobody else was asked, it is looked at after the last of these."""
CHECK_SECONDS, CHECK_KEPT = 2.0, 2.0
"""Seconds for the answer to a check, and those for which it is repeated, however many ask."""


@dataclass(frozen=True)
class ProxiedRequest:
    """A request to pass on as it is."""

    method: str
    target: str
    """Path and query behind the base URL, as they came."""
    headers: Mapping[str, str]
    content: bytes | None

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent to a second server without harm."""
        return self.method in ("GET", "HEAD") or self.target.partition("?")[0] in GENERATING


class Replica(Upstream):
    """One of several servers, with what is known of how it does."""

    def __init__(self, endpoint: Endpoint, *, alone: bool) -> None:
        super().__init__(endpoint, alone=alone, shared=True)
        self.passing = self.asking = 0
        """Requests that it answers on the straight way through, and votes that ask it, from before
        their first call on."""
        self.answers = True
        """Whether it answered the latest check."""
        self.listing = b""
        """How it listed its models then."""
        self._failures, self._cool_until = 0, 0.0

    @property
    def healthy(self) -> bool:
        """Whether it is trusted right now."""
        return self._cool_until <= time.monotonic()

    @property
    def busy(self) -> int:
        """Calls under way."""
        return max(round(self.permits.active), self.asking) + self.passing

    def cool_down(self, cause: UpstreamError) -> None:
        """It does not work, and is asked last for a while."""
        if self.healthy:
            # What the server said stays out of the log: it may repeat what it was asked.
            said = f"status {cause.status}" if cause.status else "no reply that can be used"
            self._tell("replica cools down", cause.detail or said)
        seconds = COOL_DOWN * 2 ** min(self._failures, DOUBLINGS)
        self._failures, self._cool_until = self._failures + 1, time.monotonic() + seconds

    def work(self) -> None:
        """It has answered; if it cooled down, that is over."""
        if self._failures:
            self._failures, self._cool_until = 0, 0.0
            self._tell("replica returns", "it answered a call")

    def _tell(self, event: str, why: str) -> None:
        """A line in the log, which is the only place that names the server."""
        origin = origin_of(self.endpoint.base_url)
        log.warning(json.dumps({"event": event, "replica": origin, "why": why}))

    async def check(self) -> Json:
        """How it answers a request that costs it little."""
        patience = aiohttp.ClientTimeout(total=CHECK_SECONDS)
        url, status = self.endpoint.url("/models"), None
        try:
            async with self.session.get(url, timeout=patience, allow_redirects=False) as reply:
                status = reply.status
                self.listing = await read_reply(reply, self.endpoint.largest_reply, cut=True)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            pass
        self.answers = status is not None and status < 500 and not 300 <= status < 400
        if self.answers:
            self.work()
        return {
            "answers": self.answers,
            "refused": status in (401, 403),
            "status": status,
            "cooling_down": not self.healthy,
            "active": self.busy,
        }


class Replicas:
    """Asks the least busy server; one that does not work cools down for a while."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        alone = len(endpoints) == 1  # else the next one is asked instead of trying again
        self.servers = [Replica(endpoint, alone=alone) for endpoint in endpoints]
        self.headers: Mapping[str, str] = {}
        """Those of a client that its samples carry: a server's own win over all but its key."""
        self._stack = AsyncExitStack()
        self._checking, self._checked = asyncio.Lock(), (0.0, list[Json]())

    async def __aenter__(self) -> "Replicas":
        for server in self.servers:
            await self._stack.enter_async_context(server)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    def with_headers(self, headers: Mapping[str, str]) -> "Replicas":
        """The same servers, whose samples carry these headers too."""
        same = copy(self)
        same.headers = {**self.headers, **headers}
        return same

    @property
    def tracing(self) -> dict[str, str]:
        """Of the headers that samples carry, those that any server may see."""
        return {name: value for name, value in self.headers.items() if name in TRACING}

    @property
    def names(self) -> list[str]:
        """What to call each server where operators look: its address, without anything secret."""
        origins = [origin_of(server.endpoint.base_url) for server in self.servers]
        before = [origins[:place].count(origin) for place, origin in enumerate(origins)]
        rows = zip(origins, before, strict=True)
        return [f"{origin}#{same + 1}" if same else origin for origin, same in rows]

    def order(self) -> list[Replica]:
        """Servers in the order in which to ask them: those that work first, then the least busy."""
        return sorted(self.servers, key=lambda server: (not server.healthy, server.busy))

    async def complete(
        self,
        body: Mapping[str, Any],
        n: int,
        *,
        start: int = 0,
        deadline: float | None = None,
        held: Held | None = None,
    ) -> list[Response]:
        """As Upstream.complete; what a server could not give, the next one is asked for.

        A refusal that no retry can mend, where it is all that came, is raised.
        """
        got, missing, order = [Response("")] * n, [*range(n)], self.order()
        for server in order:
            headers = _told(server, self.headers)
            ask = partial(server.complete, body, deadline=deadline, held=held, headers=headers)
            server.asking += 1
            try:
                if len(missing) < n:
                    singles = await run_together(ask(1, start=start + i) for i in missing)
                    more = [response for [response] in singles]
                elif server is order[-1]:
                    more = await ask(n, start=start)
                else:
                    more = await self._ask_unless_silent(server, n, ask(n, start=start))
            finally:
                server.asking -= 1
            for i, new in zip(missing, more, strict=True):
                got[i] = replace(new, calls=got[i].calls + new.calls) if got[i].calls else new
            missing = [i for i in missing if _failure(got[i])]
            if not missing:
                server.work()
                break
            if deadline is not None and time.monotonic() >= deadline:
                break
            cause = _failure(got[missing[0]])
            if cause and len(missing) == len(more) and any(response.calls for response in more):
                server.cool_down(cause)
        return unless_refused(got)

    async def _ask_unless_silent(
        self, server: Replica, n: int, asking: Coroutine[Any, Any, list[Response]]
    ) -> list[Response]:
        """What a server gives, unless it answers nobody while the others do."""
        begun, task = time.monotonic(), asyncio.create_task(asking)
        try:
            while not (await asyncio.wait([task], timeout=1.0))[0]:
                heard = [other.usual for other in self.servers if other.heard > begun]
                waited = time.monotonic() - max(begun, server.heard)
                if waited <= (max(SILENT, SLOWER * max(heard)) if heard else UNHEARD):
                    continue
                if not heard:  # nobody else was asked, and it may only take long
                    await self.check()
                if heard or (not server.answers and any(each.answers for each in self.servers)):
                    error = UpstreamError(f"no reply within {waited:.1f} s")
                    return failed_responses(error, n)
            return task.result()
        finally:
            await cancel_all([task])

    @asynccontextmanager
    async def send(self, request: ProxiedRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Pass a request on as it is; what comes back is for whoever asks to read."""
        order = self.order()
        for server in order:
            last = server is order[-1] or not request.repeatable
            server.passing += 1
            try:
                async with asyncio.timeout(None if last else server.patience):
                    reply = await server.send(
                        request.method,
                        server.endpoint.url(request.target),
                        request.content,
                        _told(server, {**request.headers, **self.headers}),
                        skip_auto_headers=("User-Agent", "Content-Type"),
                        timeout=aiohttp.ClientTimeout(sock_read=server.endpoint.timeout),
                    )
            except UpstreamError as error:
                if not error.unbilled:
                    raise
                server.cool_down(error)
            except TimeoutError:
                server.cool_down(UpstreamError("no reply in time"))
            else:
                if reply.status < 500:
                    server.work()
                try:
                    with closing(reply):
                        yield reply
                except (aiohttp.ClientError, OSError):
                    raise UpstreamError("the model server broke off", status=502) from None
                return
            finally:
                server.passing -= 1
        raise UpstreamError("the model server cannot be reached", status=502)

    async def check(self) -> list[Json]:
        """How every server is doing, asked at most once in a while."""
        async with self._checking:
            until, rows = self._checked
            if time.monotonic() >= until:
                rows = await asyncio.gather(*(server.check() for server in self.servers))
                self._checked = time.monotonic() + CHECK_KEPT, rows
            return rows


def _failure(response: Response) -> UpstreamError | None:
    """Why a server that does not work gave no response; one that works and refuses is none."""
    source = response.source
    return source if isinstance(source, UpstreamError) and source.status in BROKEN else None


def _told(server: Replica, headers: Mapping[str, str]) -> dict[str, str]:
    """What a client sends beside a server's own headers; only its key wins over them."""
    own = server.session.headers
    return {name: v for name, v in headers.items() if name == "Authorization" or name not in own}
