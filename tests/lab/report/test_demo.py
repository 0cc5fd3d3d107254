import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from aera import Allocation, Pool
from aera.errors import UsageError
from aera.lab import Truths, grade
from aera.lab.report.demo import run_demo

Shown = tuple[list[Allocation], str, Path]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """A short demo without delays: what it did, what it showed, and the pool it left."""
    out = tmp_path_factory.mktemp("demo") / "pool"
    console = Console(file=StringIO(), width=120)
    allocations = run_demo(console, questions=20, pace=0.0, out=out)
    assert isinstance(console.file, StringIO)
    return allocations, console.file.getvalue(), out


def figure(text: str, row: str) -> float:
    found = re.search(rf"{row}\s+([-+.\d]+)", text)
    assert found is not None, text
    return float(found[1])


def test_every_question_is_solved_over_http(shown: Shown) -> None:
    allocations, text, _ = shown
    assert len({allocation.question_id for allocation in allocations}) == 20
    assert all(a.error is None and a.calls > 0 and a.prompt_tokens > 0 for a in allocations)
    assert "20 questions" in text
    assert "20/20 stopped" in text


def test_the_accuracy_is_that_of_the_answers(shown: Shown) -> None:
    allocations, text, out = shown
    pool, truths = Pool.open(out), Truths.open(out)
    assert truths is not None
    right = [grade(a.answer, truths[a.question_id], task=pool.task) for a in allocations]
    assert figure(text, "accuracy") == pytest.approx(100 * sum(right) / 20, abs=0.05)


def test_the_saving_is_that_of_the_tokens_spent(shown: Shown) -> None:
    allocations, text, out = shown
    asked = {allocation.question_id for allocation in allocations}
    records = [record for record in Pool.open(out) if record.question.id in asked]
    whole = sum(response.tokens for record in records for response in record.responses)
    spent = sum(allocation.completion_tokens for allocation in allocations)
    saved = figure(text, "completion tokens saved")
    assert saved == pytest.approx(100 * (1 - spent / whole), abs=0.05)
    assert 0 < saved < 100


def test_it_tells_difference_interval_time_and_what_is_shared(shown: Shown) -> None:
    _, text, _ = shown
    assert re.search(r"difference\s+[-+]\d+\.\d points, 95 % \[", text)
    assert re.search(r"responses per question\s+\d+\.\d of 128", text)
    assert re.search(r"time\s+\d+\.\d s for \d+ calls", text)
    assert "shares the recorded responses" in text


def test_a_pool_that_is_there_is_used_again_with_the_same_outcome(shown: Shown) -> None:
    allocations, _, out = shown
    again = run_demo(Console(file=StringIO()), questions=5, pace=0.0, out=out)
    before = {allocation.question_id: allocation for allocation in allocations}
    assert [a.question_id for a in again if a != before[a.question_id]] == []


def test_no_question_is_a_wrong_call() -> None:
    with pytest.raises(UsageError, match="questions"):
        run_demo(Console(file=StringIO()), questions=0)
