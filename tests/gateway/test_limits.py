"""What the operator allows: ceilings, deadlines, and the policies and bounds a request may name."""

import time
from dataclasses import replace
from typing import Any

import pytest
from fakes import FakeUpstream, Fault
from gateways import BODY, SPLIT, House, account, asked, found, numbers, posted, visit
from live import boxed, controller_of

from aera import ASC, BestOfN, Controller, Schedule, get_task
from aera.reading import equivalence as module

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
        ({"max_tokens": "99"}, (50, None), ["max_tokens was cut from 99 to 50"]),
        ({"max_tokens": -1}, (50, None), ["max_tokens was cut from -1 to 50"]),
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
    serving = {"max_tokens_total": 20, "second": (numbers("99"), "large")}
    told = found(numbers(*SPLIT), options, serving=serving)
    assert (told["reason"], told["tokens"] <= 20) == ("limit: tokens", True)
    cut = "max_tokens_total was cut from 500 to 20, the most allowed here"
    assert (cut in told["warnings"]) == bool(options)
    assert "escalation failed: no room for it, limit: tokens" in told["warnings"]


def test_a_failure_is_named_where_a_limit_leaves_no_second_try() -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(500, "out of memory")] * 9)
    status, _, told = posted({**BODY, "max_tokens": 40}, server, tries=3, max_tokens_total=160)
    assert (status, len(server.calls)) == (502, 1)
    assert told["error"]["message"].endswith("out of memory; a limit left no room for another try")


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


# --- a deadline bounds sampling, reading, comparing, scoring and escalation -----------------------


SOON = 0.4
SPARE = 1.6
"""Seconds after a deadline within which the answer is there on a busy machine; all that is waited
for here would take longer."""
EQUAL = replace(get_task("expression"), equivalence=True)


class Slow:
    """A comparison that takes its time, as math-verify does on some expressions."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def same(self, one: str, other: str) -> bool:
        time.sleep(self.seconds)
        return False


def timed(server: FakeUpstream, **settings: Any) -> tuple[dict[str, Any], float]:
    """The account of a reply to a request with a deadline, and the seconds it took."""

    async def act(house: House) -> tuple[dict[str, Any], float]:
        await house.get("/health")  # connections are there
        begun = time.monotonic()
        status, _, told = await house.post({**BODY, "aera": {"deadline_s": SOON}})
        assert status == 200, told
        return told["aera"], time.monotonic() - begun

    return visit(act, server, **settings)


@pytest.mark.parametrize("seconds", [0.15, 2.5])
def test_comparing_ends_with_the_deadline(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "shared_equivalence", lambda: Slow(seconds))
    answers = ["x+1", "2x", "x+1", "x+1", *[f"x+{place}" for place in range(2, 99)]]
    controller = Controller(EQUAL, Schedule((4, 8, 16)), ASC(0.95))
    told, took = timed(numbers(*answers), controller=controller)
    assert took < SOON + SPARE
    assert (told["reason"], told["answer"]) == ("limit: seconds", "x+1")
    assert told["votes"]["x+1"] == 3


def test_scoring_ends_with_the_deadline() -> None:
    class Judge:
        def __init__(self) -> None:
            self.asked = 0

        def score(self, question: Any, responses: Any) -> list[float]:
            self.asked += 1
            time.sleep(2.5 if self.asked > 1 else 0.0)
            return [0.5] * len(responses)

    controller = replace(controller_of(ASC(0.99), (4, 8)), weigher=BestOfN(Judge()))
    told, took = timed(numbers(*SPLIT), controller=controller)
    assert took < SOON + SPARE
    assert (told["reason"], told["samples"]) == ("limit: seconds", 8)
    assert told["answer"] == "so \\boxed{0}"


def test_escalation_ends_with_the_deadline() -> None:
    second = FakeUpstream(boxed, faults=[Fault.hang(9)] * 9)
    short = controller_of(schedule=(4,))
    told, took = timed(numbers(*SPLIT), second=(second, "large"), controller=short)
    assert took < SOON + SPARE
    assert (told["escalate"], told["escalated"]) == (True, False)
    assert any(warning.startswith("escalation failed") for warning in told["warnings"])


@pytest.mark.parametrize("honours_n", [True, False])
def test_sampling_ends_with_the_deadline(honours_n: bool) -> None:
    counted = iter(range(999))
    server = FakeUpstream(
        lambda call, place: f"\\boxed{{{next(counted)}}}",
        delay=lambda call: 5.0 if call.number > (0 if honours_n else 5) else 0.0,
        honours_n=honours_n,
    )
    told, took = timed(server)
    assert took < SOON + SPARE
    assert told["reason"] == "limit: seconds"
    assert told["samples"] >= 4
