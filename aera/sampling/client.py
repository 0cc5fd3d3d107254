"""Client of one OpenAI-compatible server: retries, limits, its quirks remembered for a while."""

import asyncio
import json
import math
import os
import random
import ssl
import time
from collections import deque
from collections.abc import Collection, Coroutine, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from aera.core import Response
from aera.errors import UpstreamError, UsageError, check_count
from aera.reading.task import Task
from aera.sampling.budget import Bound, Budget, Held, Ledger, no_room
from aera.sampling.replies import BAD_REQUEST, parse_reply, redirect_refusal, refusal, usage_of
from aera.trace import FULL, TOP_LOGPROBS, ServedTokens

CALM = 10.0
"""Seconds without a refusal after which the limit rises fast again."""
MOST_KEPT = 1_024
"""Models whose limits are remembered; names come from clients, who can make up any number."""


class Permits:
    """Multiplicative decrease, additive increase; a cancelled waiter never takes a permit along.

    async with permits:
        ...
    """

    def __init__(self, most: int, *, start: int | None = None) -> None:
        self.most = most
        self.limit = float(min(start or most, most))
        self.active = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._round = 0
        self._refusals = _RefusedRound(self.limit, 0)
        self._refused_at = -CALM

    async def __aenter__(self) -> int:
        """Wait for a permit; returns the round it belongs to, which `halve` asks for."""
        if self.active < int(self.limit) and not self._waiting:
            self.active += 1
            return self._round
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the permit arrived together with the cancellation
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise
        return self._round

    async def __aexit__(self, *error: object) -> None:
        self._release()

    @property
    def waiting(self) -> int:
        """How many wait for a permit."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nobody has a permit or waits for one."""
        return not self.active and not self._waiting

    def widen(self) -> None:
        """A call went through: one more, or one for every full round soon after a refusal."""
        if self.limit >= self.most:
            return
        calm = time.monotonic() - self._refused_at >= CALM
        self.limit = min(float(self.most), self.limit + (1 if calm else 1 / self.limit))
        self._wake()

    def halve(self, begun: int) -> None:
        """The server refused a call: halve, but once for the calls that were under way together.

        Where it took some of them, the limit is what it took, if that is less.
        """
        if begun == self._round:
            self.limit = max(1.0, self.limit / 2)
            self._refusals = _RefusedRound(self.limit, self.active)
            self._round += 1
        elif begun != self._round - 1:
            return
        self._refused_at = time.monotonic()
        self.limit = self._refusals.lower(self.limit)

    def _release(self) -> None:
        self.active -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.active < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self.active += 1
                turn.set_result(None)


class _RefusedRound:
    """Calls that were under way together when the first of them was refused."""

    def __init__(self, half: float, together: int) -> None:
        self._half, self._together, self._refused = half, together, 0

    def lower(self, limit: float) -> float:
        """One more was refused; returns how many are worth trying."""
        self._refused += 1
        taken = self._together - self._refused
        # Where none was taken, that says nothing about how many would be.
        return min(limit, taken) if taken > 0 else max(limit, self._half)


class ModelPermits:
    """Permits of each model and key: refusals of one do not slow down the others."""

    def __init__(self, most: int, *, start: int | None = None) -> None:
        self.most, self.start = most, start
        self._permits: dict[Hashable, Permits] = {}

    def of(self, who: Hashable) -> Permits:
        """The permits of a model and key."""
        known = self._permits.get(who)
        if known is None:
            if len(self._permits) >= MOST_KEPT:
                self._forget()
            known = self._permits[who] = Permits(self.most, start=self.start)
        return known

    @property
    def waiting(self) -> int:
        """How many wait for a permit of any model."""
        return sum(each.waiting for each in self._permits.values())

    @property
    def least(self) -> int:
        """What the model may have under way that was refused most."""
        return int(min((each.limit for each in self._permits.values()), default=self.most))

    def _forget(self) -> None:
        """Make room: those that nobody uses go."""
        self._permits = {who: each for who, each in self._permits.items() if not each.idle}


LARGE = 256 * 1024
"""Bytes beyond which JSON is made and read outside the event loop."""
STRICT = json.JSONEncoder(check_circular=False, allow_nan=False)


class RequestBody(Mapping[str, Any]):
    """The fields of a request and, from the first call on, their JSON; never changed in place.

    `size` is about how long the JSON will be, where somebody knows. `wishes` are fields that it is
    sent with as far as a server takes them (aera.sampling.wishes), and the `task` finds the answer
    whose tokens a trace looks at.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        *,
        size: int | None = None,
        wishes: Mapping[str, Any] = MappingProxyType({}),
        task: Task | None = None,
    ) -> None:
        self._fields, self._size = fields, size
        self.wishes, self.task = wishes, task
        self._extended: dict[str, RequestBody] = {}
        self.shows_logprobs = bool(fields.get("logprobs"))
        """Whether whoever asked wants to see logprobs, beside what is wished for."""
        self._common: bytes | None = None
        """All but the spliced fields, without the closing brace."""
        self._made: asyncio.Future[None] | None = None
        seed = fields.get("seed")
        self.seed: int | None = seed if _is_whole(seed) else None

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def copy(self, fields: Mapping[str, Any]) -> "RequestBody":
        """Other fields with the same wishes."""
        return RequestBody(fields, wishes=self.wishes, task=self.task)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "RequestBody":
        """The fields as a body, unless they are one."""
        return fields if isinstance(fields, RequestBody) else cls(fields)

    def extend(self, more: Mapping[str, Any]) -> "RequestBody":
        """The same with more fields and no wishes; made once, so that it is serialised once."""
        key = ",".join(more)
        if key not in self._extended:
            made = RequestBody({**self._fields, **more}, size=self._size, task=self.task)
            made.shows_logprobs = self.shows_logprobs
            self._extended[key] = made
        return self._extended[key]

    @property
    def size(self) -> int:
        """Bytes of its JSON, once it was made."""
        return len(self._common or b"")

    async def prepare(self) -> None:
        """Make the JSON, once; a large one outside the event loop."""
        if self._common is not None:
            return
        size = self._size if self._size is not None else _measure(dict(self._fields), LARGE)
        if size <= LARGE:
            self._serialise()
            return
        if self._made is None:
            self._made = asyncio.ensure_future(asyncio.to_thread(self._serialise))
        await asyncio.shield(self._made)

    def _serialise(self) -> None:
        common = dict(self._fields)
        common.pop("n", None)
        if self.seed is not None:
            del common["seed"]
        try:
            self._common = STRICT.encode(common)[:-1].encode()
        except (ValueError, RecursionError):
            raise UsageError(
                "the request cannot be sent as JSON: it holds Infinity or NaN, or is nested too "
                "deeply"
            ) from None

    def seed_of(self, index: int) -> int | None:
        """The seed of sample `index`, stepped so that no two samples repeat."""
        return None if self.seed is None else self.seed + index

    def content(self, index: int, n: int) -> bytes | BytesIO:
        """What is sent for sample `index`, or for `n` from there on; `prepare` comes first.

        A large one is a file, which aiohttp sends piece by piece.
        """
        assert self._common is not None
        common, end = self._common, ""
        if self.seed is not None:
            end = f', "seed": {self.seed + index}'
        if n > 1:
            end += f', "n": {n}'
        made = common + (end if len(common) > 1 else end[2:]).encode() + b"}"
        return made if len(made) < LARGE else BytesIO(made)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _measure(value: Any, most: int) -> int:
    """About how long the JSON of a value is; counting ends once it is more than `most`."""
    left, size = [value], 0
    while left and size <= most:
        each = left.pop()
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            left.extend(each)
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
        size += 2
    return size


def open_session(
    base_url: str, *, key: str, headers: Mapping[str, str], ca_file: str | None
) -> aiohttp.ClientSession:
    """Connections to one server with its own key and headers; what it stores is not sent back."""
    own = CIMultiDict({"Authorization": f"Bearer {key}"} if key else {})
    for name, value in headers.items():
        own[name] = value
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=tls_context(ca_file)),
        headers=own,
        # A cookie would be one client's, sent along with the requests of all others.
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        proxy=_proxy(base_url),
    )


def _proxy(base_url: str) -> str | None:
    """The environment's proxy; aiohttp's trust_env would let ~/.netrc overrule the key."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    own = host in ("localhost", "::1") or host.startswith("127.")
    return None if own or proxy_bypass(host) else getproxies().get(parts.scheme)


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
    content = await reply.content.readany()
    parts, size = [content], len(content)
    while size <= most and content and not reply.content.at_eof():
        content = await reply.content.readany()
        parts.append(content)
        size += len(content)
    whole = b"".join(parts) if len(parts) > 1 else content
    if size <= most:
        return whole
    reply.close()
    if cut:
        return whole[:most]
    raise UpstreamError(f"the reply is larger than {most} bytes", status=502, retryable=False)


async def decode_reply(reply: aiohttp.ClientResponse, most: int, *, named: bool = True) -> Any:
    """The JSON of a reply; a refusal or a redirect is raised, which names where to if `named`."""
    status = reply.status
    if 300 <= status < 400:
        reply.close()
        raise redirect_refusal(status, reply.headers.get("Location"), named=named)
    if not 200 <= status < 300:
        raise refusal(status, await read_reply(reply, LARGE, cut=True), reply.headers)
    content = await read_reply(reply, most)
    try:
        if len(content) > LARGE:
            return await asyncio.to_thread(json.loads, content)
        return json.loads(content)
    except (ValueError, RecursionError):
        shown = content[:80].decode("utf-8", "replace")
        raise UpstreamError(f"the reply is not JSON but {shown!r}", retryable=True) from None


def connection_error(error: Exception, *, retryable: bool = True) -> UpstreamError:
    """Why there was no reply, in words that name neither host nor port; those are in the detail.

    Where no connection came about, nothing was generated, and it need not be `retryable`.
    """
    unreached = isinstance(error, aiohttp.ClientConnectorError)
    text = f"the connection failed: {_cause(error)}"
    made = UpstreamError(text, retryable=retryable or not unreached, unbilled=unreached)
    made.detail = str(error) or type(error).__name__
    return made


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
FIRST = 16
"""Calls of a batch under way before any has succeeded, as all may be refused; then it doubles."""
JSON = {"Content-Type": "application/json"}
N_REMEMBERED, LOGPROBS_REMEMBERED, REFUSAL_REMEMBERED = 300.0, 3_600.0, 10.0
"""Seconds for which a server that did not take `n` or logprobs is not asked for them again, and
those who waited during a refusal are refused alike."""
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


class Memory:
    """What was seen of a server, each thing under its key and for a while only."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[float, Any]] = {}

    def get(self, key: Hashable, default: Any = None) -> Any:
        """What is known, unless it is too old."""
        until, value = self._kept.get(key, (0.0, default))
        return value if time.monotonic() < until else default

    def keep(self, key: Hashable, value: Any, seconds: float = math.inf) -> None:
        """Remember it for so long; what was kept longest makes room."""
        self._kept.pop(key, None)
        self._kept[key] = (time.monotonic() + seconds, value)
        if len(self._kept) > MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))

    def find(self, name: str, value: Any) -> bool:
        """Whether anything of that name has this value at present."""
        now = time.monotonic()
        kept = self._kept.items()
        return any(key[0] == name and now < until and each == value for key, (until, each) in kept)  # type: ignore[index]


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
        self.calls = 0
        self.heard, self.usual = 0.0, 0.0
        """When the latest reply came, and the seconds that one takes, on a moving average."""
        own, total = endpoint.attempt_timeout, endpoint.timeout
        self.attempt_timeout = (total if alone else total / 2) if own is None else own
        """Seconds for one try."""
        self._url = endpoint.url("/chat/completions")
        self._models = ModelPermits(endpoint.concurrency, start=None if shared else FIRST)
        self.memory = Memory()
        """Its quirks: whether it takes `n`, which logprobs it gives, whom it refuses."""
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
    def session(self) -> aiohttp.ClientSession:
        """The open connections; only inside `async with`."""
        if self._session is None:
            raise UsageError('an Upstream is used inside "async with"')
        return self._session

    @property
    def ignores_n(self) -> bool:
        """Whether requests of some kind are at present made without `n`, as it was not taken."""
        return self.memory.find("n", "singly")

    @property
    def waiting(self) -> int:
        """Calls that wait for a permit."""
        return self.permits.waiting + self._models.waiting

    @property
    def allowed(self) -> int:
        """Calls that may be under way at once, for the model that was refused most."""
        return min(int(self.permits.limit), self._models.least)

    async def probe(self, model: str) -> dict[str, Any]:
        """What the server gives of logprobs, and whether it takes `n`, by replies of few tokens."""
        message = {"role": "user", "content": "Say 1."}
        asked = {"model": model, "messages": [message], "max_tokens": 8, "temperature": 1.0}
        got = await self.complete(RequestBody(asked, wishes=FULL), 2)
        failed = [response for response in got if response.error is not None]
        if failed:
            raise UpstreamError(f"the model server gave nothing: {failed[0].error}")
        return {"takes_n": not self.ignores_n, "gives": self.memory.get(("gives", model))}

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
        order = _Order(asked, until, held, sent, (str(asked.get("model")), own))
        if not asked.wishes:
            return await self._complete(order, n, start)
        return await self._complete_with_logprobs(order, n, start)

    # --- logprobs, as far as the server gives them ------------------------------------------------

    async def _complete_with_logprobs(self, order: "_Order", n: int, start: int) -> list[Response]:
        """Full lists are asked for first, then the tokens' own logprobs, then nothing.

        A level that was refused while a lower one was taken is remembered for its model.
        """
        body, model = order.body, order.who[0]
        wanted = 1 + (TOP_LOGPROBS in body.wishes)
        level = min(wanted, self.memory.get(("logprobs", model), wanted))
        while True:
            asked = order._replace(body=_with_logprobs(body, level, wanted))
            try:
                got = await self._complete_in_parts(asked, n, start)
            except UpstreamError as error:
                if not level or error.status not in BAD_REQUEST:
                    raise
                level -= 1  # where they were the reason, less is taken; else the same comes again
                continue
            if level < wanted:
                self.memory.keep(("logprobs", model), level, LOGPROBS_REMEMBERED)
            if any(response.error is None for response in got):
                self.memory.keep(("gives", model), GIVES[max(map(_level_of, got))])
            return got

    async def _complete_in_parts(self, order: "_Order", n: int, start: int) -> list[Response]:
        """All at once, or in parts where replies are long; one that fails takes no other along."""
        if n <= LONG_LISTS or not order.body.get(TOP_LOGPROBS):
            return await self._complete(order, n, start)
        firsts = range(0, n, LONG_LISTS)
        sizes = [min(LONG_LISTS, n - first) for first in firsts]
        parts = (
            self._complete(order, size, start + first)
            for first, size in zip(firsts, sizes, strict=True)
        )
        done = await asyncio.gather(*parts, return_exceptions=True)
        errors = [each for each in done if isinstance(each, BaseException)]
        lost = [each for each in errors if not isinstance(each, UpstreamError)]
        if lost or len(errors) == len(done):
            raise (lost or errors)[0]
        return [
            response
            for size, each in zip(sizes, done, strict=True)
            for response in (_failed(each, size) if isinstance(each, UpstreamError) else each)  # type: ignore[union-attr]
        ]

    # --- one call for all, or one for each --------------------------------------------------------

    async def _complete(self, order: "_Order", n: int, start: int) -> list[Response]:
        """The completions of a request as it stands."""
        await order.body.prepare()
        got = await self._ask_with_n(order, n, start) if n > 1 else []
        if len(got) < n:
            some = any(response.error is None for response in got)
            rest = await self._ask_singly(order, n - len(got), start + len(got), some=some)
            got = [*got, *rest]
        return got

    async def _ask_with_n(self, order: "_Order", n: int, start: int) -> list[Response]:
        """What the server gives of `n`, as long as it takes such a request."""
        kind, got = ("n", *_kind_of(order.body)), list[Response]()
        for _ in range(2):  # a reply that fell short may be an accident: `n` is tried once more
            rest = n - len(got)
            if rest < 2 or self.memory.get(kind) == "singly":
                break
            try:
                got += await self._ask_at_once(order, rest, start + len(got), kind)
            except UpstreamError as refused:
                if all(response.error for response in got):
                    raise
                got += _failed(refused, rest)
        return got

    async def _ask_at_once(
        self, order: "_Order", n: int, start: int, kind: Hashable
    ) -> list[Response]:
        """One call for all; fewer than `n` when the server does not take `n`."""
        try:
            got = await self._call(order, start, n)
        except UpstreamError as error:
            if error.status not in BAD_REQUEST:
                return _failed(error.unless_refused(), n)
            # If `n` was not the reason, this raises, and nothing is held against the server.
            [single] = await self._ask_singly(order, 1, start)
            if single.error is None:
                self.memory.keep(kind, "singly", N_REMEMBERED)
            return [replace(single, calls=single.calls + error.calls)]
        before = self.memory.get(kind)
        # One that never took it is believed at its first reply of one choice. One that did, or gave
        # some of them, must fall short twice in a row.
        if len(got) >= n:
            self.memory.keep(kind, "taken")
        elif before == "short" or (len(got) == 1 and before != "taken"):
            self.memory.keep(kind, "singly", N_REMEMBERED)
        else:
            self.memory.keep(kind, "short")
        return got

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
        return [_result(task, refused) for task in tasks]

    async def _ask_one(self, order: "_Order", index: int) -> Response:
        try:
            return (await self._call(order, index, 1))[0]
        except UpstreamError as error:
            return _failed(error.unless_refused(), 1)[0]

    async def _call(self, order: "_Order", start: int, n: int) -> list[Response]:
        """One call with its retries; the error of the last is raised."""
        begun, patience = time.monotonic(), _Patience(self.endpoint.timeout, order.until)
        calls, held = 0, order.held
        for attempt in range(1, self.endpoint.tries + 1):
            try:
                all_of_it = await self._attempt(order, start, n, begun=begun, patience=patience)
            except UpstreamError as error:
                calls += error.calls
                if error.calls:
                    (held.give_back if error.unbilled else held.lose)(n)
                wait = _pause(attempt, error.retry_after)
                last = attempt == self.endpoint.tries or wait > self.endpoint.longest_wait
                if last or not error.retryable or wait >= patience.begin():
                    raise error.after(calls) from None
                await asyncio.sleep(wait)
                continue
            got = all_of_it[:n]
            if calls:
                got = [replace(got[0], calls=calls + 1), *got[1:]]
            held.receive(start, got, usage_of(all_of_it))
            if len(got) < n:
                held.give_back(n - len(got))
            return got
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _attempt(
        self, order: "_Order", index: int, n: int, *, begun: float, patience: "_Patience"
    ) -> list[Response]:
        """One call, once there is a permit for it; only the caller's deadline ends that wait.

        An error of no calls is one of a call that was never made, and nothing is held for it.
        """
        limit, own = 0.0, self._models.of(order.who)
        try:
            if patience.left == 0:
                raise TimeoutError
            async with asyncio.timeout(patience.left) as timer, own as turn, self.permits:
                when, known = self.memory.get(("refused", order.who), (0.0, None))
                if known is not None and when > begun:  # those who waited need not ask themselves
                    raise known.after(0)
                if not order.held.begin(n):
                    raise no_room().after(0)
                limit = min(patience.begin(), self.attempt_timeout)
                timer.reschedule(asyncio.get_running_loop().time() + limit)
                try:
                    got = await self._post(order, index, n)
                except UpstreamError as error:
                    if error.status == 429:
                        own.halve(turn)
                    if error.final and not (self._shared and error.status == 404):
                        refused = time.monotonic(), error
                        self.memory.keep(("refused", order.who), refused, REFUSAL_REMEMBERED)
                    raise error.after(1) from None
                own.widen()
                return got
        except TimeoutError:
            text = (
                f"no reply within {limit:.1f} s" if limit else "the deadline passed before the call"
            )
            late = UpstreamError(text, retryable=self._alone).after(1 if limit else 0)
            late.detail = text
            raise late from None

    async def _post(self, order: "_Order", index: int, n: int) -> list[Response]:
        """One exchange."""
        self.calls += 1
        begun = time.monotonic()
        try:
            async with self.session.post(
                self._url,
                data=order.body.content(index, n),
                headers=order.headers,
                allow_redirects=False,
            ) as reply:
                self.hear()
                most = self.endpoint.largest_reply
                said = await decode_reply(reply, most, named=not self._shared)
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise connection_error(error, retryable=self._alone) from None
        except ValueError:
            raise UsageError("a header of the request cannot be passed on as it is") from None
        took = time.monotonic() - begun
        self.usual = 0.9 * self.usual + 0.1 * took if self.usual else took
        read = partial(
            parse_reply,
            said,
            seed=order.body.seed_of(index),
            latency_ms=1000 * took,
            sent=order.body.size,
            shows_logprobs=order.body.shows_logprobs,
            task=order.body.task,
        )
        # Lists of likely tokens are long, and others wait for the loop.
        return await asyncio.to_thread(read) if TOP_LOGPROBS in order.body else read()

    def hear(self) -> None:
        """A reply has begun to come, of whatever status."""
        self.heard = time.monotonic()


class _Order(NamedTuple):
    """What to ask for, until when somebody waits, and what is held for it."""

    body: RequestBody
    until: float
    held: Held
    headers: Mapping[str, str]
    who: tuple[str, str | None]
    """The model and the key that a refusal is about; None is the endpoint's own key."""


def _kind_of(body: Mapping[str, Any]) -> tuple[str, bool, bool, bool]:
    """Requests that a server may treat alike."""
    heat = body.get("temperature")
    greedy = isinstance(heat, int | float) and heat < GREEDY
    tools = bool(body.get("tools") or body.get("functions"))
    return str(body.get("model")), greedy, tools, bool(body.get("response_format"))


def _failed(error: UpstreamError, n: int) -> list[Response]:
    """The records of `n` completions that one call was to give; its calls count once."""
    first = Response("", error=str(error), calls=error.calls, source=error)
    return [first, *[replace(first, calls=0)] * (n - 1)]


def _result(task: "asyncio.Task[Response]", refused: UpstreamError) -> Response:
    """What came of a call; of one that was refused or broken off, the record of that."""
    if task.cancelled():
        return _failed(refused.after(0), 1)[0]
    error = task.exception()
    if error is None:
        return task.result()
    return _failed(error if isinstance(error, UpstreamError) else refused, 1)[0]


def _with_logprobs(body: RequestBody, level: int, wanted: int) -> RequestBody:
    """The request with the optional logprobs up to a level; what it says itself stays."""
    wishes = {
        name: value
        for name, value in body.wishes.items()
        if level and (level == wanted or name != TOP_LOGPROBS)
    }
    said = {name: body[name] for name in wishes if body.get(name)}
    top = max(_whole(wishes.get(TOP_LOGPROBS)), _whole(said.get(TOP_LOGPROBS)))
    return body.extend({**wishes, **said, **({TOP_LOGPROBS: top} if top else {})})


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _level_of(response: Response) -> int:
    tokens = getattr(response.source, "tokens", None)
    if not isinstance(tokens, ServedTokens):
        return 0
    return 1 if tokens.confidence is None else 2


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
