import asyncio
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Call, FakeUpstream, inspect_state
from hypothesis import given
from hypothesis import strategies as st
from live import gathered, live

from aera import Allocation, Budget, Controller, RecordedSampler, Response, get_task
from aera.adapters.inspect import VoteStopping
from aera.core import Question, Schedule
from aera.errors import AeraError, ControllerError, RunError
from aera.policies.gate import Live
from aera.policies.rules import ASC, Fixed, Policy
from aera.pools.pool import Plan, Record, read_votes, write_pool
from aera.reading import equivalence as module
from aera.reading.equivalence import Equivalence, Worker
from aera.reading.task import QuestionReader
from aera.solving.run import replay

HANGING = "\\frac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}"
"""Math-Verify's issue 65: it outlives the library's own time limit and any signal."""


@pytest.fixture(scope="module")
def equivalence() -> Equivalence:
    return Equivalence(deadline=20.0)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Worker]:
    """Every process that starts, in order."""
    every: list[Worker] = []

    class Noted(Worker):
        def __init__(self) -> None:
            super().__init__()
            every.append(self)

    monkeypatch.setattr(module, "Worker", Noted)
    return every


@pytest.fixture
def quick(started: list[Worker]) -> Equivalence:
    """One that loses its patience soon; its process is warm."""
    made = Equivalence(deadline=20.0)
    assert made.same("x+1", "1+x")
    assert len(started) == 1
    made.deadline = 1.0
    return made


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("(x+1)^2", "x^2+2x+1", True),
        ("\\frac{a+b}{2}", "\\frac{b+a}{2}", True),
        ("3\\sqrt{2}+1", "1+3\\sqrt{2}", True),
        ("\\sin^2x+\\cos^2x", "1", True),
        ("2^{10}", "1024", True),
        ("x", "x", True),
        ("x+1", "x+2", False),
        ("[1,2)", "(1,2)", False),
        ("x>3", "(3,\\infty)", False),  # equal one way round only
        ("0.3333333", "\\frac{1}{3}", False),  # numbers are exact
        ("listen", "silent", False),  # no products of letters
        ("\\frac{", "1", False),
        ("", "x", False),
        ("{{{", "x\n+1", False),
    ],
)
def test_expressions_are_the_same_where_they_are_equal(
    equivalence: Equivalence, one: str, other: str, same: bool
) -> None:
    assert equivalence.same(one, other) == equivalence.same(other, one) == same


@pytest.mark.parametrize("hanging", [HANGING, "2003^{2002^{2001}}"])
def test_a_hanging_expression_costs_one_deadline(quick: Equivalence, hanging: str) -> None:
    begun = time.monotonic()
    assert not quick.same("x+1", hanging)
    assert 0.9 < time.monotonic() - begun < 60.0
    begun = time.monotonic()
    assert not quick.same("x+2", hanging)
    assert time.monotonic() - begun < 0.9, "it is not asked about again"
    quick.deadline = 20.0
    assert quick.same("z+1", "1+z")


@pytest.mark.parametrize("at_work", [False, True])
def test_a_killed_process_is_replaced_and_asked_again(
    quick: Equivalence, started: list[Worker], at_work: bool
) -> None:
    quick.deadline = 20.0
    process = started[0].process
    if at_work:
        os.kill(process.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(quick.same, "w+1", "1+w") if at_work else None
        time.sleep(0.3 * at_work)
        process.kill()
        process.wait()
        assert asking.result(20) if asking else quick.same("w+1", "1+w")
    assert len(started) == 2


async def test_the_event_loop_is_never_blocked(equivalence: Equivalence) -> None:
    with pytest.raises(RunError, match="event loop"):
        equivalence.same("v+1", "1+v")
    assert await asyncio.to_thread(equivalence.same, "v+1", "1+v")


# --- threads --------------------------------------------------------------------------------------


def test_an_expression_costs_threads_one_process(quick: Equivalence, started: list[Worker]) -> None:
    with ThreadPoolExecutor(16) as threads:
        begun = time.monotonic()
        others = [f"x+{n}" for n in range(16)]
        assert not any(threads.map(quick.same, others, [HANGING] * 16))
    assert time.monotonic() - begun < 60.0
    assert sum(worker.dead for worker in started) == 1
    assert len(started) <= module.WORKERS + 1


def test_a_process_that_does_not_start_keeps_nobody_waiting(
    quick: Equivalence, started: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        time.sleep(0.05)
        raise AeraError("math-verify did not start")

    started[0].kill()
    with monkeypatch.context() as patch:
        patch.setattr(module, "Worker", broken)
        with ThreadPoolExecutor(4) as threads:
            asking = [threads.submit(quick.same, "m+1", "1+m") for _ in range(4)]
            for each in asking:
                with pytest.raises(AeraError, match="did not start"):
                    each.result(20)
    quick.deadline = 20.0
    assert quick.same("m+1", "1+m")


# --- merging --------------------------------------------------------------------------------------


def swapped(one: str, other: str) -> bool:
    """A stand-in: a+b and b+a are the same."""
    return one == "+".join(reversed(other.split("+")))


def said(answer: str | None) -> Response:
    return Response("no idea" if answer is None else f"\\boxed{{{answer}}}", tokens=1)


def merged(answers: list[str | None], same: Callable[[str, str], bool] = swapped) -> list[object]:
    reader = QuestionReader(get_task("expression"), same=same)
    return [reader.read(said(answer)).answer for answer in answers]


def test_equal_answers_vote_under_the_name_that_came_first() -> None:
    assert merged(["a+b", "b+a", None, "c", "b+a"]) == ["a+b", "a+b", None, "c", "a+b"]


def test_answers_found_to_be_equal_late_join_from_then_on() -> None:
    leading: list[str | None] = ["p", "q", "r", "s", "p", "q", "r", "s"]
    late: list[str | None] = ["a+b", "b+a", "a+b", "a+b", "b+a", "a+b", "b+a"]
    named = merged(leading + late)[len(leading) :]
    # b+a came while a+b was not among the four leaders; with three votes it is.
    assert named == ["a+b", "b+a", *["a+b"] * 5]


@given(answers=st.lists(st.sampled_from(["a+b", "b+a", "c", "d", "e", "f", "a+c", "c+a", None])))
def test_a_vote_depends_on_earlier_responses_only(answers: list[str | None]) -> None:
    for length in range(len(answers)):
        assert merged(answers)[:length] == merged(answers[:length])


# --- wherever votes are counted -------------------------------------------------------------------

SQUARE, SUM = "(x+1)^2", "x^2+2x+1"
MERGING = replace(get_task("expression"), equivalence=True)
STEPS = Schedule((4, 8, 16))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> Equivalence:
    """What tasks ask here; patience is short where a test says so."""
    made = Equivalence(deadline=20.0)
    monkeypatch.setattr(module, "shared_equivalence", lambda: made)
    return made


def controller_of(policy: Policy | None = None) -> Controller:
    return Controller(MERGING, STEPS, policy or ASC(0.95))


def saying(*answers: str) -> list[Response]:
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


def test_a_hanging_answer_costs_its_deadline_and_no_other_question(patient: Equivalence) -> None:
    patient.deadline = 4.0
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
        Record(
            Question(f"q{n}", f"what is {n}?"), tuple(saying(*(w[i * i % len(w)] for i in sixteen)))
        )
        for n, w in enumerate(ways)
    ]
    pool = write_pool(tmp_path, records, Plan(MERGING))
    recorded = [
        outline(replay(each.prefixes(STEPS), Live.of(controller.policy), task=MERGING).allocation)
        for each in read_votes(pool, MERGING)
    ]
    assert len({made[3] for made in recorded}) > 1
    assert any(len(made[2]) < len({*w}) for made, w in zip(recorded, ways, strict=True))
    again = gathered(pool.questions.values(), RecordedSampler(pool), controller, concurrency=1)
    assert [outline(made) for made in asyncio.run(again)] == recorded


# --- Inspect --------------------------------------------------------------------------------------


async def test_epochs_in_inspect_are_compared_off_its_event_loop() -> None:
    stopping = VoteStopping(controller_of(Fixed(6)))
    await stopping.start_task(None, [SimpleNamespace(id="q", input="?", choices=None)], 6)
    responses = saying(*(SQUARE, SUM) * 3)
    epochs = [inspect_state("q", n, each) for n, each in enumerate(responses, 1)]
    await asyncio.gather(*map(stopping.collect, reversed(epochs)))
    told, votes = await stopping.complete_task(), stopping._runs["q"].allocation.votes
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
