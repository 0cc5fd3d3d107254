"""Pool: recorded responses of many questions in a directory, read lazily, never half-read.

manifest.json            task, schedule, sampler settings, seed, counts, hashes; written last
questions.jsonl          {"id", "question", "choices"}
responses-00000.jsonl.gz sealed segments: whole questions, one response per line
responses-00001.jsonl    a plain segment, in which questions may be mixed
truths.jsonl             apart, and none of this module's business
"""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import index
from pathlib import Path
from typing import IO, Any, TypeVar

from aera.errors import PoolError, UsageError
from aera.response import Question, Response
from aera.schedule import Schedule
from aera.task import Task, task_from_json

FORMAT = 1
SEGMENT_RESPONSES = 16_384
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

_SURROGATE = re.compile("[\ud800-\udfff]")
T = TypeVar("T")


@dataclass(frozen=True)
class Record:
    """A question with its responses in sampling order."""

    question: Question
    responses: tuple[Response, ...]


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
            raise PoolError(f'"{file}" cannot be understood: {_problem(error)}') from None

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
    def sealed(self) -> bool:
        """Whether every segment holds whole questions, so that each can be read by itself."""
        return all(segment.suffix == ".gz" for segment in self.segments)

    def __iter__(self) -> Iterator[Record]:
        if not self.sealed:
            yield from self._merged()
            return
        seen: list[str] = []
        for record in self.read(self.segments):
            seen.append(record.question.id)
            yield record
        self.check_whole(seen)

    def read(self, segments: Iterable[Path]) -> Iterator[Record]:
        """The questions of some sealed segments, without asking for the others."""
        seen: set[str] = set()
        lines = (line for segment in segments for line in read_segment(segment))
        for question_id, group in groupby(lines, key=lambda line: line.question_id):
            if question_id in seen:
                raise self._split(question_id)
            seen.add(question_id)
            yield self._record(question_id, group)

    def _split(self, question_id: str) -> PoolError:
        return PoolError(f'the sealed segments of "{self.path}" split question {question_id}')

    def _merged(self) -> Iterator[Record]:
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

    def check_whole(self, read: Iterable[str]) -> None:
        """Refuse a pool whose sealed segments split a question, or that misses one."""
        seen: set[str] = set()
        for question_id in read:
            if question_id in seen:
                raise self._split(question_id)
            seen.add(question_id)
        missing = [question for question in self.questions if question not in seen]
        if missing:
            raise PoolError(
                f'{len(missing)} of {len(self.questions)} questions in "{self.path}" have no '
                f"response, the first is {missing[0]}"
            )


def check_order(indices: Iterable[int], where: str) -> None:
    """Refuse responses, sorted by index, of which one is missing or there twice."""
    for place, found in enumerate(indices):
        if found != place:
            trouble = "twice" if found < place else f"but not {place}"
            raise PoolError(f"{where} has response {found} {trouble}")


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
    choices = typed(fields, "choices", (list,)) if fields.get("choices") else ()
    return Question(typed(fields, "id", (str,)), typed(fields, "question", (str,)), tuple(choices))


def read_segment(path: Path) -> Iterator[Line]:
    """The responses of one segment; a damaged line is an error that names segment and line."""
    return read_rows(path, parse_line)


def parse_line(text: str) -> Line:
    """One line of a segment."""
    fields = json.loads(text)
    return Line(
        typed(fields, "question_id", (str,)),
        typed(fields, "index", (int,)),
        Response(**{name: typed(fields, name, kind) for name, kind in RESPONSE_FIELDS.items()}),
    )


def typed(fields: dict[str, Any], name: str, kind: tuple[type, ...]) -> Any:
    """A field that must be there and be of one of these types."""
    value = fields[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f'the field "{name}" is {value!r:.40}')
    return value


def read_rows(path: Path, parse: Callable[[str], T]) -> Iterator[T]:
    """What `parse` makes of each line; where it cannot, an error names the file and the line."""
    for number, text in _lines(path):
        try:
            row = parse(text)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PoolError(f"{path.name}, line {number}: {_problem(error)}") from None
        yield row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines; a file that breaks off is reported where it does."""
    number = 0
    try:
        with open_text(path) as file:
            for number, text in enumerate(file, start=1):
                if not text.endswith("\n"):
                    raise PoolError(f"{path.name}, line {number}: half-written, no end of line")
                yield number, text
    except FileNotFoundError:
        raise PoolError(f'"{path}" is missing') from None
    except (EOFError, zlib.error, OSError, UnicodeDecodeError) as error:
        raise PoolError(f"{path.name}, line {number + 1}: {_problem(error)}") from None


def open_text(path: Path) -> IO[str]:
    """A file of text, gzipped or plain, told by its first bytes."""
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8") if zipped else path.open(encoding="utf-8")


def _problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg} at character {error.pos})"
    return f"the field {error} is missing" if isinstance(error, KeyError) else str(error)


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
    for number, batch in enumerate(batches(records, lambda record: len(record.responses))):
        files.append(f"responses-{number:05}.jsonl.gz")
        seal_segment(path / f"{files[-1]}.partial", batch)
        (path / f"{files[-1]}.partial").replace(path / files[-1])
        questions += [question_line(record.question) for record in batch]
        counts += [len(record.responses) for record in batch]
    if not counts:
        raise PoolError("a pool needs at least one question")
    write_whole(path / "questions.jsonl", "".join(questions))
    hashes = {name: file_hash(path / name) for name in files}
    schedule = Schedule().upto(min(counts))
    manifest = Manifest(task, schedule, len(counts), sum(counts), dict(sampler), seed, hashes)
    write_whole(path / "manifest.json", json.dumps(manifest.as_json(), indent=2) + "\n")
    return Pool(path, manifest)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody ever sees half of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, "utf-8")
    partial.replace(path)


def batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Whole questions, together about as many responses as a segment holds."""
    batch: list[T] = []
    held = 0
    for item in items:
        batch.append(item)
        held += size(item)
        if held >= SEGMENT_RESPONSES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


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


def to_line(fields: dict[str, Any]) -> str:
    """One JSON line. Half a surrogate pair, which no encoding takes, is escaped."""
    line = json.dumps(fields, ensure_ascii=False)
    return (json.dumps(fields) if _SURROGATE.search(line) else line) + "\n"


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
