"""Parquet: a pool as a dataset of Parquet files, at any address that pyarrow or fsspec opens.

It is what `aera export POOL --out ADDRESS` writes: a row per response, and whole questions in every
row group. A row group is a part, which travels as a name and is read where it is worked on. Each
file says how many responses all of them hold, so that missing ones are noticed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, lru_cache
from importlib import import_module
from itertools import groupby
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from aera.core import Question, Response, Schedule
from aera.errors import AeraError, PoolError, UsageError
from aera.files import check_format
from aera.pools.pool import (
    FORMAT,
    RESPONSE_FIELDS,
    Drawn,
    Manifest,
    Pool,
    Record,
    check_once,
    check_order,
    describe_records,
    is_open,
    manifest_of,
)
from aera.reading.task import Task
from aera.trace import trace_from_json

METADATA = b"aera"  # where a file keeps what the pool said of itself
ANSWER = "answer"  # the truth, which is read by itself and never with the responses
RESPONSE_ANSWER = "response_answer"  # of a response of which no more than this was recorded
TRACE = "trace"
ASKED = ("question_id", "question", "choices", "system", "group")
NEEDED = {"question_id", "index", "question", "text", "tokens"}  # every row has them


def arrow(name: str = "pyarrow") -> Any:
    """pyarrow, or a part of it, loaded only where it is needed."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError('this needs pyarrow: pip install "aera[data]"') from None


# --- addresses ------------------------------------------------------------------------------------


def locate(address: str | Path) -> Path | str:
    """A path on this disk, also where it is given as file://; else the address as it is."""
    if isinstance(address, Path) or "://" not in address:
        return Path(address)
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else address


@lru_cache(maxsize=16)
def open_address(address: str | Path) -> tuple[Any, str]:
    """The file system of an address, pyarrow's own or fsspec's, and the path on it."""
    fs, place = arrow("pyarrow.fs"), locate(address)
    if isinstance(place, Path):
        return fs.LocalFileSystem(), str(place.absolute())
    try:
        filesystem, path = fs.FileSystem.from_uri(place)
    except (arrow().ArrowException, OSError, ValueError, ImportError) as error:
        try:
            known, path = import_module("fsspec.core").url_to_fs(place)
        except (OSError, ValueError, ImportError):
            said = str(error).replace(place, "it").partition("\n")[0]  # it may hold a key
            kind = place.partition("://")[0]
            raise UsageError(f'this address of "{kind}://" cannot be opened: {said}') from None
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(known))
    return filesystem, path.rstrip("/")


def show_address(address: str | Path) -> str:
    """An address without its settings and keys, which are nobody else's business."""
    place = locate(address)
    if isinstance(place, Path):
        return str(place)
    return f"{place.partition('://')[0]}://{open_address(place)[1].lstrip('/')}"


@contextmanager
def reading(where: str, raised: type[AeraError] = PoolError) -> Iterator[None]:
    """What pyarrow says when it cannot read or write, as one sentence."""
    try:
        yield
    except (arrow().ArrowException, OSError) as error:
        said = str(error).partition("\n")[0]
        raise raised(f'"{where}" cannot be reached or read: {said}') from None


def list_files(address: str | Path) -> list[str]:
    """The file at an address, or all files below; none where there is nothing."""
    place = locate(address)
    if isinstance(place, Path):
        path = place.absolute()
        return [str(f) for f in ([path] if path.is_file() else path.rglob("*")) if f.is_file()]
    filesystem, there = open_address(place)
    with reading(show_address(place), UsageError):
        if filesystem.get_file_info(there).is_file:
            return [there]
        below = arrow("pyarrow.fs").FileSelector(there, allow_not_found=True, recursive=True)
        return [each.path for each in filesystem.get_file_info(below) if each.is_file]


def table_files(address: str | Path) -> list[str]:
    """The tables at an address: itself, or those below, without what is hidden or cached."""
    place, files = locate(address), list_files(address)
    base = str(place.absolute()) if isinstance(place, Path) else open_address(place)[1]
    if files == [base]:
        return files
    inside = {file: PurePath(file).relative_to(base) for file in files}
    return sorted(
        file
        for file, path in inside.items()
        if path.suffix in (".parquet", ".arrow")
        and not any(part.startswith((".", "_", "cache-")) for part in path.parts)
    )


# --- what a file says of itself -------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """What a pool said of itself before it was exported; older versions did not say all of it.

    `each` is how many responses a question needs to count, and those with fewer are not exported;
    `pool` is a digest of all responses.
    """

    task: Mapping[str, Any]
    sampler: Mapping[str, Any]
    seed: int | None
    schedule: Sequence[int] | None = None
    questions: int | None = None
    responses: int | None = None
    pool: str | None = None
    each: int | None = None
    written_by: str | None = None
    format: int = 1


def told_origin(schema: Any) -> Origin | None:
    """What the schema of an exported file says of its pool."""
    try:
        told = json.loads((schema.metadata or {})[METADATA])
        check_format({"format": 1, **told}, FORMAT, where="the export", error=UsageError)
        return Origin(**{f.name: told[f.name] for f in fields(Origin) if f.name in told})
    except (KeyError, ValueError, TypeError):
        return None


def exported_schema(*, with_truths: bool) -> Any:
    """The columns of an exported file; older versions wrote fewer."""
    pa = arrow()
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    columns: dict[str, type] = {"question_id": str, "index": int, "question": str, "choices": list}
    columns |= {"system": str, "group": str, **({ANSWER: str} if with_truths else {})}
    columns |= {name: told[0] for name, told in RESPONSE_FIELDS.items()}
    columns |= {RESPONSE_ANSWER: str, "prompt_tokens": int}
    known = [(name, kinds.get(kind, pa.list_(pa.string()))) for name, kind in columns.items()]
    return pa.schema([*known, (TRACE, pa.list_(pa.float64()))])


def _manifest(origin: Origin | None, where: str) -> Manifest:
    """What the first file says of all of them."""
    if origin is None or origin.schedule is None:
        raise UsageError(
            f'"{where}" is not as aera export writes it; make a pool of it with aera import'
        )
    counts = {"questions": origin.questions, "responses": origin.responses}
    own = {"format": FORMAT, "counts": counts, "hashes": {}, "other_counts": {}}
    try:
        own["responses_each"] = origin.each or origin.schedule[-1]
        return manifest_of({**asdict(origin), **own}, where)
    except (TypeError, ValueError, LookupError, AeraError) as error:
        raise PoolError(f'what "{where}" says of itself cannot be understood: {error}') from None


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetPart:
    """Whole questions that lie together: a row group, as pyarrow's dataset names it."""

    fragment: Any

    def __iter__(self) -> Iterator[Record]:
        columns = self.columns(exported_schema(with_truths=False).names)
        names, places, traces = (columns[name] for name in ("question_id", "index", TRACE))
        for question_id, group in groupby(range(len(names)), key=names.__getitem__):
            rows = sorted(group, key=places.__getitem__)
            where = f'question {question_id} in "{self.fragment.path}"'
            check_order([places[row] for row in rows], where)
            responses = tuple(
                Response(
                    **{name: columns[name][row] for name in RESPONSE_FIELDS},
                    answer=columns[RESPONSE_ANSWER][row],
                    prompt_tokens=columns["prompt_tokens"][row] or 0,
                    trace=None if traces[row] is None else trace_from_json(traces[row]),
                )
                for row in rows
            )
            yield Record(_question(columns, rows[0]), responses)

    def questions(self) -> list[Question]:
        """Its questions in order, without their responses."""
        columns = self.columns(ASKED)
        firsts = {name: row for row, name in reversed([*enumerate(columns["question_id"])])}
        return [_question(columns, row) for row in sorted(firsts.values())]

    def columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Some columns of all rows; None where an older version wrote nothing."""
        with reading(self.fragment.path):
            schema = exported_schema(with_truths=True)
            table = self.fragment.to_table(schema=schema, columns=[*names])
        for name in NEEDED.intersection(names):
            if table.column(name).null_count:
                raise PoolError(f'"{self.fragment.path}" has a row without {name}')
        return {name: table.column(name).to_pylist() for name in names}


def _question(columns: Mapping[str, Sequence[Any]], row: int) -> Question:
    question_id, text, choices, system, group = (columns[name][row] for name in ASKED)
    return Question(question_id, text, tuple(choices or ()), system, group)


@dataclass(frozen=True, repr=False, eq=False)
class ParquetPool:
    """An exported pool, worked on without bringing it in first. Iterating streams its questions.

    `path` is its address without settings and keys; `folder` is where what is made of it may be
    kept, beside its files where they are on this disk.
    """

    path: str
    manifest: Manifest
    row_groups: tuple[ParquetPart, ...]
    folder: Path | None

    @classmethod
    def open(cls, address: str | Path) -> "ParquetPool":
        """Open a file or folder by its address; only what files say of themselves is read."""
        where, place = show_address(address), locate(address)
        files = [file for file in table_files(place) if file.endswith(".parquet")]
        if not files:
            raise PoolError(f'there is no pool at "{where}"')
        filesystem, make = open_address(place)[0], arrow("pyarrow.dataset").ParquetFileFormat()
        with reading(where):
            found = [make.make_fragment(file, filesystem) for file in files]
            origins = [told_origin(each.physical_schema) for each in found]
            rows = sum(each.metadata.num_rows for each in found)
            groups = [group for each in found for group in each.split_by_row_group()]
        manifest = _manifest(origins[0], where)
        if any(origin != origins[0] for origin in origins):
            raise PoolError(f'the files at "{where}" are of different pools')
        if rows != manifest.responses:
            raise PoolError(
                f'"{where}" holds {rows:,} of the {manifest.responses:,} responses it was exported '
                "with; export the pool again"
            )
        folder = place.absolute() if isinstance(place, Path) and place.is_dir() else None
        return cls(where, manifest, tuple(map(ParquetPart, groups)), folder)

    @property
    def task(self) -> Task:
        """The task its responses answer."""
        return self.manifest.task

    @property
    def schedule(self) -> Schedule:
        """Its checkpoints."""
        return self.manifest.schedule

    def with_manifest(self, manifest: Manifest) -> "ParquetPool":
        """The same pool, read as this manifest says."""
        return replace(self, manifest=manifest)

    @property
    def name(self) -> str:
        """What tables and reports call it."""
        return PurePosixPath(self.path).name

    @cached_property
    def questions(self) -> dict[str, Question]:
        """Its questions by id, in order; only their columns are read."""
        return {question.id: question for part in self.parts() for question in part.questions()}

    def parts(self) -> tuple[ParquetPart, ...]:
        """Its row groups, in order."""
        return self.row_groups

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
        """Refuse files that split a question over parts, or that miss one."""
        seen = check_once(question_ids, f'"{self.path}"')
        if len(seen) != len(self):
            raise PoolError(f'"{self.path}" holds {len(seen)} of its {len(self)} questions')


def open_pool(address: str | Path, *, equivalence: bool = False) -> Pool | ParquetPool:
    """A pool directory, also a log that is being written, or a pool as Parquet at any address.

    With `equivalence`, its task asks math-verify which expressions are the same.
    """
    place = locate(address)
    opened: Pool | ParquetPool
    if isinstance(place, str) or _holds_tables(place):
        opened = ParquetPool.open(place)
    else:
        opened = Pool.open(place)
    if not equivalence:
        return opened
    manifest = replace(opened.manifest, task=replace(opened.task, equivalence=True))
    return opened.with_manifest(manifest)


def _holds_tables(path: Path) -> bool:
    """Whether there are tables and no pool; a file of something else is neither."""
    if path.is_file():
        return path.suffix == ".parquet"
    return not (path / "manifest.json").is_file() and not is_open(path) and bool(table_files(path))


Stored = Pool | ParquetPool


def check_alike(pools: Sequence[Stored]) -> None:
    """Refuse pools whose responses were asked for, or would be read, in different ways."""
    first = pools[0]
    ours = _asked(first)
    for pool in pools[1:]:
        for name, value in _asked(pool).items():
            if value != ours[name]:
                raise UsageError(
                    f'"{first.name}" and "{pool.name}" cannot be merged, their {name} differs: '
                    f"{_shown(ours[name])} and {_shown(value)}; import or sample one of them again"
                )


def _asked(pool: Stored) -> dict[str, object]:
    """What pools must have in common: the task with its prompt, and the system message."""
    task = pool.task.as_json()
    named = {f"task's {name}": value for name, value in task.items() if name != "template"}
    return {"prompt": task["template"], **named, "system": pool.manifest.sampler.get("system")}


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{value!r:.60}"


def merge_questions(pools: Sequence[Stored]) -> dict[str, Question]:
    """All questions by id, in the order of the pools; one id for two questions is refused."""
    merged: dict[str, Question] = {}
    for pool in pools:
        for question in _stored_questions(pool).values():
            known = merged.get(question.id, question)
            if replace(known, group=None) != replace(question, group=None):
                raise UsageError(
                    f'question {question.id} in "{pool.name}" has another text, other choices or '
                    "another system message than before; give one of the two another id"
                )
            merged[question.id] = replace(known, group=known.group or question.group)
    return merged


def merge_records(pools: Sequence[Stored], questions: Mapping[str, Question]) -> Iterator[Record]:
    """Every question with its responses in all pools, also those that are left out in some."""
    drawn = [(pool, _stored_questions(pool), Drawn(_everything(pool))) for pool in pools]
    for question in questions.values():
        responses: list[Response] = []
        for pool, known, records in drawn:
            found = records.take(question.id) if question.id in known else None
            if found is not None:
                _check_new(question, responses, found.responses, where=pool.name)
                responses += found.responses
        yield Record(question, tuple(responses))


def _check_new(
    question: Question, before: Sequence[Response], added: Sequence[Response], *, where: str
) -> None:
    """Refuse responses that are there already: the same seed gave the same text."""
    known = {(r.seed, r.model, r.text) for r in before if r.seed is not None}
    for response in added:
        if (response.seed, response.model, response.text) in known:
            raise UsageError(
                f'the response to question {question.id} with seed {response.seed} in "{where}" '
                "is in an earlier pool too; leave that pool out, or sample it with another --seed"
            )


def merge_sampler(pools: Sequence[Stored]) -> dict[str, Any]:
    """The settings all pools share, and what each has of its own."""
    samplers = [pool.manifest.sampler for pool in pools]
    shared = {
        name: value
        for name, value in samplers[0].items()
        if all(name in other and other[name] == value for other in samplers)
    }
    own = [{k: v for k, v in each.items() if k not in shared} for each in samplers]
    sources = [{"pool": pool.name, **told} for pool, told in zip(pools, own, strict=True)]
    return {**shared, "merged_from": sources}


def merge_seed(pools: Sequence[Stored]) -> int | None:
    """The seed, where all pools have the same."""
    seeds = {pool.manifest.seed for pool in pools}
    return seeds.pop() if len(seeds) == 1 else None


def _stored_questions(pool: Stored) -> dict[str, Question]:
    return pool.stored_questions if isinstance(pool, Pool) else pool.questions


def _everything(pool: Stored) -> Iterator[Record]:
    return pool.everything() if isinstance(pool, Pool) else iter(pool)
