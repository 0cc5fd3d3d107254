"""Client of one OpenAI-compatible server: retries, limits, its quirks remembered for a while."""

import asyncio
import heapq
import itertools
import json
import math
import os
import random
import resource
import ssl
import time
from collections.abc import (
    AsyncIterator,
    Collection,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from aera.core import Response
from aera.errors import UpstreamError, UsageError, check_count
from aera.files import Json
from aera.reading.task import Task
from aera.sampling.budget import NO_ROOM, Bound, Budget, Counts, Held, Ledger
from aera.sampling.replies import (
    context_of,
    decode,
    is_field_refusal,
    is_whole,
    parse_reply,
    refusal,
    usage_of,
)
from aera.trace import FULL, TOP_LOGPROBS, ServedTokens

MOST_KEPT = 1_024
"""Things remembered of a server; names come from clients, who can make up any number."""
START, DOUBLING, TICK = 4, 0.2, 0.01
"""Calls, or responses, under way before anything is known, as all may be refused; the seconds in
which they double while nothing is, and those between two steps of it."""
UNHEARD, MOST_AT_ONCE = 64, 4_096
"""Responses that a server is given at most before it has answered anything, and those that are
under way at most, unless somebody says."""
CALM, LONGEST_CALM, KEPT = 10.0, 160.0, 7 / 8
"""Seconds after a refusal in which the limit does not rise, doubled with every further one up to
the most; and what is left of the limit."""
RISE = 7.0
"""How many more may be under way for each that came back as fast as the fastest."""
UNEVEN = 0.3
"""The share of a call that ends before its longest response, by each doubling of `n`."""
ENOUGH, GAIN, SLOW, SPARE, AGAIN = 12, 1.1, 0.25, 1.3, 500
"""Calls that tell the rate of a level; the rate by which twice as many under way must be better;
the share of the fastest pace below which calls wait at the server; what is under way beyond the
best level; and the calls after which it is found out anew."""


class Turn(NamedTuple):
    """A permit: the round of calls it belongs to, what it weighs, when and among how many."""

    round: int
    weight: float
    begun: float
    area: float


class Permits:
    """How many calls may be under way at once, or how many responses; the lowest turn goes first.

    async with permits.hold(n) as turn:
        ...

    A limit that is stated falls where the server refuses. Where none is stated (`most` is None),
    responses are counted, and it is found out how many give the most tokens a second: the limit
    rises by every reply as long as more are better, and falls to the least that give as much. A
    cancelled waiter never takes a permit along.
    """

    def __init__(self, most: int | None, *, careful: bool = False) -> None:
        self.found = most is None
        """Whether the limit is found out."""
        self.most = float(most or MOST_AT_ONCE)
        self.limit = float(min(self.most, START if careful else self.most))
        self.active = 0.0
        self._sure = min(self.most, UNHEARD) if self.found else self.most
        """How far the limit rises before any reply."""
        self._rising: asyncio.TimerHandle | None = None
        self._waiting: list[tuple[float, int, float, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._round, self._half = 0, 0.0
        """The rounds of refused calls, and half of the limit before the latest."""
        self._refused_at, self._calm = -math.inf, CALM / 2
        self._area, self._changed = 0.0, time.monotonic()
        """Those under way, summed up over the seconds until they last changed."""
        self._levels: dict[int, tuple[float, ...]] = {}
        """By the power of two nearest to those under way: calls, and sums of what they told."""
        self._fastest, self._told = 0.0, 0

    @asynccontextmanager
    async def hold(self, n: int = 1, turn: float = 0.0) -> AsyncIterator[Turn]:
        """Wait for a permit for `n` responses, and give it back in the end."""
        # Some of many responses end long before the last of them, which ends the call.
        weight = n / (1 + UNEVEN * math.log2(n)) if self.found else 1.0
        if self._waiting or self.active >= int(self.limit):
            await self._wait(weight, turn)
        else:
            self._count(weight)
        try:
            yield Turn(self._round, weight, self._changed, self._area)
        finally:
            self._count(-weight)
            self._wake()

    async def _wait(self, weight: float, turn: float) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (turn, next(self._numbers), weight, answer))
        self._wake()
        try:
            await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():
                self._count(-weight)  # the permit arrived together with the cancellation
            answer.cancel()
            self._wake()
            raise

    @property
    def waiting(self) -> int:
        """How many calls wait for a permit."""
        return len(self._waiting)

    def served(self, turn: Turn, tokens: int) -> None:
        """A call went through, whose longest response has so many tokens."""
        now = time.monotonic()
        took = max(now - turn.begun, 1e-3)
        pace = max(tokens, 1) / took
        self._fastest = max(self._fastest, pace)
        if self.found:
            crowd = (self._area + self.active * (now - self._changed) - turn.area) / took
            self._learn(max(1.0, crowd), max(tokens, 1), took)
        if self._waiting and now - self._refused_at >= self._calm:
            more = 1.0 if self._round else RISE * turn.weight * pace / self._fastest
            self.limit = max(self.limit, min(self.most, self.limit + more))
        self._wake()

    def _learn(self, crowd: float, tokens: int, took: float) -> None:
        """How far the limit may rise, as far as the calls so far tell; it falls where less is best.

        The rate of a level is the pace of its longest responses times how many are under way.
        """
        self._told += 1
        if self._told % AGAIN == 0:
            self._levels.clear()
        level = round(math.log2(crowd))
        kept, told = self._levels.get(level, (0.0,) * 4), (1, crowd, tokens, took)
        share = 0.5 if kept[0] >= 4 * ENOUGH else 1.0  # what was long ago counts for less
        self._levels[level] = tuple(share * old + new for old, new in zip(kept, told, strict=True))
        known = {
            level: crowd / calls * tokens / seconds
            for level, (calls, crowd, tokens, seconds) in sorted(self._levels.items())
            if calls >= ENOUGH
        }
        if not known:
            self.most = self.limit if tokens < SLOW * self._fastest * took else MOST_AT_ONCE
            return
        best = least = min(known)
        for level, rate in known.items():
            if rate > known[best] * GAIN ** (level - best):
                best = level
        slow = best == least and known[best] < SLOW * self._fastest * 2**best
        if best == max(known) and not slow:
            self.most = min(MOST_AT_ONCE, 8.0 * 2**best)
        else:  # where the fewest known are as good as any, still fewer may be
            self.most = SPARE * 2 ** max(0, best - (best == least) - slow)
            self._sure, self.limit = 0.0, min(self.limit, self.most)

    def refused(self, turn: Turn) -> None:
        """The server refused a call: fall, but once for the calls that were under way together.

        Where it took some of them, the limit is what it took, if that is less. Where it took none,
        that says nothing about how many it would, and half are tried.
        """
        if turn.round == self._round:
            now = time.monotonic()
            soon, self._refused_at = now - self._refused_at < self._calm, now
            self._half = max(1.0, self.limit / 2)
            self.limit = self._half if soon else KEPT * self.limit
            self._round, self._sure = self._round + 1, 0.0
            self._calm = min(LONGEST_CALM, 2 * self._calm)
        left = self.active - turn.weight  # a fraction, so that nobody may leave hardly anything
        self.limit = max(1.0, min(self.limit, left)) if left > 1e-6 else self._half

    def _count(self, more: float) -> None:
        now = time.monotonic()
        self._area += self.active * (now - self._changed)
        self.active, self._changed = self.active + more, now

    def _wake(self) -> None:
        while self._waiting and (self._waiting[0][3].done() or self.active < int(self.limit)):
            _, _, weight, answer = heapq.heappop(self._waiting)
            if not answer.done():
                self._count(weight)
                answer.set_result(None)
        if self._waiting and self.limit < self._sure and self._rising is None:
            self._rising = asyncio.get_running_loop().call_later(TICK, self._rise)

    def _rise(self) -> None:
        """As long as nothing was refused, a little more."""
        self._rising = None
        self.limit = max(self.limit, min(self._sure, self.limit * 2 ** (TICK / DOUBLING)))
        self._wake()


LARGE = 256 * 1024
"""Bytes beyond which JSON is made and read outside the event loop."""
STRICT = json.JSONEncoder(check_circular=False, allow_nan=False)
MEDIA = ("image_url", "input_audio", "file")
LENGTHS = ("max_completion_tokens", "max_tokens")


def measure(body: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes of all text of a request, names included, and the number of images or other media in
    it, which are addresses or encoded and no prompt."""
    size, media = 0, 0
    left: list[Any] = [body]
    while left:
        each = left.pop()
        if isinstance(each, str):
            size += len(each) if each.isascii() else len(each.encode("utf-8", "surrogatepass"))
        elif isinstance(each, Mapping):
            left += each
            kind = each.get("type")
            shown = kind in MEDIA and kind in each
            media += shown
            left += (value for name, value in each.items() if not shown or name != kind)
        elif isinstance(each, list | tuple):
            left += each
        else:
            size += 24  # a number, true, false or null
    return size, media


def longest_of(body: Mapping[str, Any]) -> int | None:
    """The most tokens of a response by the request's own fields; None where none says.

    Some servers know but one of the two fields, so that either may hold.
    """
    return max((body[name] for name in _lengths(body)), default=None)


def _lengths(body: Mapping[str, Any]) -> list[str]:
    """The fields that say so; one that is null says that the server does not know it."""
    return [name for name in LENGTHS if is_whole(body.get(name)) and body[name] > 0]


class RequestBody(dict[str, Any]):
    """The fields of a request; never changed in place.

    `wishes` are the fields for logprobs that it is sent with as far as a server takes them, and the
    `task` finds the answer whose tokens a trace looks at.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        *,
        size: int | None = None,
        wishes: Mapping[str, Any] = MappingProxyType({}),
        task: Task | None = None,
    ) -> None:
        super().__init__(fields)
        self.wishes, self.task = wishes, task
        self.shows_logprobs = bool(self.get("logprobs"))
        """Whether it asks for logprobs itself."""
        self.size = measure(fields)[0] if size is None else size
        """About how many bytes its JSON has."""

    def having(self, **fields: Any) -> "RequestBody":
        """The same with other fields."""
        if not fields:
            return self
        same = copy(self)
        same.update(fields)
        return same

    def cut(self, most: int) -> "RequestBody":
        """The same with its responses no longer than that."""
        return self.having(**{name: min(self[name], most) for name in _lengths(self)})

    def wishing(self) -> "RequestBody":
        """The same with what is wished for; what it says itself stays."""
        own, fields = self.get(TOP_LOGPROBS), dict(self.wishes)
        if TOP_LOGPROBS in fields and is_whole(own):
            fields[TOP_LOGPROBS] = max(own, fields[TOP_LOGPROBS])
        return self.having(**fields)

    def seed(self, index: int) -> int | None:
        """The seed of sample `index`, stepped so that no two samples repeat."""
        own = self.get("seed")
        return own + index if is_whole(own) else None

    async def make(self, index: int, n: int) -> bytes:
        """The JSON for `n` samples from `index` on; a large one is made off the event loop."""
        fields = {**self, "n": n}
        if n == 1:
            del fields["n"]
        if (seed := self.seed(index)) is not None:
            fields["seed"] = seed
        encode = partial(_encode, fields)
        return await asyncio.to_thread(encode) if self.size > LARGE else encode()


def _encode(fields: Mapping[str, Any]) -> bytes:
    try:
        return STRICT.encode(fields).encode()
    except (ValueError, RecursionError):
        raise UsageError(
            "the request cannot be sent as JSON: it holds Infinity or NaN, or is nested too deeply"
        ) from None


def open_session(end: "Endpoint") -> aiohttp.ClientSession:
    """Connections to one server with its own key and headers; what it stores is not sent back."""
    headers = CIMultiDict({"Authorization": f"Bearer {end.key}"} if end.key else {})
    headers.update(end.headers)
    tls = tls_context(end.ca_file)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=KEPT_OPEN),
        headers=headers,
        # A cookie would be one client's, sent along with the requests of all others.
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        proxy=_proxy(end.base_url),
    )


def _proxy(base_url: str) -> str | None:
    """The environment's proxy; aiohttp's trust_env would let ~/.netrc overrule the key."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    own = host in ("localhost", "::1") or host.startswith("127.")
    return None if own or proxy_bypass(host) else getproxies().get(parts.scheme)


def _most_calls() -> int:
    """Calls under way at once where nobody says, as each takes one of a process's files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_AT_ONCE if files < 0 else max(1, min(MOST_AT_ONCE, files - SPARED))


def tls_context(ca_file: str | None) -> ssl.SSLContext | bool:
    """Whom to trust; True is whom the system trusts."""
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise UsageError(f'the CA file "{ca_file}" cannot be used: {error}') from None


async def read_reply(reply: aiohttp.ClientResponse, most: int, *, cut: bool = False) -> bytes:
    """The content of a reply of up to `most` bytes; more is refused, or cut off."""
    content = bytearray()
    async for part in reply.content.iter_any():
        content += part
        if len(content) > most:
            reply.close()
            break
    if len(content) <= most or cut:
        return bytes(content[:most])
    raise UpstreamError(f"the reply is larger than {most} bytes", status=502, retryable=False)


def connection_error(error: Exception, *, retryable: bool = True) -> UpstreamError:
    """Why there was no reply, in words that name neither host nor port; those are in the detail.

    Where no connection came about, nothing was generated, and it need not be `retryable`.
    """
    unreached = isinstance(error, aiohttp.ClientConnectorError)
    text = f"the connection failed: {_cause(error)}"
    detail = str(error) or type(error).__name__
    again = retryable or not unreached
    return UpstreamError(text, retryable=again, unbilled=unreached, detail=detail)


def _cause(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name could not be resolved"
    if isinstance(error, aiohttp.ClientSSLError):
        return "its certificate could not be verified, or it does not speak TLS"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed it"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number and number > 0 else type(error).__name__


LONGEST_BACKOFF = 20.0
KEPT_OPEN = 3.0
"""Seconds for which an idle connection is used again: servers close theirs after five, and a call
that meets the end of its connection may have been billed."""
SPARED = 128
"""Open files that are left for everything but calls."""
JSON = {"Content-Type": "application/json"}
N_REMEMBERED, LOGPROBS_REMEMBERED, REFUSAL_REMEMBERED = 300.0, 3_600.0, 10.0
"""Seconds for which a server that did not take `n` or logprobs is not asked for them again, and
those who waited during a refusal are refused alike."""
CONTEXT_REMEMBERED = 3_600.0
"""Seconds for which requests keep to a model's context, which a refusal has named."""
GREEDY = 0.01
"""Temperatures below this are greedy decoding to many servers, which then refuse `n`."""
LONG_LISTS = 8
"""Completions of one call with lists of likely tokens, a hundred times as long as the text."""
GIVES = ("nothing", "token logprobs", "full traces")

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
    concurrency: int | None = None
    """Most calls at once; None finds out how many give the most tokens a second."""
    tries: int = 5
    timeout: float = 600.0
    """Seconds for a call and all its retries, counted from when the first is made."""
    longest_wait: float = math.inf
    """A server that asks for a longer pause before the next try is not tried again."""
    largest_reply: int = 64 * 2**20
    """Bytes; a reply with more is an error."""

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise UsageError(
                f'the base URL must start with http:// or https://, but got "{self.base_url}"'
            )
        if self.base_url.rstrip("/").endswith("/completions"):
            raise UsageError("the base URL ends in /v1: leave out the /chat/completions behind it")
        tls_context(self.ca_file)
        if self.concurrency is not None:
            check_count("concurrency", self.concurrency)
        check_count("tries", self.tries)
        check_count("the largest reply", self.largest_reply)

    @property
    def key(self) -> str:
        """The key for this server, "" where there is none."""
        return os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""

    def url(self, target: str) -> URL:
        """The address of a path, and perhaps a query, behind the base URL."""
        return URL(self.base_url.rstrip("/") + target, encoded=True)


class Memory:
    """What was seen of a server, each thing under its key and for a while only."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Hashable, ...], tuple[float, Any]] = {}

    def get(self, key: tuple[Hashable, ...], default: Any = None) -> Any:
        """What is known, unless it is too old."""
        until, value = self._kept.get(key, (0.0, default))
        return value if time.monotonic() < until else default

    def keep(self, key: tuple[Hashable, ...], value: Any, seconds: float = math.inf) -> None:
        """Remember it for so long; what was kept longest makes room."""
        self._kept.pop(key, None)
        self._kept[key] = (time.monotonic() + seconds, value)
        if len(self._kept) > MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))

    def all(self, name: str) -> list[Any]:
        """Everything of that name that is not too old."""
        now, kept = time.monotonic(), self._kept.items()
        return [value for key, (until, value) in kept if key[0] == name and now < until]


@dataclass
class _Order:
    """What to ask for, until when somebody waits, and what is held; each call has its own."""

    body: RequestBody
    until: float
    held: Held
    headers: Mapping[str, str]
    who: tuple[str, str | None]
    """The model and the key that a refusal is about; None is the endpoint's own key."""
    wished: bool
    """Whether it is sent with what is wished for."""
    turn: float
    """Of those that wait, the lowest goes first."""
    begun: float = 0.0
    """When it began to wait."""


class Upstream:
    """Asks for completions. Use it as `async with Upstream(endpoint) as upstream`.

    One of several replicas (`alone` is False) is not tried again when it cannot be reached or does
    not answer in time; and where many clients share it, what one of them got wrong is no other's
    business.
    """

    def __init__(self, endpoint: Endpoint, *, alone: bool = True, shared: bool = False) -> None:
        self.endpoint = endpoint
        self._alone, self._shared = alone, shared
        self.permits = Permits(endpoint.concurrency or _most_calls())
        """For all calls together; each model and key has its own permits beside them."""
        self.heard, self.usual = 0.0, 0.0
        """When the latest reply began, and the seconds that one takes, on a moving average."""
        self.patience = endpoint.timeout if alone else endpoint.timeout / 2
        """Seconds for one try."""
        self._url = endpoint.url("/chat/completions")
        self.memory = Memory()
        """How it is: whether it takes `n`, which logprobs it gives, its models' contexts, whom it
        refuses or slows."""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Upstream":
        self._session = open_session(self.endpoint)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open connections; only inside `async with`."""
        if self._session is None:
            raise UsageError('an Upstream is used inside "async with"')
        return self._session

    @property
    def waiting(self) -> int:
        """Calls that wait for a permit."""
        return sum(each.waiting for each in [self.permits, *self.memory.all("permits")])

    @property
    def allowed(self) -> int:
        """Calls that may be under way at once, for the model that was refused most."""
        return int(min(each.limit for each in [self.permits, *self.memory.all("permits")]))

    async def probe(self, model: str) -> Json:
        """What the server gives of logprobs, and whether it takes `n`, by replies of few tokens."""
        message = {"role": "user", "content": "Say 1."}
        asked = {"model": model, "messages": [message], "max_tokens": 8, "temperature": 1.0}
        for wishes in (FULL, {"logprobs": True}):
            got = unless_refused(await self.complete(RequestBody(asked, wishes=wishes), 2))
            if isinstance(failed := got[0].source, UpstreamError):
                raise failed
            if gives := max(map(_level_of, got)):
                break
        takes_n = "singly" not in self.memory.all("n")
        return {"takes_n": takes_n, "gives": GIVES[gives]}

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

        A completion that failed for good is a Response with an error. The ledger is told of every
        call. Headers given here win over the endpoint's own: another key is another client.
        """
        asked = body if isinstance(body, RequestBody) else RequestBody(body)
        held = held or Held(Ledger(Budget()), n, Bound(), Counts())
        if held.max_tokens is not None:
            asked = asked.cut(held.max_tokens)
        until = math.inf if deadline is None else deadline
        who = str(asked.get("model")), headers.get("Authorization") if headers else None
        sent = {**JSON, **headers} if headers else JSON
        order = _Order(self._fit(asked), until, held, sent, who, bool(asked.wishes), held.turn)
        return await self._ask(order, start, n)

    def length_of(self, body: Mapping[str, Any], prompt: int | None = None) -> int | None:
        """The most tokens of a response to a request, within its model's context if that is known.

        Where nobody has counted the prompt, a byte is a token, and half of the context is tried.
        """
        length = longest_of(body)
        context: int | None = self.memory.get(("context", str(body.get("model"))))
        if length is None or context is None:
            return length
        room = max(context - measure(body)[0], context // 2) if prompt is None else context - prompt
        return min(length, room)

    def _fit(self, body: RequestBody, prompt: int | None = None) -> RequestBody:
        """The request cut to what its model's context leaves; as it is where that is no help."""
        length, most = longest_of(body), self.length_of(body, prompt)
        if length is None or most is None or not 0 < most < length:
            return body
        model = str(body.get("model"))
        before, _ = self.memory.get(("cut", model), (0, 0))
        self.memory.keep(("cut", model), (max(before, most), self.memory.get(("context", model))))
        return body.cut(most)

    # --- one call for all, or one for each --------------------------------------------------------

    async def _ask(self, order: _Order, start: int, n: int) -> list[Response]:
        """`n` responses, as many to a call as the server takes; what failed for good is in them."""
        body = order.body
        lists = TOP_LOGPROBS in body.wishes and not self.memory.get(_wishes_of(body))
        most = 1 if self.memory.get(_kind_of(body)) == "singly" else LONG_LISTS if lists else n
        if n > most:
            return await self._ask_in_parts(order, start, n, most)
        got = await self._call(order, start, n)
        rest = n - len(got)
        return got + await self._ask(order, start + len(got), rest) if rest else got

    async def _ask_in_parts(self, order: _Order, start: int, n: int, size: int) -> list[Response]:
        """Calls for so many each; the first refusal ends the others."""
        sizes = [min(size, n - at) for at in range(0, n, size)]
        asking = (self._ask(order, start + i * size, k) for i, k in enumerate(sizes))
        tasks, refused = [asyncio.create_task(each) for each in asking], None
        try:
            for done in asyncio.as_completed(tasks):
                if (refused := find_refusal(await done)) is not None:
                    break
        finally:
            await cancel_all(tasks)
        ended = [] if refused is None else failed_responses(refused.after(0), size)
        rows = zip(tasks, sizes, strict=True)
        parts = (ended[:count] if task.cancelled() else task.result() for task, count in rows)
        return [response for part in parts for response in part]

    async def _call(self, order: _Order, start: int, n: int) -> list[Response]:
        """What one call gave, perhaps fewer; after its last retry, as many failures.

        Where the server refuses a field, one is asked for, then all without what is wished for; it
        is remembered what a call went through without.
        """
        order = replace(order, begun=time.monotonic())
        held, kind = order.held, _kind_of(order.body)
        before, count, calls, tried = self.memory.get(kind), n, 0, 0
        while True:
            try:
                got = await self._try(order, start, count)
            except UpstreamError as failed:
                error = failed
            else:
                kept = [replace(got[0], calls=calls + 1), *got[1:count]]
                held.receive(start, kept, usage_of(got))
                held.give_back(count - len(kept))
                if order.body.wishes and not order.wished:
                    self.memory.keep(_wishes_of(order.body), True, LOGPROBS_REMEMBERED)
                if n > 1:
                    habit = "singly" if count < n else _habit(before, len(kept), n)
                    self.memory.keep(kind, habit, N_REMEMBERED)
                return kept
            calls += error.calls
            if error.calls:
                held.give_back(count) if error.unbilled else held.lose(count, str(error))
            if is_field_refusal(error) and (count > 1 or order.wished):
                count, order.wished = (1, order.wished) if count > 1 else (n, False)
                order.turn = -math.inf  # before others find out the same
                continue
            tried += 1
            last, wait = tried == self.endpoint.tries, _pause(tried, error.retry_after)
            if not last and (shorter := self._shorten(order.body, error)) is not order.body:
                order.body = shorter
                continue
            late = wait >= order.until - time.monotonic()
            if last or late or wait > self.endpoint.longest_wait or not error.retryable:
                break
            await asyncio.sleep(wait)
        error = error.after(calls)
        if error.status == 429 and calls > 1:
            took = time.monotonic() - (held.begun or order.begun)
            error.args = (f"{error}, after {calls} tries in {took:.0f} s",)
        return failed_responses(error, n)

    async def _try(self, order: _Order, start: int, n: int) -> list[Response]:
        """One exchange, once there is a permit for it.

        Only the caller's deadline ends the wait for it; the timeout runs from the first call on. An
        error of no calls is one of a call that was never made, and nothing is held for it.
        """
        own, left, limit = self._permits_of(order), order.until - time.monotonic(), 0.0
        try:
            if left <= 0:
                raise TimeoutError
            async with (
                asyncio.timeout(None if left == math.inf else left) as timer,
                own.hold(n, order.turn) as permit,
                self.permits.hold(1, order.turn),
            ):
                when, known = self.memory.get(("refused", order.who), (0.0, None))
                if known is not None and when > order.begun:  # who waited need not ask himself
                    raise known.after(0)
                order.wished &= not self.memory.get(_wishes_of(order.body))
                sent = order.body.wishing() if order.wished else order.body
                content = await sent.make(start, n)
                if not order.held.begin(n):
                    text = "the limit leaves no room for another try"
                    raise UpstreamError(text, code=NO_ROOM, retryable=False, calls=0)
                now = time.monotonic()
                order.until = min(order.until, now + self.endpoint.timeout)
                limit = min(max(0.0, order.until - now), self.patience)
                timer.reschedule(asyncio.get_running_loop().time() + limit)
                try:
                    got = await self._post(sent, content, order.headers, start)
                except UpstreamError as error:
                    if error.status == 429:
                        own.refused(permit)
                    self._spare(error, sent, order.who, bare=n == 1 and not order.wished)
                    raise
                own.served(permit, max(response.tokens for response in got))
                return got
        except TimeoutError:
            text = f"no reply within {limit:.1f} s"
            text = text if limit else "the deadline passed before the call"
            made = int(limit > 0)
            raise UpstreamError(text, retryable=self._alone, detail=text, calls=made) from None

    def _permits_of(self, order: _Order) -> Permits:
        """Those of a model and key: refusals of one do not slow down the others."""
        key, most = ("permits", order.who), self.endpoint.concurrency
        # A stated number is right where many clients come, and may be wrong for a batch.
        careful = not (self._shared and most)
        known: Permits = self.memory.get(key) or Permits(most, careful=careful)
        self.memory.keep(key, known)
        return known

    def _shorten(self, body: RequestBody, error: UpstreamError) -> RequestBody:
        """The request, shorter where it was refused for its length; the context is remembered."""
        told = context_of(error)
        if told is None:
            return body
        context, prompt = told
        self.memory.keep(("context", str(body.get("model"))), context, CONTEXT_REMEMBERED)
        return self._fit(body, prompt)

    def _spare(
        self, error: UpstreamError, sent: RequestBody, who: tuple[str, str | None], *, bare: bool
    ) -> None:
        """Spare others a refusal for good; of a `bare` request there is nothing to leave out."""
        # A setting that was taken once is not the reason, and others may be left out.
        if not (self._shared or self.usual) and is_field_refusal(error):
            settings = {**sent, **dict.fromkeys(("messages", "n", *sent.wishes))}
            error.final = settings.get(error.param or "") is not None
            if bare and not (error.param or isinstance(error.code, str)):
                # What several questions are told alike is about none of them.
                key = "alike", who, error.message
                about = self.memory.get(key, frozenset()) | {str(sent.get("messages"))}
                self.memory.keep(key, about)
                error.final = len(about) >= START
        if error.final and not (self._shared and error.status == 404):
            refused = time.monotonic(), error
            self.memory.keep(("refused", who), refused, REFUSAL_REMEMBERED)

    async def _post(
        self, body: RequestBody, content: bytes, headers: Mapping[str, str], index: int
    ) -> list[Response]:
        """One exchange."""
        begun = time.monotonic()
        try:
            async with await self.send("POST", self._url, content, headers) as reply:
                good = 200 <= reply.status < 300
                most = self.endpoint.largest_reply if good else LARGE
                received = await read_reply(reply, most, cut=not good)
        except (aiohttp.ClientError, OSError) as error:
            raise connection_error(error, retryable=self._alone) from None
        if not good:
            raise refusal(reply.status, received, reply.headers, named=not self._shared)
        took = time.monotonic() - begun
        first = not (self._shared or self.usual)

        def read() -> list[Response]:
            return parse_reply(
                decode(received, reply.headers, first=first),
                seed=body.seed(index),
                latency_ms=1000 * took,
                sent=len(content),
                shows_logprobs=body.shows_logprobs,
                task=body.task,
            )

        # Lists of likely tokens are long, and others wait for the loop.
        long = len(received) > LARGE or TOP_LOGPROBS in body
        got = await asyncio.to_thread(read) if long else read()
        self.usual = 0.9 * self.usual + 0.1 * took if self.usual else took
        return got

    async def send(
        self,
        method: str,
        url: URL,
        content: bytes | None,
        headers: Mapping[str, str],
        **settings: Any,
    ) -> aiohttp.ClientResponse:
        """Make a request; its reply has begun, and nothing of it is read yet."""
        # A large one is a file, which aiohttp sends piece by piece.
        data = content if content is None or len(content) < LARGE else BytesIO(content)
        told: Any = {"data": data, "headers": headers, "allow_redirects": False, **settings}
        try:
            reply = await self.session.request(method, url, **told)
        except TimeoutError:
            text = "the model server did not answer in time"
            raise UpstreamError(text, status=504, retryable=self._alone) from None
        except (aiohttp.ClientError, OSError) as error:
            raise connection_error(error, retryable=self._alone) from None
        except ValueError:
            raise UsageError("a header of the request cannot be passed on as it is") from None
        self.heard = time.monotonic()
        return reply


def _kind_of(body: Mapping[str, Any]) -> tuple[Hashable, ...]:
    """Requests with `n` that a server may treat alike."""
    heat = body.get("temperature")
    greedy = isinstance(heat, int | float) and heat < GREEDY
    tools = bool(body.get("tools") or body.get("functions"))
    return "n", str(body.get("model")), greedy, tools, bool(body.get("response_format"))


def _habit(before: str | None, given: int, n: int) -> str:
    """What is to be thought of a server that gave so many of `n`.

    One that never took it is believed at its first reply of one choice. One that did, or gave some
    of them, must fall short twice in a row: it may be an accident.
    """
    if given == n:
        return "taken"
    return "singly" if before == "short" or (given == 1 and before != "taken") else "short"


def _wishes_of(body: RequestBody) -> tuple[str, ...]:
    """What it is remembered by that a model does not take what is wished for."""
    return "wishes", str(body.get("model")), *body.wishes


def find_refusal(responses: Sequence[Response]) -> UpstreamError | None:
    """What no retry can mend, where nothing else came."""
    if any(response.error is None for response in responses):
        return None
    errors = (each.source for each in responses if isinstance(each.source, UpstreamError))
    return next((e for e in errors if e.status is not None and not e.retryable), None)


def unless_refused(responses: list[Response]) -> list[Response]:
    """The same, where a refusal that no retry can mend (a bad key or request) is not all of it."""
    if (refused := find_refusal(responses)) is not None:
        raise refused
    return responses


def failed_responses(error: UpstreamError, n: int) -> list[Response]:
    """The records of `n` completions that one call was to give; its calls count once."""
    first = Response("", error=str(error), calls=error.calls, source=error)
    return [first, *[replace(first, calls=0)] * (n - 1)]


def _level_of(response: Response) -> int:
    tokens = getattr(response.source, "tokens", None)
    if not isinstance(tokens, ServedTokens):
        return 0
    return 1 if tokens.confidence is None else 2


def _pause(attempt: int, retry_after: float | None) -> float:
    """What the server asked for, else doubling with jitter."""
    if retry_after is not None:
        return retry_after
    return float(min(LONGEST_BACKOFF, 0.25 * 2**attempt) * random.uniform(0.5, 1.0))
