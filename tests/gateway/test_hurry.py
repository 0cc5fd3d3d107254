"""A hurry behind the OpenAI API: the same answers sooner, and what was in vain is told."""

import asyncio
import time
from typing import Any

import openai
import pytest
from fakes import Call, FakeUpstream
from gateways import USER, House, account, visit

from aera import Response, Schedule, get_task
from aera.policies.baselines import ASC
from aera.solving.controller import Controller

CONTROLLER = Controller(get_task("numeric"), Schedule((4, 8, 16)), ASC(0.8))


def agreeing(call: Call, place: int) -> Response:
    return Response("\\boxed{7}", tokens=10)


def slow_later(call: Call) -> float:
    """All calls after the first take their time."""
    return 0.05 if call.number == 0 else 5.0


def serving(**settings: Any) -> dict[str, Any]:
    return {"controller": CONTROLLER, **settings}


def test_a_request_in_a_hurry_begins_ahead_and_tells_what_was_in_vain() -> None:
    server = FakeUpstream(agreeing, delay=slow_later)

    async def act(house: House) -> tuple[Any, str, Any]:
        reply = await house.ask(extra_body={"aera": {"hurry": 1}})
        _, metrics = await house.get("/metrics")
        async with house.http.get(f"{house.url}/state") as state:
            return reply, metrics, await state.json()

    reply, metrics, state = visit(act, server, **serving())
    told = account(reply)
    assert (told["answer"], told["samples"]) == ("7", 4)
    assert told["unused"]["broken_off"] == 12
    in_vain = told["unused"]["completion_tokens"]
    assert 0 < in_vain <= 120
    assert told["tokens"] == 40 + in_vain
    assert reply.usage.completion_tokens == 40 + in_vain
    assert f'aera_unused_tokens_total{{model="m"}} {float(in_vain)}' in metrics
    assert 'aera_unused_samples_total{outcome="broken off"} 12.0' in metrics
    assert "aera_vote_seconds_count 1.0" in metrics
    assert state["latest"][0]["unused"] == in_vain


def test_without_a_hurry_nothing_begins_ahead() -> None:
    server = FakeUpstream(agreeing)
    reply = visit(lambda house: house.ask(), server, **serving())
    assert "unused" not in account(reply)
    assert [call.n for call in server.calls] == [4]


def test_the_gateways_own_hurry_holds_where_a_request_says_nothing() -> None:
    async def act(house: House) -> tuple[Any, Any]:
        quiet = await house.ask()
        calm = await house.ask(extra_body={"aera": {"hurry": 0}})
        return account(quiet), account(calm)

    server = FakeUpstream(agreeing, delay=lambda call: 0.02)
    quiet, calm = visit(act, server, **serving(hurry=1.0))
    assert quiet["unused"]["responses"] + quiet["unused"]["broken_off"] == 12
    assert "unused" not in calm


def test_a_header_sets_it_too() -> None:
    async def act(house: House) -> Any:
        body = {"model": "aera/m", "messages": USER}
        _, _, said = await house.post(body, headers={"x-aera-hurry": "1"})
        return said["aera"]

    told = visit(act, FakeUpstream(agreeing, delay=lambda call: 0.02), **serving())
    assert told["unused"]["responses"] + told["unused"]["broken_off"] == 12


@pytest.mark.parametrize("hurry", [-1, 1.5, "fast", True, [1], "nan", 1e999])
def test_what_is_no_hurry_is_refused_in_one_sentence(hurry: Any) -> None:
    async def act(house: House) -> str:
        with pytest.raises(openai.BadRequestError) as error:
            await house.ask(extra_body={"aera": {"hurry": str(hurry) if hurry == 1e999 else hurry}})
        return str(error.value)

    assert "aera.hurry" in visit(act, FakeUpstream(agreeing), **serving())


def test_a_client_that_leaves_breaks_off_what_was_begun_ahead() -> None:
    server = FakeUpstream(agreeing, delay=lambda call: 5.0)

    async def act(house: House) -> tuple[float, int]:
        task = asyncio.create_task(house.ask(extra_body={"aera": {"hurry": 1}}))
        while len(server.calls) < 3:
            await asyncio.sleep(0.005)
        task.cancel()
        left = time.monotonic()
        while server.active and time.monotonic() < left + 3:
            await asyncio.sleep(0.005)
        return time.monotonic() - left, server.active

    took, active = visit(act, server, **serving())
    assert active == 0
    assert took < 2


def test_choices_that_share_a_limit_are_in_no_hurry_and_say_so() -> None:
    async def act(house: House) -> Any:
        options = {"hurry": 1, "max_tokens_total": 10_000}
        reply = await house.ask(n=2, max_tokens=20, extra_body={"aera": options})
        return reply.model_extra["aera"]["choices"]

    first, second = visit(act, FakeUpstream(agreeing), **serving())
    assert "unused" not in first
    assert any("no hurry" in said for said in (*first["warnings"], *second["warnings"]))
