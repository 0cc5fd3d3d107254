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
from io import BytesIO
from typing import Any

import aiohttp

from aera.core import Response
from aera.errors import UpstreamError, UsageError
from aera.sampling.budget import Held
from aera.sampling.client import (
    LARGE,
    Endpoint,
    Upstream,
    cancel_all,
    connection_error,
    run_together,
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


class Replicas:
    """Asks the least busy server; one that does not work cools down for a while."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        alone = len(endpoints) == 1  # else the next one is asked instead of trying again
        self.upstreams = [Upstream(endpoint, alone=alone, shared=True) for endpoint in endpoints]
        self.passing = [0] * len(endpoints)
        """Requests that each server answers on the straight way through."""
        self._asking = [0] * len(endpoints)
        """Votes that ask each server, from before their first call on."""
        self._cool_until = [0.0] * len(endpoints)
        self._failures = [0] * len(endpoints)
        self._headers: Mapping[str, str] = {}
        self._forwarded: Mapping[str, str] = {}
        self._stack = AsyncExitStack()
        self._checked: list[tuple[float, asyncio.Task[list[dict[str, Any]]]]] = []

    async def __aenter__(self) -> "Replicas":
        for upstream in self.upstreams:
            await self._stack.enter_async_context(upstream)
        return self

    async def __aexit__(self, *error: object) -> None:
        await cancel_all([task for _, task in self._checked])
        await self._stack.aclose()

    def with_headers(self, headers: Mapping[str, str]) -> "Replicas":
        """The same servers, asked with headers that win over their own, such as a client's key."""
        same = copy(self)
        same._headers = headers
        return same

    def keeping(self, headers: Mapping[str, str]) -> "Replicas":
        """The same servers, whose samples carry a client's headers too; their own win over them."""
        same = copy(self)
        same._forwarded = headers
        return same

    @property
    def tracing(self) -> dict[str, str]:
        """Of the headers that samples carry, those that any server may see."""
        return {name: value for name, value in self._forwarded.items() if name in TRACING}

    @property
    def names(self) -> list[str]:
        """What to call each server where operators look: its address, without anything secret."""
        names: list[str] = []
        for upstream in self.upstreams:
            origin = origin_of(upstream.endpoint.base_url)
            same = sum(name.partition("#")[0] == origin for name in names)
            names.append(f"{origin}#{same + 1}" if same else origin)
        return names

    @property
    def healthy(self) -> list[bool]:
        """Which servers are trusted right now."""
        now = time.monotonic()
        return [until <= now for until in self._cool_until]

    @property
    def busy(self) -> list[int]:
        """Calls under way at each server."""
        rows = zip(self.upstreams, self._asking, self.passing, strict=True)
        return [max(round(each.permits.active), asking) + passing for each, asking, passing in rows]

    def order(self) -> list[int]:
        """Servers in the order in which to ask them: those that work first, then the least busy."""
        ranks = [*zip((not up for up in self.healthy), self.busy, strict=True)]
        return sorted(range(len(ranks)), key=ranks.__getitem__)

    async def complete(
        self,
        body: Mapping[str, Any],
        n: int,
        *,
        start: int = 0,
        deadline: float | None = None,
        held: Held | None = None,
    ) -> list[Response]:
        """As Upstream.complete; what a server could not give, the next one is asked for."""
        got: list[Response] = []
        order = self.order()
        for place in order:
            upstream = self.upstreams[place]
            headers = self._headers_for(upstream)
            ask = partial(upstream.complete, body, deadline=deadline, held=held, headers=headers)
            missing = [i for i, each in enumerate(got) if _failure(each)] if got else [*range(n)]
            self._asking[place] += 1
            try:
                if len(missing) == n:
                    asking = ask(n, start=start)
                    last = place == order[-1]
                    more = await (asking if last else self._ask_unless_silent(place, n, asking))
                else:
                    singles = await run_together(ask(1, start=start + i) for i in missing)
                    more = [response for [response] in singles]
            except UpstreamError:
                if all(response.error for response in got):
                    raise
                return got  # what has come is not lost for what this one refuses
            finally:
                self._asking[place] -= 1
            if not got:
                got = more
            else:
                for i, response in zip(missing, more, strict=True):
                    got[i] = replace(response, calls=got[i].calls + response.calls)
            failed = [error for response in more if (error := _failure(response))]
            if not failed:
                self._work(place)
                return got
            if deadline is not None and time.monotonic() >= deadline:
                return got
            if len(failed) == len(more) and any(response.calls for response in more):
                self._cool_down(place, failed[0])
        return got

    async def _ask_unless_silent(
        self, place: int, n: int, asking: Coroutine[Any, Any, list[Response]]
    ) -> list[Response]:
        """What a server gives, unless it answers nobody while the others do."""
        begun, task = time.monotonic(), asyncio.create_task(asking)
        try:
            while not (await asyncio.wait([task], timeout=1.0))[0]:
                others = [each for i, each in enumerate(self.upstreams) if i != place]
                usual = max((each.usual for each in others if each.heard > begun), default=0.0)
                waited = time.monotonic() - max(begun, self.upstreams[place].heard)
                late = waited > max(SILENT, SLOWER * usual) if usual else waited > UNHEARD
                rows = await self.check() if late and not usual else ()
                dead = rows and not rows[place]["answers"] and any(row["answers"] for row in rows)
                if late and (usual or dead):  # it answers nothing at all, and another one does
                    silent = UpstreamError(f"no reply within {waited:.1f} s").after(1)
                    return [Response("", error=str(silent), calls=1, source=silent)] * n
            return task.result()
        finally:
            await cancel_all([task])

    def _headers_for(self, upstream: Upstream) -> Mapping[str, str]:
        own = upstream.session.headers
        kept = {name: value for name, value in self._forwarded.items() if name not in own}
        return {**kept, **self._headers}

    @asynccontextmanager
    async def send(self, request: ProxiedRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Pass a request on as it is; its reply may be read until the block ends."""
        places = self.order()
        for place in places:
            upstream = self.upstreams[place]
            last = place == places[-1] or not request.repeatable
            self.passing[place] += 1
            try:
                try:
                    async with asyncio.timeout(None if last else upstream.attempt_timeout):
                        reply = await _send(upstream, request, self._headers)
                except aiohttp.ClientConnectorError as error:
                    self._cool_down(place, connection_error(error))
                    continue
                except TimeoutError:
                    self._cool_down(place, UpstreamError("no reply in time"))
                    continue
                if reply.status < 500:
                    self._work(place)
                with closing(reply):
                    yield reply
                return
            except (aiohttp.ClientError, OSError):
                raise UpstreamError("the model server broke off", status=502) from None
            finally:
                self.passing[place] -= 1
        raise UpstreamError("the model server cannot be reached", status=502)

    def _cool_down(self, place: int, cause: UpstreamError) -> None:
        before = self.healthy[place]
        seconds = COOL_DOWN * 2 ** min(self._failures[place], DOUBLINGS)
        self._failures[place] += 1
        self._cool_until[place] = time.monotonic() + seconds
        if before:
            # What the server said stays out of the log: it may repeat what it was asked.
            said = f"status {cause.status}" if cause.status else "no reply that can be used"
            self._tell(place, "replica cools down", cause.detail or said)

    def _work(self, place: int) -> None:
        """A server has answered; if it cooled down, that is over."""
        if self._failures[place]:
            self._failures[place], self._cool_until[place] = 0, 0.0
            self._tell(place, "replica returns", "it answered a call")

    def _tell(self, place: int, event: str, why: str) -> None:
        """A line in the log, which is the only place that names the server."""
        origin = origin_of(self.upstreams[place].endpoint.base_url)
        log.warning(json.dumps({"event": event, "replica": origin, "why": why}))

    async def check(self) -> list[dict[str, Any]]:
        """How every server is doing, asked at most once in a while."""
        now = time.monotonic()
        if not self._checked or self._checked[0][0] < now:
            task = asyncio.create_task(self._check())
            self._checked[:] = [(now + CHECK_KEPT, task)]
        # One who stops waiting must not end it for the others.
        return await asyncio.shield(self._checked[0][1])

    async def _check(self) -> list[dict[str, Any]]:
        statuses = await asyncio.gather(*map(_get_status, self.upstreams))
        for place, status in enumerate(statuses):
            if status is not None and status < 500 and self._failures[place]:
                self._work(place)
        return [
            {
                "answers": status is not None and status < 500 and not 300 <= status < 400,
                "refused": status in (401, 403),
                "status": status,
                "cooling_down": not healthy,
                "active": busy,
            }
            for status, healthy, busy in zip(statuses, self.healthy, self.busy, strict=True)
        ]


async def _get_status(upstream: Upstream) -> int | None:
    """How a server answers a request that costs it little, None where it does not."""
    patience = aiohttp.ClientTimeout(total=CHECK_SECONDS)
    url = upstream.endpoint.url("/models")
    try:
        async with upstream.session.get(url, timeout=patience, allow_redirects=False) as reply:
            return reply.status
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return None


def _failure(response: Response) -> UpstreamError | None:
    """Why a server that does not work gave no response; one that works and refuses is none."""
    source = response.source
    return source if isinstance(source, UpstreamError) and source.status in BROKEN else None


async def _send(
    upstream: Upstream, request: ProxiedRequest, given: Mapping[str, str]
) -> aiohttp.ClientResponse:
    """Pass a request on to one upstream."""
    # Configured headers win over the client's, and so does the upstream's own key.
    own = upstream.session.headers
    headers = {name: value for name, value in request.headers.items() if name not in own}
    content = request.content
    large = content is not None and len(content) > LARGE
    try:
        reply = await upstream.session.request(
            request.method,
            upstream.endpoint.url(request.target),
            data=BytesIO(content) if content is not None and large else content,
            headers={**headers, **given},
            skip_auto_headers=("User-Agent", "Content-Type"),
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_read=upstream.endpoint.timeout),
        )
        upstream.heard = time.monotonic()
        return reply
    except aiohttp.ClientConnectorError:
        raise
    except TimeoutError:
        raise UpstreamError("the model server did not answer in time", status=504) from None
    except (aiohttp.ClientError, OSError) as error:
        kind = type(error).__name__
        raise UpstreamError(f"the model server broke off ({kind})", status=502) from None
    except ValueError:
        raise UsageError("a header of the request cannot be passed on as it is") from None
