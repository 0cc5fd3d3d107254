"""Upstream: one OpenAI-compatible endpoint, with retries, limits and its own quirks remembered."""

import asyncio
import math
import os
import random
import time
from collections.abc import Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import aiohttp
from yarl import URL

from aera.errors import UpstreamError, UsageError, check_count
from aera.response import Response
from aera.sampling.attempts import Attempts, keep_result
from aera.sampling.body import RequestBody
from aera.sampling.budget import Bound, Budget, Held, Ledger, no_room
from aera.sampling.completion import parse_reply, usage_of
from aera.sampling.exchange import connection_error, decode_reply, open_session
from aera.sampling.health import Traffic
from aera.sampling.observed import Kind, Refusals, TakesN, model_of
from aera.sampling.permits import ModelPermits, Permits
from aera.sampling.refusal import BAD_REQUEST
from aera.sampling.wishes import Grants, ask_wishing
from aera.trace import TOP_LOGPROBS

LONGEST_BACKOFF = 20.0
FIRST = 16
"""Calls of a batch under way before any has succeeded, as all may be refused; then it doubles."""
JSON = {"Content-Type": "application/json"}

Done = TypeVar("Done")


async def run_together(works: Iterable[Coroutine[Any, Any, Done]]) -> list[Done]:
    """Do them at once; the first that fails ends the others, and none is left behind."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel_all(tasks)


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """End the tasks that have not ended, and wait until they have."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class Endpoint:
    """Where to ask and how patiently."""

    base_url: str
    """Such as http://localhost:8000/v1"""
    api_key_env: str | None = "OPENAI_API_KEY"
    """Environment variable with the key for this server; None sends no key."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None
    concurrency: int = 64
    tries: int = 5
    timeout: float = 600.0
    """Seconds for a call and all its retries, counted from when the first is made."""
    longest_wait: float = math.inf
    """A server that asks for a longer pause before the next try is not tried again."""
    attempt_timeout: float | None = None
    """Seconds for one try; None: the timeout, or half of it where there are other replicas."""
    largest_reply: int = 64 * 2**20
    """Bytes; a reply with more is an error."""

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise UsageError(
                f'the base URL must start with http:// or https://, but got "{self.base_url}"'
            )
        if self.ca_file is not None and not Path(self.ca_file).is_file():
            raise UsageError(f'the CA file "{self.ca_file}" cannot be used: there is no such file')
        check_count("concurrency", self.concurrency)
        check_count("tries", self.tries)
        check_count("the largest reply", self.largest_reply)
        if self.attempt_timeout is not None and not self.attempt_timeout > 0:
            raise UsageError(f"the timeout of a try must be above 0, got {self.attempt_timeout}")

    @property
    def key(self) -> str:
        """The key for this server, "" where there is none."""
        return os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""

    def url(self, target: str) -> URL:
        """The address of a path, and perhaps a query, behind the base URL."""
        return URL(self.base_url.rstrip("/") + target, encoded=True)


class Upstream:
    """Asks for completions. Use it as `async with Upstream(endpoint) as upstream`.

    One of several replicas (`alone` is False) is not tried again when it cannot be reached or does
    not answer in time; and where many clients share it, what one of them got wrong is no other's
    business.
    """

    def __init__(self, endpoint: Endpoint, *, alone: bool = True, shared: bool = False) -> None:
        self.endpoint = endpoint
        self._alone, self._shared = alone, shared
        self.permits = Permits(endpoint.concurrency)
        """For all calls together; each model has its own permits beside them."""
        self.traffic = Traffic()
        self.calls = 0
        own, total = endpoint.attempt_timeout, endpoint.timeout
        self.attempt_timeout = (total if alone else total / 2) if own is None else own
        """Seconds for one try."""
        self._url = endpoint.url("/chat/completions")
        self._models = ModelPermits(endpoint.concurrency, start=None if shared else FIRST)
        self._takes_n, self._refusals = TakesN(), Refusals()
        self.grants = Grants()
        """What the server gives of logprobs, where somebody wishes for them."""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Upstream":
        end = self.endpoint
        self._session = open_session(
            end.base_url, key=end.key, headers=end.headers, ca_file=end.ca_file
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def ignores_n(self) -> bool:
        """Whether requests of some kind are at present made without `n`, as it was not taken."""
        return self._takes_n.refused

    @property
    def waiting(self) -> int:
        """Calls that wait for a permit."""
        return self.permits.waiting + self._models.waiting

    @property
    def allowed(self) -> int:
        """Calls that may be under way at once, for the model that was refused most."""
        return min(int(self.permits.limit), self._models.least)

    async def complete(
        self,
        body: Mapping[str, Any],
        n: int,
        *,
        start: int = 0,
        deadline: float | None = None,
        held: Held | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[Response]:
        """`n` completions of one request; sample `start` is the first, so seeds never repeat.

        A completion that failed for good is a Response with an error. A refusal that no retry can
        mend (a bad key, a bad request) is raised. The ledger is told of every call. Headers
        given here win over the endpoint's own: another key is another client.
        """
        asked = RequestBody.of(body)
        until = math.inf if deadline is None else deadline
        own = headers.get("Authorization") if headers else None
        sent = {**JSON, **headers} if headers else JSON
        held = held or Ledger(Budget()).take(n, Bound())
        assert held is not None  # nothing is limited
        order = _Order(asked, until, held, sent, (model_of(asked), own))
        if not asked.wishes:
            return await self._complete(order, asked, n, start)
        return await ask_wishing(partial(self._complete, order), asked, n, start, self.grants)

    async def _complete(
        self, order: "_Order", body: RequestBody, n: int, start: int
    ) -> list[Response]:
        """The completions of a request as it stands."""
        await body.prepare()
        order = order._replace(body=body)
        got = await self._ask_with_n(order, n, start) if n > 1 else []
        if len(got) < n:
            some = any(response.error is None for response in got)
            rest = await self._ask_singly(order, n - len(got), start + len(got), some=some)
            got = [*got, *rest]
        return got

    async def _ask_with_n(self, order: "_Order", n: int, start: int) -> list[Response]:
        """What the server gives of `n`, as long as it takes such a request."""
        kind, got = Kind.of(order.body), list[Response]()
        for _ in range(2):  # a reply that fell short may be an accident: `n` is tried once more
            rest = n - len(got)
            if rest < 2 or kind not in self._takes_n:
                break
            try:
                got += await self._ask_at_once(order, rest, start + len(got), kind)
            except UpstreamError as refused:
                if all(response.error for response in got):
                    raise
                got += Attempts(refused.calls, error=refused).records(rest)
        return got

    async def _ask_at_once(self, order: "_Order", n: int, start: int, kind: Kind) -> list[Response]:
        """One call for all; fewer than `n` when the server does not take `n`."""
        made = await self._call(order, start, n)
        if made.error is None:
            self._takes_n.note(kind, wanted=n, got=len(made.responses))
            return list(made.responses)
        if made.error.status in BAD_REQUEST:
            # If `n` was not the reason, this raises, and nothing is held against the server.
            [single] = await self._ask_singly(order, 1, start)
            if single.error is None:
                self._takes_n.refuse(kind)
            return [replace(single, calls=single.calls + made.calls)]
        made.fail()
        return made.records(n)

    async def _ask_singly(
        self, order: "_Order", n: int, start: int, *, some: bool = False
    ) -> list[Response]:
        """A call for each; the first refusal that cannot be mended ends the others.

        It is raised unless some responses have come: nothing that was paid for is lost.
        """
        if n == 1 and not some:  # one task less for each call
            return [await self._ask_one(order, start)]
        tasks = [asyncio.create_task(self._ask_one(order, start + i)) for i in range(n)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            await cancel_all(tasks)
        done = [task for task in tasks if not task.cancelled()]
        errors = [error for task in done if (error := task.exception()) is not None]
        if not errors:
            return [task.result() for task in tasks]
        got = some or any(task.exception() is None and not task.result().error for task in done)
        refused = errors[0]
        if not got or not isinstance(refused, UpstreamError):
            raise refused
        return [keep_result(task, refused) for task in tasks]

    async def _ask_one(self, order: "_Order", index: int) -> Response:
        made = await self._call(order, index, 1)
        return made.responses[0] if made.error is None else made.fail()

    async def _call(self, order: "_Order", start: int, n: int) -> Attempts:
        """One call with its retries."""
        begun, patience = time.monotonic(), _Patience(self.endpoint.timeout, order.until)
        calls, held = 0, order.held
        for attempt in range(1, self.endpoint.tries + 1):
            if not held.begin(n):
                return Attempts(calls, error=no_room())
            made = await self._attempt(order, start, n, begun=begun, patience=patience)
            calls += made.calls
            if made.error is None:
                got = made.responses[:n]
                if calls > 1:
                    got = (replace(got[0], calls=calls), *got[1:])
                held.receive(start, got, usage_of(made.responses))
                if len(got) < n:
                    held.give_back(n - len(got))
                return Attempts(calls, got)
            unbilled = made.error.unbilled or not made.calls
            (held.give_back if unbilled else held.lose)(n)
            wait = _pause(attempt, made.error.retry_after)
            last = attempt == self.endpoint.tries or wait > self.endpoint.longest_wait
            if last or not made.error.retryable or wait >= patience.begin():
                return replace(made, calls=calls)
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the last attempt returns")

    async def _attempt(
        self, order: "_Order", index: int, n: int, *, begun: float, patience: "_Patience"
    ) -> Attempts:
        """One call, once there is a permit for it; only the caller's deadline ends that wait."""
        made, own = 0, self._models.of(order.who)
        try:
            if patience.left == 0:
                raise TimeoutError
            async with asyncio.timeout(patience.left) as timer, own as turn, self.permits:
                if (known := self._refusals.find(order.who, begun)) is not None:
                    return Attempts(0, error=known)
                made, limit = 1, min(patience.begin(), self.attempt_timeout)
                timer.reschedule(asyncio.get_running_loop().time() + limit)
                try:
                    got = Attempts(1, tuple(await self._post(order, index, n)))
                    own.widen()
                    return got
                except UpstreamError as error:
                    if error.status == 429:
                        own.halve(turn)
                    self._learn(error, order)
                    return Attempts(1, error=error)
        except TimeoutError:
            text = (
                f"no reply within {limit:.1f} s" if made else "the deadline passed before the call"
            )
            late = UpstreamError(text, retryable=self._alone)
            late.detail = text
            return Attempts(made, error=late)

    def _learn(self, error: UpstreamError, order: "_Order") -> None:
        others = self._shared and error.status == 404
        if error.final and not others:  # those who wait need not be refused one by one
            self._refusals.add(order.who, error)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open connections; only inside `async with`."""
        if self._session is None:
            raise UsageError('an Upstream is used inside "async with"')
        return self._session

    async def _post(self, order: "_Order", index: int, n: int) -> list[Response]:
        """One exchange; the traffic is told how it ended, also where nobody waited for it."""
        self.calls += 1
        begun, number = time.monotonic(), self.traffic.begin()
        try:
            async with self.session.post(
                self._url,
                data=order.body.content(index, n),
                headers=order.headers,
                allow_redirects=False,
            ) as reply:
                most = self.endpoint.largest_reply
                said = await decode_reply(reply, most, named=not self._shared)
            self.traffic.answer(number)
        except UpstreamError:
            self.traffic.answer(number, typical=False)
            raise
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            self.traffic.drop(number)
            raise connection_error(error, retryable=self._alone) from None
        except ValueError:
            self.traffic.drop(number)
            raise UsageError("a header of the request cannot be passed on as it is") from None
        finally:
            self.traffic.leave(number)
        latency = 1000 * (time.monotonic() - begun)
        read = partial(
            parse_reply,
            said,
            seed=order.body.seed_of(index),
            latency_ms=latency,
            sent=order.body.size,
            shows_logprobs=order.body.shows_logprobs,
            task=order.body.task,
        )
        # Lists of likely tokens are long, and others wait for the loop.
        return await asyncio.to_thread(read) if TOP_LOGPROBS in order.body else read()


class _Order(NamedTuple):
    """What to ask for, until when somebody waits, and what has been reserved for it."""

    body: RequestBody
    until: float
    held: Held
    headers: Mapping[str, str]
    who: tuple[str, str | None]
    """The model and the key that a refusal is about; None is the endpoint's own key."""


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


def _pause(attempt: int, retry_after: float | None) -> float:
    """What the server asked for, else doubling with jitter."""
    if retry_after is not None:
        return retry_after
    return float(min(LONGEST_BACKOFF, 0.25 * 2**attempt) * random.uniform(0.5, 1.0))
