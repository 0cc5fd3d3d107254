"""Truths and grades: the only place where an answer meets what is right."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aera.core import Question, Response
from aera.errors import PoolError, ProtocolError
from aera.files import Json, read_rows, take_field, to_line, write_whole
from aera.pools.pool import Records
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


def _parse(fields: Json) -> tuple[str, str]:
    return take_field(fields, "id", (str,)), take_field(fields, "answer", (str,))


# --- grades ---------------------------------------------------------------------------------------


def grade(answer: str | None, truth: str, *, task: Task) -> float:
    """1 for the right answer, 0 for a wrong one or none."""
    return Grader(task, truth).grade([answer])[0]


class Grader:
    """Grades answers to one question, each distinct answer once."""

    def __init__(self, task: Task, truth: str) -> None:
        self._task, self._truth = task, truth
        self._known: dict[str | None, float] = {None: 0.0}

    def grade(self, answers: Iterable[str | None]) -> list[float]:
        """1 for the right answer, 0 for a wrong one or none."""
        return [self._grade(answer) for answer in answers]

    def _grade(self, answer: str | None) -> float:
        if answer not in self._known:
            self._known[answer] = float(self._task.same(answer, self._truth))
        return self._known[answer]


def need_truths(records: Records, truths: Truths | None) -> Truths:
    """Refuse records that nothing can be learned from."""
    if truths is None:
        raise ProtocolError(
            f'"{records.name}" has no truths, so nothing can be learned from it; '
            "aera evaluate without --protocol shows what policies would spend"
        )
    return truths


@dataclass(frozen=True)
class TruthScorer:
    """The judge that knows: 1 where a response is right, else 0."""

    task: Task
    truths: Truths

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        answers = [self.task.read(response).answer for response in responses]
        return [grade(answer, self.truths[question.id], task=self.task) for answer in answers]
