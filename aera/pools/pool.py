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

import gzip
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from math import inf
from operator import index, itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from aera.core import Prefix, Question, Response, Schedule, Vote, Weighting, unfold
from aera.errors import PoolError, UsageError, check_count
from aera.files import (
    UNREADABLE,
    Json,
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
from aera.reading.task import Readability, Task, add_traces, question_reader, task_from_json
from aera.trace import trace_from_json, trace_to_json

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
RECORDING = "recording.json"  # what an older version had beside audits in the place of a plan


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


Source = Callable[[], Iterable[Record]]
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
    left_out: Mapping[str, str] = MappingProxyType({})
    """Questions that do not count, each with the reason."""

    @cached_property
    def sources(self) -> Sequence[Source]:
        """What reads whole questions, few enough to be held in memory, also those left out."""
        raise NotImplementedError

    @cached_property
    def stored_questions(self) -> Mapping[str, Question]:
        """The questions by id, in order, also those left out."""
        raise NotImplementedError

    @cached_property
    def questions(self) -> dict[str, Question]:
        """The questions that count by id, in order."""
        return {name: q for name, q in self.stored_questions.items() if name not in self.left_out}

    def parts(self) -> "list[Part]":
        """Whole questions to be worked on together."""
        return [Part(read, frozenset(self.left_out)) for read in self.sources]

    def everything(self) -> Iterator[Record]:
        """Every question that has a response, also those left out."""
        return (record for read in self.sources for record in read())

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
    def stored_questions(self) -> dict[str, Question]:
        """The questions by id, in order."""
        return {record.question.id: record.question for record in self.records}

    @cached_property
    def sources(self) -> list[Source]:
        """Lists of them, each of about as many responses as a segment holds."""
        return [partial(iter, batch) for batch in batches(self.records)]

    def __iter__(self) -> Iterator[VotedRecord]:
        return iter(self.records)


@dataclass(frozen=True, eq=False)
class Part:
    """Whole questions, read where they are worked on: it travels as the name of what reads them."""

    read: Source
    left_out: Collection[str]

    def __iter__(self) -> Iterator[Record]:
        return (each for each in self.read() if each.question.id not in self.left_out)


class FewerRecords(Records):
    """Other records without some of their questions, each for a reason."""

    def __init__(self, records: Records, without: Mapping[str, str]) -> None:
        self.name, self.task, self.schedule = records.name, records.task, records.schedule
        self.folder, self.left_out = records.folder, {**records.left_out, **without}
        self.stored_questions, self.sources = records.stored_questions, records.sources


def hold(records: Records) -> HeldRecords:
    """Read every vote once and keep them all in memory."""
    voted = read_votes(records, records.task)
    return HeldRecords(voted, records.task, records.schedule, records.name, records.folder)


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

    def as_json(self) -> Json:
        """The content of plan.json."""
        told = {"task": self.task.as_json(), "responses": self.responses}
        told |= {"sampler": dict(self.sampler), "seed": self.seed}
        return told if self.schedule is None else {**told, "schedule": [*self.schedule]}

    def changes(self, other: "Plan") -> list[str]:
        """The settings of which another says something else."""
        told = ({**each.as_json(), **each.sampler, "sampler": None} for each in (self, other))
        ours, theirs = (
            {name: json.dumps(value, sort_keys=True) for name, value in each.items()}
            for each in told
        )
        return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]


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
    sampler: Json
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

    def as_json(self) -> Json:
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


def manifest_of(fields: Json, where: str) -> Manifest:
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


def parse_line(fields: Json) -> Line:
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
) -> Json:
    """What a line says."""
    fields = {name: getattr(response, name) for name in RESPONSE_FIELDS}
    rare = {name: getattr(response, name) for name in SOMETIMES} | {"request": request}
    if response.trace is not None:
        rare["trace"] = trace_to_json(response.trace)
    told = {name: value for name, value in rare.items() if value not in (None, 0)}
    return {"question_id": question_id, "index": index, **fields, **told}


def question_fields(question: Question) -> Json:
    """One question as questions.jsonl holds it."""
    own = {"choices": [*question.choices], "system": question.system, "group": question.group}
    told = {name: value for name, value in own.items() if value not in (None, [])}
    return {"id": question.id, "question": question.text, **told}


def _question_of(fields: Json) -> Question:
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
class Audit(Record):
    """A full vote behind an answer that had left, and what came of it; older ones say less."""

    time: float
    """When the request came."""
    request: str | None = None
    model: str | None = None
    policy: str | None = None
    stopped_at: int | None = None
    outcome: str | None = None
    limit: float | None = None
    """Share of changed answers above which the alarm is raised."""

    @classmethod
    def from_json(cls, fields: Json) -> "Audit":
        """What a line of audits.jsonl holds."""
        said = tuple(parse_line(each)[2] for each in fields["responses"])
        about = {name: fields[name] for name in ABOUT if name in fields}
        return cls(_question_of(fields["question"]), said, **about)

    def as_json(self) -> Json:
        """The content of a line."""
        lines = [line_fields("", place, each) for place, each in enumerate(self.responses)]
        about = {name: getattr(self, name) for name in ABOUT}
        asked = {"id": self.question.id, "question": question_fields(self.question)}
        return {**asked, **about, "responses": lines}


ABOUT = ("time", "request", "model", "policy", "stopped_at", "outcome", "limit")


@dataclass(frozen=True)
class Dropped:
    """What nobody may read any more: questions by id, and audits also by request and by age."""

    ids: frozenset[str] = frozenset()
    before: float = -inf

    @classmethod
    def read(cls, path: Path) -> "Dropped":
        """What dropped.jsonl of a pool says."""
        file = path / DROPPED
        rows = [*read_rows(file, Json, cut=True)] if file.is_file() else []
        ids = (name for row in rows for name in row.get("ids", ()))
        return cls(frozenset(ids), max((row.get("before", -inf) for row in rows), default=-inf))

    def __contains__(self, audit: Audit) -> bool:
        """Whether an audit is dropped."""
        named = audit.question.id in self.ids or audit.request in self.ids
        return named or audit.time < self.before


def read_audits(path: Path, dropped: Dropped) -> Iterator[Audit]:
    """Recorded audits in their order; one that was cut by a kill never ended."""
    there = (path / AUDITS).is_file()
    audits = read_rows(path / AUDITS, Audit.from_json, cut=True) if there else ()
    return (audit for audit in audits if audit not in dropped)


# --- pools on disk --------------------------------------------------------------------------------


class Pool(Records):
    """A pool on disk. Opening reads the manifest only; iterating streams question by question.

    A log that is being written has no manifest: what it would say is counted when it is opened,
    `came` is what has come so far, and `wanted` how many responses each question is to have.
    """

    def __init__(
        self, path: Path, manifest: Manifest, came: Sequence[Record] = (), wanted: int = 0
    ) -> None:
        self.path, self.manifest, self.wanted = path, manifest, wanted
        self.name, self.folder = path.name, path
        self.task, self.schedule = manifest.task, manifest.schedule
        self.left_out, self.is_open = manifest.left_out, not manifest.hashes
        self._came = [each for each in came if each.responses]
        if self.is_open:
            self.stored_questions = {each.question.id: each.question for each in came}

    @classmethod
    def open(cls, path: str | Path) -> "Pool":
        """Open a pool directory, also a log that is being written."""
        path = Path(path)
        file, begun = path / MANIFEST, read_plan(path)
        if begun is not None and is_open(path):
            pool = open_log(path, begun, Dropped.read(path))
            if not pool.manifest.responses:
                raise PoolError(f'there are no responses in "{path}" yet')
            return pool
        if not file.is_file():
            why = f'there is no pool at "{path}": {MANIFEST} is missing'
            if begun is not None or is_moving(path):
                why = f'the pool at "{path}" is being rewritten; run the same command again'
            elif (path / PLAN).is_file():
                why = f'"{path / PLAN}" cannot be understood: damaged, or of a newer aera'
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

    @cached_property
    def sources(self) -> list[Source]:
        """Its sealed segments, each read where it is worked on; of a log, lists of records."""
        if self.is_open:
            return [partial(iter, batch) for batch in batches(self._came)]
        there = Pool(self.path.absolute(), self.manifest)  # who works on it may be elsewhere
        return [partial(there.read, path) for path in there.segments]

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


def open_log(path: Path, plan: Plan, dropped: Dropped) -> Pool:
    """A log as the pool that it would be, were it sealed now; perhaps still without responses."""
    came = [*read_log(path, dropped)]
    counts = {each.question.id: len(each.responses) for each in came}
    manifest = Manifest.of(replace(plan, responses=None), counts)
    return Pool(path, manifest, came, plan.responses or 0)


def read_log(path: Path, dropped: Dropped) -> Iterator[Record]:
    """Every question of a log with what has come back for it, in whole lines."""
    if (path / AUDITS).is_file():  # what else an older version left there is a copy of them
        yield from {each.question.id: each for each in read_audits(path, dropped)}.values()
        return
    questions = read_questions(path, dropped) if (path / QUESTIONS).is_file() else {}
    found: dict[str, dict[int, Response]] = {name: {} for name in questions}
    for name, place, response, _ in read_open(path, cut=True):
        if name in found:
            found[name][place] = response
    for name, question in questions.items():
        yield Record(question, tuple(found[name][place] for place in sorted(found[name])))


def read_open(folder: Path, *, cut: bool = False) -> Iterator[Line]:
    """What has come back, in the order in which it came; `cut` as for `read_rows`."""
    for file in sorted(folder.glob(OPEN)):
        yield from read_rows(file, parse_line, cut=cut)


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
                asked.append(to_line(question_fields(record.question)))
                counts[record.question.id] = len(record.responses)
                for place, response in enumerate(record.responses):
                    line = line_fields(record.question.id, place, response)
                    file.write(to_line(line).encode())
    if not any(counts.values()):
        raise PoolError(f"a pool needs at least one {'response' if counts else 'question'}")
    write_whole(path / QUESTIONS, "".join(asked))
    manifest = Manifest.of(plan, counts, {name: file_hash(path / name) for name in files})
    write_json(path / MANIFEST, manifest.as_json())
    return Pool(path, manifest)


def read_growing(path: Path) -> Pool | None:
    """What fills a pool that is not sealed, or makes a sealed one larger; None where nothing does.

    A log without an end is no such thing.
    """
    folder = path / GROWING if (path / MANIFEST).is_file() else path
    plan = read_plan(folder)
    return open_log(folder, plan, Dropped.read(path)) if plan and plan.responses else None
