import json
from pathlib import Path
from typing import Any

import pytest

from aera import Question, get_task
from aera.errors import PoolError
from aera.lab import Truths
from aera.lab.formats.rows import read_exam, read_questions

COLOURS = {"id": "c", "question": "which?", "choices": ["red", "blue", "green", "grey"]}


def exam_of(
    tmp_path: Path, *rows: dict[str, Any], task: str = "numeric", seed: int = 0
) -> tuple[list[Question], Truths | None]:
    """The exam these lines make, a blank one below each."""
    (tmp_path / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n\n" for row in rows))
    return read_exam(tmp_path / "q.jsonl", get_task(task), seed=seed)


def test_questions_and_truths_are_parted(tmp_path: Path) -> None:
    rows = ({"id": "a", "question": "1+1?", "answer": 2}, {"question": "2+2?", "answer": None})
    questions = [Question("a", "1+1?"), Question("3", "2+2?")]
    assert exam_of(tmp_path, *rows) == (questions, Truths({"a": "2"}))
    assert exam_of(tmp_path, {"question": "?"})[1] is None


def test_the_truth_moves_with_the_choices_where_the_task_shuffles(tmp_path: Path) -> None:
    line = {**COLOURS, "answer": "green"}
    [question], truths = exam_of(tmp_path, line, task="commonsense", seed=5)
    assert (question.choices, truths) == (tuple(COLOURS["choices"]), Truths({"c": "C"}))
    for answer in ("green", "C", "(C)"):
        for seed in range(6):
            line = {**COLOURS, "answer": answer}
            [question], truths = exam_of(tmp_path, line, task="gpqa", seed=seed)
            assert question.choices["ABCD".index(truths["c"])] == "green"
            assert question == Question("c", "which?", tuple(COLOURS["choices"])).arrange(seed)


TABLE = 'id,problem,answer\na,1+1?,2\nb,"2, or 3?",3\n'
ROWS = '{"a": {"problem": "1+1?", "answer": 2}, "b": {"problem": "2, or 3?", "answer": 3}}'


@pytest.mark.parametrize(("name", "text"), [("q.csv", TABLE), ("q.txt", TABLE), ("q.json", ROWS)])
def test_a_table_is_read_as_one_and_its_answers_stay_behind(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    asked = [Question("a", "1+1?"), Question("b", "2, or 3?")]
    exam = read_exam(tmp_path / name, get_task("numeric"))
    assert exam == (asked, Truths({"a": "2", "b": "3"}))
    assert read_questions(tmp_path / name) == asked


def test_a_table_without_a_question_is_refused_unless_it_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("asked,answer\n1+1?,2\n")
    with pytest.raises(PoolError, match="there is no question"):
        read_questions(tmp_path / "q.csv")
    mapped = read_questions(tmp_path / "q.csv", ["question=asked"])
    assert mapped == [Question("2", "1+1?")]


def test_plain_lines_are_questions_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text('one?\n\n{"id": "b", "question": "two?", "answer": "2"}\n')
    assert read_questions(tmp_path / "q.txt") == [Question("1", "one?"), Question("b", "two?")]
