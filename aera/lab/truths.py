"""Truths and grades: the only place where an answer meets what is right."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    return float(answer is not None and task.same(answer, truth))


def grade_all(answers: Iterable[str | None], truth: str, *, task: Task) -> list[float]:
    """The grades of answers to one question, each distinct answer judged once."""
    answers = [*answers]
    known = {answer: grade(answer, truth, task=task) for answer in dict.fromkeys(answers)}
    return [known[answer] for answer in answers]


def need_truths(records: Records, truths: Truths | None) -> Truths:
    """Refuse records that nothing can be learned from."""
    if truths is None:
        raise ProtocolError(
            f'"{records.name}" has no truths, so nothing can be learned from it; '
            "aera evaluate without --protocol shows what policies would spend"
        )
    return truths
