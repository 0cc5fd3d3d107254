"""The vLLM sampler, against stand-ins of the shape of `vllm.LLM` and `AsyncLLM`."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import StandInAsyncLLM, StandInLLM

from aera import ASC, Chat, Controller, Question, Schedule, get_task, solve, solve_many
from aera.adapters.vllm import VLLMSampler
from aera.errors import UpstreamError, UsageError
from aera.trace import FULL, TRACE_NAMES

TASK = get_task("numeric")
CONTROLLER = Controller(TASK, Schedule((4, 8)), ASC(0.9))


def complete(prompt: str, params: SimpleNamespace) -> list[SimpleNamespace]:
    said: Any = {"text": "\\boxed{42}", "token_ids": [1, 2, 3], "finish_reason": "stop"}
    return [SimpleNamespace(**said, cumulative_logprob=-0.5, logprobs=_likely(params))] * params.n


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


def sampler(engine: Any, *, wishes: Any = None, **settings: Any) -> VLLMSampler:
    chat = Chat("m", TASK, settings, wishes=wishes or {})
    return VLLMSampler(engine, chat, SimpleNamespace)


KINDS = pytest.mark.parametrize("kind", [lambda llm: llm, StandInAsyncLLM], ids=["LLM", "AsyncLLM"])
Kind = Callable[[StandInLLM], Any]


@KINDS
async def test_completions_become_responses(kind: Kind) -> None:
    llm = StandInLLM(complete)
    asking = sampler(kind(llm), temperature=0.6, seed=10)
    got = await asking.sample(Question("q", "?"), 2, start=4)
    assert [(r.text, r.tokens, r.logprob, r.seed) for r in got] == [
        ("\\boxed{42}", 3, -0.5, 14),
        ("\\boxed{42}", 3, -0.5, 15),
    ]
    ((prompt, params),) = llm.added
    assert prompt == TASK.prompt(Question("q", "?"))
    assert [r.prompt_tokens for r in got] == [len(prompt), 0]
    assert (params.n, params.seed, params.temperature) == (2, 14, 0.6)


async def test_likely_tokens_become_a_trace() -> None:
    llm = StandInLLM(complete)
    [response] = await sampler(llm, wishes=FULL).sample(Question("q", "?"), 1)
    assert (llm.added[0][1].logprobs, llm.added[0][1].seed) == (20, None)
    trace = dict(zip(TRACE_NAMES, response.trace, strict=True))
    assert trace["trace_answer_logprob"] == pytest.approx(-0.2)
    assert trace["trace_confidence"] == pytest.approx(0.2 + 9.5)


async def test_questions_join_what_the_engine_works_on() -> None:
    llm = StandInLLM(complete, steps=5, seconds=0.005)
    asked = [Question(str(i), "6 x 7?") for i in range(32)]
    many = solve_many(asked, sampler(llm), CONTROLLER, concurrency=32)
    assert [done.answer async for done in many] == ["42"] * 32
    assert max(llm.together) == 32
    assert len(llm.together) < 4 * llm.steps


@KINDS
async def test_an_engine_that_fails_fails_the_question_and_not_the_batch(kind: Kind) -> None:
    def broken(prompt: str, params: Any) -> list[SimpleNamespace]:
        raise RuntimeError("out of memory")

    with pytest.raises(UpstreamError, match="out of memory"):
        await sampler(kind(StandInLLM(broken))).sample(Question("q", "?"), 1)
    done = await solve("6 x 7?", sampler(kind(StandInLLM(broken))), CONTROLLER)
    assert done.error is not None


async def test_a_request_that_is_refused_leaves_the_others_alone() -> None:
    asking, asked = sampler(StandInLLM(complete)), [Question("q", "?" * n) for n in (5_000, 1)]
    works: list[Any] = [asking.sample(each, 1) for each in asked]
    refused, [fine] = await asyncio.gather(*works, return_exceptions=True)
    assert isinstance(refused, UpstreamError)
    assert "too long" in str(refused)
    assert fine.text == "\\boxed{42}"


@KINDS
async def test_what_is_late_is_taken_out_of_the_engine(kind: Kind) -> None:
    llm = StandInLLM(complete, steps=1_000, seconds=0.01)
    soon = time.monotonic() + 0.05
    got = await sampler(kind(llm)).sample(Question("q", "?"), 2, deadline=soon)
    assert [r.error for r in got] == ["the deadline passed"] * 2
    for _ in range(100):
        if llm.aborted:
            break
        await asyncio.sleep(0.01)
    assert len(llm.aborted) == 1
    assert not llm.has_unfinished_requests()


def test_without_vllm_one_sentence_says_so() -> None:
    with pytest.raises(UsageError, match="needs vLLM"):
        VLLMSampler(StandInLLM(complete), Chat("m", TASK))
