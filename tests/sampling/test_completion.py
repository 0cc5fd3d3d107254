from dataclasses import replace
from typing import Any

import pytest
from live import completion, texts

from aera import Response, get_task
from aera.errors import UpstreamError
from aera.sampling.replies import parse_reply

BOX = "so \\boxed{7}"


def parsed(*messages: Any, **fields: Any) -> list[Response]:
    return parse_reply(completion(*messages, **fields), latency_ms=1.26)


def test_a_reply_is_read_in_full_seeds_step_and_the_call_and_its_prompt_are_billed_once() -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 30}
    reply = completion(BOX, BOX, BOX, usage=usage, model="m")
    first = Response(BOX, 10, None, "stop", 4, 1.3, model="m", prompt_tokens=12, calls=1)
    later = [replace(first, seed=seed, prompt_tokens=0, calls=0) for seed in (5, 6)]
    assert parse_reply(reply, seed=4, latency_ms=1.26) == [first, *later]


def test_what_was_billed_beyond_the_listed_tokens_is_counted() -> None:
    reply = completion(BOX, BOX, usage={"prompt_tokens": 12, "completion_tokens": 90})
    for choice, rows in zip(reply["choices"], (1, 2), strict=True):
        choice["logprobs"] = {"content": [{"token": "7", "logprob": -0.1}] * rows}
    assert [response.tokens for response in parse_reply(reply, latency_ms=1)] == [30, 60]
    del reply["usage"]
    assert [response.tokens for response in parse_reply(reply, latency_ms=1)] == [1, 2]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_a_reasoning_field_is_kept_and_never_votes(field: str) -> None:
    thought = {field: "perhaps \\boxed{3}"}
    told = {**thought, "content": BOX}
    made = parsed(told, {**thought, "content": None}, thought)
    assert [get_task("numeric").read(each).answer for each in made] == ["7", None, None]
    assert texts(parsed(told)) == [f"<think>perhaps \\boxed{{3}}</think>{BOX}"]


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "so "}, {"type": "text", "text": "\\boxed{7}"}],
        [{"type": "text", "text": BOX}, {"type": "refusal"}, "stray", {"text": None}],
    ],
)
def test_content_in_parts_is_joined(content: list[Any]) -> None:
    assert texts(parsed({"content": content})) == [BOX]


@pytest.mark.parametrize("total", [1, 7, 100, 16_384])
def test_the_parts_of_a_total_add_up(total: int) -> None:
    made = parsed("x" * 300, "", "x" * 10, "x" * 77, usage={"completion_tokens": total})
    counts = [response.tokens for response in made]
    assert sum(counts) == total
    assert min(counts) >= 0
    assert counts[0] == max(counts)


@pytest.mark.parametrize("count", [0, 10**400, -5, True, 1.5, "7", None])
def test_a_count_that_is_missing_or_cannot_be_one_is_estimated_from_the_length(count: Any) -> None:
    told = {"prompt_tokens": count, "completion_tokens": count}
    for usage in (told, {}, None, "odd", [count]):
        made = parsed("x" * 400, "x" * 40, usage=usage)
        assert [(r.tokens, r.prompt_tokens) for r in made] == [(100, 0), (10, 0)]
        assert [r.tokens for r in parsed("x" * 400, usage=usage)] == [100]
    reply = completion("x" * 400, "x" * 40)
    for choice in reply["choices"]:
        choice["usage"] = told
    assert [response.tokens for response in parse_reply(reply, latency_ms=1)] == [100, 10]


def test_a_choice_that_says_its_own_length_is_believed() -> None:
    reply = completion(BOX, BOX, usage={"completion_tokens": 10})
    reply["choices"][0]["usage"] = {"completion_tokens": 3}
    reply["choices"][1]["token_ids"] = [1] * 7
    assert [response.tokens for response in parse_reply(reply, latency_ms=1)] == [3, 7]


@pytest.mark.parametrize(
    "reply", [None, [], "text", {}, {"choices": []}, {"choices": None}, {"choices": [None]}]
)
def test_a_reply_without_choices_may_be_asked_for_again(reply: Any) -> None:
    with pytest.raises(UpstreamError, match="choice") as caught:
        parse_reply(reply, latency_ms=1)
    assert caught.value.retryable
