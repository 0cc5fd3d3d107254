"""Questions from a file, parted from the answers that may stand beside them."""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aera.errors import RecordError, UsageError
from aera.files import open_text
from aera.lab.truths import Truths, shuffled_letter
from aera.reading.canonical import LETTERS
from aera.reading.task import Task
from aera.response import Question


@dataclass(frozen=True)
class QuestionSet:
    """Questions as they are asked, and the truths known for them."""

    questions: tuple[Question, ...]
    truths: Truths | None


def read_question_set(path: Path, task: Task, *, seed: int = 0) -> QuestionSet:
    """Lines {"id", "question", "choices"?, "answer"?}; choices are shuffled where the task says."""
    if not path.is_file():
        raise UsageError(f'there is no file "{path}" with questions')
    questions: dict[str, Question] = {}
    answers: dict[str, str] = {}
    for number, row in _rows(path):
        where = f"{path.name}, line {number}"
        question = _question(row, number, where=where)
        if question.id in questions:
            raise RecordError(f"{where}: the question {question.id} comes a second time")
        answer = row.get("answer")
        if answer is not None:
            answers[question.id] = _answer(str(answer), question, task=task, seed=seed, where=where)
        questions[question.id] = question.arrange(seed) if task.shuffle else question
    if not questions:
        raise RecordError(f"{path.name} holds no question")
    return QuestionSet(tuple(questions.values()), Truths(answers) if answers else None)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RecordError(f"{path.name}, line {number}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise RecordError(f"{path.name}, line {number}: a JSON object is needed")
        yield number, row


def _lines(path: Path) -> Iterator[str]:
    try:
        with open_text(path) as lines:
            yield from lines
    except (EOFError, OSError, UnicodeDecodeError, zlib.error) as error:
        raise RecordError(f"{path.name} cannot be read as text: {error}") from None


def _question(row: dict[str, Any], number: int, *, where: str) -> Question:
    text, choices = row.get("question"), row.get("choices") or []
    if not isinstance(text, str) or not text.strip():
        raise RecordError(f'{where}: the field "question" is missing or empty')
    if not isinstance(choices, list) or len(choices) > len(LETTERS):
        raise RecordError(f'{where}: "choices" must be a list of at most {len(LETTERS)} texts')
    texts = {name: row.get(name) for name in ("system", "group")}
    for name, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise RecordError(f'{where}: the field "{name}" must be a text')
    return Question(str(row.get("id", number)), text, tuple(map(str, choices)), **texts)


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
