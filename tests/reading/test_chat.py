"""What a chat reply votes for."""

import json
from typing import Any

import pytest
from aera.reading.chat import ChatReader, canonical_json, tool_calls, wants_json
from hypothesis import given
from hypothesis import strategies as st

from aera import Response, get_task

TEXT = ChatReader(get_task("numeric"))
JSON = ChatReader(get_task("numeric"), wants_json=True)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def calling(*arguments: Any, finish: str = "tool_calls") -> Response:
    calls = [{"id": "1", "function": {"name": "f", "arguments": each}} for each in arguments]
    source = {"message": {"content": None, "tool_calls": calls}}
    return Response("", finish_reason=finish, source=source)


def test_a_tool_call_votes_by_value_and_not_by_spelling() -> None:
    one, other = calling('{"a": 1, "b": "é"}'), calling('{"b":"\\u00e9","a":1.0}')
    assert TEXT.read(one) == TEXT.read(other)
    assert TEXT.read(one) != TEXT.read(calling('{"a": 2, "b": "é"}'))


def test_several_calls_are_one_vote() -> None:
    assert TEXT.read(calling("{}", '{"a":1}')).answer != TEXT.read(calling("{}")).answer


def test_arguments_that_are_no_json_vote_as_written() -> None:
    assert tool_calls(calling("{oops")) == [{"name": "f", "arguments": "{oops"}]
    assert tool_calls(calling({"a": 1})) == [{"name": "f", "arguments": {"a": 1}}]


def test_the_older_function_call_votes_too() -> None:
    source = {"message": {"function_call": {"name": "f", "arguments": "{}"}}}
    assert TEXT.read(Response("", source=source)) == TEXT.read(calling("{}"))


@pytest.mark.parametrize("calls", [None, 7, [None], [{"function": {"name": 1}}], [{}]])
def test_what_is_no_tool_call_is_passed_over(calls: Any) -> None:
    source = {"message": {"tool_calls": calls}}
    assert TEXT.read(Response("\\boxed{7}", source=source)).answer == "7"


def test_a_cut_off_tool_call_abstains() -> None:
    assert TEXT.read(calling('{"a": ', finish="length")).answer is None


def test_json_is_read_behind_the_thinking() -> None:
    assert JSON.read(Response('<think>{"a": 2}</think>\n{"a": 1}')).answer == '{"a":1}'


@pytest.mark.parametrize("text", ["", "so it is 7.", '{"a": ', '{"a": NaN}', "[" * 100_000])
def test_what_is_no_json_abstains(text: str) -> None:
    assert JSON.read(Response(text)).answer is None


def test_cut_off_json_abstains_even_if_it_parses() -> None:
    assert JSON.read(Response("12", finish_reason="length")).answer is None


def test_a_failed_reply_abstains() -> None:
    assert JSON.read(Response("{}", error="lost")).answer is None


@given(values)
def test_canonical_json_is_json_for_the_same_value(value: Any) -> None:
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text
    assert JSON.read(Response(json.dumps(value, indent=2))).answer is not None


@pytest.mark.parametrize(
    ("wanted", "yes"),
    [({"type": "json_object"}, True), ({"type": "json_schema"}, True), ({"type": "text"}, False),
     ("json_object", False), (None, False), ({"type": []}, False)],
)  # fmt: skip
def test_json_is_wanted_only_when_the_request_says_so(wanted: Any, yes: bool) -> None:
    assert wants_json({"response_format": wanted}) is yes
