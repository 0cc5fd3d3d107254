"""Pool: recorded responses of many questions in a directory, read lazily, never half-read.

manifest.json            task, schedule, sampler settings, seed, counts, hashes; written last
questions.jsonl          {"id", "question", "choices"}
responses-00000.jsonl.gz sealed segments: whole questions, one response per line
responses-00001.jsonl    a plain segment, in which questions may be mixed
truths.jsonl             apart, and none of this module's business
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import index
from pathlib import Path
from typing import Any

from aera.errors import PoolError, UsageError
from aera.files import (
    file_hash,
    problem,
    read_rows,
    replacing,
    take_field,
    to_line,
    write_json,
    write_whole,
)
from aera.pools.record import Record, batches, check_once, check_order
from aera.reading.task import Task, task_from_json
from aera.response import Question, Response
from aera.schedule import Schedule

FORMAT = 1
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


@dataclass(frozen=True)
class Line:
    """One response as it stands in a segment."""

    question_id: str
    index: int
    response: Response


@dataclass(frozen=True)
class Manifest:
    """What a pool says of itself."""

    task: Task
    schedule: Schedule
    questions: int
    responses: int
    sampler: dict[str, Any]
    seed: int | None
    hashes: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """The content of manifest.json."""
        return {
            "format": FORMAT,
            "task": self.task.as_json(),
            "prompt_template": self.task.template,
            "schedule": list(self.schedule),
            "sampler": self.sampler,
            "seed": self.seed,
            "counts": {"questions": self.questions, "responses": self.responses},
            "hashes": self.hashes,
        }


class Pool:
    """A pool on disk. Opening reads the manifest only; iterating streams question by question."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: str | Path) -> "Pool":
        """Open a pool directory."""
        path = Path(path)
        file = path / "manifest.json"
        if not file.is_file() and ((path / "plan.json").is_file() or (path / "parts").is_dir()):
            raise PoolError(f'the pool at "{path}" is not finished; run aera sample again')
        if not file.is_file() and any(path.glob("*.parquet")):
            raise PoolError(f'"{path}" holds Parquet; make a pool of it with aera import')
        if not file.is_file():
            raise PoolError(f'there is no pool at "{path}": {file.name} is missing')
        try:
            return cls(path, _manifest(json.loads(file.read_text("utf-8"))))
        except (ValueError, KeyError, TypeError, RecursionError, UsageError) as error:
            raise PoolError(f'"{file}" cannot be understood: {problem(error)}') from None

    @property
    def task(self) -> Task:
        """The task its responses answer."""
        return self.manifest.task

    @property
    def schedule(self) -> Schedule:
        """Its checkpoints."""
        return self.manifest.schedule

    @cached_property
    def questions(self) -> dict[str, Question]:
        """Its questions by id, in order."""
        found: dict[str, Question] = {}
        for question in read_questions(self.path / "questions.jsonl"):
            if question.id in found:
                raise PoolError(f'"{self.path}" has question {question.id} twice')
            found[question.id] = question
        return found

    @cached_property
    def segments(self) -> tuple[Path, ...]:
        """Its files of responses, in order."""
        return tuple(sorted(self.path.glob("responses-*.jsonl*")))

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
        return all(segment.suffix == ".gz" for segment in self.segments)

    def __iter__(self) -> Iterator[Record]:
        if not self.sealed:
            yield from self._merge()
            return
        seen: list[str] = []
        for record in self.read(self.segments):
            seen.append(record.question.id)
            yield record
        self.check_whole(seen)

    def read(self, segments: Iterable[Path]) -> Iterator[Record]:
        """The questions of some sealed segments, without asking for the others."""
        lines = (line for segment in segments for line in read_segment(segment))
        groups = groupby(lines, key=lambda line: line.question_id)
        seen: set[str] = set()
        for question_id, group in groups:
            if question_id in seen:
                raise PoolError(f'the parts of "{self.path}" split question {question_id}')
            seen.add(question_id)
            yield self._record(question_id, group)

    def _merge(self) -> Iterator[Record]:
        """Plain segments hold questions in any order, so they are gathered first."""
        gathered: dict[str, list[Line]] = {}
        for segment in self.segments:
            for line in read_segment(segment):
                gathered.setdefault(line.question_id, []).append(line)
        known = [question for question in self.questions if question in gathered]
        for question_id in [*known, *(stray for stray in gathered if stray not in self.questions)]:
            yield self._record(question_id, gathered[question_id])
        self.check_whole(gathered)

    def _record(self, question_id: str, lines: Iterable[Line]) -> Record:
        if question_id not in self.questions:
            raise PoolError(
                f'"{self.path}" holds responses to {question_id}, not in questions.jsonl'
            )
        ordered = sorted(lines, key=lambda line: line.index)
        check_order((line.index for line in ordered), f'question {question_id} in "{self.path}"')
        return Record(self.questions[question_id], tuple(line.response for line in ordered))

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


def _manifest(fields: dict[str, Any]) -> Manifest:
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']}, this version reads format {FORMAT}")
    return Manifest(
        task=task_from_json(fields["task"]),
        schedule=Schedule(tuple(map(index, fields["schedule"]))),
        questions=fields["counts"]["questions"],
        responses=fields["counts"]["responses"],
        sampler=fields["sampler"],
        seed=fields["seed"],
        hashes=fields["hashes"],
    )


def read_questions(path: Path) -> Iterator[Question]:
    """The questions of a file, one JSON object per line."""
    return read_rows(path, _parse_question)


def _parse_question(text: str) -> Question:
    fields = json.loads(text)
    choices = take_field(fields, "choices", (list,)) if fields.get("choices") else ()
    return Question(
        take_field(fields, "id", (str,)), take_field(fields, "question", (str,)), tuple(choices)
    )


def read_segment(path: Path) -> Iterator[Line]:
    """The responses of one segment; a damaged line is an error that names segment and line."""
    return read_rows(path, parse_line)


def parse_line(text: str) -> Line:
    """One line of a segment."""
    fields = json.loads(text)
    return Line(
        take_field(fields, "question_id", (str,)),
        take_field(fields, "index", (int,)),
        Response(
            **{name: take_field(fields, name, kind) for name, kind in RESPONSE_FIELDS.items()}
        ),
    )


# --- writing --------------------------------------------------------------------------------------


def write_pool(
    path: Path,
    records: Iterable[Record],
    *,
    task: Task,
    sampler: Mapping[str, Any],
    seed: int | None = None,
) -> Pool:
    """Write a finished pool. Each file appears whole or not at all, and the manifest comes last."""
    questions: list[str] = []
    counts: list[int] = []
    files = ["questions.jsonl"]
    for number, batch in enumerate(batches(records)):
        files.append(f"responses-{number:05}.jsonl.gz")
        with replacing(path / files[-1]) as partial:
            seal_segment(partial, batch)
        questions += [question_line(record.question) for record in batch]
        counts += [len(record.responses) for record in batch]
    if not counts:
        raise PoolError("a pool needs at least one question")
    write_whole(path / "questions.jsonl", "".join(questions))
    hashes = {name: file_hash(path / name) for name in files}
    schedule = Schedule().upto(min(counts))
    manifest = Manifest(task, schedule, len(counts), sum(counts), dict(sampler), seed, hashes)
    write_json(path / "manifest.json", manifest.as_json())
    return Pool(path, manifest)


def seal_segment(path: Path, records: Iterable[Record]) -> None:
    """Write whole questions to a gzipped segment; equal content gives equal bytes."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 4, raw, mtime=0) as file:
        for record in records:
            for index, response in enumerate(record.responses):
                line = response_line(record.question.id, index, response=response)
                file.write(line.encode("utf-8"))


def question_line(question: Question) -> str:
    """One question as questions.jsonl holds it."""
    choices = {"choices": list(question.choices)} if question.choices else {}
    return to_line({"id": question.id, "question": question.text, **choices})


def response_line(question_id: str, index: int, *, response: Response) -> str:
    """One response as a segment holds it."""
    fields = {name: getattr(response, name) for name in RESPONSE_FIELDS}
    return to_line({"question_id": question_id, "index": index, **fields})
