"""Audits over real sockets: what is drawn, in which order it counts, and what an alarm does."""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fakes import Call, FakeUpstream, Fault
from foreign import brought
from foreign_questions import demo_rows
from gateways import CHAT, House, lines_of, visit
from live import controller_of

from aera import ASC, Controller, Pool, Response, Schedule, get_task
from aera.sampling.recorded import RecordedUpstream

Act = Callable[[House], Awaitable[Any]]
Log = pytest.LogCaptureFixture


class Turning(FakeUpstream):
    """Says seven, and something else after the fourth sample of a question that has "turn"."""

    def __init__(self, **kind: Any) -> None:
        self.said: dict[str, int] = defaultdict(int)
        super().__init__(self.say, **kind)

    def say(self, call: Call, place: int) -> str:
        self.said[call.prompt] += 1
        late = "turn" in call.prompt and self.said[call.prompt] > 4
        return f"so \\boxed{{{9 if late else 7}}}"


def asking(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "aera/m", "messages": [{"role": "user", "content": text}], **fields}


async def settled(house: House, count: int = 1) -> dict[str, Any]:
    """What audits say once so many have ended."""
    for _ in range(1_000):
        found = (await house.state())["models"][0]["audits"]
        if found["seen"] >= count:
            return dict(found)
        await asyncio.sleep(0.005)
    raise AssertionError("audits never ended")


def audited(act: Act, server: FakeUpstream | None = None, **rules: Any) -> Any:
    given = {"audit_share": 1.0, **rules}
    return visit(act, server or Turning(), controller=controller_of(), **given)


def test_what_was_asked_early_is_compared_with_the_full_budget() -> None:
    async def scene(house: House) -> Any:
        first = await house.post(asking("calm"))
        # One that is streamed is looked at when it is over.
        stream = await house.fetch(CHAT, "POST", json=asking("they turn", stream=True))
        assert b"[DONE]" in stream[2]
        return first[2]["aera"]["samples"], await settled(house, 2), await house.metrics()

    server = Turning()
    samples, seen, metrics = audited(scene, server)
    assert samples == 4
    assert set(server.said.values()) == {16}
    assert (seen["seen"], seen["changed"], seen["share"], seen["alarm"]) == (2, 1, 0.5, False)
    assert seen["share_low"] < 0.5 < seen["share_high"]
    assert seen["tokens"] > 0
    assert metrics["aera_audits_total", "m", "changed"] == 1
    assert metrics["aera_audits_total", "m", "same"] == 1
    assert (metrics["aera_audit_share", "m"], metrics["aera_audit_alarm", "m"]) == (0.5, 0)
    assert metrics["aera_samples_total",] == 8, "audits are counted apart"


def test_audits_count_in_the_order_drawn(caplog: Log) -> None:
    slow = Turning(delay=lambda call: 0.3 if call.prompt == "slow" and call.number else 0.0)

    async def scene(house: House) -> Any:
        for text in ("slow", "quick"):
            await house.post(asking(text), headers={"x-request-id": f"id-of-{len(text)}"})
        await asyncio.sleep(0.1)
        before = await settled(house, 0)
        await settled(house, 2)
        return before["seen"]

    with caplog.at_level(logging.INFO, "aera.gateway"):
        assert audited(scene, slow) == 0
    told = [(e["id"], e["outcome"]) for e in lines_of(caplog) if e.get("event") == "audit"]
    assert told == [("id-of-4", "same"), ("id-of-5", "same")]
    assert "quick" not in caplog.text, "no word of a prompt"


@pytest.mark.parametrize(
    ("server", "rules", "outcome", "count"),
    [
        ({"faults": [None, Fault.status(500)]}, {}, "unfinished", 1),
        ({"delay": lambda call: 0.2 if call.number == 1 else 0.0}, {"audit_max": 1}, "skipped", 2),
        ({}, {"audit_tokens": 36}, "skipped", 2),
    ],
    ids=["cannot finish", "no room", "the tokens of the day"],
)
def test_what_cannot_be_audited_is_counted_as_such(
    server: Any, rules: Any, outcome: str, count: int
) -> None:
    async def scene(house: House) -> Any:
        for number in range(3 if rules else 1):
            assert (await house.post(asking(f"calm {number}")))[0] == 200
            seen = None if "audit_max" in rules else await settled(house)
        return seen or await settled(house), await house.metrics()

    seen, metrics = audited(scene, Turning(**server), **rules)
    assert (seen["seen"], seen["changed"]) == (1, outcome == "unfinished")
    assert metrics["aera_audits_total", "m", outcome] == count


def test_texts_are_drawn_once_and_requests_with_their_own_rules_or_no_answer_never() -> None:
    async def scene(house: House) -> Any:
        assert (await house.post(asking("calm")))[0] == 500
        for _ in range(3):
            await house.post(asking("calm"))
        for own in ({"max_samples": 8}, {"policy": "fixed-4"}, {"deadline_s": 5}):
            await house.post(asking(f"{own}", aera=own))
        for fields in ({"n": 2}, {"temperature": 0}, {"response_format": {"type": "json_object"}}):
            await house.post(asking(f"{fields}", **fields))
        await house.post(asking("calm too"))
        return (await settled(house, 2))["seen"]

    assert audited(scene, Turning(faults=[Fault.status(500)])) == 2


# --- the alarm, on recorded gsm8k -----------------------------------------------------------------


class Replaced(RecordedUpstream):
    """A recorded server that is at some time another model: sure of itself, then not."""

    turned = False

    def answer(self, call: Any) -> list[Response]:
        sure = range(self._next[call.prompt], 4 if self.turned else 0)
        said = super().answer(call)
        turned = [Response("\\boxed{-12345}", tokens=each.tokens) for each in said[: len(sure)]]
        return [*turned, *said[len(sure) :]]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    folder = tmp_path_factory.mktemp("recorded")
    return brought(folder, demo_rows(32), task=get_task("gsm8k")).pool


@pytest.mark.parametrize("full", [False, True])
def test_another_model_behind_it_raises_the_alarm(pool: Pool, full: bool, caplog: Log) -> None:
    server = Replaced(pool)
    questions = [question.text for question in pool.questions.values()]

    async def scene(house: House) -> Any:
        for text in questions[:12]:
            await house.post(asking(text))
        calm = await settled(house, 12)
        server.turned = True
        for place, text in enumerate(questions[12:24], 13):
            await house.post(asking(text))
            alarmed = await settled(house, place)
            if alarmed["alarm"]:
                break
        after = [(await house.post(asking(text)))[2]["aera"] for text in questions[24:]]
        return calm, alarmed, after, await house.metrics()

    controller = Controller(get_task("gsm8k"), Schedule(), ASC(0.95))
    rules = {"audit_share": 1.0, "on_alarm": "full-budget" if full else "log"}
    with caplog.at_level(logging.INFO, "aera.gateway"):
        calm, alarmed, after, metrics = visit(scene, server, controller=controller, **rules)
    assert (calm["seen"], calm["alarm"], alarmed["alarm"]) == (12, False, True)
    assert metrics["aera_audit_alarm", "m"] == 1
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len([each for each in said if json.loads(each)["event"] == "audit alarm"]) == 1
    if not full:
        assert {(each["samples"], each["answer"]) for each in after} == {(4, "-12345")}
        return
    assert {(each["samples"], each["policy"]) for each in after} == {(128, "fixed-128+vote")}
    assert "-12345" not in {each["answer"] for each in after}
    assert all("early answers change too often" in each["warnings"][0] for each in after)


def test_an_answer_leaves_before_its_audit_and_the_end_cancels_that(caplog: Log) -> None:
    server = Turning(delay=lambda call: 5.0 if server.said[call.prompt] else 0.0)
    with caplog.at_level("INFO", "aera.gateway"):
        audited(lambda house: house.post(asking("calm")), server)
    told = [each["outcome"] for each in lines_of(caplog) if each.get("event") == "audit"]
    assert told == ["cancelled"]
