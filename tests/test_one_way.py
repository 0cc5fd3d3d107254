"""One way to decide: the same recorded responses get the same decisions wherever they come in.

The reference is `aera.solve` on the recorded responses. Against it stand the replay of
`aera evaluate --controller`, the commands `solve` and `serve` with a recorded model server behind
real sockets, and the adapters for Inspect and vLLM. Nothing may differ.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import StandInLLM, in_background, inspect_state, stand_in_for_inspect
from foreign import brought
from foreign_questions import DEMO, demo_rows, short_questions
from gateways import ask, free_port, served
from nets import paper_gate_of
from typer.testing import CliRunner

import aera
from aera import Allocation, Chat, Controller, Pool, Question, Response, Schedule
from aera.adapters.inspect import VoteStopping
from aera.adapters.vllm import VLLMSampler
from aera.cli import app
from aera.lab import grade, open_truths
from aera.lab.frontier import Kind
from aera.paper.encoder import StaticEncoder
from aera.policies.gate import Gated

TASK = aera.get_task("gsm8k")
SILENCE = {"text": "I cannot tell.", "tokens": 5, "logprob": -1.0, "finish_reason": "stop"}
STREAMS = {"plain": 16, "long": 2, "silent start": 3, "silent": 1, "foreign": 12}
"""How many questions each kind has."""


class Shortest:
    """A scorer that needs no model, and often finds two responses equal."""

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        return [1 / (1 + len(each.text) // 200) for each in responses]


@dataclass(frozen=True)
class Outcome:
    """What became of one question; None is what a way does not tell."""

    stop: int
    right: float | None = None
    answer: str | None = None
    reason: str | None = None
    text: str | None = None


Outcomes = dict[str, Outcome]


# --- what is fed ----------------------------------------------------------------------------------


def _rows() -> Iterator[dict[str, Any]]:
    """The recorded questions, and others made of their responses; ids begin with their stream."""
    recorded = demo_rows(STREAMS["plain"])
    agreed = [row for row in recorded if _agrees(row["responses"][:4])]
    silent = [SILENCE] * len(recorded[0]["responses"])
    for place, row in enumerate(recorded):
        yield {**row, "id": f"plain {place}"}
        if place < STREAMS["silent start"]:
            yield _row("silent start", place, row, silent[:4] + row["responses"][4:])
        if place < STREAMS["silent"]:
            yield _row("silent", place, row, silent)
    for place, row in enumerate(agreed[: STREAMS["long"]]):
        long = [{**each, "tokens": 40 * each["tokens"]} for each in row["responses"]]
        yield _row("long", place, row, long)
    for question, row in zip(short_questions(STREAMS["foreign"]), recorded, strict=False):
        yield {**row, "id": f"foreign {question.id[1:]}", "question": question.text}


def _agrees(responses: Sequence[dict[str, Any]]) -> bool:
    answers = {TASK.read(Response(each["text"])).answer for each in responses}
    return len(answers) == 1 and None not in answers


def _row(stream: str, place: int, row: dict[str, Any], responses: Any) -> dict[str, Any]:
    """The same question in other words, so that a server can tell them apart."""
    words = f"{row['question']} ({stream} {place})"
    return {**row, "id": f"{stream} {place}", "question": words, "responses": responses}


@dataclass(frozen=True, eq=False)
class Case:
    """Who decides what."""

    controller: Controller
    options: tuple[str, ...]
    """What gives it to a command."""
    asked: Sequence[Question]


@dataclass(frozen=True, eq=False)
class Feed:
    """Everything recorded, in one pool with one server in front of it."""

    folder: Path
    pool: Pool
    url: str

    @cache  # noqa: B019  one feed lives as long as the module
    def outcomes(self, way: str, name: str, order: str = "") -> Outcomes:
        """All questions, the controller trusted; or those of one stream with the drift check on.

        Without the check questions know nothing of each other, so all streams go in at once.
        """
        controller, options = self.controller(name)
        if not order:
            controller, options = replace(controller, home=None), (*options, "--trust")
        asked = [each for each in self.pool.questions.values() if each.id.startswith(order)]
        return WAYS[way](self, Case(controller, options, asked))

    @cache  # noqa: B019
    def controller(self, name: str) -> tuple[Controller, tuple[str, ...]]:
        if name == "default":
            return aera.default_controller(TASK), ("--task", TASK.name)
        if name == "fixed":
            made = aera.default_controller(TASK).run_by("fixed-16")
            return made, ("--task", TASK.name, "--policy", "fixed-16")
        folder, scorer = DEMO / "controller", None
        options: tuple[str, ...] = ()
        if name == "paper gate":
            folder = self.folder / name
            gate = paper_gate_of(StaticEncoder.load())
            Controller(TASK, Schedule((4, 8, 16)), Gated(gate, 0.9745), gate).save(folder)
        elif name == "best of n":
            folder, scorer = self.folder / name, Shortest()
            options = ("--scorer", "test_one_way:Shortest")
            aera.train(self.pool, scorer=scorer, price=0.01).save(folder)
        made = Controller.load(folder, scorer=scorer)
        return made, ("--controller", str(folder), *options)


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Feed]:
    folder = tmp_path_factory.mktemp("one way")
    pool = brought(folder, [*_rows()], task=TASK).pool
    with in_background(aera.RecordedUpstream(pool)) as server:
        yield Feed(folder, pool, server.base_url)


# --- the ways -------------------------------------------------------------------------------------


def _told(made: Allocation) -> Outcome:
    return Outcome(made.responses, None, made.answer, made.reason, made.text)


def by_hand(feed: Feed, case: Case) -> Outcomes:
    """One question after the other on the recorded responses."""
    lookout, sampler = case.controller.make_lookout(), aera.RecordedSampler(feed.pool)

    async def scene() -> Outcomes:
        return {
            each.id: _told(await aera.solve(each, sampler, case.controller, lookout=lookout))
            for each in case.asked
        }

    return asyncio.run(scene())


def by_evaluate(feed: Feed, case: Case) -> Outcomes:
    """The row of a controller tells the stops, and which answers are right."""
    result = aera.evaluate(feed.pool, controller=case.controller)
    [point] = [each for each in result.frontier.points if each.kind is Kind.CONTROLLER]
    rows = zip(point.trajectories.question_ids, point.counts, point.scores, strict=True)
    return {name: Outcome(int(count), float(score)) for name, count, score in rows}


def by_command(feed: Feed, case: Case) -> Outcomes:
    asked = [json.dumps({"id": each.id, "question": each.text}) for each in case.asked]
    (file := feed.folder / "asked.jsonl").write_text("\n".join(asked), "utf-8")
    server = ("--base-url", feed.url, "--model", "recorded", "--seed", "0")
    done = CliRunner().invoke(app, ["solve", *server, "--file", str(file), *case.options])
    assert done.exit_code in (0, 3), done.output
    told = {each["question_id"]: each for each in map(json.loads, done.stdout.splitlines())}
    return {
        name: Outcome(each["responses"], None, each["answer"], each["reason"], each["text"])
        for name, each in told.items()
    }


def by_gateway(feed: Feed, case: Case) -> Outcomes:
    port, found = free_port(), {}
    named = dict(zip(*[iter(each for each in case.options if each != "--trust")] * 2, strict=True))
    rows = {"name": "recorded", "upstream": "first", "trust": "--trust" in case.options}
    rows |= {name.removeprefix("--"): value for name, value in named.items()}
    lines = [f"{name} = {json.dumps(value)}" for name, value in rows.items()]
    first = f'[[upstream]]\nname = "first"\nurls = [{json.dumps(feed.url)}]\n'
    file = feed.folder / "gateway.toml"
    file.write_text("\n".join([first, "[[model]]", *lines]), "utf-8")
    with served(port, "--config", str(file), PYTHONPATH=str(Path(__file__).parent)):
        for each in case.asked:
            messages = [{"role": "user", "content": TASK.prompt(each)}]
            body = {"model": "aera/recorded", "messages": messages, "seed": 0, "temperature": 1}
            status, reply = ask(port, "/v1/chat/completions", body)
            assert status == 200, reply
            told, text = reply["aera"], reply["choices"][0]["message"]["content"]
            found[each.id] = Outcome(told["samples"], None, told["answer"], told["reason"], text)
    return found


def by_inspect(feed: Feed, case: Case) -> Outcomes:
    """Through the hook."""
    stopping = VoteStopping(case.controller)
    said = {record.question.id: record.responses for record in feed.pool}

    async def scene() -> Any:
        samples = [
            SimpleNamespace(id=each.id, input=each.text, choices=None) for each in case.asked
        ]
        last = case.controller.schedule.last
        await stopping.start_task(None, samples, last)
        for each in case.asked:
            for epoch in range(1, last + 1):
                if await stopping.schedule_sample(each.id, epoch) is not None:
                    break
                response = said[each.id][epoch - 1]
                await stopping.collect(inspect_state(each.id, epoch, response))
        return (await stopping.complete_task())["samples"]

    with pytest.MonkeyPatch.context() as patch:
        stand_in_for_inspect(patch)
        told = asyncio.run(scene())
    return {
        name: Outcome(each["epochs"], None, each["answer"], each["reason"])
        for name, each in told.items()
    }


def vllm_engine(pool: Pool) -> StandInLLM:
    """As `vllm.LLM`, with recorded completions."""
    said = {TASK.prompt(each.question): each.responses for each in pool}

    def made(one: Response) -> SimpleNamespace:
        about = {"cumulative_logprob": one.logprob, "finish_reason": one.finish_reason}
        return SimpleNamespace(text=one.text, token_ids=[0] * one.tokens, **about)

    return StandInLLM(lambda prompt, p: [*map(made, said[prompt][p.seed : p.seed + p.n])])


def by_vllm(feed: Feed, case: Case) -> Outcomes:
    chat = Chat("recorded", TASK, {"seed": 0}, wishes=case.controller.asks)
    sampler = VLLMSampler(vllm_engine(feed.pool), chat, SimpleNamespace)

    async def scene() -> Outcomes:
        many = aera.solve_many(case.asked, sampler, case.controller)
        return {made.question_id: _told(made) async for made in many}

    return asyncio.run(scene())


WAYS: dict[str, Callable[[Feed, Case], Outcomes]] = {
    "by hand": by_hand,
    "evaluate": by_evaluate,
    "solve": by_command,
    "serve": by_gateway,
    "inspect": by_inspect,
    "vllm": by_vllm,
}
TELLS_TEXT = ("solve", "serve", "vllm")


CONTROLLERS = ("bundled", "default", "fixed", "paper gate", "best of n")


def cases() -> Iterator[Any]:
    """Every way under every controller with every stream, and the bundled one in two orders."""
    trusted = [(name, stream, "") for name in CONTROLLERS for stream in STREAMS]
    checked = [("bundled", stream, stream) for stream in ("plain", "foreign")]
    for way in [way for way in WAYS if way != "by hand"]:
        for name, stream, order in trusted + checked * (way != "evaluate"):  # which has no order
            label = "-".join([way, name, stream, *(["checked"] if order else [])])
            yield pytest.param(way, name, stream, order, id=label)


@pytest.mark.parametrize(("way", "name", "stream", "order"), [*cases()])
def test_all_ways_decide_the_same(feed: Feed, way: str, name: str, stream: str, order: str) -> None:
    expected, made = feed.outcomes("by hand", name, order), feed.outcomes(way, name, order)
    truths = open_truths(feed.pool)
    for each in [f"{stream} {place}" for place in range(STREAMS[stream])]:
        one, other = expected[each], made[each]
        if way == "evaluate":
            said = TASK.read(Response(one.text or "")).answer  # of best-of-n the answer is the text
            right = grade(said, truths[each], task=TASK)
            assert (other.stop, other.right) == (one.stop, right), each
            continue
        told = (one.stop, one.answer, one.reason)
        assert (other.stop, other.answer, other.reason) == told, each
        if way in TELLS_TEXT and one.answer is not None:
            assert other.text == one.text, each


def test_the_comparison_is_not_of_trivial_decisions(feed: Feed) -> None:
    for name in ("bundled", "default", "paper gate"):
        made = feed.outcomes("by hand", name)
        assert len({each.stop for key, each in made.items() if key.startswith("plain")}) > 2
    abroad = feed.outcomes("by hand", "bundled", "foreign")
    assert {each.reason for each in abroad.values()} >= {"lead", "little left to gain"}


@pytest.mark.parametrize(("stream", "stop"), [("long", 128), ("silent", 8)])
def test_what_was_chosen_where_they_differ(feed: Feed, stream: str, stop: int) -> None:
    """A gate out of its range is not trusted; nothing readable is one more block, then the end."""
    assert feed.outcomes("by hand", "bundled")[f"{stream} 0"].stop == stop
