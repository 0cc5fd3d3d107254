"""What the operator allows: ceilings, and the policies and bounds a request may name."""

from typing import Any

import pytest
from fakes import FakeUpstream
from gateways import BODY, SPLIT, account, asked, found, numbers, posted
from live import boxed

# --- ceilings -------------------------------------------------------------------------------------


def test_many_choices_share_the_samples_of_a_request_and_are_told() -> None:
    reply = asked(numbers(*SPLIT), serving={"max_samples": 32}, n=4)
    accounts = account(reply)["choices"]
    assert [each["samples"] for each in accounts] == [8] * 4
    assert "each of 4 choices may take 8 samples here" in accounts[0]["warnings"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n": 5, "aera": {"policy": "fixed-128"}}, "fixed-128 is above the 102 samples"),
        ({"aera": {"policy": "oracle"}}, "knows the right answers"),
        ({"aera": {"policy": 7}}, '"aera.policy" must be a label'),
        ({"aera": {"min_samples": 129}}, "above the maximum of 128"),
        ({"aera": {"min_samples": 8, "max_samples": 4}}, "above the maximum of 4"),
        ({"aera": {"max_samples": 2}}, "minimum of 5"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_sentence(fields: dict[str, Any], said: str) -> None:
    server = FakeUpstream(boxed)
    status, _, told = posted({**BODY, **fields}, server, min_samples=5)
    assert (status, told["error"]["type"], server.calls) == (400, "invalid_request_error", [])
    assert said in told["error"]["message"]
    assert "\n" not in told["error"]["message"]


@pytest.mark.parametrize(
    ("given", "sent", "warnings"),
    [
        ({"max_tokens": 99, "max_completion_tokens": 20}, (50, 20),
         ["max_tokens was cut from 99 to 50"]),
        ({}, (50, None), []),
    ],
)  # fmt: skip
def test_no_response_is_longer_than_is_allowed(given: Any, sent: Any, warnings: list[str]) -> None:
    server = FakeUpstream(boxed)
    assert found(server, serving={"max_tokens": 50}, **given)["warnings"] == warnings
    body = server.calls[0].body
    assert (body["max_tokens"], body.get("max_completion_tokens")) == sent


@pytest.mark.parametrize("options", [{"max_tokens_total": 500}, {}])
def test_the_tokens_of_a_request_have_a_ceiling(options: Any) -> None:
    told = found(numbers(*SPLIT), options, serving={"max_tokens_total": 20})
    assert (told["reason"], told["tokens"] <= 20) == ("limit: tokens", True)
    cut = "max_tokens_total was cut from 500 to 20, the most allowed here"
    assert (cut in told["warnings"]) == bool(options)


@pytest.mark.parametrize(
    ("options", "ceilings", "warned"),
    [
        ({"deadline_s": 60}, {"max_deadline": 0.2}, True),
        ({}, {"max_deadline": 0.2}, False),
        ({}, {"deadline": 0.2}, False),
    ],
)
def test_a_deadline_has_a_ceiling_and_a_default(options: Any, ceilings: Any, warned: bool) -> None:
    server = numbers(*SPLIT, delay=lambda call: 5.0 if call.number else 0.0)
    told = found(server, options, serving=ceilings)
    assert told["reason"] == "limit: seconds"
    assert any("deadline_s was cut from 60 to 0.2" in w for w in told["warnings"]) == warned


@pytest.mark.parametrize(
    ("options", "samples"),
    [
        ({"max_samples": 100, "min_samples": 65}, 65),
        ({"policy": "asc-0.95+min10"}, 10),
        ({"policy": "fixed-4", "min_samples": 6}, 6),
        ({"policy": "fixed-9", "max_samples": 5}, 5),
        ({"min_samples": 100, "max_samples": 100}, 100),
        ({"min_samples": 2}, 5),  # nobody goes below the operator's
    ],
)
def test_bounds_beside_the_schedule_hold(options: dict[str, Any], samples: int) -> None:
    assert found(options=options, serving={"min_samples": 5})["samples"] == samples


# --- policies by label ----------------------------------------------------------------------------


def test_the_label_of_a_reply_can_be_asked_for_again() -> None:
    label = found(options={"policy": "asc-0.9+max10"})["policy"]
    assert label == "asc-0.9+max10+vote"
    assert found(options={"policy": label})["policy"].startswith(label)
