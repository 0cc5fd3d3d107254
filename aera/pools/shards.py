"""Shards: a pool as partitioned Parquet, on disk or on any file system that pyarrow knows.

They are what `aera export POOL --out FOLDER-OR-URI` writes. A part is one file with whole
questions; it travels as a name and is read where it is worked on. Parts are written in their
order and say which questions they hold, so that missing ones are noticed without reading any.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import index
from pathlib import Path, PurePath
from typing import Any

from aera.errors import PoolError, UsageError
from aera.pools.manifest import FORMAT, Manifest
from aera.pools.parquet import (
    ANSWER,
    RESPONSE_ANSWER,
    TRACE,
    Origin,
    exported_schema,
    part_name,
    table_files,
    told_origin,
)
from aera.pools.places import Place, arrow, locate
from aera.pools.pool import RESPONSE_FIELDS
from aera.pools.record import Record, check_once, check_order, describe_records
from aera.reading.task import Task, task_from_json
from aera.response import Question, Response
from aera.schedule import Schedule
from aera.trace import trace_from_json

PART = re.compile(r"part-\d{5,}\.parquet")
NEEDED = {"question_id", "index", "question", "text", "tokens"}
"""Columns in which every row says something."""


@dataclass(frozen=True)
class Shard:
    """One part: a file, and its content where somebody has read it already."""

    folder: Path | Place
    number: int
    pool: str
    """The digest of the pool it is a part of."""
    content: bytes | None = None

    @property
    def name(self) -> str:
        """Of the file."""
        return part_name(self.number)

    @property
    def address(self) -> tuple[Any, str]:
        """The file system it is on, and where on it."""
        file = self.folder / self.name
        if isinstance(file, Place):
            return file.filesystem, file.path
        return arrow("pyarrow.fs").LocalFileSystem(), str(file.absolute())

    def with_content(self, content: bytes) -> "Shard":
        """The same part once its file has been read."""
        return replace(self, content=content)

    @property
    def origin(self) -> Origin:
        """What it says of the pool and of its place in it."""
        with self._open() as file:
            return self._origin(file)

    def _origin(self, file: Any) -> Origin:
        schema = file.schema_arrow
        origin = told_origin(schema)
        truths, bare = ANSWER in schema.names, schema.remove_metadata()
        known = (exported_schema(with_truths=truths, version=n + 1) for n in range(FORMAT))
        if origin is None or not any(bare.equals(each) for each in known):
            raise _foreign(self.folder / self.name)
        return origin

    def __iter__(self) -> Iterator[Record]:
        columns = self.columns([*exported_schema(with_truths=False).names])
        names = columns["question_id"]
        seen: set[str] = set()
        for question_id, rows in groupby(range(len(names)), key=names.__getitem__):
            if question_id in seen:
                raise PoolError(f'{self.name} of "{self.folder}" splits question {question_id}')
            seen.add(question_id)
            yield self._record(columns, [*rows])

    def _record(self, columns: dict[str, list[Any]], rows: list[int]) -> Record:
        """A question from its rows, which hold every one of its responses once."""
        places, first = columns["index"], rows[0]
        question_id = columns["question_id"][first]
        rows.sort(key=places.__getitem__)
        where = f'question {question_id} in {self.name} of "{self.folder}"'
        check_order((places[row] for row in rows), where)
        question = _question(columns, first)
        named = {name: columns[name] for name in RESPONSE_FIELDS}
        if RESPONSE_ANSWER in columns:
            named["answer"] = columns[RESPONSE_ANSWER]
        if "prompt_tokens" in columns:
            named["prompt_tokens"] = columns["prompt_tokens"]
        if TRACE in columns:
            named[TRACE] = [
                None if each is None else trace_from_json(each) for each in columns[TRACE]
            ]
        told = ({name: column[row] for name, column in named.items()} for row in rows)
        return Record(question, tuple(Response(**fields) for fields in told))

    def questions(self) -> list[Question]:
        """Its questions in order, without their responses."""
        columns = self.columns(["question_id", "question", "choices", "system", "group"])
        names = columns["question_id"]
        firsts = {name: row for row, name in reversed([*enumerate(names)])}
        return [_question(columns, row) for row in sorted(firsts.values())]

    def columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Some columns of all rows; a part that was changed since its export is refused."""
        with self._open() as file:
            self._check(self._origin(file), file.metadata.num_rows)
            present = [name for name in names if name in file.schema_arrow.names]
            table = file.read(columns=present)
        for name in NEEDED.intersection(present):
            if table.column(name).null_count:
                raise PoolError(f'{self.name} of "{self.folder}" has a row without {name}')
        return {name: table.column(name).to_pylist() for name in present}

    def _check(self, origin: Origin, rows: int) -> None:
        """Refuse a part of another pool, one in the place of another, and one that was changed."""
        if origin.pool != self.pool or told_part(origin, "number") != self.number:
            raise PoolError(f'{self.name} of "{self.folder}" belongs elsewhere; export it again')
        if rows != told_part(origin, "responses"):
            raise PoolError(
                f'{self.name} of "{self.folder}" does not hold the responses it was exported '
                "with; export the pool again"
            )

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """The file, or one sentence that says why it cannot be read."""
        pa, file = arrow(), self.folder / self.name
        try:
            source = file.open("rb") if self.content is None else pa.BufferReader(self.content)
            with source, arrow("pyarrow.parquet").ParquetFile(source, pre_buffer=True) as opened:
                yield opened
        except (pa.ArrowException, OSError) as error:
            said = str(error).partition("\n")[0]
            raise PoolError(f'{self.name} of "{self.folder}" cannot be read, {said}') from None


def _question(columns: Mapping[str, Sequence[Any]], row: int) -> Question:
    choices = tuple(columns["choices"][row] or ())
    own = {name: columns[name][row] for name in ("system", "group") if name in columns}
    return Question(columns["question_id"][row], columns["question"][row], choices, **own)


@dataclass(frozen=True, repr=False)
class Shards:
    """An exported pool, worked on without bringing it in first. Iterating streams its questions."""

    path: Path | Place
    manifest: Manifest
    files: int
    pool: str
    """The digest of the pool they were exported from."""

    @classmethod
    def open(cls, address: str | Path | Place) -> "Shards":
        """Open a folder of parts by its path or URI. Only what they say of themselves is read."""
        path = locate(address)
        if isinstance(path, Path):
            path = path.absolute()  # whoever works on a part may be somewhere else
        tables = {str(table) for table in table_files(path)}
        if not tables:
            raise PoolError(f'there are no shards at "{path}"')
        if tables == {str(path)}:
            raise UsageError(f'"{path}" is one file; shards are a folder, export to one')
        count = _count(path, tables)
        first, last = (Shard(path, number, "").origin for number in (0, count - 1))
        manifest = _manifest(first, path)
        _check_end(first, last, path)
        return cls(path, manifest, count, str(first.pool))

    @property
    def task(self) -> Task:
        """The task its responses answer."""
        return self.manifest.task

    @property
    def schedule(self) -> Schedule:
        """Its checkpoints."""
        return self.manifest.schedule

    def with_manifest(self, manifest: Manifest) -> "Shards":
        """The same shards, read as this manifest says."""
        return replace(self, manifest=manifest)

    @property
    def name(self) -> str:
        """What tables and reports call it."""
        return self.path.name

    @property
    def folder(self) -> Path | Place:
        """Where what is made of it may be kept."""
        return self.path

    @cached_property
    def questions(self) -> dict[str, Question]:
        """Its questions by id, in order; only their columns are read."""
        return {question.id: question for part in self.parts() for question in part.questions()}

    def parts(self) -> tuple[Shard, ...]:
        """Its files, in order."""
        return tuple(Shard(self.path, number, self.pool) for number in range(self.files))

    def __repr__(self) -> str:
        return describe_records(self)

    def __len__(self) -> int:
        return self.manifest.questions

    def __iter__(self) -> Iterator[Record]:
        seen: list[str] = []
        for part in self.parts():
            for record in part:
                seen.append(record.question.id)
                yield record
        self.check_whole(seen)

    def check_whole(self, question_ids: Iterable[str]) -> None:
        """Refuse shards that split a question over parts, or that miss one."""
        seen = check_once(question_ids, f'"{self.path}"')
        if len(seen) != len(self):
            raise PoolError(f'"{self.path}" holds {len(seen)} of its {len(self)} questions')


def _foreign(path: Path | Place) -> UsageError:
    return UsageError(
        f'"{path}" is not as aera export writes it; make a pool of it with aera import'
    )


def _manifest(origin: Origin, path: Path | Place) -> Manifest:
    """What the first part says of all of them."""
    if origin.schedule is None or origin.part is None:
        raise UsageError(
            f'"{path}" was exported as one file or by an older version; export the pool again, to '
            "a folder"
        )
    try:
        schedule = Schedule(tuple(map(index, origin.schedule)))
        return Manifest(
            task=task_from_json(dict(origin.task)),
            schedule=schedule,
            questions=index(origin.questions or 0),
            responses=index(origin.responses or 0),
            sampler=dict(origin.sampler),
            seed=origin.seed,
            hashes={},
            each=schedule.last if origin.each is None else index(origin.each),
            other_counts=None,
            written_by=origin.written_by,
        )
    except (TypeError, ValueError, KeyError, UsageError) as error:
        raise PoolError(f'what "{path}" says of itself cannot be understood: {error}') from None


def _count(path: Path | Place, tables: set[str]) -> int:
    """How many parts there are among some tables; their numbers have no gap."""
    count = sum(PART.fullmatch(PurePath(table).name) is not None for table in tables)
    if not count:
        raise _foreign(path)
    for name in map(part_name, range(count)):
        if str(path / name) not in tables:
            raise PoolError(f'{name} of "{path}" is missing')
    return count


def told_part(origin: Origin, name: str) -> int | None:
    """What a file says of its place among others, None where it says nothing."""
    value = origin.part.get(name) if isinstance(origin.part, dict) else None
    return value if isinstance(value, int) else None


def _check_end(first: Origin, last: Origin, path: Path | Place) -> None:
    """The last part is there if it ends with the last question."""
    if replace(first, part=None) != replace(last, part=None):
        raise PoolError(f'the parts at "{path}" are of different pools')
    ends = told_part(last, "ends")
    if ends != last.questions:
        raise PoolError(
            f'the export to "{path}" was cut off: {ends} of {last.questions} questions are there; '
            "remove it and export the pool again"
        )
