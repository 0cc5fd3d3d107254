"""Parquet: a pool as a dataset of Parquet files, at any address that pyarrow or fsspec opens.

It is what `aera export POOL --out ADDRESS` writes: a row per response, and whole questions in every
row group. A row group is a part, which travels as a name and is read where it is worked on. Each
file says how many responses all of them hold, so that missing ones are noticed.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from importlib import import_module
from itertools import groupby
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from aera.core import Question, Response
from aera.errors import AeraError, PoolError, UsageError
from aera.files import Json, check_format, written_by
from aera.pools.pool import (
    FORMAT,
    MANIFEST,
    RESPONSE_FIELDS,
    Manifest,
    Pool,
    Record,
    Records,
    Source,
    check_order,
    is_open,
    manifest_of,
)
from aera.trace import trace_from_json

METADATA = b"aera"  # where a file keeps what the pool said of itself
ANSWER = "answer"  # the truth, which is read by itself and never with the responses
RESPONSE_ANSWER = "response_answer"  # of a response of which no more than this was recorded
TRACE = "trace"
ASKED = ("question_id", "question", "choices", "system", "group")
ORIGIN = (
    *("task", "sampler", "seed", "schedule", "questions", "responses", "pool", "each"),
    *("written_by", "format"),
)
"""What a file says of its pool."""
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


def open_address(address: str | Path) -> tuple[Any, str]:
    """The file system of an address, pyarrow's own or fsspec's, and the path on it."""
    place = locate(address)
    if isinstance(place, Path):
        return arrow("pyarrow.fs").LocalFileSystem(), str(place.absolute())
    return _open_uri(place)


@lru_cache(maxsize=16)
def _open_uri(place: str) -> tuple[Any, str]:
    fs = arrow("pyarrow.fs")
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
    filesystem, there = open_address(address)
    with reading(show_address(address), UsageError):
        if filesystem.get_file_info(there).is_file:
            return [there]
        below = arrow("pyarrow.fs").FileSelector(there, allow_not_found=True, recursive=True)
        return [each.path for each in filesystem.get_file_info(below) if each.is_file]


def table_files(address: str | Path) -> list[str]:
    """The tables at an address: itself, or those below, without what is hidden or cached."""
    files, base = list_files(address), open_address(address)[1]
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


def told_origin(schema: Any) -> Json | None:
    """What the schema of an exported file says of its pool, as `tell_origin` writes it.

    Older versions said only its task, sampler and seed.
    """
    try:
        told = json.loads((schema.metadata or {})[METADATA])
        check_format({"format": 1, **told}, FORMAT, where="the export", error=UsageError)
    except (KeyError, ValueError, TypeError):
        return None
    whole = {"task", "sampler", "seed"} <= told.keys()
    return {name: told[name] for name in ORIGIN if name in told} if whole else None


def tell_origin(manifest: Manifest) -> dict[bytes, bytes]:
    """What a pool says of itself, as the metadata of a schema.

    Questions with fewer than `each` responses are not exported; `pool` is a digest of all.
    """
    told = manifest.as_json()
    counts = {**told["counts"], "each": manifest.each}
    digest = hashlib.sha256(json.dumps(manifest.hashes).encode()).hexdigest()[:16]
    told |= {**counts, "pool": digest, "written_by": written_by()}
    return {METADATA: json.dumps({name: told[name] for name in ORIGIN}).encode()}


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


def _manifest(origin: Mapping[str, Any] | None, where: str) -> Manifest:
    """What the first file says of all of them."""
    if origin is None or origin.get("schedule") is None:
        raise UsageError(
            f'"{where}" is not as aera export writes it; make a pool of it with aera import'
        )
    counts = {name: origin.get(name) for name in ("questions", "responses")}
    own = {"format": FORMAT, "counts": counts, "hashes": {}, "other_counts": {}}
    try:
        own["responses_each"] = origin.get("each") or origin["schedule"][-1]
        return manifest_of({**origin, **own}, where)
    except (TypeError, ValueError, LookupError, AeraError) as error:
        raise PoolError(f'what "{where}" says of itself cannot be understood: {error}') from None


# --- reading --------------------------------------------------------------------------------------


def read_group(group: Any) -> Iterator[Record]:
    """Whole questions that lie together: a row group, as pyarrow's dataset names it."""
    columns = read_columns(group, exported_schema(with_truths=False).names)
    names, places, traces = (columns[name] for name in ("question_id", "index", TRACE))
    for question_id, found in groupby(range(len(names)), key=names.__getitem__):
        rows = sorted(found, key=places.__getitem__)
        check_order([places[row] for row in rows], f'question {question_id} in "{group.path}"')
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


def read_columns(group: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    """Some columns of all its rows; None where an older version wrote nothing."""
    with reading(group.path):
        schema = exported_schema(with_truths=True)
        table = group.to_table(schema=schema, columns=[*names])
    for name in NEEDED.intersection(names):
        if table.column(name).null_count:
            raise PoolError(f'"{group.path}" has a row without {name}')
    return {name: table.column(name).to_pylist() for name in names}


def _question(columns: Mapping[str, Sequence[Any]], row: int) -> Question:
    question_id, text, choices, system, group = (columns[name][row] for name in ASKED)
    return Question(question_id, text, tuple(choices or ()), system, group)


class ParquetPool(Records):
    """An exported pool, worked on without bringing it in first. Iterating streams its questions.

    `path` is its address without settings and keys; what is made of it may be kept beside its files
    where they are on this disk.
    """

    def __init__(
        self, path: str, manifest: Manifest, groups: Sequence[Any], folder: Path | None
    ) -> None:
        self.path, self.manifest, self.folder, self.groups = path, manifest, folder, groups
        self.name = PurePosixPath(path).name
        self.task, self.schedule = manifest.task, manifest.schedule

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
        return cls(where, manifest, groups, folder)

    @cached_property
    def stored_questions(self) -> dict[str, Question]:
        """Its questions by id, in order; only their columns are read."""
        found: dict[str, Question] = {}
        for group in self.groups:
            columns = read_columns(group, ASKED)
            for row, name in enumerate(columns["question_id"]):
                if name not in found:
                    found[name] = _question(columns, row)
        return found

    @cached_property
    def sources(self) -> list[Source]:
        """Its row groups, in order."""
        return [partial(read_group, group) for group in self.groups]

    def __len__(self) -> int:
        return self.manifest.questions


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
    if equivalence:
        opened.task = replace(opened.task, equivalence=True)
    return opened


def _holds_tables(path: Path) -> bool:
    """Whether there are tables and no pool; a file of something else is neither."""
    if path.is_file():
        return path.suffix == ".parquet"
    there = (path / MANIFEST).is_file() or is_open(path)
    return not there and any(path.rglob("*.parquet"))
