"""Equal expressions vote together wherever votes are counted, and hold up nobody else."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Call, FakeUpstream, inspect_state
from live import gathered, live

from aera import ASC, Allocation, Budget, Controller, Fixed, Policy, RecordedSampler, get_task
from aera.adapters.inspect import VoteStopping
from aera.core import Question, Response, Schedule
from aera.errors import ControllerError
from aera.policies.gate import Live
from aera.pools.pool import Plan, Record, read_votes, write_pool
from aera.reading import equivalence as module
from aera.reading.equivalence import Equivalence
from aera.solving.run import replay

HANGING = "\\frac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}"
SQUARE, SUM = "(x+1)^2", "x^2+2x+1"
TASK = replace(get_task("expression"), equivalence=True)
SCHEDULE = Schedule((4, 8, 16))


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> Equivalence:
    """What tasks ask here; patience is short where a test says so."""
    made = Equivalence(deadline=20.0)
    monkeypatch.setattr(module, "shared_equivalence", lambda: made)
    return made


def controller_of(policy: Policy | None = None) -> Controller:
    return Controller(TASK, SCHEDULE, policy or ASC(0.95))


def said(*answers: str) -> list[Response]:
    return [Response(f"so \\boxed{{{answer}}}", tokens=5) for answer in answers]


def by_turns(call: Call, place: int) -> str:
    """Two ways to write one answer; a question about what hangs gets that every other time."""
    odd = HANGING if "hangs" in call.prompt else SQUARE
    return f"so \\boxed{{{odd if place % 2 else SUM}}}"


# --- solving --------------------------------------------------------------------------------------


def solved(questions: list[str], policy: Policy, budget: Budget | None = None) -> list[Allocation]:
    """Allocations in the order in which the questions stop."""
    named, controller = [Question(each, each) for each in questions], controller_of(policy)
    upstream = FakeUpstream(by_turns)
    return live(upstream, lambda by: gathered(named, by, controller, budget=budget))


@pytest.mark.parametrize(
    ("policy", "budget", "count", "reason"),
    [
        (ASC(0.95), Budget(), 4, "confident leader"),
        (Fixed(16), Budget(responses=6), 6, "limit: responses"),
    ],
)
def test_a_live_solve_counts_equal_answers_together_also_in_an_unfinished_block(
    policy: Policy, budget: Budget, count: int, reason: str
) -> None:
    [made] = solved(["what?"], policy, budget)
    assert (made.answer, made.votes, made.responses) == (SUM, {SUM: count}, count)
    assert (made.reason, made.error) == (reason, None)


def test_a_hanging_answer_costs_its_deadline_and_no_other_question(shared: Equivalence) -> None:
    shared.deadline = 4.0
    begun = time.monotonic()
    done = solved(["what hangs?", "one?", "two?"], Fixed(4))
    assert {made.question_id for made in done[:2]} == {"one?", "two?"}
    assert [made.error for made in done] == [None] * 3
    assert done[-1].votes == {SUM: 2.0, HANGING: 2.0}
    assert done[-1].seconds >= max(4.0, done[1].seconds)
    assert time.monotonic() - begun < 60.0, "the one deadline, however busy the machine is"


# --- replay ---------------------------------------------------------------------------------------


def outline(made: Allocation) -> tuple[Any, ...]:
    steps = [(step.checkpoint, step.decision.stop) for step in made.steps]
    return made.question_id, made.answer, made.votes, made.responses, made.reason, steps


def test_live_allocations_are_those_of_replay(tmp_path: Path) -> None:
    """Of questions whose answers are written in several ways, also late and among others."""
    controller, sixteen = controller_of(), range(16)
    ways = [
        (SQUARE, SUM, "x+1", "1+x"),
        ("a+b", "c", "d", "e", "f", "b+a", "b+a", "a+b"),
        ("2y", "y+y", "3y", "y\\cdot 2"),
        ("p", "q"),
    ]
    records = [
        Record(Question(f"q{n}", f"what is {n}?"), (*said(*(w[i * i % len(w)] for i in sixteen)),))
        for n, w in enumerate(ways)
    ]
    pool = write_pool(tmp_path, records, Plan(TASK))
    recorded = [
        outline(replay(each.prefixes(SCHEDULE), Live.of(controller.policy), task=TASK).allocation)
        for each in read_votes(pool, TASK)
    ]
    assert len({made[3] for made in recorded}) > 1
    assert any(len(made[2]) < len({*w}) for made, w in zip(recorded, ways, strict=True))
    again = gathered(pool.questions.values(), RecordedSampler(pool), controller, concurrency=1)
    assert [outline(made) for made in asyncio.run(again)] == recorded


# --- Inspect --------------------------------------------------------------------------------------


def test_epochs_in_inspect_are_compared_off_its_event_loop() -> None:
    async def scene() -> Any:
        stopping = VoteStopping(controller_of(Fixed(6)))
        await stopping.start_task(None, [SimpleNamespace(id="q", input="?", choices=None)], 6)
        responses = said(*(SQUARE, SUM) * 3)
        epochs = [inspect_state("q", n, each) for n, each in enumerate(responses, 1)]
        await asyncio.gather(*map(stopping.collect, reversed(epochs)))
        return await stopping.complete_task(), stopping._runs["q"].allocation.votes

    told, votes = asyncio.run(scene())
    assert told["samples"]["q"] == {"answer": SQUARE, "epochs": 6, "reason": "fixed budget"}
    assert votes == {SQUARE: 6.0}


# --- refusals -------------------------------------------------------------------------------------


def test_a_controller_carries_it_and_is_refused_where_nothing_can_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller_of().save(tmp_path)
    assert Controller.load(tmp_path).pace == "waits"
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ControllerError) as caught:
        Controller.load(tmp_path)
    assert str(caught.value) == (
        f'the controller at "{tmp_path}" merges equal expressions, but equivalence needs '
        'math-verify: pip install "aera[math]"'
    )
