"""The same responses lead to the same decisions, over HTTP as in replay."""

import asyncio
import gzip
import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

import aera
from aera import ASC, Allocation, Pool, get_task
from aera.allocator import Allocator
from aera.controller import Controller
from aera.fake import RecordedUpstream
from aera.gate import Gated
from aera.lab import Ballot, import_jsonl, read_ballots, replay
from aera.sampler import Chat, OpenAISampler, RecordedSampler, Sampler
from aera.upstream import Endpoint

DEMO = Path(aera.__file__).parent / "demo"
QUESTIONS = 25
Controllers = dict[str, Controller]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    folder = tmp_path_factory.mktemp("recorded")
    with gzip.open(DEMO / "gsm8k.jsonl.gz", "rt", encoding="utf-8") as lines:
        (folder / "rows.jsonl").write_text("".join(islice(lines, QUESTIONS)), "utf-8")
    return import_jsonl(folder / "rows.jsonl", folder / "pool", task=get_task("gsm8k"))


@pytest.fixture(scope="module")
def ballots(pool: Pool) -> list[Ballot]:
    return read_ballots(pool, pool.task)


@pytest.fixture(scope="module")
def controllers(pool: Pool) -> Controllers:
    bundled = Controller.load(DEMO / "controller")
    assert bundled.gate is not None
    gated = replace(bundled, policy=Gated(bundled.gate, 0.3))
    return {"gate": gated, "asc": Controller(pool.task, pool.schedule, ASC(0.99))}


@pytest.fixture(scope="module")
def replayed(ballots: list[Ballot], controllers: Controllers) -> dict[str, list[Allocation]]:
    """What each controller does in replay, under the policy it has when it is live."""
    return {
        name: [
            replay(b.prefixes(c.schedule), c.live_policy, task=c.task).allocation for b in ballots
        ]
        for name, c in controllers.items()
    }


async def _live(pool: Pool, sampler: Sampler, controller: Controller) -> dict[str, Allocation]:
    many = Allocator(sampler, controller, concurrency=8).solve(pool.questions.values())
    return {made.question_id: made async for made in many}


def served(pool: Pool, controller: Controller, *, honours_n: bool) -> dict[str, Allocation]:
    """What it does when the pool's responses come from a server."""

    async def scene() -> dict[str, Allocation]:
        async with RecordedUpstream(pool, honours_n=honours_n) as server:
            chat = Chat("recorded", pool.task, {"seed": 0})
            async with OpenAISampler(Endpoint(server.base_url), chat) as sampler:
                return await _live(pool, sampler, controller)

    return asyncio.run(scene())


def assert_same(live: dict[str, Allocation], recorded: list[Allocation]) -> None:
    assert len(live) == len(recorded) == QUESTIONS
    for expected in recorded:
        made = live[expected.question_id]
        assert [(s.checkpoint, s.decision.stop, s.decision.reason) for s in made.steps] == [
            (s.checkpoint, s.decision.stop, s.decision.reason) for s in expected.steps
        ]
        chances = [step.decision.p_continue for step in made.steps]
        assert chances == pytest.approx(
            [step.decision.p_continue for step in expected.steps], abs=1e-9
        )
        assert (made.aggregate, made.votes) == (expected.aggregate, expected.votes)
        assert made.responses == expected.responses
        assert made.completion_tokens == expected.completion_tokens
        assert (made.reason, made.error) == (expected.reason, None)


@pytest.mark.parametrize("honours_n", [True, False])
@pytest.mark.parametrize("name", ["gate", "asc"])
def test_a_server_with_the_recorded_responses_gets_the_decisions_of_replay(
    pool: Pool,
    controllers: Controllers,
    replayed: dict[str, list[Allocation]],
    name: str,
    honours_n: bool,
) -> None:
    assert_same(served(pool, controllers[name], honours_n=honours_n), replayed[name])


@pytest.mark.parametrize("name", ["gate", "asc"])
def test_a_recorded_sampler_gets_the_decisions_of_replay(
    pool: Pool, controllers: Controllers, replayed: dict[str, list[Allocation]], name: str
) -> None:
    live = asyncio.run(_live(pool, RecordedSampler(pool), controllers[name]))
    assert_same(live, replayed[name])


def test_the_comparison_is_not_of_trivial_decisions(
    replayed: dict[str, list[Allocation]],
) -> None:
    for allocations in replayed.values():
        assert len({allocation.checkpoint for allocation in allocations}) >= 2
    chances = [s.decision.p_continue for a in replayed["gate"] for s in a.steps]
    assert len({round(chance, 6) for chance in chances if chance is not None}) > QUESTIONS


def test_an_allocation_can_be_written_as_json(replayed: dict[str, list[Allocation]]) -> None:
    from aera.cli.live import allocation_line

    line = json.loads(allocation_line(replayed["gate"][0]))
    assert line["question_id"] == replayed["gate"][0].question_id
    assert line["steps"][0]["decision"]["p_continue"] is not None
