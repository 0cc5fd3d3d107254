"""What the operator allows: ceilings, and the policies and bounds a request may name."""

from typing import Any

import openai
import pytest
from fakes import FakeUpstream
from gateways import BODY, CONTROLLER, SPLIT, account, asked, found, numbers, posted
from live import boxed

from aera.solving.controller import Controller

# --- ceilings -------------------------------------------------------------------------------------


def test_many_choices_share_the_samples_of_a_request_and_are_told() -> None:
    reply = asked(numbers(*SPLIT), serving={"max_samples": 32}, n=4)
    accounts = account(reply)["choices"]
    assert [each["samples"] for each in accounts] == [8] * 4
    assert "each of 4 choices may take 8 samples here" in accounts[0]["warnings"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n": 17}, "from 1 to 16, but got 17"),
        ({"n": 5, "aera": {"policy": "fixed-128"}}, "fixed-128 is above the 102 samples"),
        ({"aera": {"policy": "fixed-600"}}, "fixed-600 is above the 512 samples"),
    ],
)
def test_what_is_above_a_ceiling_and_cannot_be_cut_is_refused(
    fields: dict[str, Any], said: str
) -> None:
    server = FakeUpstream(boxed)
    status, _, told = posted({**BODY, **fields}, server)
    assert (status, server.calls) == (400, [])
    assert said in told["error"]["message"]


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
def test_a_deadline_has_a_ceiling_and_a_default(
    options: dict[str, Any], ceilings: dict[str, Any], warned: bool
) -> None:
    server = numbers(*SPLIT, delay=lambda call: 5.0 if call.number else 0.0)
    told = found(server, options, serving={**ceilings})
    assert told["reason"] == "limit: seconds"
    assert any("deadline_s was cut from 60 to 0.2" in w for w in told["warnings"]) == warned


@pytest.mark.parametrize(
    ("options", "samples"),
    [
        ({"max_samples": 100, "min_samples": 65}, 65),
        ({"policy": "asc-0.95+min10"}, 10),
        ({"policy": "fixed-4", "min_samples": 6}, 6),
        ({"policy": "fixed-9", "max_samples": 5}, 5),
    ],
)
def test_bounds_beside_the_schedule_hold(options: dict[str, Any], samples: int) -> None:
    assert found(options=options)["samples"] == samples


# --- policies by label ----------------------------------------------------------------------------

PARTED = ["1", "1", "2", "2"]


@pytest.mark.parametrize(
    ("label", "weighted"),
    [
        ("asc-0.95", False),
        ("asc-0.95+weighted", True),
        ("weighted-4", True),
        ("fixed-4", False),
        ("aera-0.2", True),  # a gate has its own weights
    ],
)
def test_a_label_says_whether_votes_carry_weights(label: str, weighted: bool) -> None:
    controller = Controller.load(CONTROLLER)
    server = numbers(*PARTED, *["1"] * 200)
    told = found(server, {"policy": label, "max_samples": 4}, serving={"controller": controller})
    assert (told["votes"] == {"1": 2, "2": 2}) != weighted
    assert told["policy"].startswith(label.partition("+")[0])
    assert ("weighted" in told["policy"]) == ("weighted" in label)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("oracle", "knows the right answers"),
        ("consensus-0.9", "only evaluate does that"),
        ("one-shot", "fitted by crossfit only"),
        ("matched-random", "cannot answer questions"),
        ("asc-0.95+weighted", 'without one the policy is "asc-0.95"'),
        ("weighted-64", 'without one the policy is "fixed-64"'),
        ("aera-0.2", "needs a gate, which comes"),
        ("best-7", 'no policy is called "best-7"'),
    ],
)
def test_a_label_that_cannot_be_served_is_refused_with_the_reason(label: str, said: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        found(options={"policy": label})
    assert said in caught.value.message


def test_the_label_of_a_reply_can_be_asked_for_again() -> None:
    label = found(options={"policy": "asc-0.9+max10"})["policy"]
    assert label == "asc-0.9+max10+vote"
    assert found(options={"policy": label})["policy"].startswith(label)
