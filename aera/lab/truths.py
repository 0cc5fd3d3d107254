"""Truths and grades: the only place where an answer meets what is right."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aera.canonical import LETTERS
from aera.equivalence import shared_equivalence
from aera.errors import PoolError
from aera.pool import read_rows, to_line, typed
from aera.response import choice_order
from aera.task import Task

FILE = "truths.jsonl"


@dataclass(frozen=True)
class Truths(Mapping[str, str]):
    """The right answer to every question, by question id."""

    answers: Mapping[str, str]

    @classmethod
    def open(cls, path: str | Path) -> "Truths | None":
        """The truths of a pool directory, or of a file; None where a pool has none."""
        path = Path(path)
        file = path / FILE if path.is_dir() else path
        if not file.exists():
            return None
        return cls(dict(read_rows(file, _parse)))

    def save(self, path: Path) -> None:
        """Write them beside a pool."""
        rows = (to_line({"id": key, "answer": answer}) for key, answer in self.answers.items())
        (path / FILE).write_text("".join(rows), "utf-8")

    def __getitem__(self, question_id: str) -> str:
        if question_id not in self.answers:
            raise PoolError(f"there is no truth for question {question_id} in {FILE}")
        return self.answers[question_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)


def _parse(text: str) -> tuple[str, str]:
    fields = json.loads(text)
    return typed(fields, "id", (str,)), typed(fields, "answer", (str,))


def grade(answer: str | None, truth: str, *, task: Task) -> float:
    """1 for the right answer, 0 for a wrong one or none."""
    if answer is None or not task.equivalence or task.same(answer, truth):
        return float(task.same(answer, truth))
    one, other = task.canonical(answer), task.canonical(truth)
    if one is None or other is None:
        return 0.0
    return float(shared_equivalence().same(one, other))


def shuffled_letter(letter: str, question_id: str, *, choices: int, seed: int) -> str:
    """Where the right choice stands once `Question.arranged(seed)` has shuffled the choices."""
    order = choice_order(question_id, choices, seed=seed)
    return LETTERS[order.index(LETTERS.index(letter))]
