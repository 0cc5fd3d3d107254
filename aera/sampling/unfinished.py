"""Look at a pool that is being filled or grown, without touching it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aera.errors import PoolError
from aera.files import problem
from aera.pools.contents import Contents, count_contents
from aera.pools.pool import Line, Pool, parse_line, read_questions
from aera.pools.record import Record
from aera.response import Question, Response
from aera.sampling.plan import Plan, read_plan
from aera.sampling.recording import FAILURES, OPEN


@dataclass(frozen=True)
class Unfinished:
    """How far a recording is."""

    plan: Plan
    questions: Mapping[str, Question]
    counts: Mapping[str, int]
    """Responses that are there, by question."""
    failures: int
    """Calls for a response that failed, each as often as it did."""
    contents: Contents
    """What has come back."""

    @property
    def wanted(self) -> int:
        """Responses in all."""
        return self.plan.responses * len(self.questions)

    @property
    def done(self) -> int:
        """Those that are there."""
        return sum(self.counts.values())


def read_unfinished(path: Path, base: Pool | None = None) -> Unfinished | None:
    """What is in a folder that is being filled; None where nothing was begun.

    With `base`, the folder holds what is added to that pool.
    """
    plan, file = read_plan(path), path / "questions.jsonl"
    if plan is None:
        return None
    questions = {q.id: q for q in read_questions(file)} if file.is_file() else {}
    counts = {name: (base.stored_counts.get(name, 0) if base else 0) for name in questions}
    records = [*_records(path, questions)]
    for record in records:
        counts[record.question.id] += len(record.responses)
    return Unfinished(
        plan, questions, counts, _count_lines(path / FAILURES), count_contents(records, plan.task)
    )


def _records(path: Path, questions: Mapping[str, Question]) -> Iterator[Record]:
    """What has come back for each question; what is sealed already is a pool."""
    if (path / "manifest.json").is_file():
        yield from Pool.open(path)
        return
    gathered: dict[str, dict[int, Response]] = {}
    for segment in sorted(path.glob(OPEN)):
        for line in _whole_lines(segment):
            gathered.setdefault(line.question_id, {})[line.index] = line.response
    for name, found in gathered.items():
        if name in questions:
            yield Record(questions[name], tuple(found[index] for index in sorted(found)))


def _whole_lines(segment: Path) -> Iterator[Line]:
    """The lines of a segment that somebody may be writing to at this moment."""
    with segment.open(encoding="utf-8", newline="\n") as lines:
        for number, text in enumerate(lines, start=1):
            if not text.endswith("\n"):
                return
            try:
                yield parse_line(text)
            except (ValueError, KeyError, TypeError) as error:
                raise PoolError(
                    f"{segment.name}, line {number}: damaged ({problem(error)})"
                ) from None


def _count_lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.is_file() else 0
