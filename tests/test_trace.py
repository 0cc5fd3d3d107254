"""The numbers of a trace, and that they are the same by whatever way the logprobs come."""

import json
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign import brought
from hypothesis import given
from hypothesis import strategies as st
from traced import rows_of

from aera import get_task
from aera.sampling.replies import parse_reply, read_tokens
from aera.trace import TRACE_NAMES, Trace, measure_trace

NUMERIC = get_task("numeric")
TEXT = "I take 3 and 4 apples \u2014 that makes \\boxed{7} apples, 7 in all."


def named(trace: Trace | None) -> dict[str, float]:
    return dict(zip(TRACE_NAMES, trace, strict=True))


def test_the_numbers_are_what_the_table_says() -> None:
    logprobs = np.array([-0.1, -3.0, 0.0, -0.9] * 25)
    confidence = np.arange(100.0)
    seen = named(measure_trace(logprobs, confidence, slice(2, 4)))
    assert seen["trace_logprob"] == pytest.approx(-1.0)
    assert seen["trace_confidence"] == pytest.approx(49.5)
    assert seen["trace_least"] == -3
    assert seen["trace_low"] == -3
    assert seen["trace_window_logprob"] == pytest.approx(-1.0)
    assert seen["trace_window_confidence"] == pytest.approx(15.5)
    assert seen["trace_low_windows"] == pytest.approx(np.mean([15.5 + i for i in range(6)]))
    assert seen["trace_wide_window"] == pytest.approx(31.5)
    assert seen["trace_last_confidence"] == pytest.approx(83.5)
    assert seen["trace_last_logprob"] == pytest.approx(-1.0)
    assert seen["trace_unsure"] == pytest.approx(0.5)
    assert seen["trace_wild"] == 25
    assert seen["trace_answer_sum"] == pytest.approx(-0.9)
    assert seen["trace_answer_logprob"] == pytest.approx(-0.45)
    assert seen["trace_answer_confidence"] == pytest.approx(2.5)
    assert seen["trace_answer_least"] == 2


def test_what_is_not_known_is_nan_and_never_zero() -> None:
    seen = named(measure_trace(np.array([-0.5])))
    unknown = {name for name, number in seen.items() if isnan(number)}
    assert unknown == {name for name in TRACE_NAMES if "confidence" in name or "answer" in name} | {
        "trace_low_windows",
        "trace_wide_window",
    }
    assert all(map(isnan, measure_trace(np.empty(0))))


@pytest.mark.parametrize(
    ("task", "text", "at"),
    [
        ("numeric", TEXT, TEXT.index("7")),
        ("numeric", "so 7, no: the answer is 18. 18 it is, 18!", 24),
        ("numeric", "it is \\boxed{5}, or \\boxed{ 6 }.", 28),
        ("expression", "\\boxed{\\frac{1}{2}} is 1/2", 7),
        ("choice", "Being Bold, B. The answer is (B) because B says so", 30),
        ("choice", "A or B?\nB", 8),
        ("numeric", "no idea at all", None),
    ],
)
def test_the_place_is_the_readers_own(task: str, text: str, at: int | None) -> None:
    place = get_task(task).answer_place(text)
    assert (None if place is None else place.start) == at


def choice(text: str, *, reasoning: str = "") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    rows = [*rows_of(reasoning, 20)[:-1], *rows_of(text, 20)] if reasoning else rows_of(text, 20)
    if reasoning:
        message["reasoning"] = reasoning
    return {"message": message, "finish_reason": "stop", "logprobs": {"content": rows}}


def test_tokens_of_the_reasoning_are_not_those_of_the_answer() -> None:
    reply = {"choices": [choice("is \\boxed{7}", reasoning="\\boxed{7} or not? wait,")]}
    [response] = parse_reply(reply, latency_ms=0, task=NUMERIC)
    tokens = read_tokens(reply["choices"][0])
    seen = named(response.trace)
    assert seen["trace_answer_sum"] == pytest.approx(-1.5)
    assert len(tokens.ends) > len(rows_of("is \\boxed{7}"))


def test_parts_of_characters_are_counted_as_the_server_gives_them() -> None:
    dash = "\u2014".encode()
    rows = [
        {"token": "\ufffd", "bytes": [dash[0]], "logprob": -0.1},
        {"token": "\ufffd", "bytes": [*dash[1:]], "logprob": -0.1},
        {"token": "\\boxed{", "bytes": [*b"\\boxed{"], "logprob": -0.1},
        {"token": "7", "bytes": [*b"7"], "logprob": -2.5},
        {"token": "}", "bytes": [*b"}"], "logprob": -0.1},
    ]
    told = {"message": {"content": "\u2014\\boxed{7}"}, "logprobs": {"content": rows}}
    [response] = parse_reply({"choices": [told]}, latency_ms=0, task=NUMERIC)
    assert named(response.trace)["trace_answer_sum"] == pytest.approx(-2.5)


def test_every_way_in_gives_the_same_trace(tmp_path: Path) -> None:
    [live] = parse_reply({"choices": [choice(TEXT)]}, latency_ms=0, task=NUMERIC)
    rows = rows_of(TEXT, 20)
    columns = {
        "tokens": [row["token"] for row in rows],
        "token_logprobs": [row["logprob"] for row in rows],
        "top_logprobs": [
            {f"t{i}": each["logprob"] for i, each in enumerate(row["top_logprobs"])} for row in rows
        ],
    }
    body = {"choices": [{"index": 0, **choice(TEXT)}]}
    legacy = {"choices": [{"index": 0, "text": TEXT, "logprobs": columns}]}
    batch = [
        {"custom_id": "a", "response": {"status_code": 200, "body": body}},
        {"custom_id": "b", "response": {"status_code": 200, "body": legacy}},
    ]
    logged = {"doc_id": 0, "doc": {"question": "?"}, "target": "7", "filter": "none"}
    logged |= {"resps": [[{"text": TEXT, "logprobs": columns}]], "arguments": {}}
    plain = {
        "id": "a",
        "question": "?",
        "answer": "7",
        "responses": [{"text": TEXT} | choice(TEXT)],
    }
    found = []
    for rows, about in ((batch, {}), ([plain], {}), ([logged], {"format_name": "lm-eval"})):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        for record in brought(folder, rows, task="numeric", **about).pool:
            found += [each.trace for each in record.responses]
    assert len(found) == 4
    assert all(json.dumps(each) == json.dumps(live.trace) for each in found)


@given(st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=6))
def test_whatever_a_server_lists_is_read_or_not(odd: object) -> None:
    for told in ({"content": odd}, {"content": [{"logprob": odd, "top_logprobs": odd}]}):
        found = read_tokens({"logprobs": told})
        assert found is None or len(found.logprobs) == len(found.ends) > 0
