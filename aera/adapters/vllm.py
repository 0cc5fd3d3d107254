"""vLLM in this process as a sampler: no server, no HTTP.

    sampler = VLLMSampler(LLM("Qwen/Qwen2.5-7B-Instruct"), Chat("qwen", task, {"temperature": 0.6}))
    allocation = await solve(question, sampler, controller)

Takes a `vllm.LLM` or an `AsyncLLM`. Questions join what the engine works on as they come, and what
is no longer wanted is taken out of it. `bench/engine.py` runs this against vLLM itself.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from inspect import isawaitable
from itertools import count
from typing import Any

from aera.core import Question, Response
from aera.errors import UpstreamError, UsageError
from aera.files import Json
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
    """The engine of a `vllm.LLM`, which one thread alone touches, stepped while anybody waits."""

    def __init__(self, engine: Any) -> None:
        self._engine, self._thread = engine, ThreadPoolExecutor(1, "aera-engine")
        self._replies: dict[str, asyncio.Future[Any]] = {}
        self._stepping: asyncio.Task[None] | None = None

    async def ask(self, prompt: Any, params: Any, name: str) -> Any:
        """The output of one request, once it is whole."""
        loop, add = asyncio.get_running_loop(), self._engine.add_request
        reply = self._replies[name] = loop.create_future()
        try:
            # Refused are a prompt that is too long, and settings it does not know.
            await loop.run_in_executor(self._thread, add, name, prompt, params)
            if self._stepping is None or self._stepping.done():
                self._stepping = loop.create_task(self._answer_all())
            return await reply
        except asyncio.CancelledError:
            self._thread.submit(self._engine.abort_request, [name])
            raise
        finally:
            del self._replies[name]

    async def _answer_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._replies:
            try:
                outputs = await loop.run_in_executor(self._thread, self._step)
            except Exception as error:  # noqa: BLE001  an engine that is dead answers nobody
                for reply in self._replies.values():
                    if not reply.done():
                        reply.set_exception(error)
                return
            for output in outputs:
                waiting = self._replies.get(output.request_id)
                if output.finished and waiting is not None and not waiting.done():
                    waiting.set_result(output)

    def _step(self) -> Any:
        return self._engine.step() if self._engine.has_unfinished_requests() else ()


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


def _wished(wishes: Mapping[str, Any]) -> Json:
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
