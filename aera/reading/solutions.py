"""Solutions: what was written down as the answer to a question, in a form that can be read."""

from collections.abc import Iterable

from aera.reading.canonical import LETTERS
from aera.reading.find import last_boxed
from aera.reading.task import Task
from aera.response import Question


def readable_answers(
    written: Iterable[tuple[Question, str | None]], task: Task
) -> list[str | None]:
    """Each answer in a form the task can read, None where there is none.

    A worked solution counts as what it boxes or puts behind ####, a choice by its text as its
    letter.
    """
    return [_readable(question, text, task) if text else None for question, text in written]


def _readable(question: Question, text: str, task: Task) -> str | None:
    if task.kind == "choice":
        text = dict(zip(question.choices, LETTERS, strict=False)).get(text, text)
    marked = text.rpartition("####")[2].strip() if "####" in text else None
    for form in (last_boxed(text), marked, text):
        if form and task.canonical(form) is not None:
            return form
    return None
