import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aera import Question, get_task
from aera.errors import AeraError, RecordError, UsageError
from aera.lab import Truths
from aera.lab.formats.questions import QuestionSet, read_question_set, read_questions
from aera.lab.formats.rows import Columns

WriteRows = Callable[..., Path]
COLOURS = {"id": "c", "question": "which?", "choices": ["red", "blue", "green", "grey"]}


@pytest.fixture
def exam_of(tmp_path: Path, write_rows: WriteRows) -> Callable[..., QuestionSet]:
    """The exam these lines make."""

    def make(*rows: dict[str, Any] | str, task: str = "numeric", seed: int = 0) -> QuestionSet:
        return read_question_set(write_rows(tmp_path / "q.jsonl", rows), get_task(task), seed=seed)

    return make


ExamOf = Callable[..., QuestionSet]


def test_questions_and_truths_are_parted(exam_of: ExamOf) -> None:
    exam = exam_of(
        {"id": "a", "question": "1+1?", "answer": 2}, "", {"question": "2+2?", "answer": None}
    )
    assert exam.questions == (Question("a", "1+1?"), Question("3", "2+2?"))
    assert exam.truths == Truths({"a": "2"})
    assert exam_of({"question": "?"}).truths is None


def test_choices_keep_their_order_where_the_task_does_not_shuffle(exam_of: ExamOf) -> None:
    exam = exam_of({**COLOURS, "answer": "green"}, task="commonsense", seed=5)
    assert exam.questions[0].choices == ("red", "blue", "green", "grey")
    assert exam.truths == Truths({"c": "C"})


@pytest.mark.parametrize("answer", ["green", "C", "(C)"])
@pytest.mark.parametrize("seed", range(6))
def test_the_truth_moves_with_the_shuffled_choices(exam_of: ExamOf, answer: str, seed: int) -> None:
    exam = exam_of({**COLOURS, "answer": answer}, task="gpqa", seed=seed)
    [question] = exam.questions
    assert exam.truths is not None
    assert question.choices["ABCD".index(exam.truths["c"])] == "green"
    assert question == Question("c", "which?", tuple(COLOURS["choices"])).arrange(seed)


def test_the_shuffle_is_of_the_seed_and_the_question(exam_of: ExamOf) -> None:
    orders = {exam_of(COLOURS, task="gpqa", seed=s).questions[0].choices for s in range(20)}
    others = {
        exam_of({**COLOURS, "id": str(i)}, task="gpqa").questions[0].choices for i in range(20)
    }
    again = [exam_of(COLOURS, task="gpqa", seed=3) for _ in range(2)]
    assert min(len(orders), len(others)) > 5
    assert again[0] == again[1]


def test_a_gzipped_file_is_read_too(tmp_path: Path, write_rows: WriteRows) -> None:
    file = write_rows(tmp_path / "q.jsonl.gz", [{"question": "1+1?"}])
    assert len(read_question_set(file, get_task("numeric")).questions) == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "not JSON"),
        ("[1]", "a JSON object is needed"),
        ({"id": "x"}, "there is no question"),
        ({"question": "  "}, "there is no question"),
        ({"question": 7}, 'the field "question" is 7'),
        ({"id": "a", "question": "again?"}, "the question a comes a second time"),
        ({"question": "?", "answer": "no number"}, "cannot be read as numeric"),
        ({"question": "?", "choices": "abc"}, "the field \"choices\" is 'abc'"),
        ({"question": "?", "choices": list("abcdefghijk")}, "more than 10"),
    ],
)
def test_a_bad_line_is_named(exam_of: ExamOf, line: Any, told: str) -> None:
    with pytest.raises(RecordError) as caught:
        exam_of({"id": "a", "question": "?"}, line)
    assert "q.jsonl, line 2: " in str(caught.value)
    assert told in str(caught.value)


@pytest.mark.parametrize("task", ["gpqa", "commonsense"])
@pytest.mark.parametrize("answer", ["D", "purple"])
def test_a_truth_that_is_no_choice_is_named(exam_of: ExamOf, task: str, answer: str) -> None:
    row = {"question": "?", "choices": ["red", "blue", "green"], "answer": answer}
    with pytest.raises(RecordError, match=r"q\.jsonl, line 1: the answer"):
        exam_of(row, task=task)


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\xff\xfe?", gzip.compress(b'{"question": "?"}\n', mtime=0)[:-9]]
)
def test_a_file_that_is_no_exam_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "q.jsonl").write_bytes(content)
    with pytest.raises(RecordError, match=r"^q\.jsonl[, ][^\n]+$"):
        read_question_set(tmp_path / "q.jsonl", get_task("numeric"))


def test_a_missing_file_is_a_wrong_call(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file") as caught:
        read_question_set(tmp_path / "none.jsonl", get_task("numeric"))
    assert isinstance(caught.value, AeraError)


TABLE = 'id,problem,answer\na,1+1?,2\nb,"2, or 3?",3\n'
ROWS = (
    '[{"id": "a", "problem": "1+1?", "answer": 2}, {"id": "b", "problem": "2, or 3?", "answer": 3}]'
)


@pytest.mark.parametrize(("name", "text"), [("q.csv", TABLE), ("q.txt", TABLE), ("q.json", ROWS)])
def test_a_table_is_read_as_one_and_its_answers_stay_behind(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    exam = read_question_set(tmp_path / name, get_task("numeric"))
    assert exam.questions == (Question("a", "1+1?"), Question("b", "2, or 3?"))
    assert exam.truths == Truths({"a": "2", "b": "3"})
    assert read_questions(tmp_path / name) == list(exam.questions)


def test_a_table_without_a_question_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("asked,answer\n1+1?,2\n")
    with pytest.raises(RecordError, match="there is no question"):
        read_questions(tmp_path / "q.csv")
    mapped = read_questions(tmp_path / "q.csv", Columns({"question": "asked"}))
    assert mapped == [Question("2", "1+1?")]


def test_plain_lines_are_questions_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text('one?\n\n{"id": "b", "question": "two?", "answer": "2"}\n')
    assert read_questions(tmp_path / "q.txt") == [Question("1", "one?"), Question("b", "two?")]


def test_a_conversation_of_several_turns_is_refused(exam_of: ExamOf) -> None:
    turns = [{"role": role, "content": "hm"} for role in ("user", "assistant", "user")]
    with pytest.raises(RecordError, match="several turns"):
        exam_of({"messages": turns})
    assert exam_of({"messages": turns[:1]}).questions[0].text == "hm"
