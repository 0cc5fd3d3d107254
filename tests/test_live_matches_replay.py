"""The same responses lead to the same decisions, over HTTP as in replay."""

import asyncio
import gzip
import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from fakes import recorded_server

import aera
from aera import ASC, Allocation, Fixed, Pool, get_task
from aera.evidence.encoder import StaticEncoder
from aera.evidence.paper import Projection
from aera.evidence.votes import vote_features
from aera.lab import MostUtility, RewardLearner, import_jsonl
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.learning.vote_gate import VoteGateFit, VoteStates
from aera.network import Layer, Network
from aera.policies.gate import Gated, Live, PaperGate, VoteGate
from aera.pools.record import VotedRecord, read_votes
from aera.sampling.recorded import RecordedSampler
from aera.sampling.sampler import Chat, OpenAISampler, Sampler
from aera.sampling.upstream import Endpoint
from aera.solving.controller import Controller
from aera.solving.replay import replay
from aera.solving.solve import solve_many
from aera.voting.best_of_n import BestOfN, ChanceRight
from aera.voting.traits import UNTRACED, traits
from aera.voting.weigher import Weigher

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
def records(pool: Pool) -> list[VotedRecord]:
    return read_votes(pool, pool.task)


def weigher_of(records: list[VotedRecord]) -> Weigher:
    """Chance weights on the range of these responses: nothing is learned, but all traits count."""
    rng = np.random.default_rng(0)
    known = [traits(r.question, r.responses, r.votes) for r in records]
    seen = np.nan_to_num(np.concatenate(known))[:, : len(UNTRACED)]
    layer = Layer(rng.normal(size=(6, len(UNTRACED))), *rng.normal(size=(3, 6)))
    lows, highs = seen.min(axis=0), seen.max(axis=0)
    frozen = (np.median(seen, axis=0), seen.mean(axis=0), seen.std(axis=0) + 1e-9)
    head = (rng.normal(size=(1, 6)), np.zeros(1))
    return Weigher(Network(*frozen, (layer,), *head, lows=lows, highs=highs))


def vote_gate_of(pool: Pool, records: list[VotedRecord]) -> VoteGate:
    """A gate that goes on where the answer is not yet that of the full budget."""
    chains = [record.prefixes(pool.schedule) for record in records]
    evidence = np.array([[vote_features(prefix) for prefix in chain] for chain in chains])
    answers = [[prefix.tally.leaders.answer for prefix in chain] for chain in chains]
    grades = np.array([[float(answer == row[-1]) for answer in row] for row in answers])
    tokens = np.array([[float(prefix.completion_tokens) for prefix in chain] for chain in chains])
    return VoteGateFit().fit(VoteStates(evidence, grades, tokens))


def paper_gate_of() -> PaperGate:
    """The paper's shape with chance weights, over the shipped encoder."""
    rng, encoder = np.random.default_rng(1), StaticEncoder.load()

    def layer(inputs: int, size: int) -> Layer:
        return Layer(rng.normal(size=(size, inputs)) / 4, *rng.normal(size=(3, size)))

    frozen = (np.zeros(55), np.zeros(55), np.full(55, 2.0))
    net = Network(*frozen, (layer(55, 64), layer(64, 32)), rng.normal(size=(1, 32)), np.zeros(1))
    size = encoder.dimensions
    return PaperGate(net, Projection(np.zeros(size), rng.normal(size=(32, size))), encoder)


def best_of_n(pool: Pool, weigher: Weigher) -> Controller:
    """Every response a candidate, with a gate on their scores."""
    scale = BestOfN(ChanceRight(weigher, pool.task), uses_logprobs=True)
    learner = RewardLearner(scale, price=0.2)
    table = learner.prepare(pool)
    model = learner.fit(table, np.arange(len(table)), seed=0)
    choice = model.own.choose(GATE_FAMILY, MostUtility(0.2), seed=0)
    assert choice.setting is not None
    policy = model.policy(choice.setting)
    return Controller(pool.task, pool.schedule, policy, policy.gate, scale)


@pytest.fixture(scope="module")
def controllers(pool: Pool, records: list[VotedRecord]) -> Controllers:
    weigher = weigher_of(records)
    gate = vote_gate_of(pool, [record.weigh(weigher) for record in records])
    voting = Controller(pool.task, pool.schedule, Gated(gate, 0.3), gate, weigher)
    bundled = Controller.load(DEMO / "controller")
    assert bundled.gate is not None
    gated = replace(bundled, policy=Gated(bundled.gate, 0.3))
    paper = paper_gate_of()
    first = [paper.p_continue(record.prefixes(pool.schedule)[0]) for record in records]
    cautious = Gated(paper, float(np.quantile(first, 0.6)))  # every other question goes on
    return {
        "gate": gated,
        "paper gate": Controller(pool.task, pool.schedule, cautious, paper),
        "asc": Controller(pool.task, pool.schedule, ASC(0.99)),
        "weighted gate": voting,
        "weighted asc": replace(voting, policy=ASC(0.9)),
        "best of n": best_of_n(pool, weigher),
        "weighted budget": replace(voting, policy=Fixed(pool.schedule.last)),
    }


@pytest.fixture(scope="module")
def replayed(records: list[VotedRecord], controllers: Controllers) -> dict[str, list[Allocation]]:
    """What each controller does in replay, under the policy it has when it is live."""
    weighers = {c.weigher for c in controllers.values() if c.weigher}
    weighted = {weigher: [record.weigh(weigher) for record in records] for weigher in weighers}
    return {
        name: [
            replay(r.prefixes(c.schedule), Live.of(c.policy), task=c.task).allocation
            for r in (weighted[c.weigher] if c.weigher else records)
        ]
        for name, c in controllers.items()
    }


async def _live(pool: Pool, sampler: Sampler, controller: Controller) -> dict[str, Allocation]:
    many = solve_many(pool.questions.values(), sampler, controller, concurrency=8)
    return {made.question_id: made async for made in many}


def served(pool: Pool, controller: Controller, *, honours_n: bool) -> dict[str, Allocation]:
    """What it does when the pool's responses come from a server."""

    async def scene() -> dict[str, Allocation]:
        async with recorded_server(pool, honours_n=honours_n) as server:
            chat = Chat("recorded", pool.task, {"seed": 0, **controller.asks})
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
        assert (made.aggregate.answer, made.votes) == (
            expected.aggregate.answer,
            pytest.approx(expected.votes, rel=1e-9),
        )
        assert made.responses == expected.responses
        assert made.completion_tokens == expected.completion_tokens
        assert (made.reason, made.error) == (expected.reason, None)


@pytest.mark.parametrize("honours_n", [True, False])
@pytest.mark.parametrize("name", ["gate", "paper gate", "asc", "weighted gate", "best of n"])
def test_a_server_with_the_recorded_responses_gets_the_decisions_of_replay(
    pool: Pool,
    controllers: Controllers,
    replayed: dict[str, list[Allocation]],
    name: str,
    honours_n: bool,
) -> None:
    assert_same(served(pool, controllers[name], honours_n=honours_n), replayed[name])


@pytest.mark.parametrize(
    "name", ["gate", "paper gate", "asc", "weighted gate", "weighted asc", "best of n"]
)
def test_a_recorded_sampler_gets_the_decisions_of_replay(
    pool: Pool, controllers: Controllers, replayed: dict[str, list[Allocation]], name: str
) -> None:
    live = asyncio.run(_live(pool, RecordedSampler(pool), controllers[name]))
    assert_same(live, replayed[name])


def test_the_comparison_is_not_of_trivial_decisions(
    replayed: dict[str, list[Allocation]],
) -> None:
    for name, allocations in replayed.items():
        if name != "weighted budget":
            assert len({allocation.checkpoint for allocation in allocations}) >= 2
    for name in ("gate", "paper gate", "weighted gate"):
        chances = [s.decision.p_continue for a in replayed[name] for s in a.steps]
        assert len({round(chance, 6) for chance in chances if chance is not None}) > QUESTIONS
    for name in ("weighted gate", "weighted asc", "weighted budget"):
        assert any(weight % 1 for made in replayed[name] for weight in made.votes.values())


def test_a_weighted_full_budget_gets_the_votes_of_replay_in_one_block(
    pool: Pool, controllers: Controllers, replayed: dict[str, list[Allocation]]
) -> None:
    live = asyncio.run(_live(pool, RecordedSampler(pool), controllers["weighted budget"]))
    for expected in replayed["weighted budget"]:
        made = live[expected.question_id]
        assert [step.checkpoint for step in made.steps] == [pool.schedule.last]
        assert made.answer == expected.answer
        assert made.votes == pytest.approx(expected.votes, rel=1e-9)


def test_an_allocation_can_be_written_as_json(replayed: dict[str, list[Allocation]]) -> None:
    from aera.cli.solve import allocation_line

    line = json.loads(json.dumps(allocation_line(replayed["gate"][0])))
    assert line["question_id"] == replayed["gate"][0].question_id
    assert line["steps"][0]["decision"]["p_continue"] is not None
