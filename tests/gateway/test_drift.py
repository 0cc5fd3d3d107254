"""A gateway whose controller is asked what it was not taught on."""

import json
import logging
from typing import Any

import pytest
from fakes import FakeUpstream
from foreign_questions import BUNDLED, GATED, short_questions
from gateways import House, account, visit
from live import boxed

from aera import Question
from aera.gateway.vote import DOUBT, DRIFTED

SHORT = short_questions(40)


async def ask(house: House, question: Question, **options: object) -> dict[str, object]:
    said = [{"role": "user", "content": BUNDLED.task.prompt(question)}]
    return account(await house.ask(messages=said, extra_body={"aera": options}))


async def visit_all(house: House) -> tuple[list[dict[str, object]], Any, str]:
    accounts = [await ask(house, each) for each in SHORT]
    state = json.loads((await house.get("/state"))[1])
    return accounts, state, (await house.get("/metrics"))[1]


def test_a_gateway_out_of_distribution_votes_plainly_counts_it_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "aera.gateway")
    accounts, state, metrics = visit(visit_all, FakeUpstream(boxed), controller=BUNDLED)
    assert accounts[0]["policy"] == GATED
    assert accounts[-1]["policy"] == "lead-4+vote"
    warned = [each["warnings"] for each in accounts]
    assert [DOUBT] in warned
    assert warned[-1] == [DRIFTED]
    assert state["models"][0]["drifted"] is True
    assert f"aera_drifted_total {warned.count([DRIFTED])}.0" in metrics
    said = [each.getMessage() for each in caplog.records if "taught on" in each.getMessage()]
    assert len(said) == 1


def test_what_a_request_names_it_gets_wherever_it_is() -> None:
    async def act(house: House) -> set[object]:
        await visit_all(house)
        named = [await ask(house, SHORT[-1], policy="aera-0.30")]
        named += [await ask(house, SHORT[-1], threshold=0.3)]
        return {each["policy"] for each in named}

    assert visit(act, FakeUpstream(boxed), controller=BUNDLED) == {"aera-0.30+vote"}
