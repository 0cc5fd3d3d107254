"""vLLM in this process as a sampler: no server, no HTTP.

    sampler = VLLMSampler(LLM("Qwen/Qwen2.5-7B-Instruct"), Chat("qwen", task, {"temperature": 0.6}))
    allocation = await solve(question, sampler, controller)

Written against the interface of vLLM's `LLM.chat` and tested with a stand-in of that shape, not
with vLLM itself.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from aera.core import Question, Response
from aera.errors import UpstreamError, UsageError
from aera.reading.task import add_traces
from aera.sampling.replies import Choice, read_tokens
from aera.sampling.sampler import Chat
from aera.trace import ServedTokens


class Engine(Protocol):
    """What is used of `vllm.LLM`."""

    def chat(self, messages: Any, sampling_params: Any, *, use_tqdm: bool) -> list[Any]:
        """One output per conversation, with as many completions as its settings ask for."""
        ...


@dataclass(frozen=True, eq=False)
class _Request:
    messages: list[Any]
    params: Any
    reply: "asyncio.Future[Any]"


class VLLMSampler:
    """Samples from an engine in this process.

    An engine works on one call at a time, so whatever waits while it is busy goes into the next
    call together: many questions make it fast, one after the other does not.
    """

    def __init__(self, llm: Engine, chat: Chat, params: Callable[..., Any] | None = None) -> None:
        self.chat = chat
        self._llm, self._params = llm, params or _sampling_params()
        self._waiting: list[_Request] = []
        self._busy: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "VLLMSampler":
        return self

    async def __aexit__(self, *error: object) -> None:
        """The engine belongs to the caller."""

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        """Responses `start` to `start + n`; what is late is waited for no longer."""
        body = self.chat.body(question)
        del body["model"]
        messages, seed = body.pop("messages"), body.pop("seed", None)
        # The engine seeds the completions of one request with seed, seed + 1 and so on.
        stepped = None if seed is None else seed + start
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        params = self._params(**{**_wished(self.chat.wishes), **body, "n": n}, seed=stepped)
        self._waiting.append(_Request(messages, params, reply))
        if self._busy is None or self._busy.done():
            self._busy = asyncio.create_task(self._work())
        patience = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            output = await asyncio.wait_for(reply, patience)
        except TimeoutError:
            return [Response("", error="the deadline passed") for _ in range(n)]
        return add_traces(_responses(output, self.chat.model, seed=stepped), self.chat.task)

    async def _work(self) -> None:
        """Call the engine until nothing waits."""
        while self._waiting:
            waiting = [each for each in self._waiting if not each.reply.done()]
            self._waiting.clear()
            if not waiting:
                return
            try:
                outputs = await asyncio.to_thread(
                    self._llm.chat,
                    [each.messages for each in waiting],
                    [each.params for each in waiting],
                    use_tqdm=False,
                )
            except Exception as error:  # noqa: BLE001  whatever the engine raises ends these calls
                outputs = [UpstreamError(f"the engine failed: {error}")] * len(waiting)
            for each, output in zip(waiting, outputs, strict=True):
                if each.reply.done():
                    continue
                if isinstance(output, UpstreamError):
                    each.reply.set_exception(output)
                else:
                    each.reply.set_result(output)


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
            source=Choice.of({}, {}, _tokens(completion)),
        )
        for place, completion in enumerate(output.outputs)
    ]


def _wished(wishes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request for logprobs as the engine calls them."""
    wanted = wishes.get("top_logprobs", 0) if wishes.get("logprobs") else None
    return {} if wanted is None else {"logprobs": wanted}


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
        made: Callable[..., Any] = import_module("vllm").SamplingParams
    except ImportError:
        raise UsageError("this sampler needs vLLM in the same environment") from None
    return made
