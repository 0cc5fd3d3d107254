"""Upstream: one OpenAI-compatible endpoint, with retries, limits and its own quirks remembered."""

import asyncio
import json
import math
import os
import random
import ssl
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from aera.errors import UpstreamError, UsageError, check_count
from aera.response import Response
from aera.sampling.completion import parse_reply
from aera.sampling.permits import Permits
from aera.sampling.spending import UNRESERVED, Reservation, Unreserved

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
REFUSED_N = frozenset({400, 422})
UNBILLED = frozenset({*range(400, 408), *range(409, 500), 503, 529})
"""Refusals for which nobody sends a bill; after any other failure it may have been generated."""
LONGEST_BACKOFF = 20.0

Done = TypeVar("Done")


async def run_together(works: Iterable[Coroutine[Any, Any, Done]]) -> list[Done]:
    """Do them at once; the first that fails ends the others, and none is left behind."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class Endpoint:
    """Where to ask and how patiently."""

    base_url: str
    """Such as http://localhost:8000/v1"""
    api_key_env: str = "OPENAI_API_KEY"
    headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: str | None = None
    concurrency: int = 64
    tries: int = 5
    timeout: float = 600.0
    """Seconds for a call and all its retries, counted from when the first is made."""
    longest_wait: float = math.inf
    """A server that asks for a longer pause before the next try is not tried again."""

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise UsageError(
                f'the base URL must start with http:// or https://, but got "{self.base_url}"'
            )
        if self.ca_file is not None and not Path(self.ca_file).is_file():
            raise UsageError(f'the CA file "{self.ca_file}" cannot be used: there is no such file')
        check_count("concurrency", self.concurrency)
        check_count("tries", self.tries)


@dataclass(frozen=True)
class Attempts:
    """What came of one call and its retries: responses, or the error that was the last."""

    calls: int
    """Calls that were made, which may be none."""
    responses: tuple[Response, ...] = ()
    error: UpstreamError | None = None

    def fail(self) -> Response:
        """The record of a completion that could not be had; what no retry can mend is raised."""
        assert self.error is not None
        if not self.error.retryable:
            raise self.error.after(self.calls)
        return Response("", error=str(self.error), calls=self.calls, source=self.error)


class Upstream:
    """Asks for completions. Use it as `async with Upstream(endpoint) as upstream`.

    One of several replicas need not be tried again when it cannot be reached (`retry_unreached`);
    and where many clients share it, the model that one of them got wrong is no other's business.
    """

    def __init__(
        self, endpoint: Endpoint, *, retry_unreached: bool = True, shared: bool = False
    ) -> None:
        self.endpoint = endpoint
        self._retry_unreached, self._shared = retry_unreached, shared
        self.permits = Permits(endpoint.concurrency, start=min(16, endpoint.concurrency))
        self.calls = 0
        self.ignores_n = False
        """Whether this server was seen to answer `n` requests with one choice."""
        self._session: aiohttp.ClientSession | None = None
        self._refused: tuple[float, UpstreamError] | None = None
        """The latest refusal of the key, and when it came."""

    async def __aenter__(self) -> "Upstream":
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls())
        key = os.environ.get(self.endpoint.api_key_env, "").strip()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={**headers, **self.endpoint.headers},
            timeout=aiohttp.ClientTimeout(total=None),
            proxy=self._proxy(),
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _proxy(self) -> str | None:
        """The environment's proxy; aiohttp's trust_env would let ~/.netrc overrule the key."""
        parts = urlsplit(self.endpoint.base_url)
        host = parts.hostname or ""
        own = host in ("localhost", "::1") or host.startswith("127.")
        return None if own or proxy_bypass(host) else getproxies().get(parts.scheme)

    def _tls(self) -> ssl.SSLContext | bool:
        if self.endpoint.ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.endpoint.ca_file)
        except OSError as error:
            raise UsageError(
                f'the CA file "{self.endpoint.ca_file}" cannot be used: {error}'
            ) from None

    async def complete(
        self,
        body: Mapping[str, Any],
        n: int,
        *,
        start: int = 0,
        deadline: float | None = None,
        reservation: Reservation | Unreserved = UNRESERVED,
    ) -> list[Response]:
        """`n` completions of one request; sample `start` is the first, so seeds never repeat.

        A completion that failed for good is a Response with an error. A refusal that no retry can
        mend (a bad key, a bad request) is raised. The reservation is told of every call.
        """
        order = _Order(math.inf if deadline is None else deadline, reservation)
        if n == 1 or self.ignores_n:
            return await self._ask_singly(body, n, start=start, order=order)
        got = await self._ask_at_once(body, n, start=start, order=order)
        rest = n - len(got)
        if not rest:
            return got
        singles = await self._ask_singly(body, rest, start=start + len(got), order=order)
        return [*got, *singles]

    async def _ask_at_once(
        self, body: Mapping[str, Any], n: int, *, start: int, order: "_Order"
    ) -> list[Response]:
        """One call for all; fewer than `n` when the server does not take `n`."""
        made = await self._call({**step_seed(body, start), "n": n}, start=start, order=order, n=n)
        if made.error is None:
            if len(made.responses) < n:
                self.ignores_n = True
            return list(made.responses)
        if made.error.status in REFUSED_N:
            # If `n` was not the reason, this raises, and nothing is held against the server.
            [single] = await self._ask_singly(body, 1, start=start, order=order)
            self.ignores_n = single.error is None
            return [replace(single, calls=single.calls + made.calls)]
        failed = made.fail()
        return [failed, *[replace(failed, calls=0)] * (n - 1)]

    async def _ask_singly(
        self, body: Mapping[str, Any], n: int, *, start: int, order: "_Order"
    ) -> list[Response]:
        """A call for each; the first refusal that cannot be mended ends the others."""
        plain = {name: value for name, value in body.items() if name != "n"}
        if n == 1:  # one task less for each call
            return [await self._ask_one(plain, start, order)]
        return await run_together(self._ask_one(plain, start + i, order) for i in range(n))

    async def _ask_one(self, body: Mapping[str, Any], index: int, order: "_Order") -> Response:
        made = await self._call(step_seed(body, index), start=index, order=order)
        return made.responses[0] if made.error is None else made.fail()

    async def _call(
        self, body: Mapping[str, Any], *, start: int, order: "_Order", n: int = 1
    ) -> Attempts:
        """One call with its retries."""
        begun, patience = time.monotonic(), _Patience(self.endpoint.timeout, order.until)
        calls = 0
        for attempt in range(1, self.endpoint.tries + 1):
            if not order.reservation.begin(n):
                return Attempts(calls, error=UpstreamError("the limit leaves no room for a try"))
            made = await self._attempt(body, begun=begun, patience=patience)
            calls += made.calls
            if made.error is None:
                self.permits.widen()
                first, *others = made.responses[:n]
                got = (first if calls == 1 else replace(first, calls=calls), *others)
                order.reservation.receive(start, got)
                order.reservation.give_back(n - len(got))
                return Attempts(calls, got)
            unbilled = made.error.unbilled or not made.calls
            (order.reservation.give_back if unbilled else order.reservation.lose)(n)
            wait = _pause(attempt, made.error.retry_after)
            last = attempt == self.endpoint.tries or wait > self.endpoint.longest_wait
            if last or not made.error.retryable or wait >= patience.begin():
                return replace(made, calls=calls)
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the last attempt returns")

    async def _attempt(
        self, body: Mapping[str, Any], *, begun: float, patience: "_Patience"
    ) -> Attempts:
        """One call, once there is a permit for it; only the caller's deadline ends that wait."""
        made = 0
        try:
            if patience.left == 0:
                raise TimeoutError
            async with asyncio.timeout(patience.left) as timer, self.permits as turn:
                if self._refused is not None and self._refused[0] > begun:
                    return Attempts(0, error=self._refused[1])
                made, limit = 1, patience.begin()
                timer.reschedule(asyncio.get_running_loop().time() + limit)
                try:
                    return Attempts(1, tuple(await self._post(body)))
                except UpstreamError as error:
                    self._learn(error, turn)
                    return Attempts(1, error=error)
        except TimeoutError:
            text = (
                f"no reply within {limit:.1f} s" if made else "the deadline passed before the call"
            )
            return Attempts(made, error=UpstreamError(text))

    def _learn(self, error: UpstreamError, turn: int) -> None:
        if error.status == 429:
            self.permits.halve(turn)
        others = self._shared and error.status == 404
        if error.final and not others:  # those who wait need not be refused one by one
            self._refused = (time.monotonic(), error)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open connections; only inside `async with`."""
        if self._session is None:
            raise UsageError('an Upstream is used inside "async with"')
        return self._session

    async def _post(self, body: Mapping[str, Any]) -> list[Response]:
        self.calls += 1
        begun = time.monotonic()
        url = self.endpoint.base_url.rstrip("/") + "/chat/completions"
        try:
            async with self.session.post(url, json=body) as reply:
                content = await reply.read()
        except (aiohttp.ClientError, OSError) as error:
            unreached = isinstance(error, aiohttp.ClientConnectorError)
            raise UpstreamError(
                f"the connection failed: {error or type(error).__name__}",
                retryable=self._retry_unreached or not unreached,
                unbilled=unreached,
            ) from None
        if reply.status != 200:
            raise refusal(reply.status, content, reply.headers)
        latency = 1000 * (time.monotonic() - begun)
        return parse_reply(_decode(content), seed=body.get("seed"), latency_ms=latency)


@dataclass(frozen=True)
class _Order:
    """Until when somebody waits, and what has been reserved for it."""

    until: float
    reservation: Reservation | Unreserved


class _Patience:
    """How long to wait: up to the caller's deadline, and from the first call on, the timeout."""

    def __init__(self, timeout: float, until: float) -> None:
        self._timeout, self._until, self._begun = timeout, until, False

    def begin(self) -> float:
        """A call is being made; returns the seconds left for it."""
        if not self._begun:
            self._begun, self._until = True, min(self._until, time.monotonic() + self._timeout)
        return max(0.0, self._until - time.monotonic())

    @property
    def left(self) -> float | None:
        """Seconds left, None where nothing limits them yet."""
        return None if self._until == math.inf else max(0.0, self._until - time.monotonic())


def step_seed(body: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The request for sample `index`: its seed stepped, so that no two samples repeat."""
    seed = body.get("seed")
    return dict(body) if seed is None else {**body, "seed": seed + index}


def _pause(attempt: int, retry_after: float | None) -> float:
    """What the server asked for, else doubling with jitter."""
    if retry_after is not None:
        return retry_after
    return float(min(LONGEST_BACKOFF, 0.25 * 2**attempt) * random.uniform(0.5, 1.0))


def _decode(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        shown = content[:80].decode("utf-8", "replace")
        raise UpstreamError(f"the reply is not JSON but {shown!r}", retryable=True) from None


def refusal(status: int, content: bytes, headers: Mapping[str, str]) -> UpstreamError:
    """The upstream's own error, with its status, type, code and message."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    said = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(said, str):
        said = {"message": said}
    fields = said if isinstance(said, dict) else {}
    message = fields.get("message") or content[:200].decode("utf-8", "replace") or "no message"
    return UpstreamError(
        str(message),
        status=status,
        kind=fields.get("type"),
        code=fields.get("code"),
        retry_after=_retry_after(headers.get("Retry-After")),
        retryable=status in RETRIED,
        unbilled=status in UNBILLED,
        body=body,
    )


def _retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header, which holds seconds or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
