from dataclasses import replace
from pathlib import Path

import pytest
from lab_fixtures import Bench
from streams import NUMERIC

from aera.errors import PoolError
from aera.lab import Truths, grade, open_truths
from aera.lab.truths import Grader


def test_they_are_read_back_as_saved_where_there_are_any(tmp_path: Path) -> None:
    assert Truths.open(tmp_path) is None
    truths = Truths({"a": "1", "b": "\\frac{1}{2} é"})
    truths.save(tmp_path)
    assert Truths.open(tmp_path) == Truths.open(tmp_path / "truths.jsonl") == truths
    assert (dict(truths), len(truths)) == (truths.answers, 2)
    with pytest.raises(PoolError, match="no truth for question c"):
        _ = truths["c"]


def test_a_damaged_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "truths.jsonl").write_text(
        '{"id": "a", "answer": "1"}\n{"id": "b", "answer": null}\n'
    )
    with pytest.raises(PoolError, match=r'^truths.jsonl, line 2: the field "answer" is None$'):
        Truths.open(tmp_path)


@pytest.mark.parametrize(
    ("answer", "truth", "expected"),
    [("18", "18.0", 1), ("18", "19", 0), (None, "18", 0), ("?", "18", 0), ("2125", "2,125", 1)],
)
def test_grades_compare_meaning_and_no_answer_is_wrong(
    answer: str | None, truth: str, expected: float
) -> None:
    assert grade(answer, truth, task=NUMERIC) == expected
    assert Grader(NUMERIC, truth).grade(iter([answer, None, answer])) == [expected, 0, expected]


def test_records_in_memory_have_the_truths_of_their_pool(bench: Bench) -> None:
    assert open_truths(bench.pool) == open_truths(bench.records) == bench.truths
    assert open_truths(replace(bench.records, folder=None)) is None
