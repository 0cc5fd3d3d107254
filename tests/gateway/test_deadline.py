"""A deadline bounds everything: sampling, reading, comparing, scoring, escalation."""

import time
from dataclasses import replace
from typing import Any

import pytest
from fakes import FakeUpstream, Fault
from gateways import BODY, SPLIT, House, numbers, visit
from live import boxed, controller_of

from aera import ASC, BestOfN, Controller, Schedule, get_task
from aera.reading import equivalence as module

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
