"""A model server for tests: it answers as told on a real port, fails on demand, remembers calls.

faults = [Fault.status(500), None]                      # the first call fails, the second works
async with FakeUpstream(lambda call, place: "\\boxed{7}", faults=faults) as upstream:
    ...
"""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import pytest
from aiohttp import web

from aera import RecordedUpstream, Response
from aera.sampling.recorded import Call, completion


@dataclass(frozen=True)
class Fault:
    """Something to go wrong with one call."""

    kind: str
    """One of status, short and hang, as made below; html, a page instead of JSON; reset, a broken
    connection; null, no content; truncated, choices that are cut off by the token limit."""
    code: int = 500
    seconds: float = 0.0
    retry_after: str = ""
    body: Any = None
    choices: int | None = None

    @classmethod
    def status(cls, code: int, message: str = "planned", *, retry_after: str = "") -> "Fault":
        """An HTTP error with an OpenAI error object."""
        error = {"message": message, "type": f"planned_{code}", "param": None, "code": code}
        return cls("status", code, retry_after=retry_after, body={"error": error})

    @classmethod
    def short(cls, choices: int) -> "Fault":
        """No more than so many choices, however many were asked for."""
        return cls("short", choices=choices)

    @classmethod
    def hang(cls, seconds: float) -> "Fault":
        """Silence before the reply."""
        return cls("hang", seconds=seconds)


Seen = TypeVar("Seen")


@asynccontextmanager
async def serving(handler: Callable[[web.Request], Any], **site: Any) -> AsyncIterator[str]:
    """A server whose every route is one handler's; gives its base URL."""
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.2, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1_024, **site).start()
    scheme = "https" if site.get("ssl_context") else "http"
    try:
        yield f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@contextmanager
def in_background(server: AbstractAsyncContextManager[Seen]) -> Iterator[Seen]:
    """A server with a thread and an event loop of its own, for programs that block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    finally:
        ended = asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop)
        ended.result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


Answer = Callable[[Call, int], Response | str]
"""What choice number so-and-so of a call says."""


class FakeUpstream(RecordedUpstream):
    """A real server on a loopback port that answers as told, and remembers every call."""

    def __init__(
        self,
        answer: Answer,
        *,
        faults: Iterable[Fault | None] = (),
        honours_n: bool = True,
        delay: Callable[[Call], float] = lambda call: 0.0,
    ) -> None:
        super().__init__(())  # type: ignore[arg-type]
        self.active = self.aborted = 0
        self.mute = False
        """As long as it is set, connections are taken and nothing is answered."""
        self._answer = answer
        self._faults: Iterator[Fault | None] = iter(faults)
        self._honours_n, self._delay = honours_n, delay

    async def _models(self, request: web.Request) -> web.Response:
        await self._wait()
        return await super()._models(request)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.calls.append(call := Call(len(self.calls), body, dict(request.headers)))
        self.active += 1
        try:
            return await self._reply(request, call, next(self._faults, None))
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            self.active -= 1

    async def _wait(self) -> None:
        while self.mute:
            await asyncio.sleep(0.01)

    async def _reply(
        self, request: web.Request, call: Call, fault: Fault | None
    ) -> web.StreamResponse:
        await asyncio.sleep(self._delay(call))
        await self._wait()
        fault = fault or Fault("")
        if fault.kind == "status":
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            return web.json_response(fault.body, status=fault.code, headers=headers)
        if fault.kind == "html":
            return web.Response(text="<html>502 Bad Gateway</html>", content_type="text/html")
        if fault.kind == "reset":
            request.transport.abort()
        await asyncio.sleep(fault.seconds)
        return web.json_response(self._completion(call, fault))

    def _completion(self, call: Call, fault: Fault) -> dict[str, Any]:
        n = min(call.n if self._honours_n else 1, fault.choices or call.n)
        said = [_as_response(self._answer(call, place)) for place in range(n)]
        body = completion(call, said)
        for choice, response in zip(body["choices"], said, strict=True):
            if fault.kind == "null":
                choice["message"]["content"] = None
            if fault.kind == "truncated":
                choice["message"]["content"] = response.text[: len(response.text) // 2]
                choice["finish_reason"] = "length"
        return body


Server = RecordedUpstream
"""A server that is entered, has a `base_url` and remembers its calls."""


def _as_response(said: Response | str) -> Response:
    return Response(said, tokens=max(1, len(said) // 4)) if isinstance(said, str) else said


def stand_in_for_inspect(patch: pytest.MonkeyPatch) -> None:
    """Put Inspect's module where there is none."""
    if find_spec("inspect_ai") is not None:
        return
    util = ModuleType("inspect_ai.util")
    vars(util)["EarlyStop"] = SimpleNamespace
    patch.setitem(sys.modules, "inspect_ai", ModuleType("inspect_ai"))
    patch.setitem(sys.modules, "inspect_ai.util", util)


def inspect_state(name: str | int, epoch: int, response: Response) -> SimpleNamespace:
    """As Inspect's TaskState after an epoch; the sum of its logprobs is that of its only token."""
    token = SimpleNamespace(logprob=response.logprob)
    listed = None if response.logprob is None else SimpleNamespace(content=[token])
    output = SimpleNamespace(
        choices=[] if response.error else [SimpleNamespace(logprobs=listed)],
        completion=response.text,
        usage=SimpleNamespace(output_tokens=response.tokens),
        stop_reason="max_tokens" if response.truncated else "stop",
        model="recorded",
        error=response.error,
    )
    return SimpleNamespace(sample_id=name, epoch=epoch, output=output)


class StandInLLM:
    """As `vllm.LLM`: its engine is stepped by whoever drives it, and answers whole requests.

    `complete(prompt, params)` makes the completions. Every step takes `seconds`, every request
    `steps` of them. It remembers what was added, aborted and how many were under way at a step.
    """

    def __init__(
        self,
        complete: Callable[[str, Any], list[SimpleNamespace]],
        *,
        steps: int = 1,
        seconds: float = 0.0,
    ) -> None:
        self.llm_engine = self
        self.complete, self.steps, self.seconds = complete, steps, seconds
        self.added: list[tuple[str, Any]] = []
        self.aborted: list[str] = []
        self.together: list[int] = []
        self._left: dict[str, tuple[int, str, Any]] = {}

    def get_tokenizer(self) -> "StandInLLM":
        """Every character is a token."""
        return self

    def apply_chat_template(self, messages: Any, **how: Any) -> str:
        """The last message is the prompt."""
        assert how == {"add_generation_prompt": True, "tokenize": False}
        return str(messages[-1]["content"])

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(each) for each in text]

    def add_request(self, name: str, prompt: Any, params: Any) -> str:
        text = "".join(map(chr, prompt["prompt_token_ids"]))
        if len(text) > 4_000:
            raise ValueError("the prompt is too long")
        self.added.append((text, params))
        self._left[name] = (self.steps, text, params)
        return name

    def abort_request(self, names: list[str]) -> None:
        self.aborted += names
        for name in names:
            self._left.pop(name, None)

    def has_unfinished_requests(self) -> bool:
        return bool(self._left)

    def step(self) -> list[SimpleNamespace]:
        assert self._left, "a step of an idle engine never returns"
        self.together.append(len(self._left))
        time.sleep(self.seconds)
        self._left = {name: (n - 1, *rest) for name, (n, *rest) in self._left.items()}
        over = [name for name, (n, *_) in self._left.items() if n <= 0]
        return [self._output(name, *self._left.pop(name)[1:]) for name in over]

    def _output(self, name: str, text: str, params: Any) -> SimpleNamespace:
        told: Any = {"outputs": self.complete(text, params), "prompt_token_ids": [*map(ord, text)]}
        return SimpleNamespace(request_id=name, finished=True, **told)


class StandInAsyncLLM:
    """As vLLM's `AsyncLLM` over the same completions."""

    def __init__(self, llm: StandInLLM) -> None:
        self.llm = llm
        self.get_tokenizer = llm.get_tokenizer

    async def generate(self, prompt: Any, params: Any, name: str) -> AsyncIterator[Any]:
        self.llm.add_request(name, prompt, params)
        try:
            while True:
                await asyncio.sleep(self.llm.seconds)
                for output in self.llm.step():
                    yield output
                    return
        except asyncio.CancelledError:
            self.llm.abort_request([name])
            raise
