"""Replicas: several upstreams that serve the same model, each trusted as long as it answers."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from typing import Any

import aiohttp

from aera.errors import UpstreamError, UsageError
from aera.response import Response
from aera.sampling.body import LARGE
from aera.sampling.budget import Held
from aera.sampling.exchange import connection_error
from aera.sampling.health import Health, HealthChecks
from aera.sampling.refusal import origin_of
from aera.sampling.upstream import Endpoint, Upstream, run_together

Ask = Callable[..., Coroutine[Any, Any, list[Response]]]
"""Upstream.complete of one request; takes how many responses, and where they start."""
log = logging.getLogger("aera.sampling")
BROKEN = frozenset({None, 502, 503, 504})
"""What a server that does not work answers, None being nothing at all."""
GENERATING = ("/chat/completions", "/completions", "/embeddings")
"""What may be asked of a second server when the first keeps silent: it changes nothing there."""
TRACING = ("traceparent", "tracestate", "x-request-id")
"""Headers by which one request is followed from server to server."""
FRESH = 1.0
"""Seconds for which a check is good enough where none are made in the background."""


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
    """Asks the least busy healthy replica; one that does not work rests for a while.

    A replica is healthy as long as it answers: calls, and checks in the background.
    """

    def __init__(
        self, endpoints: Sequence[Endpoint], *, checks: HealthChecks | None = None
    ) -> None:
        alone = len(endpoints) == 1  # else the next one is asked instead of trying again
        self.upstreams = [Upstream(endpoint, alone=alone, shared=True) for endpoint in endpoints]
        self.checks = checks or HealthChecks()
        self.passing = [0] * len(endpoints)
        """Requests that each replica answers on the straight way through."""
        self._health = [Health() for _ in endpoints]
        self._headers: Mapping[str, str] = {}
        self._kept: Mapping[str, str] = {}
        self._stack = AsyncExitStack()
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Replicas":
        for upstream in self.upstreams:
            await self._stack.enter_async_context(upstream)
        if self.checks.always or len(self.upstreams) > 1:
            self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
            self._watching = None
        await self._stack.aclose()

    def with_headers(self, headers: Mapping[str, str]) -> "Replicas":
        """The same servers, asked with headers that win over their own, such as a client's key."""
        same = copy(self)
        same._headers = headers
        return same

    def keeping(self, headers: Mapping[str, str]) -> "Replicas":
        """The same servers, whose samples carry a client's headers too; their own win over them."""
        same = copy(self)
        same._kept = headers
        return same

    @property
    def tracing(self) -> dict[str, str]:
        """Of the headers that samples carry, those that any server may see."""
        return {name: value for name, value in self._kept.items() if name in TRACING}

    @property
    def names(self) -> list[str]:
        """What to call each replica where operators look: its address, without anything secret."""
        names: list[str] = []
        for upstream in self.upstreams:
            origin = origin_of(upstream.endpoint.base_url)
            same = sum(name.partition("#")[0] == origin for name in names)
            names.append(f"{origin}#{same + 1}" if same else origin)
        return names

    @property
    def healthy(self) -> list[bool]:
        """Which replicas are trusted right now."""
        return [not health.resting for health in self._health]

    @property
    def busy(self) -> list[int]:
        """Calls under way at each replica."""
        return [
            upstream.permits.active + passing
            for upstream, passing in zip(self.upstreams, self.passing, strict=True)
        ]

    def order(self) -> list[int]:
        """Replicas in the order in which to ask them.

        Healthy ones first, then those that are not silent for longer than usual, then the least
        busy, where a call that nobody waited for to the end counts as under way.
        """
        if len(self.upstreams) == 1:
            return [0]
        traffic = [upstream.traffic for upstream in self.upstreams]
        usual = max((each.usual or 0.0 for each in traffic), default=0.0)
        ranks = [
            (health.resting, each.is_silent(usual), busy + each.owed)
            for health, each, busy in zip(self._health, traffic, self.busy, strict=True)
        ]
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
        """As Upstream.complete; what a replica could not give, the next one is asked for."""
        given: dict[str, Any] = {"deadline": deadline, "held": held}
        got: list[Response] = []
        for place in self.order():
            upstream = self.upstreams[place]
            given["headers"] = self._headers_for(upstream)
            if not got:
                got = asked = await upstream.complete(body, n, start=start, **given)
            else:
                ask = partial(upstream.complete, body, **given)
                got, asked = await _refill(ask, got, start)
            failed = [error for response in asked if (error := _failure(response))]
            if not failed:
                self._work(place)
                return got
            if deadline is not None and time.monotonic() >= deadline:
                return got
            if len(failed) == len(asked) and any(response.calls for response in asked):
                self._rest(place, failed[0])
        return got

    def _headers_for(self, upstream: Upstream) -> Mapping[str, str]:
        if not self._kept:
            return self._headers
        own = upstream.session.headers
        kept = {name: value for name, value in self._kept.items() if name not in own}
        return {**kept, **self._headers}

    async def send(self, request: ProxiedRequest) -> tuple[aiohttp.ClientResponse, int]:
        """Pass a request on as it is; who asks reads the reply, closes it and calls `release`."""
        places = self.order()
        for place in places:
            upstream, reply = self.upstreams[place], None
            last = place == places[-1] or not request.repeatable
            self.passing[place] += 1
            try:
                async with asyncio.timeout(None if last else upstream.attempt_timeout):
                    reply = await _send(upstream, request, self._headers)
                if reply.status < 500:
                    self._work(place)
                return reply, place
            except aiohttp.ClientConnectorError as error:
                self._rest(place, connection_error(error))
            except TimeoutError:
                self._rest(place, UpstreamError("no reply in time"))
            finally:
                if reply is None:
                    self.release(place)
        raise UpstreamError("the model server cannot be reached", status=502)

    def release(self, place: int) -> None:
        """A request that was passed on is over."""
        self.passing[place] -= 1

    def rest(self, place: int) -> None:
        """Leave a replica alone for a while."""
        self._rest(place, UpstreamError("told to"))

    def _rest(self, place: int, cause: UpstreamError) -> None:
        health = self._health[place]
        before = health.resting
        health.rest(unreached=cause.unbilled and cause.status is None)
        if not before:
            # What the server said stays out of the log: it may repeat what it was asked.
            said = f"status {cause.status}" if cause.status else "no reply that can be used"
            self._tell(place, "replica rests", cause.detail or said)

    def _work(self, place: int) -> None:
        """A replica has answered; if it rested, that is over."""
        if self._health[place].work():
            self._tell(place, "replica returns", "it answered a call")

    def _tell(self, place: int, event: str, why: str) -> None:
        """A line in the log, which is the only place that names the server."""
        origin = origin_of(self.upstreams[place].endpoint.base_url)
        log.warning(json.dumps({"event": event, "replica": origin, "why": why}))

    # --- checks -----------------------------------------------------------------------------------

    async def check(self) -> list[dict[str, Any]]:
        """How every replica is doing; asked only where no recent check has found it out."""
        fresh = time.monotonic() - (FRESH if self._watching is None else 2 * self.checks.every)
        stale = [i for i, health in enumerate(self._health) if health.checked_at <= fresh]
        await asyncio.gather(*map(self._check_one, stale))
        return [
            {
                "answers": health.answers is True,
                "refused": health.status in (401, 403),
                "status": health.status,
                "resting": health.resting,
                "active": busy,
                **({"gives": dict(upstream.grants.seen)} if upstream.grants.seen else {}),
            }
            for health, busy, upstream in zip(self._health, self.busy, self.upstreams, strict=True)
        ]

    async def _watch(self) -> None:
        """Check all, for as long as somebody serves."""
        while True:
            await asyncio.gather(*map(self._check_one, range(len(self.upstreams))))
            await asyncio.sleep(self.checks.every)

    async def _check_one(self, place: int) -> None:
        upstream, health = self.upstreams[place], self._health[place]
        begun = time.monotonic()
        status = await _get_status(upstream, self.checks)
        # One that is too busy for a check and answers calls meanwhile is well.
        answers = upstream.traffic.heard > begun or (
            status is not None and status < 500 and not 300 <= status < 400
        )
        before = health.resting
        health.note_check(answers=answers, status=status)
        if health.resting != before:
            event = "replica returns" if before else "replica rests"
            self._tell(place, event, f"health check: {status or 'no reply'}")


async def _get_status(upstream: Upstream, checks: HealthChecks) -> int | None:
    """How a server answers a check, None where it does not."""
    patience = aiohttp.ClientTimeout(total=checks.timeout)
    url = upstream.endpoint.url(checks.path)
    try:
        async with upstream.session.get(url, timeout=patience, allow_redirects=False) as reply:
            return reply.status
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return None


async def _refill(
    ask: Ask, got: list[Response], start: int
) -> tuple[list[Response], list[Response]]:
    """Ask another replica for those that failed; returns all of them, and what came just now."""
    places = [place for place, response in enumerate(got) if _failure(response)]
    try:
        if len(places) == len(got):
            more = await ask(len(got), start=start)
        else:
            singles = await run_together(ask(1, start=start + place) for place in places)
            more = [response for [response] in singles]
    except UpstreamError:
        if all(response.error for response in got):
            raise
        return got, []  # what has come is not lost for what this one refuses
    filled = list(got)
    for place, response in zip(places, more, strict=True):
        filled[place] = replace(response, calls=got[place].calls + response.calls)
    return filled, more


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
    number = upstream.traffic.begin()
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
        upstream.traffic.answer(number, typical=False)
        return reply
    except aiohttp.ClientConnectorError:
        upstream.traffic.drop(number)
        raise
    except TimeoutError:
        raise UpstreamError("the model server did not answer in time", status=504) from None
    except (aiohttp.ClientError, OSError) as error:
        upstream.traffic.drop(number)
        kind = type(error).__name__
        raise UpstreamError(f"the model server broke off ({kind})", status=502) from None
    except ValueError:
        upstream.traffic.drop(number)
        raise UsageError("a header of the request cannot be passed on as it is") from None
    finally:
        upstream.traffic.leave(number)
