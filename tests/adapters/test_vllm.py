"""The vLLM sampler, against a stand-in of the shape of `vllm.LLM`."""

import asyncio
import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from aera import ASC, Allocator, Chat, Controller, Question, Schedule, get_task, solve
from aera.adapters.vllm import VLLMSampler
from aera.errors import UpstreamError, UsageError
from aera.trace import FULL, TRACE_NAMES

TASK = get_task("numeric")
CONTROLLER = Controller(TASK, Schedule((4, 8)), ASC(0.9))


@dataclass
class Engine:
    """As `vllm.LLM`: blocking, one call at a time, many conversations in each."""

    slow: float = 0.0
    broken: bool = False

    def __post_init__(self) -> None:
        self.calls: list[tuple[list[Any], list[SimpleNamespace]]] = []
        self._one = threading.Lock()

    def chat(self, messages: Any, sampling_params: Any, *, use_tqdm: bool) -> list[Any]:
        assert self._one.acquire(blocking=False), "two calls at once"
        try:
            self.calls.append((messages, sampling_params))
            time.sleep(self.slow)
            if self.broken:
                raise RuntimeError("out of memory")
            return [self._output(each) for each in sampling_params]
        finally:
            self._one.release()

    def _output(self, params: SimpleNamespace) -> SimpleNamespace:
        made = [
            SimpleNamespace(
                text="\\boxed{42}",
                token_ids=[1, 2, 3],
                cumulative_logprob=-0.5,
                finish_reason="stop",
                logprobs=_likely(params),
            )
            for _ in range(params.n)
        ]
        return SimpleNamespace(outputs=made, prompt_token_ids=[1] * 7)


def _likely(params: SimpleNamespace) -> list[dict[int, SimpleNamespace]] | None:
    """The likely tokens of "\\boxed{", "42" and "}", as the engine gives them."""
    if not hasattr(params, "logprobs"):
        return None
    return [
        {
            token + 100 * place: SimpleNamespace(decoded_token=text, logprob=-0.2 - place)
            for place in range(params.logprobs)
        }
        for token, text in enumerate(["\\boxed{", "42", "}"], start=1)
    ]


def sampler(engine: Engine, **settings: Any) -> VLLMSampler:
    return VLLMSampler(engine, Chat("m", TASK, settings), SimpleNamespace)


def test_completions_become_responses() -> None:
    engine = Engine()
    got = asyncio.run(
        sampler(engine, temperature=0.6, seed=10).sample(Question("q", "?"), 2, start=4)
    )
    assert [(r.text, r.tokens, r.logprob, r.seed) for r in got] == [
        ("\\boxed{42}", 3, -0.5, 14),
        ("\\boxed{42}", 3, -0.5, 15),
    ]
    assert [r.prompt_tokens for r in got] == [7, 0]
    ((messages, (params,)),) = engine.calls
    assert messages[0][-1]["role"] == "user"
    assert (params.n, params.seed, params.temperature) == (2, 14, 0.6)


def test_likely_tokens_become_a_trace() -> None:
    engine = Engine()
    chat = Chat("m", TASK, {}, wishes=FULL)
    [response] = asyncio.run(
        VLLMSampler(engine, chat, SimpleNamespace).sample(Question("q", "?"), 1)
    )
    assert engine.calls[0][1][0].logprobs == 20
    assert response.trace is not None
    trace = dict(zip(TRACE_NAMES, response.trace, strict=True))
    assert trace["trace_answer_logprob"] == pytest.approx(-0.2)
    assert trace["trace_confidence"] == pytest.approx(0.2 + 9.5)


def test_without_a_seed_none_is_given() -> None:
    engine = Engine()
    asyncio.run(sampler(engine).sample(Question("q", "?"), 1, start=4))
    assert engine.calls[0][1][0].seed is None


def test_questions_that_wait_go_into_one_call() -> None:
    engine = Engine(slow=0.05)

    async def scene() -> list[str | None]:
        allocator = Allocator(sampler(engine), CONTROLLER, concurrency=32)
        asked = [Question(str(i), "6 x 7?") for i in range(32)]
        return [done.answer async for done in allocator.solve(asked)]

    assert asyncio.run(scene()) == ["42"] * 32
    assert len(engine.calls) <= 3


def test_an_engine_that_fails_fails_the_question_and_not_the_batch() -> None:
    engine = Engine(broken=True)
    with pytest.raises(UpstreamError, match="out of memory"):
        asyncio.run(sampler(engine).sample(Question("q", "?"), 1))
    done = asyncio.run(solve("6 x 7?", sampler(engine), CONTROLLER))
    assert done.error is not None


def test_what_is_late_is_not_waited_for() -> None:
    async def scene() -> tuple[float, list[str | None]]:
        begun = time.monotonic()
        late = sampler(Engine(slow=0.5))
        got = await late.sample(Question("q", "?"), 2, deadline=begun + 0.05)
        return time.monotonic() - begun, [r.error for r in got]

    seconds, errors = asyncio.run(scene())
    assert errors == ["the deadline passed"] * 2
    assert seconds < 0.4


def test_without_vllm_one_sentence_says_so() -> None:
    with pytest.raises(UsageError, match="needs vLLM"):
        VLLMSampler(Engine(), Chat("m", TASK))
