"""Truths and grades: the only place where an answer meets what is right."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aera.core import choice_order
from aera.errors import PoolError
from aera.files import read_rows, take_field, to_line, write_whole
from aera.reading.canonical import LETTERS
from aera.reading.equivalence import are_same
from aera.reading.task import Task

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
        write_whole(path / FILE, "".join(rows))

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
    return take_field(fields, "id", (str,)), take_field(fields, "answer", (str,))


def grade(answer: str | None, truth: str, *, task: Task) -> float:
    """1 for the right answer, 0 for a wrong one or none."""
    return Grader(task, truth).grade([answer])[0]


def shuffled_letter(letter: str, question_id: str, *, choices: int, seed: int) -> str:
    """Where the right choice stands once `Question.arrange(seed)` has shuffled the choices."""
    order = choice_order(question_id, choices, seed=seed)
    return LETTERS[order.index(LETTERS.index(letter))]


class Grader:
    """Grades answers to one question, each distinct answer once."""

    def __init__(self, task: Task, truth: str) -> None:
        self._task, self._truth = task, truth
        self._known: dict[str | None, float] = {None: 0.0}

    def grade(self, answers: Iterable[str | None]) -> list[float]:
        """1 for the right answer, 0 for a wrong one or none."""
        answers = list(answers)
        new = [a for a in dict.fromkeys(answers) if a is not None and a not in self._known]
        if new:
            same = are_same(self._task, new, self._truth)
            self._known |= {answer: float(equal) for answer, equal in zip(new, same, strict=True)}
        return [self._known[answer] for answer in answers]
