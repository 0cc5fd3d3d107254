"""Pool: questions with recorded responses, sealed or still coming, on disk or in memory.

manifest.json   what a sealed pool says of itself, and which files it has; written last
questions.jsonl the questions
responses-*.gz  sealed segments of whole questions, one response per line
plan.json       what a log is filled with, see `Log`; without a manifest it is open
open-*.jsonl    what has come back, a response a line, perhaps while this is read
failures.jsonl  what failed, and will be asked for again
lock            held by whoever writes: who that is, and since when
audits.jsonl    in a log of a gateway: an audit a line, with its question and all its responses
dropped.jsonl   what nobody may read any more
growing/        the same again for what makes a sealed pool larger
"""

import fcntl
import gzip
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, groupby, takewhile
from math import inf
from operator import index, itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, TypeVar

from aera.core import Prefix, Question, Response, Schedule, Vote, Weighting, unfold
from aera.errors import PoolError, UsageError, check_count
from aera.files import (
    UNREADABLE,
    check_format,
    file_hash,
    naming,
    problem,
    read_rows,
    replacing,
    take_field,
    to_line,
    write_json,
    write_whole,
    written_by,
)
from aera.reading.task import Readability, Task, add_traces, question_reader, task_from_json
from aera.trace import trace_from_json, trace_to_json
from aera.workers import SERIAL, Workers

FORMAT = 4
"""2 had no prompt tokens, 1 no answers without text, systems, groups and questions left out."""
SEGMENT_RESPONSES = 16_384
"""About so many responses are worked on together."""
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
MANIFEST, PLAN, QUESTIONS, GROWING = "manifest.json", "plan.json", "questions.jsonl", "growing"
OPEN, AUDITS, DROPPED = "open-*.jsonl", "audits.jsonl", "dropped.jsonl"
FAILURES, LOCK = "failures.jsonl", "lock"
RECORDING = "recording.json"  # what an older version had beside audits in the place of a plan
BLANK = Response("")


# --- records --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """A question with its responses in sampling order."""

    question: Question
    responses: tuple[Response, ...]

    def read(self, task: Task) -> "VotedRecord":
        """The same with what each response says."""
        votes = map(question_reader(task, self.question).read, self.responses)
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
                f"schedule goes to {count}; sample more, or decide earlier, as with "
                f"--max-samples {len(self.responses)}"
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


def read_votes(records: Iterable[Record], task: Task) -> list[VotedRecord]:
    """The same records with what their responses say."""
    return [record.read(task) for record in records]


def health_of(records: Iterable[VotedRecord]) -> Readability:
    """Which share of the responses to some questions was read."""
    parts = (Readability.of(each.question.id, each.responses, each.votes) for each in records)
    return Readability().join(parts)


Item = TypeVar("Item", bound=Record)


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


class Records:
    """Questions with recorded responses: a pool, one as Parquet, or records held in memory.

    They have a name for tables and reports, the task that was answered, checkpoints, and a folder
    where what is made of them may be kept, None where there is none.
    """

    name: str
    task: Task
    schedule: Schedule
    folder: Path | None

    @cached_property
    def questions(self) -> Mapping[str, Question]:
        """The questions by id, in order."""
        raise NotImplementedError

    @property
    def stored_questions(self) -> Mapping[str, Question]:
        """Also those left out."""
        return self.questions

    def parts(self) -> Sequence[Iterable[Record]]:
        """Whole questions to be worked on together, few enough to be held in memory."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.questions)

    def __repr__(self) -> str:
        what = f"{len(self)} questions, {self.task.name}, {self.schedule}"
        return f"<{type(self).__name__} {self.name}: {what}>"

    def __iter__(self) -> Iterator[Record]:
        seen: list[str] = []
        for part in self.parts():
            for record in part:
                seen.append(record.question.id)
                yield record
        self.check_whole(seen)

    def everything(self) -> Iterator[Record]:
        """Every question that has a response, also those left out."""
        return iter(self)

    def check_whole(self, question_ids: Iterable[str]) -> None:
        """Refuse what was read part by part where a question is missing or was split."""
        seen: set[str] = set()
        for question_id in question_ids:
            if question_id in seen:
                raise PoolError(f'the parts of "{self.name}" split question {question_id}')
            seen.add(question_id)
        if len(seen) < len(self):
            missing = next((name for name in self.questions if name not in seen), "unknown")
            raise PoolError(
                f'{len(self) - len(seen)} of {len(self)} questions in "{self.name}" have no '
                f"response, the first is {missing}"
            )


@dataclass(frozen=True, eq=False, repr=False)
class HeldRecords(Records):
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

    def __iter__(self) -> Iterator[VotedRecord]:
        return iter(self.records)

    def parts(self) -> list[list[VotedRecord]]:
        """Whole questions to be worked on together."""
        return [*batches(self.records)]


@dataclass(frozen=True, eq=False)
class Part:
    """Whole questions, read where they are worked on: it travels as the name of what reads them."""

    read: Callable[[], Iterable[Record]]
    left_out: Collection[str]

    def __iter__(self) -> Iterator[Record]:
        return (each for each in self.read() if each.question.id not in self.left_out)


class FewerRecords(Records):
    """Other records without some of their questions."""

    def __init__(self, records: Records, left_out: Collection[str]) -> None:
        self.name, self.task, self.schedule = records.name, records.task, records.schedule
        self.folder, self._records, self._left_out = records.folder, records, left_out
        self.questions = {k: each for k, each in records.questions.items() if k not in left_out}

    def parts(self) -> list[Part]:
        """The parts of the others, without these questions."""
        return [Part(partial(iter, part), self._left_out) for part in self._records.parts()]


def hold(records: Records, *, workers: Workers = SERIAL) -> HeldRecords:
    """Read every vote once and keep them all in memory."""
    parts = workers.map(partial(read_votes, task=records.task), records.parts())
    held = [record for part in parts for record in part]
    records.check_whole(record.question.id for record in held)
    return HeldRecords(held, records.task, records.schedule, records.name, records.folder)


def draw_records(pools: Sequence[Records], names: Iterable[str]) -> Iterator[list[Record | None]]:
    """For each question its records in these pools, which are read no further than needed."""
    streams = [pool.everything() for pool in pools]
    passed: list[dict[str, Record]] = [{} for _ in pools]
    for name in names:
        for pool, stream, there in zip(pools, streams, passed, strict=True):
            while name in pool.stored_questions and name not in there:
                record = next(stream, None)
                if record is None:
                    break
                there[record.question.id] = record
        yield [there.pop(name, None) for there in passed]


def check_order(indices: Iterable[int], where: str) -> None:
    """Refuse responses, sorted by index, of which one is missing or there twice."""
    for place, found in enumerate(indices):
        if found != place:
            trouble = "twice" if found < place else f"but not {place}"
            raise PoolError(f"{where} has response {found} {trouble}")


# --- what a pool says of itself -------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What a log is filled with. One begun with a plan is continued with it, and perhaps grown.

    `responses` is for each question, None where nobody can say: then the number that keeps most
    counts. `sampler` has model, settings and prompt; without a `schedule` it is the usual one.
    `request` tells what a question becomes, where every response is to say what it answers.
    """

    task: Task
    responses: int | None = None
    sampler: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    schedule: Schedule | None = None
    request: Callable[[Question], Mapping[str, Any]] | None = field(default=None, compare=False)

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
        told = {"task": self.task.as_json(), "responses": self.responses}
        told |= {"sampler": dict(self.sampler), "seed": self.seed}
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
class Manifest:
    """What a pool says of itself.

    Questions with fewer than `each` responses do not count, neither in `questions` nor in
    `responses`. `other_counts` has how many responses there are where that is not `each`; None
    where format 1 does not say. A log that is not sealed has no `hashes`.
    """

    task: Task
    schedule: Schedule
    questions: int
    responses: int
    sampler: dict[str, Any]
    seed: int | None
    hashes: dict[str, str]
    each: int
    other_counts: Mapping[str, int] | None = field(default_factory=dict)
    written_by: str | None = field(default_factory=written_by)

    @classmethod
    def of(
        cls, plan: Plan, counts: Mapping[str, int], hashes: Mapping[str, str] | None = None
    ) -> "Manifest":
        """What a plan became, by how many responses each question has."""
        each = plan.responses or best_count(counts.values())
        kept = [count for count in counts.values() if count >= each]
        if plan.responses and not kept:
            most = max(counts.values(), default=0)
            raise PoolError(f"no question has {each} responses, the most are {most}; ask for fewer")
        usual = Schedule.doubling(each) if each else Schedule()
        return cls(
            plan.task,
            plan.schedule.upto(each) if plan.schedule and each else usual,
            len(kept),
            sum(kept),
            dict(plan.sampler),
            plan.seed,
            dict(hashes or {}),
            each,
            {name: count for name, count in counts.items() if count != each},
        )

    @property
    def plan(self) -> Plan:
        """The plan that gives the same."""
        return Plan(self.task, self.each, self.sampler, self.seed, self.schedule)

    @cached_property
    def left_out(self) -> dict[str, str]:
        """The questions that do not count, each with the reason."""
        return {
            question_id: f"has {count} response{'s' * (count != 1)}, fewer than {self.each}"
            for question_id, count in (self.other_counts or {}).items()
            if count < self.each
        }

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


# --- lines ----------------------------------------------------------------------------------------


Line = tuple[str, int, Response, str | None]
"""Question, place and response; in a log perhaps with a digest of what was asked."""


def parse_line(fields: dict[str, Any]) -> Line:
    """What the JSON of one line says; `read_rows` names the file and line of a damaged one."""
    rare = {name: kind for name, kind in SOMETIMES.items() if name in fields}
    kinds = (RESPONSE_FIELDS | rare).items()
    told = {name: take_field(fields, name, kind) for name, kind in kinds}
    if "trace" in told:
        told["trace"] = trace_from_json(told["trace"])
    name, place = take_field(fields, "question_id", (str,)), take_field(fields, "index", (int,))
    return name, place, Response(**told), fields.get("request")


def line_fields(
    question_id: str, index: int, response: Response, request: str | None = None
) -> dict[str, Any]:
    """What a line says."""
    fields = {name: getattr(response, name) for name in RESPONSE_FIELDS}
    rare = {name: getattr(response, name) for name in SOMETIMES} | {"request": request}
    if response.trace is not None:
        rare["trace"] = trace_to_json(response.trace)
    told = {name: value for name, value in rare.items() if value not in (None, 0)}
    return {"question_id": question_id, "index": index, **fields, **told}


def question_fields(question: Question) -> dict[str, Any]:
    """One question as questions.jsonl holds it."""
    own = {"choices": [*question.choices], "system": question.system, "group": question.group}
    told = {name: value for name, value in own.items() if value not in (None, [])}
    return {"id": question.id, "question": question.text, **told}


def _question_line(question: Question) -> str:
    return to_line(question_fields(question))


def _question_of(fields: dict[str, Any]) -> Question:
    choices = take_field(fields, "choices", (list,)) if fields.get("choices") else ()
    own = {name: take_field(fields, name, (str,)) for name in ("system", "group") if name in fields}
    asked = take_field(fields, "question", (str,))
    return Question(take_field(fields, "id", (str,)), asked, tuple(choices), **own)


def read_questions(folder: Path, dropped: "Dropped") -> dict[str, Question]:
    """The questions of a pool by id, in order, but for those that are dropped."""
    found: dict[str, Question] = {}
    for question in read_rows(folder / QUESTIONS, _question_of):
        if question.id in found:
            raise PoolError(f'"{folder}" has question {question.id} twice')
        found[question.id] = question
    return {name: question for name, question in found.items() if name not in dropped.ids}


# --- what is dropped, and audits ------------------------------------------------------------------


@dataclass(frozen=True)
class Dropped:
    """What nobody may read any more: questions by id, and audits also by request and by age."""

    ids: frozenset[str] = frozenset()
    before: float = -inf

    @classmethod
    def read(cls, path: Path) -> "Dropped":
        """What dropped.jsonl of a pool says."""
        file = path / DROPPED
        rows = [*read_rows(file, dict[str, Any], cut=True)] if file.is_file() else []
        ids = (name for row in rows for name in row.get("ids", ()))
        return cls(frozenset(ids), max((row.get("before", -inf) for row in rows), default=-inf))

    def __contains__(self, audit: Mapping[str, Any]) -> bool:
        """Whether an audit is dropped."""
        named = audit["id"] in self.ids or audit.get("request") in self.ids
        return named or audit["time"] < self.before


def read_audits(path: Path, dropped: Dropped | None = None) -> Iterator[dict[str, Any]]:
    """Recorded audits in their order; one that was cut by a kill never ended."""
    hidden = Dropped.read(path) if dropped is None else dropped
    there = (path / AUDITS).is_file()
    rows = read_rows(path / AUDITS, dict[str, Any], cut=True) if there else ()
    return (row for row in rows if row not in hidden)


# --- pools on disk --------------------------------------------------------------------------------


class Pool(Records):
    """A pool on disk. Opening reads the manifest only; iterating streams question by question.

    A log that is being written has no manifest: what it would say is counted when it is opened, and
    `came` is what has come so far.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        *,
        plan: Plan | None = None,
        came: Sequence[Record] = (),
    ) -> None:
        self.path, self.manifest, self.plan = path, manifest, plan
        self.name, self.folder = path.name, path
        self.task, self.schedule = manifest.task, manifest.schedule
        self.left_out, self.is_open = manifest.left_out, not manifest.hashes
        self._came = came
        if self.is_open:
            self.stored_questions = {each.question.id: each.question for each in came}

    @classmethod
    def open(cls, path: str | Path) -> "Pool":
        """Open a pool directory, also a log that is being written."""
        path = Path(path)
        file, begun = path / MANIFEST, read_plan(path)
        if begun is not None and is_open(path):
            pool = open_log(path, begun)
            if not pool.manifest.responses:
                raise PoolError(f'there are no responses in "{path}" yet')
            return pool
        if not file.is_file():
            why = f'there is no pool at "{path}": {MANIFEST} is missing'
            if begun is not None or is_moving(path):
                why = f'the pool at "{path}" is being rewritten; run the same command again'
            elif any(path.glob("*.parquet")):
                why = f'"{path}" holds Parquet; make a pool of it with aera import'
            elif path.is_file():
                why = f'"{path}" is a file and no pool: aera import "{path}" --out pool'
            raise PoolError(why)
        try:
            manifest = manifest_of(json.loads(file.read_text("utf-8")), f'"{file}"')
        except (*UNREADABLE, LookupError, UsageError) as error:
            raise PoolError(f'"{file}" cannot be understood: {problem(error)}') from None
        pool = cls(path, manifest)
        if not pool.dropped.ids:
            return pool
        counted = Manifest.of(manifest.plan, pool.stored_counts, manifest.hashes)
        return cls(path, replace(counted, written_by=manifest.written_by))

    def __reduce__(self) -> tuple[type["Pool"], tuple[Path, Manifest]]:
        """Travels as its manifest; what has been read stays behind."""
        return Pool, (self.path, self.manifest)

    def __len__(self) -> int:
        return self.manifest.questions

    @cached_property
    def dropped(self) -> Dropped:
        """What is not to be read."""
        return Dropped.read(self.path)

    @cached_property
    def questions(self) -> dict[str, Question]:
        """Its questions by id, in order, without those left out."""
        return {name: q for name, q in self.stored_questions.items() if name not in self.left_out}

    @cached_property
    def stored_questions(self) -> dict[str, Question]:
        """All its questions by id, in order, also those left out."""
        return read_questions(self.path, self.dropped)

    @cached_property
    def stored_counts(self) -> dict[str, int]:
        """How many responses each question has, also those left out."""
        others = self.manifest.other_counts
        if others is None:  # format 1 does not say
            return {record.question.id: len(record.responses) for record in self.everything()}
        return {name: others.get(name, self.manifest.each) for name in self.stored_questions}

    @cached_property
    def segments(self) -> tuple[Path, ...]:
        """Its files of responses, in order."""
        if self.is_open:
            return tuple(sorted(self.path.glob(OPEN)))
        names = (name for name in self.manifest.hashes if name.startswith("responses-"))
        return tuple(self.path / name for name in names)

    @property
    def size(self) -> int:
        """Bytes of its responses on disk."""
        return sum(segment.stat().st_size for segment in self.segments)

    def parts(self) -> Sequence[Iterable[Record]]:
        """Its sealed segments, each read where it is worked on; of a log, lists of records."""
        if self.is_open:
            return [*batches(each for each in self._came if each.question.id in self.questions)]
        there = Pool(self.path.absolute(), self.manifest)  # who works on it may be elsewhere
        return [Part(partial(there.read, path), self.left_out) for path in there.segments]

    def everything(self) -> Iterator[Record]:
        """Every question that has a response, also those left out."""
        if self.is_open:
            return (each for each in self._came if each.responses)
        return (record for segment in self.segments for record in self.read(segment))

    def read(self, segment: Path) -> Iterator[Record]:
        """The questions of one sealed segment, also those left out."""
        for name, group in groupby(read_rows(segment, parse_line), key=itemgetter(0)):
            if name in self.dropped.ids:
                continue
            if name not in self.stored_questions:
                raise PoolError(f'"{self.path}" holds responses to {name}, not in {QUESTIONS}')
            lines = sorted(group, key=itemgetter(1))
            check_order((place for _, place, *_ in lines), f'question {name} in "{self.path}"')
            yield Record(self.stored_questions[name], tuple(found for _, _, found, _ in lines))


def is_open(path: Path) -> bool:
    """Whether a folder with a plan is a log that is not sealed."""
    if (path / AUDITS).is_file() or (path / RECORDING).is_file():
        return True  # what an older version made of its audits is only a copy of them
    return (path / PLAN).is_file() and not (path / MANIFEST).is_file() and not is_moving(path)


def is_moving(path: Path) -> bool:
    """Whether what was rewritten has still to take the place of what it was made of."""
    return (path / GROWING / MANIFEST).is_file()


def open_log(path: Path, plan: Plan, dropped: Dropped | None = None) -> Pool:
    """A log as the pool that it would be, were it sealed now; perhaps still without responses."""
    came = [*read_log(path, Dropped.read(path) if dropped is None else dropped)]
    counts = {each.question.id: len(each.responses) for each in came}
    manifest = Manifest.of(replace(plan, responses=None), counts)
    return Pool(path, manifest, plan=plan, came=came)


def read_log(path: Path, dropped: Dropped) -> Iterator[Record]:
    """Every question of a log with what has come back for it, in whole lines."""
    if (path / AUDITS).is_file():  # what else an older version left there is a copy of them
        audits = {row["id"]: row for row in read_audits(path, dropped)}.values()
        for row in audits:
            responses = (parse_line(each)[2] for each in row["responses"])
            yield Record(_question_of(row["question"]), tuple(responses))
        return
    questions = read_questions(path, dropped) if (path / QUESTIONS).is_file() else {}
    found: dict[str, dict[int, Response]] = {name: {} for name in questions}
    for file in sorted(path.glob(OPEN)):
        for name, place, response, _ in read_rows(file, parse_line, cut=True):
            if name in found:
                found[name][place] = response
    for name, question in questions.items():
        yield Record(question, tuple(found[name][place] for place in sorted(found[name])))


def write_pool(path: Path, records: Iterable[Record], plan: Plan) -> Pool:
    """Write these records as a pool: each file appears whole, and the manifest comes last.

    Questions with fewer responses than planned are written and left out. More may be put into the
    plan's sampler while the records are drawn. Equal content gives equal bytes.
    """
    path.mkdir(parents=True, exist_ok=True)
    files, asked, counts = [QUESTIONS], list[str](), dict[str, int]()
    for number, batch in enumerate(batches(records)):
        files.append(f"responses-{number:05}.jsonl.gz")
        with (
            replacing(path / files[-1]) as unfinished,
            unfinished.open("wb") as raw,
            gzip.GzipFile("", "wb", 4, raw, mtime=0) as file,
        ):
            for record in batch:
                asked.append(_question_line(record.question))
                counts[record.question.id] = len(record.responses)
                for place, response in enumerate(record.responses):
                    line = line_fields(record.question.id, place, response)
                    file.write(to_line(line).encode())
    if not any(counts.values()):
        raise PoolError(f"a pool needs at least one {'response' if counts else 'question'}")
    manifest = Manifest.of(plan, counts)
    write_whole(path / QUESTIONS, "".join(asked))
    manifest = replace(manifest, hashes={name: file_hash(path / name) for name in files})
    write_json(path / MANIFEST, manifest.as_json())
    return Pool(path, manifest)


# --- logs: what is being filled -------------------------------------------------------------------


class Log:
    """A folder that is being filled, held by whoever opened it until `close`.

    with Log.open(path, Plan(task, 128), questions) as log:
        log.add(question, 0, responses)
        pool = log.seal()

    What is wanted stands in plan.json, and what has come in open-*.jsonl: a kill loses at most the
    line being written. What failed is in failures.jsonl, and will be asked for again. When every
    wanted response is there, `seal` makes a pool of them. A log without an end is never sealed,
    only read.

    `paid` is what was there already, with texts only where it can be recalled; `requests` what was
    asked for each question, as a digest, where the plan has requests; `damaged` the half-written
    lines that were found and dropped; `resumed` the number of responses that were there already;
    `trouble` what the last failure said; `folder` where it writes.
    """

    def __init__(self, path: Path, plan: Plan, questions: Sequence[Question], lock: BinaryIO):
        self.path = self.folder = path
        self.plan, self.dropped = plan, Dropped.read(path)
        self.questions = [each for each in questions if each.id not in self.dropped.ids]
        self.paid: list[Response] = []
        self.requests: dict[str, str] = {}
        self.damaged: list[str] = []
        self.done = self.failures = self.resumed = 0
        self.trouble = ""
        self._turn, self._lock = Lock(), lock
        self._base: Pool | None = None  # the sealed pool that becomes larger
        self._known: dict[str, dict[int, Response]] = {}

    @classmethod
    def open(
        cls,
        path: str | Path,
        plan: Plan,
        questions: Sequence[Question] = (),
        *,
        command: str = "aera sample",
        private: bool = False,
    ) -> "Log":
        """Create a folder, or take up what is there; refused while somebody else writes to it.

        A private one holds what others have said: nobody but its owner may read it.
        """
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
        if private and path.stat().st_mode & 0o077:
            raise UsageError(
                f'others can read "{path}", and what is recorded there is nobody\'s business; '
                f"chmod go= {path}, or record into another place"
            )
        log = cls(path, plan, questions, take_lock(path, command))
        try:
            log._begin()
            for file in path.iterdir() if private else ():
                file.chmod(0o600)
        except BaseException:
            release(path, log._lock)
            raise
        return log

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write; everything added is on disk already, and what was dropped goes."""
        try:
            if not self._lock.closed:
                erase(self.path)
        finally:
            release(self.path, self._lock)

    @property
    def wanted(self) -> int:
        """Responses in all, 0 where nobody can say."""
        return (self.plan.responses or 0) * len(self.questions)

    @property
    def complete(self) -> bool:
        """Whether the manifest declares the pool whole."""
        return self.plan.responses is not None and (self.folder / MANIFEST).exists()

    # --- what is there

    def _begin(self) -> None:
        move_in(self.path)
        erase(self.path)
        if self._grows():
            self._base, self.folder = Pool.open(self.path), self.path / GROWING
            self.folder.mkdir(exist_ok=True)
        self._check_plan()
        self._check_questions()
        _sweep(self.folder, "*.partial")
        self._take_stock()

    def _grows(self) -> bool:
        """Whether the plan makes the sealed pool that is there larger.

        A plan that goes another way than the pool's is refused later, but for one with fewer
        responses, which nobody could tell from a slip.
        """
        plan, there = self.plan, read_plan(self.path)
        sealed = (self.path / MANIFEST).is_file()
        if there is None or not there.responses or not plan.responses or not sealed:
            return False
        if not there.same(replace(plan, responses=there.responses, schedule=there.schedule)):
            return False
        if plan.responses < there.responses:
            raise UsageError(
                f'the pool at "{self.path}" was sampled with other settings: it has '
                f"{there.responses} responses for each question, and {plan.responses} are fewer; "
                "ask for as many or more, or sample into another place"
            )
        known = read_questions(self.path, self.dropped)
        asked = {question.id: question for question in self.questions}
        larger = plan.responses > there.responses or len(asked) > len(known)
        return larger and known.items() <= asked.items()

    def _check_plan(self) -> None:
        # A kill may leave the plan half-written, and then nothing else.
        free = {f"{PLAN}.partial", LOCK, DROPPED}
        there, file = {each.name for each in self.folder.iterdir()} - free, self.folder / PLAN
        if there and not {PLAN, RECORDING} & there:
            raise UsageError(f'"{self.path}" exists and is no pool begun by sampling')
        if not there:
            write_whole(file, json.dumps(self.plan.as_json(), indent=2, sort_keys=True) + "\n")
        known = read_plan(self.folder)
        if known is not None and self.plan.responses is None and known.responses is None:
            if self.plan.request is None and known.task != self.plan.task:
                raise UsageError(
                    f'the audits in "{self.path}" are of another task, {known.task.name}; record '
                    "into another place"
                )
        elif known is None or not known.same(self.plan):
            raise self._begun_with("settings", file)

    def _check_questions(self) -> None:
        """Questions are those it was begun with; a log without an end takes further ones."""
        file, asked = self.folder / QUESTIONS, {each.id: each for each in self.questions}
        known = read_questions(self.folder, Dropped()) if file.is_file() else {}
        if self.plan.responses is None:
            asked = known | asked
        elif known and [*known.items()] != [*asked.items()]:
            raise self._begun_with("questions", file)
        if asked != known:
            write_whole(file, "".join(map(_question_line, asked.values())))

    def _begun_with(self, what: str, file: Path) -> UsageError:
        return UsageError(
            f'the pool at "{self.path}" was begun with other {what}; continue with those in '
            f"{file.relative_to(self.path)}, or sample into another place"
        )

    def _take_stock(self) -> None:
        """Read what was there before; texts are kept only where they can be recalled."""
        sealed = self._base or (Pool.open(self.path) if self.complete else None)
        for name, count in sealed.stored_counts.items() if sealed else ():
            self._known[name] = dict.fromkeys(range(count), BLANK)
            self.done += count
        journal = self.path.with_suffix(".journal")
        if self.plan.responses is None and self.path.suffix == ".pool" and journal.is_file():
            journal.replace(self._segment(new=True))  # an older version's
        files = sorted(self.folder.glob(OPEN))
        self.damaged = [cut for cut in map(mend, (*files, self.folder / AUDITS)) if cut]
        try:
            for name, place, found, asked in chain(
                *(read_rows(each, parse_line) for each in files)
            ):
                response = found if self.plan.responses is None else replace(found, text="")
                self._known.setdefault(name, {})[place] = response
                self.paid.append(response)
                if asked is not None:
                    self.requests[name] = asked
        except PoolError as error:
            raise PoolError(f"{error}; remove the line and run again") from None
        self.done = self.resumed = self.done + len(self.paid)
        for question in self.questions if self.plan.request else ():
            if self.requests.get(question.id, digest := self._digest(question)) != digest:
                raise UsageError(
                    f'"{self.path}" was begun with another request for question {question.id}: '
                    "go on with the same model, task, settings and text, or write elsewhere"
                )

    def missing(self, question: Question, *, block: int) -> list[range]:
        """The stretches of responses still to be asked for, none longer than `block`."""
        stretches: list[range] = []
        there = self._known.get(question.id, {})
        for place in range(self.plan.responses or 0):
            if place in there or question.id in self.dropped.ids:
                continue
            if stretches and place == stretches[-1].stop and len(stretches[-1]) < block:
                stretches[-1] = range(stretches[-1].start, place + 1)
            else:
                stretches.append(range(place, place + 1))
        return stretches

    def recall(self, question: Question, start: int, want: int) -> list[Response]:
        """The responses known from `start` on, without a gap and at most `want`."""
        known = self._known.get(question.id, {})
        places = takewhile(known.__contains__, range(start, start + want))
        return [known[place] for place in places]

    def gap(self, question: Question, start: int, want: int) -> int:
        """How many of the wanted responses are missing before the next that is known."""
        known = self._known.get(question.id, {})
        return next((i for i in range(want) if start + i in known), want)

    # --- what comes

    def add(self, question: Question, start: int, responses: Sequence[Response]) -> None:
        """Write what a call brought. What failed is noted elsewhere, and asked for again later."""
        self.dropped = Dropped.read(self.path)  # perhaps just now, by another process
        if question.id in self.dropped.ids:
            return
        kept: dict[int, str] = {}
        failed: list[str] = []
        request = None if self.plan.request is None else self._digest(question)
        for place, response in enumerate(responses, start=start):
            if response.error is None:
                kept[place] = to_line(line_fields(question.id, place, response, request))
            else:
                row = {"question_id": question.id, "index": place, "error": response.error}
                self.trouble = response.error
                failed.append(to_line(row))
        append(self._segment(), [*kept.values()])
        append(self.folder / FAILURES, failed)
        if self.plan.responses is not None:
            self._known.setdefault(question.id, {}).update(dict.fromkeys(kept, BLANK))
        self.done += len(kept)
        self.failures += len(failed)

    def _segment(self, *, new: bool = False) -> Path:
        """The file that what comes is appended to."""
        there = sorted(self.folder.glob(OPEN))
        return there[-1] if there and not new else self.folder / f"open-{len(there):05}.jsonl"

    def add_audit(
        self,
        question: Question,
        responses: Iterable[Response],
        about: Mapping[str, Any],
        *,
        most: int | None = None,
    ) -> bool:
        """Append an audit with what is known of it; False where `most` bytes leave no room.

        `about` should have the time at which the request came, its id as "request", and what came
        of it as "outcome" with the "limit" of the alarm. One that was dropped is not written. May
        be called from any thread.
        """
        good = [response for response in responses if response.error is None]
        row = {"id": question.id, "time": time.time(), **about}
        row["question"] = question_fields(question)
        row["responses"] = [line_fields("", i, each) for i, each in enumerate(good)]
        text, file = to_line(row), self.path / AUDITS
        with self._turn:
            before, self.dropped = self.dropped, Dropped.read(self.path)
            if self.dropped != before:
                erase(self.path)
            there = file.stat().st_size if file.exists() else 0
            if most is not None and there + len(text.encode()) > most:
                return False
            append(file, [text] if row not in self.dropped else [])
        return True

    def _digest(self, question: Question) -> str:
        assert self.plan.request is not None
        body = json.dumps(self.plan.request(question), sort_keys=True, default=str)
        return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def seal(self) -> Pool | None:
        """The pool, sealed if it can be; None while something that is wanted is missing.

        What was dropped is erased. A log without an end stays open, and is a pool as it is.
        """
        if self.complete or self.plan.responses is None:
            erase(self.path)
            return Pool.open(self.path) if self.complete or self.done else None
        self.dropped = Dropped.read(self.path)
        asked = {each.id: each for each in self.questions if each.id not in self.dropped.ids}
        if any(self.missing(question, block=1) for question in asked.values()):
            return None
        came = {each.question.id: each.responses for each in read_log(self.folder, self.dropped)}
        drawn = draw_records([self._base] if self._base else [], asked)
        records = (
            Record(question, sum((each.responses for each in old if each), ()) + came.pop(name))
            for (name, question), old in zip(asked.items(), drawn, strict=True)
        )
        pool = rewrite(self.path, records, self.plan)
        self.folder, self._base = self.path, None
        return pool


def read_growing(path: Path) -> Pool | None:
    """What is being added to a sealed pool, or fills one that is not; None where nothing is."""
    folder = path / GROWING if (path / MANIFEST).is_file() else path
    plan = read_plan(folder)
    return None if plan is None else open_log(folder, plan, Dropped.read(path))


# --- who writes -----------------------------------------------------------------------------------


def take_lock(path: Path, command: str) -> BinaryIO:
    """Lock a folder for writing, or say who holds it and since when."""
    while True:
        opened = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, _mode(path / LOCK))
        file = os.fdopen(opened, "r+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = file.read().decode("utf-8", "replace").strip()
            file.close()
            raise UsageError(
                f'"{path}" is being written by {said or "another process"}; wait until it has '
                "ended, or write elsewhere"
            ) from None
        if os.fstat(opened).st_nlink:
            break
        file.close()  # whoever held it has just removed it
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    file.truncate(0)
    file.write(f"{command} (process {os.getpid()}) since {since}\n".encode())
    return file


def release(path: Path, lock: BinaryIO) -> None:
    """Let go of a folder; once only."""
    if not lock.closed:
        with lock:
            (path / LOCK).unlink(missing_ok=True)


def append(file: Path, lines: Sequence[str]) -> None:
    """Add lines in one write, which survives the death of this process; all of them or none."""
    data = memoryview("".join(lines).encode())
    if not data:
        return
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with naming(file), os.fdopen(os.open(file, flags, _mode(file)), "ab", buffering=0) as opened:
        end = opened.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[opened.write(data) :]
        except OSError:
            with suppress(OSError):
                opened.truncate(end)
            raise


def _mode(file: Path) -> int:
    """A file in a private folder is private too."""
    return 0o666 if file.parent.stat().st_mode & 0o077 else 0o600


def mend(file: Path) -> str | None:
    """Cut off a half-written last line, which a kill leaves behind; says where, if anywhere."""
    if not file.exists() or not file.stat().st_size:
        return None
    with file.open("rb") as opened:
        opened.seek(-1, os.SEEK_END)
        if opened.read() == b"\n":
            return None
    content = file.read_bytes()
    os.truncate(file, content.rfind(b"\n") + 1)
    return f"{file.name}, line {1 + content.count(10)}"


def _sweep(folder: Path, *patterns: str) -> None:
    for pattern in patterns:
        for file in folder.glob(pattern):
            file.unlink()


def rewrite(path: Path, records: Iterable[Record], plan: Plan) -> Pool:
    """Write a pool whole into growing/, then let it take the place of what was there."""
    pool = write_pool(path / GROWING, records, plan)
    move_in(path)
    return Pool(path, pool.manifest)


def move_in(path: Path) -> None:
    """Let the pool in growing/ take the place of what it was made of, if it is whole.

    Its manifest decides: interrupted at any moment, this can be done again, and before it is done
    there is no manifest in the folder itself, so that nobody takes the mixture for a pool.
    """
    grown = path / GROWING
    if is_moving(path):
        names = json.loads((grown / MANIFEST).read_text("utf-8"))["hashes"]
        (path / MANIFEST).unlink(missing_ok=True)
        for file in [*path.glob("responses-*.jsonl*")]:
            if file.name not in names:
                file.unlink()
        for name in (*names, PLAN):
            if (grown / name).exists():
                (grown / name).replace(path / name)
        (grown / MANIFEST).replace(path / MANIFEST)
    elif not (path / PLAN).is_file():
        return  # no pool of ours, whatever lies there
    if (path / MANIFEST).is_file() and not (path / AUDITS).is_file():
        _sweep(path, OPEN, FAILURES)
    if not (grown / PLAN).exists():  # nothing was begun there, or all of it has moved
        shutil.rmtree(grown, ignore_errors=True)


# --- what is dropped ------------------------------------------------------------------------------


def drop(path: Path, ids: Sequence[str] = (), before: float | None = None) -> tuple[int, int]:
    """Have questions or audits forgotten by everybody, also those that come later.

    They are erased at once, unless somebody holds the log, who does it at the next seal. Returns
    how many stood in its files, and how many still do.
    """
    plan = read_plan(path)
    if plan is None and not is_moving(path):
        Pool.open(path)  # which says what is wrong where there is no pool
    if before is not None and ((plan and plan.responses) or any(path.glob(OPEN)) or plan is None):
        raise UsageError(f'"{path}" does not say when its responses came; drop them by --ids')
    if (there := _stored(path)) and not there - Dropped.read(path).ids - {*ids}:
        raise UsageError(f'nothing would be left of "{path}"; remove the folder instead')
    row = {"time": time.time(), "ids": [*ids]} | ({} if before is None else {"before": before})
    file = path / DROPPED
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, _mode(file)), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mend(file)
        append(file, [to_line(row)])
    found = count_dropped(path)
    with suppress(UsageError):
        held = take_lock(path, "aera drop")
        try:
            move_in(path)
            erase(path)
        finally:
            release(path, held)
    return found, count_dropped(path)


def count_dropped(path: Path) -> int:
    """How many questions and audits are dropped and still stand in the files of a pool."""
    dropped = Dropped.read(path)
    if dropped == Dropped():
        return 0
    audits = sum(row in dropped for row in read_audits(path, Dropped()))
    return audits + len((_stored(path) | _stored(path / GROWING)) & dropped.ids)


def _stored(folder: Path) -> set[str]:
    """The questions in the files of a pool or log; audits are counted by themselves."""
    audited, there = (folder / AUDITS).is_file(), (folder / QUESTIONS).is_file()
    return {*read_questions(folder, Dropped())} if there and not audited else set()


def erase(path: Path) -> None:
    """Rewrite whatever holds what is dropped; only for whoever holds the log."""
    dropped, grown = Dropped.read(path), path / GROWING
    if not count_dropped(path):
        return
    for folder in (path, grown):
        _filter(folder / AUDITS, lambda row: row not in dropped)
        for segment in folder.glob(OPEN):
            _filter(segment, lambda row: row["question_id"] not in dropped.ids)
        if not (folder / MANIFEST).exists():
            _filter(folder / QUESTIONS, lambda row: row["id"] not in dropped.ids)
    if (path / AUDITS).is_file():
        _sweep(path, MANIFEST, QUESTIONS, "responses-*")  # an older version's copy
    elif (path / MANIFEST).is_file() and not (grown / PLAN).exists():
        pool = Pool.open(path)
        rewrite(path, pool.everything(), pool.manifest.plan)


def _filter(file: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a file with only those of its lines."""
    if not file.is_file():
        return
    with replacing(file) as partial:
        with file.open("rb") as lines, partial.open("wb") as out:
            for text in lines:
                with suppress(ValueError):  # a line that was cut by a kill goes too
                    if keep(json.loads(text)):
                        out.write(text)
        shutil.copymode(file, partial)
