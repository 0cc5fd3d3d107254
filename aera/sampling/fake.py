"""Servers for tests and demos: recorded responses behind a real HTTP port, and faults on demand.

async with RecordedUpstream(pool) as upstream:          # serves the pool's own responses
    endpoint = Endpoint(upstream.base_url)

faults = [Fault.status(500), None]                      # the first call fails, the second works
async with FakeUpstream(lambda call, place: "\\boxed{7}", faults=faults) as upstream:
    ...
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from aiohttp import web

from aera.pools.pool import Pool
from aera.response import Response


@dataclass(frozen=True)
class Call:
    """One request as the server saw it."""

    number: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]

    @property
    def prompt(self) -> str:
        """The last message's text."""
        return str(self.body["messages"][-1]["content"])

    @property
    def n(self) -> int:
        """How many choices were asked for."""
        return int(self.body.get("n") or 1)


@dataclass(frozen=True)
class Fault:
    """Something to go wrong with one call."""

    kind: str
    code: int = 500
    seconds: float = 0.0
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    body: Any = None
    choices: int | None = None

    @classmethod
    def status(
        cls, code: int, message: str = "planned", *, retry_after: str | None = None
    ) -> "Fault":
        """An HTTP error with an OpenAI error object."""
        error = {"message": message, "type": f"planned_{code}", "param": None, "code": code}
        headers = {"Retry-After": retry_after} if retry_after is not None else {}
        return cls("status", code=code, headers=headers, body={"error": error})

    @classmethod
    def html(cls) -> "Fault":
        """A page instead of JSON."""
        return cls("html")

    @classmethod
    def null(cls) -> "Fault":
        """A choice whose content is null."""
        return cls("null")

    @classmethod
    def truncated(cls) -> "Fault":
        """Choices cut off by the token limit."""
        return cls("truncated")

    @classmethod
    def short(cls, choices: int) -> "Fault":
        """No more than so many choices, however many were asked for."""
        return cls("short", choices=choices)

    @classmethod
    def hang(cls, seconds: float) -> "Fault":
        """Silence before the reply."""
        return cls("hang", seconds=seconds)

    @classmethod
    def drip(cls, seconds: float) -> "Fault":
        """A body that arrives slowly."""
        return cls("drip", seconds=seconds)

    @classmethod
    def reset(cls) -> "Fault":
        """A connection that breaks."""
        return cls("reset")


Answer = Callable[[Call, int], Response | str]
"""What choice number so-and-so of a call says."""


class FakeUpstream:
    """A real server on a loopback port that answers as told, and remembers every call."""

    def __init__(
        self,
        answer: Answer,
        *,
        faults: Iterable[Fault | None] = (),
        honours_n: bool = True,
        usage: bool = True,
        delay: Callable[[Call], float] = lambda call: 0.0,
        port: int = 0,
    ) -> None:
        self.calls: list[Call] = []
        self.active = self.most_active = self.aborted = 0
        self.mute = False
        """As long as it is set, connections are taken and nothing is answered."""
        self._answer = answer
        self._faults: Iterator[Fault | None] = iter(faults)
        self._honours_n, self._usage, self._delay = honours_n, usage, delay
        self._port = port
        self._numbers = itertools.count()
        self._runner: web.AppRunner | None = None
        self.base_url = ""

    async def __aenter__(self) -> "FakeUpstream":
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._handle)
        app.router.add_get("/v1/models", self._list)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=1_024)
        await site.start()
        port = self._runner.addresses[0][1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        call = Call(next(self._numbers), await request.json(), dict(request.headers))
        self.calls.append(call)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            return await self._reply(request, call, next(self._faults, None))
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            self.active -= 1

    async def _reply(
        self, request: web.Request, call: Call, fault: Fault | None
    ) -> web.StreamResponse:
        await self._take_time(call)
        while self.mute:
            await asyncio.sleep(0.01)
        kind = fault.kind if fault else ""
        if fault and kind == "status":
            return web.json_response(fault.body, status=fault.code, headers=dict(fault.headers))
        if kind == "html":
            return web.Response(text="<html>502 Bad Gateway</html>", content_type="text/html")
        if kind == "reset":
            assert request.transport is not None
            request.transport.abort()
        if fault and kind == "hang":
            await asyncio.sleep(fault.seconds)
        body = self._completion(call, kind, fault.choices if fault else None)
        if fault and kind == "drip":
            return await _drip(request, body, fault.seconds)
        return web.json_response(body)

    async def _take_time(self, call: Call) -> None:
        """What generating takes."""
        await asyncio.sleep(self._delay(call))

    async def _list(self, request: web.Request) -> web.Response:
        while self.mute:
            await asyncio.sleep(0.01)
        models = [{"id": "recorded", "object": "model"}]
        return web.json_response({"object": "list", "data": models})

    def _completion(self, call: Call, kind: str, choices_at_most: int | None) -> dict[str, Any]:
        n = min(call.n if self._honours_n else 1, choices_at_most or call.n)
        most = call.body.get("max_completion_tokens") or call.body.get("max_tokens")
        said = [_cut(_as_response(self._answer(call, place)), most) for place in range(n)]
        choices = [
            _choice(place, response, kind, logprobs=bool(call.body.get("logprobs")))
            for place, response in enumerate(said)
        ]
        if not self._usage:
            choices = [{k: v for k, v in choice.items() if k != "usage"} for choice in choices]
        body = {
            "id": f"chatcmpl-{call.number}",
            "object": "chat.completion",
            "created": 0,
            "model": call.body.get("model"),
            "choices": choices,
        }
        prompt = prompt_tokens(call.prompt)
        completion = sum(response.tokens for response in said)
        counted = {"prompt_tokens": prompt, "completion_tokens": completion}
        usage = {**counted, "total_tokens": prompt + completion}
        return {**body, "usage": usage} if self._usage else body


async def _drip(request: web.Request, body: dict[str, Any], seconds: float) -> web.StreamResponse:
    content = web.json_response(body).body
    assert isinstance(content, bytes)
    reply = web.StreamResponse(headers={"Content-Type": "application/json"})
    await reply.prepare(request)
    step = max(1, len(content) // 10)
    for start in range(0, len(content), step):
        await reply.write(content[start : start + step])
        await asyncio.sleep(seconds / 10)
    return reply


def prompt_tokens(prompt: str) -> int:
    """What a fake server bills for a prompt."""
    return len(prompt) // 4


def _as_response(said: Response | str) -> Response:
    return Response(said, tokens=max(1, len(said) // 4)) if isinstance(said, str) else said


def _cut(response: Response, most: int | None) -> Response:
    """A response as a server gives it that keeps to the request's limit."""
    if most is None or response.tokens <= most:
        return response
    text = response.text[: len(response.text) * most // response.tokens]
    return replace(response, text=text, tokens=most, finish_reason="length")


def _choice(place: int, response: Response, kind: str, *, logprobs: bool) -> dict[str, Any]:
    """One choice, with a usage of its own; all its log-probability stands at one token."""
    text: str | None = response.text
    finish = response.finish_reason or "stop"
    if kind == "null":
        text = None
    if kind == "truncated":
        text, finish = response.text[: len(response.text) // 2], "length"
    shown = logprobs and response.logprob is not None
    return {
        "index": place,
        "message": {"role": "assistant", "content": text},
        "finish_reason": finish,
        "logprobs": {"content": [{"token": "", "logprob": response.logprob}]} if shown else None,
        "usage": {"completion_tokens": response.tokens},
    }


class RecordedUpstream(FakeUpstream):
    """Serves the responses of a pool. A request's seed is the index of its first response.

    Without a seed, each question's responses come one after the other. The question is found in
    the last user message, whatever instruction stands around it.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        pace: float = 0.0,
        jitter: float = 0.2,
        slots: int | None = None,
        faults: Iterable[Fault | None] = (),
        honours_n: bool = True,
        port: int = 0,
    ) -> None:
        """With `slots`, no more responses than that are generated at once, first come, first."""
        self._recorded = {pool.task.prompt(record.question): record.responses for record in pool}
        self._texts = {record.question.text: record.responses for record in pool}
        self._next: dict[str, int] = {}
        self._chance = random.Random(0)
        self._pace, self._jitter = pace, jitter
        self._slots = None if slots is None else asyncio.Semaphore(slots)
        super().__init__(self._say, faults=faults, honours_n=honours_n, port=port)

    async def _reply(
        self, request: web.Request, call: Call, fault: Fault | None
    ) -> web.StreamResponse:
        if self._find(call) is None:
            unknown = Fault.status(404, "no such question was recorded")
            return web.json_response(unknown.body, status=404)
        return await super()._reply(request, call, fault)

    def _find(self, call: Call) -> tuple[Response, ...] | None:
        known = self._recorded.get(call.prompt)
        if known is None:
            inside = (text for text in self._texts if text and text in call.prompt)
            longest = max(inside, key=len, default=None)
            known = None if longest is None else self._texts[longest]
            if known is not None:
                self._recorded[call.prompt] = known
        return known

    def _say(self, call: Call, place: int) -> Response:
        responses = self._recorded[call.prompt]
        seed = call.body.get("seed")
        if seed is None:
            seed = self._next.get(call.prompt, 0)
            self._next[call.prompt] = seed + 1
            place = 0
        return responses[(seed + place) % len(responses)]

    async def _take_time(self, call: Call) -> None:
        """`pace` seconds per thousand tokens of every response, the same jitter for all of them."""
        if not self._pace:
            return
        start = call.body.get("seed") or 0
        block = self._recorded[call.prompt][start : start + (call.n if self._honours_n else 1)]
        each = self._pace / 1000 * self._chance.uniform(1 - self._jitter, 1 + self._jitter)
        if self._slots is None:
            await asyncio.sleep(each * max((response.tokens for response in block), default=0))
        else:
            await asyncio.gather(*(self._hold(each * one.tokens, self._slots) for one in block))

    async def _hold(self, seconds: float, slots: asyncio.Semaphore) -> None:
        async with slots:
            await asyncio.sleep(seconds)
