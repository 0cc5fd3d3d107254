"""Samplers: where responses come from. Anything with `sample` will do."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from aera.core import Question, Response
from aera.errors import UpstreamError, UsageError
from aera.files import Json, to_line
from aera.pools.log import Log
from aera.pools.pool import Pool
from aera.reading.task import Task
from aera.sampling.budget import Bound, Budget, Held, Ledger
from aera.sampling.client import (
    LENGTHS,
    Endpoint,
    RequestBody,
    Upstream,
    longest_of,
    measure,
    run_together,
    unless_refused,
)
from aera.sampling.replies import is_whole
from aera.trace import ServedTokens

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


GRACE = 0.05
"""Seconds beyond a deadline in which a sampler may return what it has."""
PER_CALL, PER_IMAGE = 256, 4_096
"""Tokens that a chat template may add to a prompt, and those of an image in it."""


def bound_of(sampler: Sampler, question: Question, ledger: Ledger) -> Bound:
    """What a response can cost, where that matters and the sampler can say (`bound`)."""
    bound: Callable[[Question], Bound] | None = getattr(sampler, "bound", None)
    return bound(question) if ledger.limited and bound is not None else Bound()


async def sample_held(
    sampler: Sampler, question: Question, held: Held, *, start: int
) -> list[Response]:
    """The responses that are held room for, as far as they come before the deadline.

    A sampler with a `bound` keeps to what is held call by call. Of any other, the ledger knows what
    came back, and judges the next block by it.
    """
    n, deadline = held.responses, held.ledger.deadline
    ask = partial(sampler.sample, question, n, start=start, deadline=deadline)
    if hasattr(sampler, "bound"):
        return await ask(held=held)  # type: ignore[call-arg]
    held.begin(n)
    left = None if deadline is None else deadline - time.monotonic() + GRACE
    try:
        async with asyncio.timeout(left):
            got = await ask()
    except TimeoutError:
        return []
    except UpstreamError as error:
        if error.unbilled:
            held.give_back(n)
        raise
    for place, response in enumerate(got):
        if response.error is None:
            held.receive(start + place, [response])
    held.give_back(n - len(got))
    return got


def request_bound(body: Mapping[str, Any]) -> Bound:
    """What one response to a request can take at most: no tokenizer makes two tokens of a byte."""
    for name in LENGTHS:
        check_whole(body, name)
    size, media = measure(body)  # any field may become a part of the prompt
    return Bound(longest_of(body), size + PER_CALL + media * PER_IMAGE)


def check_whole(body: Mapping[str, Any], name: str) -> None:
    """Refuse what a limit cannot reckon with: some servers take "500" for a number."""
    if (given := body.get(name)) is not None and not is_whole(given):
        raise UsageError(f'"{name}" must be a whole number, but got {given!r:.40}')


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

    def body(self, question: Question) -> Json:
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

    async def __aenter__(self) -> "OpenAISampler":
        await self.upstream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.upstream.__aexit__(*error)

    async def sample(
        self,
        question: Question,
        n: int,
        *,
        start: int = 0,
        deadline: float | None = None,
        held: Held | None = None,
    ) -> list[Response]:
        """Ask the server for `n` more responses; the ledger is told of every call.

        A refusal that no retry can mend, as of a bad key, is raised.
        """
        chat = self.chat
        body = RequestBody(chat.body(question), wishes=chat.wishes, task=chat.task)
        ask = self.upstream.complete
        return unless_refused(await ask(body, n, start=start, deadline=deadline, held=held))

    def bound(self, question: Question) -> Bound:
        """What one response to the question can take at most."""
        body = self.chat.body(question)
        return replace(request_bound(body), max_tokens=self.upstream.length_of(body))


HOPELESS = 64
"""Failures without a single response after which a server is taken for dead."""


async def record(
    log: Log,
    sampler: Sampler,
    *,
    concurrency: int = 64,
    block: int = 16,
    ledger: Ledger | None = None,
    watch: Callable[[Log], None] = lambda log: None,
    heard: Callable[[Question, int, Sequence[Response]], None] = lambda *came: None,
) -> Pool | None:
    """Sample everything that is missing; returns the pool, or None where some is missing.

    Nothing is asked for beyond a limit; what was recorded before counts against it. A question the
    server refuses for good does not stop the others. Every call is kept as it comes back, so that a
    kill loses only those under way; then `heard` is told of it, and of the place of its first.
    """
    ledger = ledger or Ledger(Budget())
    ledger.book(log.paid)
    work = iter([(each, part) for each in log.questions for part in log.missing(each, block=block)])

    async def ask(question: Question, stretch: range) -> int:
        """Ask for what a limit allows of a stretch; returns how many that were, 0 at the limit."""
        held = await ledger.reserve(len(stretch), bound_of(sampler, question, ledger))
        if held is None:
            return 0

        def keep(start: int, came: Sequence[Response]) -> None:
            log.add(question, start, came)
            heard(question, start, came)

        held.heard = keep
        try:
            got = await sample_held(sampler, question, held, start=stretch.start)
        except UpstreamError as error:
            if error.final:
                raise  # a wrong key, model or address is wrong for every question
            got = [Response("", error=str(error)) for _ in range(held.responses)]
        finally:
            held.close()
        for index, response in enumerate(got, start=stretch.start):
            if response.error is not None and not ledger.late:
                log.add(question, index, [response])
        return held.responses

    async def worker() -> None:
        for question, stretch in work:
            rest = stretch
            while rest and not log.drops(question):
                asked = await ask(question, rest)
                if not asked:
                    return
                watch(log)
                if log.done == log.resumed and log.failures >= HOPELESS:
                    raise UpstreamError(f"{log.failures} failures and no response: {log.trouble}")
                rest = rest[asked:]

    await run_together(worker() for _ in range(concurrency))
    return log.seal()


def raw_lines(question: Question, start: int, responses: Sequence[Response]) -> Iterator[str]:
    """The logprobs of the tokens as they came; a response that was asked for again comes again."""
    for index, response in enumerate(responses, start=start):
        tokens = getattr(response.source, "tokens", None)
        if isinstance(tokens, ServedTokens):
            sure = tokens.confidence
            yield to_line(
                {
                    "question_id": question.id,
                    "index": index,
                    "logprob": tokens.logprobs.round(4).tolist(),
                    "confidence": None if sure is None else sure.round(3).tolist(),
                }
            )
