"""Audits over real sockets: what is drawn, in which order it counts, and what an alarm does."""

import asyncio
import gzip
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

import pytest
from fakes import Call, FakeUpstream, Fault
from gateways import CONTROLLER, House, config_of, visit
from live import controller_of

from aera import ASC, Controller, Pool, Response, Schedule, get_task
from aera.errors import UsageError
from aera.lab import import_file
from aera.sampling.recorded import RecordedUpstream

Act = Callable[[House], Awaitable[Any]]


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
        found = json.loads((await house.get("/state"))[1])["models"][0]["audits"]
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
        await house.post(asking("they turn"))
        seen = await settled(house, 2)
        metrics = (await house.get("/metrics"))[1]
        state = json.loads((await house.get("/state"))[1])
        return first[2]["aera"]["samples"], seen, metrics, state["models"][0]["audits"]

    server = Turning()
    samples, seen, metrics, shown = audited(scene, server)
    assert samples == 4
    assert set(server.said.values()) == {16}
    assert (seen["seen"], seen["changed"], seen["alarm"]) == (2, 1, False)
    assert 'aera_audits_total{model="m",outcome="changed"} 1.0' in metrics
    assert 'aera_audits_total{model="m",outcome="same"} 1.0' in metrics
    assert 'aera_audit_share{model="m"} 0.5' in metrics
    assert 'aera_audit_alarm{model="m"} 0.0' in metrics
    assert (shown["seen"], shown["changed"], shown["share"]) == (2, 1, 0.5)
    assert shown["share_low"] < 0.5 < shown["share_high"]
    assert shown["tokens"] > 0
    assert "aera_samples_total 8.0" in metrics, "audits are counted apart"


def test_answers_leave_before_their_audit() -> None:
    server = Turning(delay=lambda call: 0.0 if call.number == 0 else 0.5)

    async def scene(house: House) -> Any:
        reply = await house.post(asking("calm"), headers={})
        return reply[0], server.said["calm"]

    assert audited(scene, server) == (200, 4)


def test_a_stream_is_audited_when_it_is_over() -> None:
    async def scene(house: House) -> Any:
        body = asking("they turn", stream=True)
        said = (await house.fetch("/v1/chat/completions", "POST", json=body))[2]
        return b"[DONE]" in said, await settled(house)

    done, seen = audited(scene)
    assert done
    assert (seen["seen"], seen["changed"]) == (1, 1)


def test_audits_count_in_the_order_drawn(caplog: pytest.LogCaptureFixture) -> None:
    slow = Turning(delay=lambda call: 0.3 if call.prompt == "slow" and call.number else 0.0)

    async def scene(house: House) -> Any:
        await house.post(asking("slow"), headers={"x-request-id": "first"})
        await house.post(asking("quick"), headers={"x-request-id": "second"})
        await asyncio.sleep(0.1)
        before = await settled(house, 0)
        await settled(house, 2)
        return before["seen"]

    with caplog.at_level(logging.INFO, "aera.gateway"):
        assert audited(scene, slow) == 0
    lines = [json.loads(each.getMessage()) for each in caplog.records]
    told = [(each["id"], each["outcome"]) for each in lines if each.get("event") == "audit"]
    assert told == [("first", "same"), ("second", "same")]
    assert not any("quick" in each.getMessage() for each in caplog.records), "no word of a prompt"


def test_an_audit_that_cannot_finish_counts_as_changed() -> None:
    async def scene(house: House) -> Any:
        reply = await house.post(asking("calm"))
        return reply[0], await settled(house), (await house.get("/metrics"))[1]

    status, seen, metrics = audited(scene, Turning(faults=[None, Fault.status(500)]))
    assert status == 200
    assert (seen["seen"], seen["changed"]) == (1, 1)
    assert 'outcome="unfinished"} 1.0' in metrics


def test_a_request_without_an_answer_is_no_audit() -> None:
    async def scene(house: House) -> Any:
        reply = await house.post(asking("calm"))
        again = await house.post(asking("calm"))
        return reply[0], again[0], (await settled(house))["seen"]

    assert audited(scene, Turning(faults=[Fault.status(500)])) == (500, 200, 1)


def test_texts_are_drawn_once_and_requests_with_their_own_rules_never() -> None:
    async def scene(house: House) -> Any:
        for _ in range(3):
            await house.post(asking("calm"))
        for own in ({"max_samples": 8}, {"policy": "fixed-4"}, {"deadline_s": 5}):
            await house.post(asking(f"{own}", aera=own))
        await house.post(asking("two", n=2))
        await house.post(asking("cold", temperature=0))
        await house.post(asking("json", response_format={"type": "json_object"}))
        await house.post(asking("calm too"))
        return (await settled(house, 2))["seen"]

    assert audited(scene) == 2


def test_where_there_is_no_room_audits_are_skipped() -> None:
    server = Turning(delay=lambda call: 0.2 if call.number == 1 else 0.0)

    async def scene(house: House) -> Any:
        await house.post(asking("calm"))
        await house.post(asking("they turn"))
        seen = await settled(house)
        return seen["seen"], (await house.get("/metrics"))[1]

    seen, metrics = audited(scene, server, audit_max=1)
    assert seen == 1
    assert 'aera_audits_total{model="m",outcome="skipped"} 1.0' in metrics


def test_after_the_tokens_of_a_day_none_is_drawn() -> None:
    async def scene(house: House) -> Any:
        for number in range(3):
            await house.post(asking(f"calm {number}"))
            seen = await settled(house)
        return seen["seen"], (await house.get("/metrics"))[1]

    seen, metrics = audited(scene, audit_tokens=36)
    assert seen == 1
    assert 'aera_audits_total{model="m",outcome="skipped"} 2.0' in metrics


# --- the alarm, on recorded gsm8k -----------------------------------------------------------------


class Replaced(RecordedUpstream):
    """A recorded server that is at some time another model: sure of itself, then not."""

    turned = False

    def answer(self, call: Any, place: int) -> Response:
        sure = self.turned and self._next.get(call.prompt, 0) < 4
        said = super().answer(call, place)
        return Response("\\boxed{-12345}", tokens=said.tokens) if sure else said


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    folder = tmp_path_factory.mktemp("recorded")
    with gzip.open(CONTROLLER.parent / "gsm8k.jsonl.gz", "rt", encoding="utf-8") as lines:
        (folder / "rows.jsonl").write_text("".join(islice(lines, 32)), "utf-8")
    return import_file(folder / "rows.jsonl", folder / "pool", task=get_task("gsm8k")).pool


@pytest.mark.parametrize("full", [False, True])
def test_another_model_behind_the_gateway_raises_the_alarm(
    pool: Pool, full: bool, caplog: pytest.LogCaptureFixture
) -> None:
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
        return calm, alarmed, after, (await house.get("/metrics"))[1]

    controller = Controller(get_task("gsm8k"), Schedule(), ASC(0.95))
    rules = {"audit_share": 1.0, "on_alarm": "full-budget" if full else "log"}
    with caplog.at_level(logging.INFO, "aera.gateway"):
        calm, alarmed, after, metrics = visit(scene, server, controller=controller, **rules)
    assert (calm["seen"], calm["alarm"], alarmed["alarm"]) == (12, False, True)
    assert 'aera_audit_alarm{model="m"} 1.0' in metrics
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len([each for each in said if json.loads(each)["event"] == "audit alarm"]) == 1
    if not full:
        assert {each["samples"] for each in after} == {4}
        assert {each["answer"] for each in after} == {"-12345"}
        return
    assert {each["samples"] for each in after} == {128}
    assert {each["policy"] for each in after} == {"fixed-128+vote"}
    assert "-12345" not in {each["answer"] for each in after}
    assert all("early answers change too often" in each["warnings"][0] for each in after)


def test_the_end_cancels_what_is_under_way(caplog: pytest.LogCaptureFixture) -> None:
    server = Turning(delay=lambda call: 5.0 if server.said[call.prompt] else 0.0)

    async def act(house: House) -> None:
        await house.post(asking("calm"))

    with caplog.at_level("INFO", "aera.gateway"):
        visit(act, server, audit_share=1.0, controller=controller_of())
    lines = [json.loads(record.message) for record in caplog.records]
    assert [each["outcome"] for each in lines if each.get("event") == "audit"] == ["cancelled"]


def test_audits_with_the_clients_own_keys_are_refused() -> None:
    with pytest.raises(UsageError, match="own keys"):
        config_of(["http://x/v1"], audit_share=1.0, forward_key=True)
