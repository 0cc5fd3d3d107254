"""Votes on tool calls and JSON: by name first, then by canonical arguments without long strings."""

import json
from itertools import chain, repeat
from typing import Any

import pytest
from fakes import FakeUpstream
from gateways import found, saying

from aera.policies.gate import NO_AGREEMENT

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("weather", "news")]
JSON = {"type": "json_object"}


class Calling(FakeUpstream):
    """An upstream whose replies make these calls, one each, the last for ever; None is text."""

    finish = "stop"

    def __init__(self, *calls: tuple[str | None, Any]) -> None:
        self.left = chain(calls, repeat(calls[-1]))
        super().__init__(lambda call, place: "")

    def _completion(self, *given: Any) -> dict[str, Any]:
        whole = super()._completion(*given)
        for choice in whole["choices"]:
            name, told = next(self.left)
            written = told if isinstance(told, str) else json.dumps(told)
            made = {"id": "x", "function": {"name": name, "arguments": written}}
            message = {"content": told} if name is None else {"tool_calls": [made]}
            choice |= {"message": message, "finish_reason": self.finish}
        return whole


WINNER = 'weather\n[{"city":"Rome","unit":"C"}]'
ROME, OSLO = {"city": "Rome", "unit": "C"}, {"unit": "C", "city": "Oslo"}
LONG = "a text of which no two are alike, for it is long enough to say anything at all: "


@pytest.mark.parametrize(
    ("calls", "answer"),
    [
        ([("weather", ROME), ("weather", dict(reversed(ROME.items())))], WINNER),
        ([("news", ROME), ("weather", OSLO), ("weather", ROME), ("weather", ROME)], WINNER),
        ([("weather", {**ROME, "why": LONG + str(place)}) for place in range(4)], WINNER),
        ([("weather", "no JSON")], 'weather\n["no JSON"]'),
        ([(None, "It is \\boxed{7}."), (None, "So \\boxed{7}")], "(text)\n7"),
    ],
    ids=["order of fields", "name first", "long strings", "no JSON", "text"],
)  # fmt: skip
def test_what_most_replies_call_is_returned(calls: list[Any], answer: str) -> None:
    told = found(Calling(*calls), {"policy": "fixed-4"}, tools=TOOLS)
    assert told["answer"] == answer


def test_the_name_wins_before_the_arguments() -> None:
    parted = [("news", {"n": 1})] * 3 + [("weather", {"n": n}) for n in range(5)]
    told = found(Calling(*parted), {"policy": "fixed-8"}, tools=TOOLS)
    assert told["answer"].startswith("weather\n")


@pytest.mark.parametrize(
    ("texts", "answer"),
    [
        (['{"a": 1.0, "b": "x"}', '{"b": "x", "a": 1}'], '{"a":1,"b":"x"}'),
        (["no JSON", '{"a": 3}'], '{"a":3}'),
    ],
)
def test_json_is_voted_on_by_its_value(texts: list[str], answer: str) -> None:
    told = found(saying(*texts), {"policy": "fixed-4"}, response_format=JSON)
    assert told["answer"] == answer


def test_replies_of_which_no_two_agree_end_early() -> None:
    parted = [("weather", {"n": place}) for place in range(200)]
    told = found(Calling(*parted), tools=TOOLS)
    assert (told["reason"], told["samples"], told["escalate"]) == (NO_AGREEMENT, 8, True)


def test_a_call_that_was_cut_off_has_no_vote() -> None:
    server = Calling(("weather", ROME))
    server.finish = "length"
    told = found(server, {"policy": "fixed-4"}, tools=TOOLS)
    assert (told["answer"], told["unread"]) == (None, 4)
