"""vLLM in this process as a sampler: no server, no HTTP.

    sampler = VLLMSampler(LLM("Qwen/Qwen2.5-7B-Instruct"), Chat("qwen", task, {"temperature": 0.6}))
    allocation = await solve(question, sampler, controller)

Takes a `vllm.LLM` or an `AsyncLLM`. Questions join what the engine works on as they come, and what
is no longer wanted is taken out of it. `bench/engine.py` runs this against vLLM itself.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import isawaitable
from itertools import count
from queue import SimpleQueue
from typing import Any

from aera.core import Question, Response
from aera.errors import UpstreamError, UsageError
from aera.reading.task import add_traces
from aera.sampling.replies import Choice, read_tokens
from aera.sampling.sampler import Chat
from aera.trace import ServedTokens


class VLLMSampler:
    """Samples from an engine in this process; the more questions at once, the faster it is."""

    def __init__(self, engine: Any, chat: Chat, params: Callable[..., Any] | None = None) -> None:
        self.chat = chat
        self._params = params or _sampling_params()
        self._engine = engine
        self._stepped = _Stepped(engine.llm_engine) if hasattr(engine, "llm_engine") else None
        self._tokenizer: Any = None
        self._names = (f"aera-{number}" for number in count())

    async def __aenter__(self) -> "VLLMSampler":
        return self

    async def __aexit__(self, *error: object) -> None:
        """The engine belongs to the caller."""

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        """Responses `start` to `start + n`; what is late is taken out of the engine."""
        body = self.chat.body(question)
        del body["model"]
        messages, seed = body.pop("messages"), body.pop("seed", None)
        # The engine seeds the completions of one request with seed, seed + 1 and so on.
        stepped = None if seed is None else seed + start
        params = self._params(**{**_wished(self.chat.wishes), **body, "n": n}, seed=stepped)
        patience = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            output = await asyncio.wait_for(self._ask(messages, params), patience)
        except TimeoutError:
            return [Response("", error="the deadline passed") for _ in range(n)]
        return add_traces(_responses(output, self.chat.model, seed=stepped), self.chat.task)

    async def _ask(self, messages: list[Any], params: Any) -> Any:
        """The last output of one request; whoever is cancelled takes it out of the engine."""
        name = next(self._names)
        try:
            prompt = {"prompt_token_ids": await self._tokens(messages)}
            if self._stepped is not None:
                return await self._stepped.ask(prompt, params, name)
            outputs = [each async for each in self._engine.generate(prompt, params, name)]
        except Exception as error:  # whatever the engine raises ends this call
            raise UpstreamError(f"the engine failed: {error}") from error
        return outputs[-1]

    async def _tokens(self, messages: list[Any]) -> list[int]:
        """A conversation in the form that the model was taught."""
        if self._tokenizer is None:
            made = self._engine.get_tokenizer()
            self._tokenizer = await made if isawaitable(made) else made
        template = self._tokenizer.apply_chat_template
        text = template(messages, add_generation_prompt=True, tokenize=False)
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return tokens


class _Stepped:
    """The engine of a `vllm.LLM`, stepped in a thread for as long as anybody waits."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        # What comes, and the names of what is no longer wanted, for the thread that alone touches
        # the engine.
        self._news: SimpleQueue[tuple[Any, Any, str] | str] = SimpleQueue()
        self._replies: dict[str, asyncio.Future[Any]] = {}
        self._busy: asyncio.Task[None] | None = None

    async def ask(self, prompt: Any, params: Any, name: str) -> Any:
        """The output of one request, once it is whole."""
        loop = asyncio.get_running_loop()
        reply = self._replies[name] = loop.create_future()
        self._news.put((prompt, params, name))
        if self._busy is None or self._busy.done():
            self._busy = loop.create_task(self._work(loop))
        try:
            return await reply
        except asyncio.CancelledError:
            self._news.put(name)
            raise
        finally:
            del self._replies[name]

    async def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._news.empty():
            try:
                await asyncio.to_thread(self._step, loop)
            except Exception as error:  # noqa: BLE001  an engine that is dead answers nobody
                for name in self._replies:
                    self._settle(name, error)

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work until nothing is left; in the thread."""
        while True:
            self._take_news(loop)
            if not self._engine.has_unfinished_requests():
                return
            for output in self._engine.step():
                if output.finished:
                    loop.call_soon_threadsafe(self._settle, output.request_id, output)

    def _take_news(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand on what came meanwhile."""
        while not self._news.empty():
            news = self._news.get()
            if isinstance(news, str):
                self._engine.abort_request([news])
                continue
            prompt, params, name = news
            try:
                self._engine.add_request(name, prompt, params)
            except ValueError as error:  # a prompt that is too long, settings it does not know
                loop.call_soon_threadsafe(self._settle, name, error)

    def _settle(self, name: str, told: Any) -> None:
        reply = self._replies.get(name)
        if reply is None or reply.done():
            return
        if isinstance(told, Exception):
            reply.set_exception(told)
        else:
            reply.set_result(told)


def _responses(output: Any, model: str, *, seed: int | None) -> list[Response]:
    """The completions of one request; its prompt is billed once."""
    prompt = len(output.prompt_token_ids or ())
    return [
        Response(
            completion.text,
            tokens=len(completion.token_ids),
            logprob=completion.cumulative_logprob,
            finish_reason=completion.finish_reason,
            seed=None if seed is None else seed + place,
            model=model,
            prompt_tokens=prompt if place == 0 else 0,
            calls=1 if place == 0 else 0,
            source=Choice({}, tokens=_tokens(completion)),
        )
        for place, completion in enumerate(output.outputs)
    ]


def _wished(wishes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request for logprobs as the engine calls them."""
    return {"logprobs": wishes.get("top_logprobs", 0)} if wishes.get("logprobs") else {}


def _tokens(completion: Any) -> ServedTokens | None:
    """The tokens of a completion, where the engine lists them with the likely others."""
    likely = getattr(completion, "logprobs", None) or []
    rows = [
        {
            "token": others[token].decoded_token,
            "logprob": others[token].logprob,
            "top_logprobs": [{"logprob": each.logprob} for each in others.values()],
        }
        for token, others in zip(completion.token_ids, likely, strict=False)
        if token in others
    ]
    return read_tokens({"logprobs": {"content": rows}})


def _sampling_params() -> Callable[..., Any]:
    try:
        module = import_module("vllm.sampling_params")
    except ImportError:
        raise UsageError("this sampler needs vLLM in the same environment") from None
    return partial(module.SamplingParams, output_kind=module.RequestOutputKind.FINAL_ONLY)
