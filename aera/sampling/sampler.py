"""Samplers: where responses come from. Anything with `sample` will do."""

import asyncio
import json
import time
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeGuard

from aera.errors import PoolError, UpstreamError, UsageError
from aera.pools.pool import Pool
from aera.reading.task import Task
from aera.response import Question, Response
from aera.sampling.body import RequestBody
from aera.sampling.budget import UNKNOWN, Bound, Budget
from aera.sampling.replicas import Replicas
from aera.sampling.reservation import UNRESERVED, Reservation, Unreserved
from aera.sampling.upstream import Endpoint, Upstream

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"temperature": 0.6, "top_p": 0.95, "max_tokens": 16_384}
)
"""The paper's sampling settings."""


class Sampler(Protocol):
    """An asynchronous source of responses."""

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        """Responses `start` to `start + n` of a question; it may return fewer.

        `deadline` is a reading of time.monotonic() after which nobody waits any more.
        """
        ...


class MeteredSampler(Sampler, Protocol):
    """A sampler that says what it can cost and keeps to what was reserved, call by call.

    Of any other, limits know what came back, and judge the next block by it.
    """

    def bound(self, question: Question, *, prompts: bool = True) -> Bound:
        """What one response to the question can take at most; `prompts` where those cost too."""
        ...

    def within(self, reservation: Reservation) -> Self:
        """The same sampler on a reservation."""
        ...


GRACE = 0.05
"""Seconds beyond a deadline in which a sampler may return what it has."""


def _is_metered(sampler: Sampler) -> TypeGuard[MeteredSampler]:
    return _has_meter(type(sampler))


@cache
def _has_meter(kind: type) -> bool:
    """Asked once for each class: checking a protocol anew for each block is a cost of its own."""
    return all(hasattr(kind, name) for name in ("bound", "within"))


def bound_of(sampler: Sampler, question: Question, budget: Budget) -> Bound:
    """What a response can cost, where that matters and the sampler can say."""
    if budget.limited and _is_metered(sampler):
        return sampler.bound(question, prompts=bool(budget.prompt_price))
    return UNKNOWN


async def sample_reserved(
    sampler: Sampler, question: Question, reservation: Reservation, *, start: int
) -> list[Response]:
    """The responses that were reserved, as far as they come before the deadline."""
    n, deadline = reservation.responses, reservation.deadline
    if _is_metered(sampler):
        return await sampler.within(reservation).sample(question, n, start=start, deadline=deadline)
    reservation.begin(n)
    left = None if deadline is None else deadline - time.monotonic() + GRACE
    try:
        async with asyncio.timeout(left):
            got = await sampler.sample(question, n, start=start, deadline=deadline)
    except TimeoutError:
        return []
    except UpstreamError as error:
        if error.unbilled:
            reservation.give_back(n)
        raise
    for place, response in enumerate(got):
        if response.error is None:
            reservation.receive(start + place, [response])
    reservation.give_back(n - len(got))
    return got


def request_bound(body: Mapping[str, Any], *, prompts: bool = True) -> Bound:
    """What one response to a request can take at most, by what the request itself says."""
    said = (body.get(name) for name in ("max_completion_tokens", "max_tokens"))
    lengths = [each for each in said if isinstance(each, int) and each > 0]
    told = {name: body[name] for name in ("messages", "tools") if name in body}
    size = len(json.dumps(told, default=str)) if prompts else None
    return Bound(min(lengths, default=None), size)


def cut_request(
    body: Mapping[str, Any], reservation: Reservation | Unreserved
) -> Mapping[str, Any]:
    """The request with its responses no longer than what is reserved for them."""
    most = reservation.max_tokens if isinstance(reservation, Reservation) else None
    if most is None:
        return body
    named = [name for name in ("max_completion_tokens", "max_tokens") if name in body]
    return RequestBody.of(body).copy({**body, **dict.fromkeys(named, most)})


@dataclass(frozen=True)
class Chat:
    """How a question becomes a request: model, task, settings, and perhaps a system message."""

    model: str
    task: Task
    settings: Mapping[str, Any] = field(default_factory=lambda: DEFAULTS)
    """Every field of the request but model and messages; unknown ones are passed through.

    The content of "extra_body", a habit of the OpenAI client, goes beside the others.
    """
    system: str | None = None
    wishes: Mapping[str, Any] = field(default_factory=dict)
    """Fields beside those, as far as the server takes them: a controller's `asks`."""

    def __post_init__(self) -> None:
        seed = self.settings.get("seed")
        if seed is not None and not isinstance(seed, int):
            raise UsageError(f'a seed is a whole number, but got "{seed}"')

    def body(self, question: Question) -> dict[str, Any]:
        """The request for one question."""
        said = question.system or self.system or self.task.system
        system = [{"role": "system", "content": said}] if said else []
        user = {"role": "user", "content": self.task.prompt(question)}
        fields = {name: value for name, value in self.settings.items() if name != "extra_body"}
        extra = self.settings.get("extra_body") or {}
        return {**fields, **extra, "model": self.model, "messages": [*system, user]}


class OpenAISampler:
    """Samples from vLLM, SGLang, llama.cpp, Ollama or any other OpenAI-compatible server.

    async with OpenAISampler(Endpoint("http://localhost:8000/v1"), chat) as sampler:
        responses = await sampler.sample(question, 4)
    """

    def __init__(self, endpoint: Endpoint, chat: Chat) -> None:
        self.chat = chat
        self.upstream = Upstream(endpoint)
        self._reservation: Reservation | Unreserved = UNRESERVED

    async def __aenter__(self) -> "OpenAISampler":
        await self.upstream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.upstream.__aexit__(*error)

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        """Ask the server for `n` more responses."""
        chat, reservation = self.chat, self._reservation
        whole = RequestBody(chat.body(question), wishes=chat.wishes, task=chat.task)
        body = cut_request(whole, reservation)
        return await self.upstream.complete(
            body, n, start=start, deadline=deadline, reservation=reservation
        )

    def bound(self, question: Question, *, prompts: bool = True) -> Bound:
        """What one response to the question can take at most."""
        return request_bound(self.chat.body(question), prompts=prompts)

    def within(self, reservation: Reservation) -> "OpenAISampler":
        """The same connections on a reservation."""
        same = copy(self)
        same._reservation = reservation
        return same


@dataclass
class Waiting:
    """How long somebody waited for model servers, calls at the same time counted once."""

    seconds: float = 0.0
    calls: int = 0
    _since: float = 0.0

    def __enter__(self) -> None:
        if not self.calls:
            self._since = time.monotonic()
        self.calls += 1

    def __exit__(self, *error: object) -> None:
        self.calls -= 1
        if not self.calls:
            self.seconds += time.monotonic() - self._since


@dataclass(frozen=True, eq=False)
class RequestSampler:
    """Samples one fixed request; remembers how long it waited."""

    upstream: Replicas
    body: Mapping[str, Any]
    offset: int = 0
    """Where its samples begin, so that those of another with the same seed are others."""
    waiting: Waiting = field(default_factory=Waiting)
    reservation: Reservation | Unreserved = UNRESERVED

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        """Ask a replica for `n` more responses to the request, whatever the question."""
        index, reservation = self.offset + start, self.reservation
        body = cut_request(self.body, reservation)
        with self.waiting:
            return await self.upstream.complete(
                body, n, start=index, deadline=deadline, reservation=reservation
            )

    def bound(self, question: Question, *, prompts: bool = True) -> Bound:
        """What one response can take at most, by the request."""
        return request_bound(self.body, prompts=prompts)

    def within(self, reservation: Reservation) -> Self:
        """The same on a reservation; what it remembers is shared."""
        return replace(self, reservation=reservation)


class RecordedSampler:
    """Answers from a pool, in recorded order: live code on recorded responses."""

    def __init__(self, pool: Pool) -> None:
        self._records = {record.question.id: record.responses for record in pool}

    async def __aenter__(self) -> "RecordedSampler":
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing to close."""

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        """The recorded responses `start` to `start + n`."""
        if question.id not in self._records:
            raise PoolError(f"question {question.id} is not in the recorded pool")
        return list(self._records[question.id][start : start + n])
