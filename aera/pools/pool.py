"""Manifest: what a pool says of itself, and which of its questions count."""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from math import inf
from operator import index
from pathlib import Path
from typing import Any, Protocol, TypeVar

from aera.core import Prefix, Question, Response, Schedule, Vote, unfold
from aera.errors import PoolError, UsageError, check_count
from aera.files import (
    check_format,
    file_hash,
    problem,
    read_rows,
    replacing,
    take_field,
    to_line,
    write_json,
    write_whole,
    written_by,
)
from aera.reading.equivalence import question_reader
from aera.reading.task import Readability, Task, add_traces, read_health, task_from_json
from aera.trace import trace_from_json, trace_to_json
from aera.voting.weigher import Weighting
from aera.workers import SERIAL, Workers

FORMAT = 4
"""2 had no prompt tokens, 1 no answers without text, systems, groups and questions left out."""


@dataclass(frozen=True)
class Manifest:
    """What a pool says of itself."""

    task: Task
    schedule: Schedule
    questions: int
    """Those that count, as with `responses`."""
    responses: int
    sampler: dict[str, Any]
    seed: int | None
    hashes: dict[str, str]
    each: int
    """Responses a question needs to count; one with fewer is left out."""
    other_counts: Mapping[str, int] | None = field(default_factory=dict)
    """Responses of the questions that have more or fewer than `each`; None where format 1 does
    not say."""
    written_by: str | None = field(default_factory=written_by)
    """The version of aera, where it is known."""

    @property
    def left_out(self) -> dict[str, str]:
        """The questions that do not count, each with the reason."""
        return {
            question_id: f"has {count} response{'s' * (count != 1)}, fewer than {self.each}"
            for question_id, count in (self.other_counts or {}).items()
            if count < self.each
        }

    def with_counts(self, counts: Mapping[str, int], *, each: int) -> "Manifest":
        """The same for another number of responses, by how many each question has."""
        check_count("responses", each)
        kept = [count for count in counts.values() if count >= each]
        if not kept:
            most = max(counts.values(), default=0)
            raise PoolError(f"no question has {each} responses, the most are {most}; ask for fewer")
        others = {name: count for name, count in counts.items() if count != each}
        return replace(
            self,
            schedule=Schedule.doubling(each),
            questions=len(kept),
            responses=sum(kept),
            each=each,
            other_counts=others,
        )

    def as_json(self) -> dict[str, Any]:
        """The content of manifest.json."""
        return {
            "format": FORMAT,
            "written_by": self.written_by,
            "task": self.task.as_json(),
            "prompt_template": self.task.template,
            "schedule": list(self.schedule),
            "sampler": self.sampler,
            "seed": self.seed,
            "counts": {"questions": self.questions, "responses": self.responses},
            "responses_each": self.each,
            "other_counts": dict(self.other_counts or {}),
            "left_out": self.left_out,
            "hashes": self.hashes,
        }


def manifest_of(fields: dict[str, Any], where: str) -> Manifest:
    """The manifest that manifest.json holds; a newer format is refused."""
    check_format(fields, FORMAT, where=where, error=PoolError)
    schedule = Schedule(tuple(map(index, fields["schedule"])))
    told = fields["format"] >= 2
    return Manifest(
        task=task_from_json(fields["task"]),
        schedule=schedule,
        questions=fields["counts"]["questions"],
        responses=fields["counts"]["responses"],
        sampler=fields["sampler"],
        seed=fields["seed"],
        hashes=fields["hashes"],
        each=index(fields["responses_each"]) if told else schedule.last,
        other_counts={k: index(n) for k, n in fields["other_counts"].items()} if told else None,
        written_by=fields.get("written_by"),
    )


def best_count(counts: Iterable[int]) -> int:
    """The number of responses that keeps most of them: N times the questions with at least N.

    Where two numbers keep as many, the smaller one, which keeps more questions.
    """
    falling = sorted(counts, reverse=True)
    kept = [(count * place, place) for place, count in enumerate(falling, start=1)]
    return falling[max(kept)[1] - 1] if kept else 0


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


RESPONSE_FIELDS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "tokens": (int,),
    "logprob": (float, int, type(None)),
    "finish_reason": (str, type(None)),
    "seed": (int, type(None)),
    "latency_ms": (float, int, type(None)),
    "error": (str, type(None)),
    "model": (str, type(None)),
}
"""What a segment says of a response, and as what."""
SOMETIMES: dict[str, tuple[type, ...]] = {
    "answer": (str,),
    "prompt_tokens": (int,),
    "trace": (list,),
}
"""What it says only where there is something to say."""
GROWING = "growing"
"""The folder in a pool where what is added to it gathers until it is whole."""
MANIFEST, PLAN, QUESTIONS = "manifest.json", "plan.json", "questions.jsonl"
OPEN, AUDITS, DROPPED = "open-*.jsonl", "audits.jsonl", "dropped.jsonl"
RECORDING = "recording.json"
"""In the place of a plan beside audits that an older version recorded."""
PARTS = "parts"
"""The folder in which older versions kept what several workers sampled, a pool for each part."""


def begun_in_parts(path: Path) -> PoolError:
    """What is said of a pool that several workers of an older version did not finish."""
    return PoolError(
        f'the pool at "{path}" was begun with several workers; finish each part with aera sample '
        f"{path}/{PARTS}/NUMBER/questions.jsonl --out {path}/{PARTS}/NUMBER, then make one pool of "
        f"them with aera merge {path}/{PARTS}/* --out POOL"
    )


@dataclass(frozen=True)
class Line:
    """One response as it stands in a segment."""

    question_id: str
    index: int
    response: Response
    request: str | None = None
    """A digest of the request that it answers, where a log keeps one."""


@dataclass(frozen=True)
class Plan:
    """What a log is filled with. One begun with a plan is continued with it, and perhaps grown."""

    task: Task
    responses: int | None = 128
    """For each question; None where nobody can say, as with audits and answers."""
    sampler: Mapping[str, Any] = field(default_factory=dict)
    """Model, settings and prompt, as the manifest keeps them."""
    seed: int | None = None
    schedule: Schedule | None = None
    """Checkpoints that the pool keeps; None for the usual ones."""
    request: Callable[[Question], Mapping[str, Any]] | None = field(default=None, compare=False)
    """The request that a question becomes, where every response is to say what it answers."""

    def __post_init__(self) -> None:
        if self.responses is None:
            return
        check_count("responses", self.responses)
        if self.schedule is not None and self.schedule.last > self.responses:
            raise UsageError(
                f"the schedule goes to {self.schedule.last}, but {self.responses} responses are "
                "sampled; give more --responses or a shorter --schedule"
            )

    def as_json(self) -> dict[str, Any]:
        """The content of plan.json."""
        told = {
            "task": self.task.as_json(),
            "responses": self.responses,
            "sampler": dict(self.sampler),
            "seed": self.seed,
        }
        return told if self.schedule is None else {**told, "schedule": [*self.schedule]}

    def same(self, other: "Plan") -> bool:
        """Whether both say the same, which JSON does not always say in the same words."""
        ours, theirs = (json.dumps(each.as_json(), sort_keys=True) for each in (self, other))
        return ours == theirs


def read_plan(folder: Path) -> Plan | None:
    """The plan a log was begun with, also by an older version; None where there is none."""
    try:
        file = next(each for each in (folder / PLAN, folder / RECORDING) if each.is_file())
        fields = json.loads(file.read_text("utf-8"))
        points = fields.get("schedule")
        schedule = None if points is None else Schedule(tuple(points))
        each, sampler, seed = (fields.get(name) for name in ("responses", "sampler", "seed"))
        return Plan(task_from_json(fields["task"]), each, sampler or {}, seed, schedule)
    except (OSError, ValueError, LookupError, TypeError, UsageError, StopIteration):
        return None


@dataclass(frozen=True)
class Dropped:
    """What nobody may read any more: questions by id, and audits also by request and by age."""

    ids: frozenset[str] = frozenset()
    before: float = -inf

    @classmethod
    def read(cls, path: Path) -> "Dropped":
        """What dropped.jsonl of a pool says."""
        file = path / DROPPED
        rows = [*read_rows(file, json.loads, cut=True)] if file.is_file() else []
        ids = (name for row in rows for name in row.get("ids", ()))
        return cls(frozenset(ids), max((row.get("before", -inf) for row in rows), default=-inf))

    def __contains__(self, audit: Mapping[str, Any]) -> bool:
        """Whether an audit is dropped."""
        named = audit["id"] in self.ids or audit.get("request") in self.ids
        return named or audit["time"] < self.before


class Pool:
    """A pool on disk. Opening reads the manifest only; iterating streams question by question.

    A log that is being written has no manifest: what it would say is counted when it is opened.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: str | Path) -> "Pool":
        """Open a pool directory, also a log that is being written."""
        path = Path(path)
        file = path / MANIFEST
        begun = read_plan(path)
        if begun is not None and is_open(path):
            return cls(path, _count_open(path, begun))
        if not file.is_file() and begun:
            raise PoolError(f'the pool at "{path}" is being rewritten; run the same command again')
        if not file.is_file() and (path / PARTS).is_dir():
            raise begun_in_parts(path)
        if not file.is_file() and any(path.glob("*.parquet")):
            raise PoolError(f'"{path}" holds Parquet; make a pool of it with aera import')
        if not file.is_file():
            raise PoolError(f'there is no pool at "{path}": {file.name} is missing')
        try:
            manifest = manifest_of(json.loads(file.read_text("utf-8")), f'"{file}"')
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
            UsageError,
        ) as error:
            raise PoolError(f'"{file}" cannot be understood: {problem(error)}') from None
        pool = cls(path, manifest)
        return pool if not pool.dropped.ids else pool._without_dropped()

    def _without_dropped(self) -> "Pool":
        """The same, with what is dropped neither counted nor among what is left out."""
        told = self.manifest
        manifest = told.with_counts(self.stored_counts, each=told.each)
        return self.with_manifest(replace(manifest, schedule=told.schedule))

    @property
    def is_open(self) -> bool:
        """Whether it is a log that is not sealed."""
        return is_open(self.path)

    @cached_property
    def dropped(self) -> Dropped:
        """What is not to be read."""
        return Dropped.read(self.path)

    @property
    def task(self) -> Task:
        """The task its responses answer."""
        return self.manifest.task

    @property
    def schedule(self) -> Schedule:
        """Its checkpoints."""
        return self.manifest.schedule

    @cached_property
    def left_out(self) -> dict[str, str]:
        """The questions with too few responses, each with how many it has."""
        return self.manifest.left_out

    @cached_property
    def questions(self) -> dict[str, Question]:
        """Its questions by id, in order, without those left out."""
        return {name: q for name, q in self.stored_questions.items() if name not in self.left_out}

    @cached_property
    def stored_questions(self) -> dict[str, Question]:
        """All its questions by id, in order, also those left out."""
        if self.is_open:
            return open_questions(self.path, self.dropped)
        found: dict[str, Question] = {}
        for question in read_questions(self.path / QUESTIONS):
            if question.id in found:
                raise PoolError(f'"{self.path}" has question {question.id} twice')
            found[question.id] = question
        return {name: each for name, each in found.items() if name not in self.dropped.ids}

    @cached_property
    def segments(self) -> tuple[Path, ...]:
        """Its files of responses, in order."""
        if self.is_open:
            return (*sorted(self.path.glob(OPEN)), *self.path.glob(AUDITS))
        return tuple(sorted(self.path.glob("responses-*.jsonl*")))

    def __repr__(self) -> str:
        return describe_records(self)

    def __len__(self) -> int:
        return self.manifest.questions

    def __reduce__(self) -> tuple[type["Pool"], tuple[Path, Manifest]]:
        """Travels as its manifest; what has been read stays behind."""
        return Pool, (self.path, self.manifest)

    @property
    def size(self) -> int:
        """Bytes of its responses on disk."""
        return sum(segment.stat().st_size for segment in self.segments)

    def with_manifest(self, manifest: Manifest) -> "Pool":
        """The same pool, read as this manifest says."""
        return Pool(self.path, manifest)

    def with_responses(self, n: int) -> "Pool":
        """The same pool for questions with at least `n` responses; the others are left out."""
        return self.with_manifest(self.manifest.with_counts(self.stored_counts, each=n))

    @cached_property
    def stored_counts(self) -> dict[str, int]:
        """How many responses each question has, also those left out."""
        others = self.manifest.other_counts
        if others is None:  # format 1 does not say
            return {record.question.id: len(record.responses) for record in self.everything()}
        return {name: others.get(name, self.manifest.each) for name in self.stored_questions}

    @property
    def name(self) -> str:
        """What tables and reports call it."""
        return self.path.name

    @property
    def folder(self) -> Path:
        """Where what is made of it may be kept."""
        return self.path

    def parts(self) -> Sequence[Iterable[Record]]:
        """Its sealed segments, each read where it is worked on; else lists of records."""
        if not self.sealed:
            return [*batches(self)]
        there = Pool(self.path.absolute(), self.manifest)  # who works on it may be elsewhere
        return [Segment(there, path) for path in there.segments]

    @property
    def sealed(self) -> bool:
        """Whether every segment holds whole questions, so that each can be read by itself."""
        return not self.is_open and all(segment.suffix == ".gz" for segment in self.segments)

    def __iter__(self) -> Iterator[Record]:
        seen: list[str] = []
        for record in self.everything():
            if record.question.id not in self.left_out:
                seen.append(record.question.id)
                yield record
        self.check_whole(seen)

    def everything(self) -> Iterator[Record]:
        """Every question that has a response, also those left out."""
        if self.sealed:
            lines = (line for segment in self.segments for line in read_segment(segment))
            return self._group(lines)
        if self.is_open:
            return open_records(self.path, self.stored_questions, self.dropped)
        return self._merge()

    def read(self, segments: Iterable[Path]) -> Iterator[Record]:
        """The questions of some sealed segments, without asking for the others."""
        lines = (line for segment in segments for line in read_segment(segment))
        for record in self._group(lines):
            if record.question.id not in self.left_out:
                yield record

    def _group(self, lines: Iterable[Line]) -> Iterator[Record]:
        """Whole questions, each in one place."""
        seen: set[str] = set()
        for question_id, group in groupby(lines, key=lambda line: line.question_id):
            if question_id in seen:
                raise PoolError(f'the parts of "{self.path}" split question {question_id}')
            seen.add(question_id)
            if question_id not in self.dropped.ids:
                yield self._record(question_id, group)

    def _merge(self) -> Iterator[Record]:
        """Plain segments hold questions in any order, so they are gathered first."""
        gathered: dict[str, list[Line]] = {}
        for segment in self.segments:
            for line in read_segment(segment):
                if line.question_id not in self.dropped.ids:
                    gathered.setdefault(line.question_id, []).append(line)
        known = [name for name in self.stored_questions if name in gathered]
        for name in [*known, *(stray for stray in gathered if stray not in self.stored_questions)]:
            yield self._record(name, gathered[name])

    def _record(self, question_id: str, lines: Iterable[Line]) -> Record:
        if question_id not in self.stored_questions:
            raise PoolError(
                f'"{self.path}" holds responses to {question_id}, not in questions.jsonl'
            )
        ordered = sorted(lines, key=lambda line: line.index)
        check_order((line.index for line in ordered), f'question {question_id} in "{self.path}"')
        return Record(self.stored_questions[question_id], tuple(line.response for line in ordered))

    def check_whole(self, question_ids: Iterable[str]) -> None:
        """Refuse a pool whose sealed segments split a question, or that misses one."""
        seen = check_once(question_ids, f'"{self.path}"')
        missing = [question for question in self.questions if question not in seen]
        if missing:
            raise PoolError(
                f'{len(missing)} of {len(self.questions)} questions in "{self.path}" have no '
                f"response, the first is {missing[0]}"
            )


@dataclass(frozen=True)
class Segment:
    """A sealed segment of a pool: it travels as a name, and is read where it is worked on."""

    pool: Pool
    path: Path

    def __iter__(self) -> Iterator[Record]:
        return self.pool.read([self.path])


def read_questions(path: Path) -> Iterator[Question]:
    """The questions of a file, one JSON object per line."""
    return read_rows(path, lambda text: _question_of(json.loads(text)))


def _question_of(fields: dict[str, Any]) -> Question:
    choices = take_field(fields, "choices", (list,)) if fields.get("choices") else ()
    own = {name: take_field(fields, name, (str,)) for name in ("system", "group") if name in fields}
    asked = take_field(fields, "question", (str,))
    return Question(take_field(fields, "id", (str,)), asked, tuple(choices), **own)


def read_segment(path: Path, *, cut: bool = False) -> Iterator[Line]:
    """The responses of one segment; a damaged line is an error that names segment and line.

    With `cut`, somebody may be writing it: a half-written last line is passed over.
    """
    return read_rows(path, parse_line, cut=cut)


def parse_line(text: str) -> Line:
    """One line of a segment."""
    return _line_of(json.loads(text))


def _line_of(fields: dict[str, Any]) -> Line:
    told = {name: take_field(fields, name, kind) for name, kind in RESPONSE_FIELDS.items()}
    for name, kind in SOMETIMES.items():
        if name in fields:
            told[name] = take_field(fields, name, kind)
    if "trace" in told:
        told["trace"] = trace_from_json(told["trace"])
    return Line(
        take_field(fields, "question_id", (str,)),
        take_field(fields, "index", (int,)),
        Response(**told),
        fields.get("request"),
    )


# --- logs that are being written ------------------------------------------------------------------


def is_open(path: Path) -> bool:
    """Whether a folder with a plan is a log that is not sealed."""
    if (path / AUDITS).is_file() or (path / RECORDING).is_file():
        return True  # what an older version made of its audits is only a copy of them
    moving = (path / GROWING / MANIFEST).is_file()
    return (path / PLAN).is_file() and not (path / MANIFEST).is_file() and not moving


def open_questions(path: Path, dropped: Dropped) -> dict[str, Question]:
    """The questions of a log that may be written at this moment, by id."""
    file = path / QUESTIONS
    known = [*read_questions(file)] if file.is_file() and not (path / AUDITS).is_file() else []
    found = {each.id: each for each in known if each.id not in dropped.ids}
    for row in read_audits(path, dropped):
        found[row["id"]] = _question_of({**row["question"], "id": row["id"]})
    return found


def open_records(
    path: Path, questions: Mapping[str, Question], dropped: Dropped
) -> Iterator[Record]:
    """What has come back for each question, in whole lines."""
    gathered: dict[str, dict[int, Response]] = {}
    for segment in sorted(path.glob(OPEN)):
        for line in read_segment(segment, cut=True):
            if line.question_id in questions:
                gathered.setdefault(line.question_id, {})[line.index] = line.response
    for row in read_audits(path, dropped):
        lines = (_line_of(fields) for fields in row["responses"])
        gathered[row["id"]] = {line.index: line.response for line in lines}
    for name, found in gathered.items():
        if name in questions:
            yield Record(questions[name], tuple(found[index] for index in sorted(found)))


def read_audits(path: Path, dropped: Dropped | None = None) -> Iterator[dict[str, Any]]:
    """Recorded audits in their order; one that was cut by a kill never ended."""
    if not (path / AUDITS).is_file():
        return
    hidden = Dropped.read(path) if dropped is None else dropped
    with (path / AUDITS).open("rb") as lines:
        for text in lines:
            try:
                row = json.loads(text)
            except ValueError:
                continue
            if row not in hidden:
                yield row


def _count_open(path: Path, plan: Plan) -> Manifest:
    """What a log would say of itself, were it sealed now."""
    dropped = Dropped.read(path)
    questions = open_questions(path, dropped)
    counts = dict.fromkeys(questions, 0)
    for record in open_records(path, questions, dropped):
        counts[record.question.id] = len(record.responses)
    if not any(counts.values()):
        raise PoolError(f'there are no responses in "{path}" yet')
    return _describe(plan, counts, best_count(counts.values()))


def _describe(plan: Plan, counts: Mapping[str, int], each: int) -> Manifest:
    """What a pool filled by a plan says of itself."""
    blank = Manifest(plan.task, Schedule(), 0, 0, dict(plan.sampler), plan.seed, {}, each)
    manifest = blank.with_counts(counts, each=each)
    return replace(manifest, schedule=plan.schedule.upto(each)) if plan.schedule else manifest


# --- writing --------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class PoolWriter:
    """Writes a pool, a segment at a time: each file appears whole, and the manifest comes last."""

    path: Path = field(kw_only=False)
    task: Task
    sampler: Mapping[str, Any]
    """What is known of how responses were drawn; more may be found out until the pool is whole."""
    seed: int | None = None
    responses: int | None = None
    """Questions with fewer are written and left out; None for the number that keeps most."""
    schedule: Schedule | None = None
    """Its checkpoints; None for the usual ones."""
    _questions: list[str] = field(default_factory=list, init=False)
    _counts: dict[str, int] = field(default_factory=dict, init=False)
    _files: list[str] = field(default_factory=lambda: [QUESTIONS], init=False)

    def add(self, records: Sequence[Record]) -> None:
        """Seal whole questions as the next segment."""
        self._files.append(f"responses-{len(self._files) - 1:05}.jsonl.gz")
        with replacing(self.path / self._files[-1]) as partial:
            seal_segment(partial, records)
        self._questions += [question_line(record.question) for record in records]
        self._counts |= {record.question.id: len(record.responses) for record in records}

    def finish(self) -> Pool:
        """Write the questions and, last, the manifest; refuse a pool in which nothing counts."""
        counts = self._counts
        if not counts:
            raise PoolError("a pool needs at least one question")
        if not any(counts.values()):
            raise PoolError("a pool needs at least one response")
        each = best_count(counts.values()) if self.responses is None else self.responses
        plan = Plan(self.task, None, self.sampler, self.seed, self.schedule)
        manifest = _describe(plan, counts, each)
        write_whole(self.path / QUESTIONS, "".join(self._questions))
        hashes = {name: file_hash(self.path / name) for name in self._files}
        manifest = replace(manifest, hashes=hashes)
        write_json(self.path / MANIFEST, manifest.as_json())
        return Pool(self.path, manifest)


def write_pool(
    path: Path,
    records: Iterable[Record],
    *,
    task: Task,
    sampler: Mapping[str, Any],
    seed: int | None = None,
    responses: int | None = None,
    schedule: Schedule | None = None,
) -> Pool:
    """Write all of these records as a finished pool, as `PoolWriter` does."""
    writer = PoolWriter(
        path, task=task, sampler=sampler, seed=seed, responses=responses, schedule=schedule
    )
    for batch in batches(records):
        writer.add(batch)
    return writer.finish()


def seal_segment(path: Path, records: Iterable[Record]) -> None:
    """Write whole questions to a gzipped segment; equal content gives equal bytes."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 4, raw, mtime=0) as file:
        for record in records:
            for index, response in enumerate(record.responses):
                line = response_line(record.question.id, index, response=response)
                file.write(line.encode("utf-8"))


def question_line(question: Question) -> str:
    """One question as questions.jsonl holds it."""
    own = {"choices": [*question.choices], "system": question.system, "group": question.group}
    told = {name: value for name, value in own.items() if value not in (None, [])}
    return to_line({"id": question.id, "question": question.text, **told})


def response_line(
    question_id: str, index: int, *, response: Response, request: str | None = None
) -> str:
    """One response as a segment holds it, in a log perhaps with what it answers."""
    fields = {name: getattr(response, name) for name in RESPONSE_FIELDS}
    for name in SOMETIMES:
        if getattr(response, name) not in (None, 0):
            fields[name] = getattr(response, name)
    if response.trace is not None:
        fields["trace"] = trace_to_json(response.trace)
    told = {} if request is None else {"request": request}
    return to_line({"question_id": question_id, "index": index, **fields, **told})
