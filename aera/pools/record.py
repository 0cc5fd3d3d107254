"""Record: a question with its recorded responses. Records: many of them, wherever they lie."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, TypeVar

from aera.errors import PoolError
from aera.reading.equivalence import question_reader
from aera.reading.health import Readability, read_health
from aera.reading.task import Task
from aera.reading.tracing import add_traces
from aera.response import Prefix, Question, Response, unfold
from aera.schedule import Schedule
from aera.tally import Vote
from aera.voting.weigher import Weighting
from aera.workers import SERIAL, Workers

Item = TypeVar("Item", bound="Record")

SEGMENT_RESPONSES = 16_384
"""About so many responses are worked on together."""


@dataclass(frozen=True)
class Record:
    """A question with its responses in sampling order."""

    question: Question
    responses: tuple[Response, ...]

    def read(self, task: Task) -> "VotedRecord":
        """The same with what each response says."""
        votes = map(question_reader(task).read, self.responses)
        return VotedRecord(self.question, self.responses, tuple(votes))

    def with_traces(self, task: Task) -> "Record":
        """The same with a trace of each response whose tokens are known."""
        return replace(self, responses=tuple(add_traces(self.responses, task)))


@dataclass(frozen=True)
class VotedRecord(Record):
    """A question, its responses and the votes read from them: what replay and learning work on."""

    votes: tuple[Vote, ...]

    def read(self, task: Task) -> "VotedRecord":
        """It has been read."""
        return self

    def weigh(self, weighting: Weighting) -> "VotedRecord":
        """The same with weights."""
        return replace(self, votes=(*weighting.weigh(self.question, self.responses, self.votes),))

    def with_weights(self, weights: Iterable[float]) -> "VotedRecord":
        """The same with these weights."""
        pairs = zip(self.votes, weights, strict=True)
        return replace(self, votes=tuple(replace(v, weight=float(w)) for v, w in pairs))

    def first(self, count: int) -> "VotedRecord":
        """The same with its first responses only; a question with fewer is refused."""
        if len(self.responses) < count:
            raise PoolError(
                f"question {self.question.id} has {len(self.responses)} responses, but the "
                f"schedule goes to {count}; sample more or give a shorter --schedule"
            )
        return replace(self, responses=self.responses[:count], votes=self.votes[:count])

    def prefixes(self, schedule: Schedule) -> list[Prefix]:
        """The prefix at every checkpoint; a question with too few responses is refused."""
        own = self.first(schedule.last)
        return list(unfold(own.question, own.responses, votes=own.votes, schedule=schedule))

    def without_texts(self) -> "VotedRecord":
        """The same without what is large and has been read."""
        bare = tuple(replace(response, text="", source=None) for response in self.responses)
        return replace(self, responses=bare)


class Records(Protocol):
    """Questions with recorded responses: a pool, one as Parquet, or records held in memory."""

    @property
    def name(self) -> str:
        """What tables and reports call them."""
        ...

    @property
    def task(self) -> Task:
        """The task their responses answer."""
        ...

    @property
    def schedule(self) -> Schedule:
        """Their checkpoints."""
        ...

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by id, in order."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where what is made of them may be kept; None where they are in memory."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Record]: ...

    def parts(self) -> Sequence[Iterable[Record]]:
        """Whole questions to be worked on together, few enough to be held in memory."""
        ...

    def check_whole(self, question_ids: Iterable[str]) -> None:
        """Refuse what was read part by part where a question is missing or was split."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class HeldRecords:
    """Records in memory, their votes read once for everybody."""

    records: Sequence[VotedRecord]
    task: Task
    schedule: Schedule
    name: str = "records"
    folder: Path | None = None

    @cached_property
    def questions(self) -> dict[str, Question]:
        """The questions by id, in order."""
        return {record.question.id: record.question for record in self.records}

    def __repr__(self) -> str:
        return describe_records(self)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[VotedRecord]:
        return iter(self.records)

    def parts(self) -> list[list[VotedRecord]]:
        """Whole questions to be worked on together."""
        return [*batches(self.records)]

    def check_whole(self, question_ids: Iterable[str]) -> None:
        """Nothing can be missing."""


@dataclass(frozen=True, eq=False)
class ChosenRecords:
    """Some of the questions of other records; the rest is passed over."""

    records: Records
    ids: frozenset[str]

    @property
    def name(self) -> str:
        """As the others are called."""
        return self.records.name

    @property
    def task(self) -> Task:
        """The task their responses answer."""
        return self.records.task

    @property
    def schedule(self) -> Schedule:
        """Their checkpoints."""
        return self.records.schedule

    @property
    def folder(self) -> Path | None:
        """Where what is made of them may be kept."""
        return self.records.folder

    @cached_property
    def questions(self) -> dict[str, Question]:
        """The chosen questions by id, in order."""
        return {key: each for key, each in self.records.questions.items() if key in self.ids}

    def __len__(self) -> int:
        return len(self.questions)

    def __iter__(self) -> Iterator[Record]:
        return (record for record in self.records if record.question.id in self.ids)

    def parts(self) -> list["ChosenPart"]:
        """The parts of the others, without what was not chosen."""
        return [ChosenPart(part, self.ids) for part in self.records.parts()]

    def check_whole(self, question_ids: Iterable[str]) -> None:
        """Refuse what was read part by part where a question is missing or was split."""
        seen = check_once(question_ids, f'"{self.name}"')
        missing = [key for key in self.questions if key not in seen]
        if missing:
            raise PoolError(
                f'{len(missing)} of {len(self)} questions in "{self.name}" have no response, the '
                f"first is {missing[0]}"
            )


@dataclass(frozen=True, eq=False)
class ChosenPart:
    """A part without what was not chosen; it travels as the part does."""

    part: Iterable[Record]
    ids: frozenset[str]

    def __iter__(self) -> Iterator[Record]:
        return (record for record in self.part if record.question.id in self.ids)


def hold(records: Records, *, workers: Workers = SERIAL) -> HeldRecords:
    """Read every vote once and keep them all in memory."""
    parts = workers.map(partial(read_votes, task=records.task), records.parts())
    held = [record for part in parts for record in part]
    records.check_whole(record.question.id for record in held)
    return HeldRecords(held, records.task, records.schedule, records.name, records.folder)


def read_votes(records: Iterable[Record], task: Task) -> list[VotedRecord]:
    """The same records with what their responses say."""
    return [record.read(task) for record in records]


def describe_records(records: Records) -> str:
    """What a shell or a notebook shows of them."""
    what = f"{len(records)} questions, {records.task.name}, {records.schedule}"
    return f"<{type(records).__name__} {records.name}: {what}>"


def health_of(records: Iterable[VotedRecord]) -> Readability:
    """Which share of the responses to some questions was read."""
    return read_health((each.question.id, each.responses, each.votes) for each in records)


def check_order(indices: Iterable[int], where: str) -> None:
    """Refuse responses, sorted by index, of which one is missing or there twice."""
    for place, found in enumerate(indices):
        if found != place:
            trouble = "twice" if found < place else f"but not {place}"
            raise PoolError(f"{where} has response {found} {trouble}")


def check_once(question_ids: Iterable[str], where: str) -> set[str]:
    """The ids that were read; a question that comes twice was split over parts."""
    seen: set[str] = set()
    for question_id in question_ids:
        if question_id in seen:
            raise PoolError(f"the parts of {where} split question {question_id}")
        seen.add(question_id)
    return seen


class Drawn:
    """Records by their question: read no further than asked for, kept where passed on the way."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._coming = iter(records)
        self._passed: dict[str, Record] = {}

    def take(self, question_id: str) -> Record | None:
        """The record of a question, once; None where there is none."""
        while question_id not in self._passed:
            record = next(self._coming, None)
            if record is None:
                return None
            self._passed[record.question.id] = record
        return self._passed.pop(question_id)


def batches(records: Iterable[Item]) -> Iterator[list[Item]]:
    """Whole questions, together about as many responses as a segment holds."""
    batch: list[Item] = []
    responses = 0
    for record in records:
        batch.append(record)
        responses += len(record.responses)
        if responses >= SEGMENT_RESPONSES:
            yield batch
            batch, responses = [], 0
    if batch:
        yield batch
