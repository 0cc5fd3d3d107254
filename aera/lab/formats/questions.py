"""Questions from a file, parted from the answers that may stand beside them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aera.core import Question
from aera.errors import RecordError, UsageError
from aera.lab.formats.entry import Row, given, written
from aera.lab.formats.recognising import recognise
from aera.lab.formats.rows import Columns, find_asked, find_question
from aera.lab.formats.sources import (
    UNREADABLE,
    Rows,
    open_text,
    parse_object,
    read_csv,
    read_lines,
    read_list,
)
from aera.lab.formats.tables import read_table
from aera.lab.truths import Truths, shuffled_letter
from aera.reading.canonical import LETTERS
from aera.reading.task import Task

SOURCES: dict[str, Any] = {
    "json": read_list,
    "csv": read_csv,
    "tsv": read_csv,
    "parquet": read_table,
    "jsonl": read_lines,
}


@dataclass(frozen=True)
class QuestionSet:
    """Questions as they are asked, and the truths known for them."""

    questions: tuple[Question, ...]
    truths: Truths | None


def read_question_set(
    path: Path, task: Task, columns: Columns | None = None, *, seed: int = 0
) -> QuestionSet:
    """Rows with question, id, choices and answer; choices are shuffled where the task says.

    JSON lines, a JSON list, CSV or Parquet, with columns by the names that import knows.
    """
    questions: dict[str, Question] = {}
    answers: dict[str, str] = {}
    columns = columns or Columns()
    for where, row in _rows(path, plain=False):
        question = _question(row, columns, where=where, known=questions)
        answer = written(given(row, columns.find("answer", row)))
        if answer is not None:
            answers[question.id] = _answer(answer, question, task=task, seed=seed, where=where)
        questions[question.id] = question.arrange(seed) if task.shuffle else question
    if not questions:
        raise RecordError(f"{path.name} holds no question")
    return QuestionSet(tuple(questions.values()), Truths(answers) if answers else None)


def read_questions(path: Path, columns: Columns | None = None) -> list[Question]:
    """The questions of such a file as they stand, also of one with a question on each line.

    Right answers that stand beside them are left behind.
    """
    questions: dict[str, Question] = {}
    columns = columns or Columns()
    for where, row in _rows(path, plain=True):
        question = _question(row, columns, where=where, known=questions)
        questions[question.id] = question
    if not questions:
        raise RecordError(f"{path.name} holds no question")
    return [*questions.values()]


def _rows(path: Path, *, plain: bool) -> Rows:
    if not path.is_file():
        raise UsageError(f'there is no file "{path}" with questions')
    found = recognise(path)
    if found == "inspect":
        raise RecordError(f"{path.name} is a log, not a file of questions; aera import reads it")
    if found in SOURCES and not (plain and found == "jsonl"):
        rows: Rows = SOURCES[found](path)
        return rows
    return _plain_lines(path) if plain else read_lines(path)


def _plain_lines(path: Path) -> Iterator[tuple[str, Row]]:
    """Lines that are a JSON object, or a question as it stands."""
    number = 0
    try:
        with open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                where = f"{path.name}, line {number}"
                if line.lstrip().startswith(("{", "[")):
                    yield where, parse_object(line, where=where)
                elif line.strip():
                    yield where, {"question": line.rstrip("\r\n")}
    except UNREADABLE as error:
        raise RecordError(f"{path.name}, line {number + 1}: cannot be read, {error}") from None


def _question(row: Row, columns: Columns, *, where: str, known: dict[str, Question]) -> Question:
    """The question of a row, which must be a new one; without an id it is called by its place."""
    asked = find_asked(row, columns, where=where)
    if asked.before:
        raise RecordError(f"{where}: a conversation of several turns cannot be asked as a question")
    number = where.rpartition(" ")[2]
    question = find_question(row, asked, columns, number=number, where=where)
    if len(question.choices) > len(LETTERS):
        raise RecordError(f"{where}: it has more than {len(LETTERS)} choices")
    if question.id in known:
        raise RecordError(f"{where}: the question {question.id} comes a second time")
    return question


def _answer(answer: str, question: Question, *, task: Task, seed: int, where: str) -> str:
    """The truth in the task's form: for choices a letter, moved along when they are shuffled."""
    if question.choices and answer in question.choices:
        answer = LETTERS[question.choices.index(answer)]
    canonical = task.canonical(answer)
    if canonical is None:
        raise RecordError(f'{where}: the answer "{answer:.40}" cannot be read as {task.kind}')
    if (
        task.kind == "choice"
        and question.choices
        and canonical not in LETTERS[: len(question.choices)]
    ):
        raise RecordError(f'{where}: the answer "{answer:.40}" is none of the choices')
    if task.shuffle and question.choices:
        return shuffled_letter(canonical, question.id, choices=len(question.choices), seed=seed)
    return answer
