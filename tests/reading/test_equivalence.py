import asyncio
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera import Response, get_task
from aera.errors import AeraError, RunError
from aera.reading import equivalence as module
from aera.reading.equivalence import Equivalence, Worker
from aera.reading.task import QuestionReader

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


def test_the_event_loop_is_never_blocked(equivalence: Equivalence) -> None:
    async def ask() -> bool:
        return equivalence.same("v+1", "1+v")

    with pytest.raises(RunError, match="event loop"):
        asyncio.run(ask())

    async def aside() -> bool:
        return await asyncio.to_thread(equivalence.same, "v+1", "1+v")

    assert asyncio.run(aside())


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
