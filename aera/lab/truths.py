"""Truths and grades: the only place where an answer meets what is right."""

import csv
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aera.core import Question, Response
from aera.errors import PoolError, ProtocolError, UsageError
from aera.files import read_rows, take_field, to_line, write_whole
from aera.pools.parquet import ANSWER, ParquetPool, read_columns
from aera.pools.pool import FewerRecords, Records
from aera.pools.stats import name_few
from aera.reading.task import Task
from aera.workers import SERIAL, Workers

FILE = "truths.jsonl"
SHOWN = 3
"""Questions that are named."""


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


def _parse(fields: dict[str, Any]) -> tuple[str, str]:
    return take_field(fields, "id", (str,)), take_field(fields, "answer", (str,))


def read_labels(path: Path) -> Truths:
    """The right answers that somebody has filled in; questions left empty are left out."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f'the labels "{path}" cannot be read: {error}') from None
    if rows and not {"id", ANSWER} <= rows[0].keys():
        raise UsageError(f'"{path}" has no columns "id" and "{ANSWER}", as aera label writes them')
    found = {row["id"]: said for row in rows if (said := (row[ANSWER] or "").strip())}
    if not found:
        raise UsageError(f'"{path}" has no right answer yet: fill in its column "{ANSWER}"')
    return Truths(found)


def check_labels(labels: Truths, records: Records) -> None:
    """Say which labels no question has; refuse them where that is all of them."""
    strange = [name for name in labels if name not in records.questions]
    if not strange:
        return
    few = ", ".join(strange[:SHOWN]) + (", ..." if len(strange) > SHOWN else "")
    said = f'{len(strange)} of {len(labels)} labels are of no question of "{records.name}": {few}'
    if len(strange) == len(labels):
        raise UsageError(said)
    logging.getLogger("aera.lab").warning("%s", said)


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


# --- the truths of recorded responses -------------------------------------------------------------


def open_truths(records: Records, *, workers: Workers = SERIAL) -> Truths | None:
    """The truths of a pool, or those that were exported along; None where there are none."""
    if not isinstance(records, ParquetPool):
        return Truths.open(records.folder) if records.folder else None
    told = workers.map(_answers, records.groups)
    answers = {name: answer for part in told for name, answer in part.items()}
    return Truths(answers) if answers else None


def _answers(group: Any) -> dict[str, str]:
    """The truths of a row group, whose column is read by itself and never with the responses."""
    columns = read_columns(group, ["question_id", ANSWER])
    pairs = zip(columns["question_id"], columns[ANSWER], strict=True)
    return {question_id: answer for question_id, answer in pairs if answer is not None}


def need_truths(records: Records, truths: Truths | None) -> Truths:
    """Refuse records that nothing can be learned from."""
    if truths is None:
        raise ProtocolError(
            f'"{records.name}" has no truths, so nothing can be learned from it; '
            "aera evaluate without --protocol shows what policies would spend"
        )
    return truths


@dataclass(frozen=True, eq=False)
class Graded:
    """Recorded responses with their truths, and the questions that had to be left out."""

    records: Records
    truths: Truths | None
    left_out: Mapping[str, str]
    """By question, why."""

    @property
    def remark(self) -> str | None:
        """Who was left out, in one sentence; None where nobody was."""
        return f"left out: {name_few(self.left_out)}" if self.left_out else None


def open_graded(
    records: Records, *, truths: Truths | None = None, workers: Workers = SERIAL
) -> Graded:
    """The questions that can be judged: those with enough responses and, where any has, a truth."""
    known = truths if truths is not None else open_truths(records, workers=workers)
    left = dict(getattr(records, "left_out", {}))
    if known is None:
        return Graded(records, None, left)
    missing = [key for key in records.questions if key not in known.answers]
    if len(missing) == len(records.questions):
        raise ProtocolError(f'none of the questions of "{records.name}" has a truth')
    if not missing:
        return Graded(records, known, left)
    without = dict.fromkeys(missing, "has no truth")
    return Graded(FewerRecords(records, without.keys()), known, {**left, **without})


@dataclass(frozen=True)
class TruthScorer:
    """The judge that knows: 1 where a response is right, else 0."""

    task: Task
    truths: Truths

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        answers = [self.task.read(response).answer for response in responses]
        return [grade(answer, self.truths[question.id], task=self.task) for answer in answers]
