"""Export a pool as Parquet, a row per response, on disk or by URI."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from aera.errors import UsageError
from aera.files import already_there, whole_file, whole_folder, written_by
from aera.lab.truths import Truths
from aera.pools.parquet import (
    ANSWER,
    METADATA,
    RESPONSE_ANSWER,
    TRACE,
    Origin,
    arrow,
    exported_schema,
    list_files,
    locate,
    open_address,
    reading,
    show_address,
)
from aera.pools.pool import FORMAT, RESPONSE_FIELDS, Pool, Record, batches
from aera.trace import trace_to_json


def export_pool(pool: Pool, out: str | Path) -> None:
    """Write a pool as Parquet, a row per response: one file for *.parquet, else a folder of files.

    A URI puts it on that file system. Truths go along where the pool has them, questions left out
    do not. Half a surrogate pair, which Parquet cannot hold, becomes U+FFFD.
    """
    filesystem, path = open_address(out)
    tables, write = _tables(pool), partial(_write, filesystem=filesystem)
    with _filled(out, single=path.endswith(".parquet")) as target:
        if path.endswith(".parquet"):
            write(tables, target)
        else:
            for number, table in enumerate(tables):
                write([table], f"{target}/part-{number:05}.parquet")


@contextmanager
def _filled(out: str | Path, *, single: bool) -> Iterator[str]:
    """The path to write to. Away from this disk nothing can be renamed: what fails is removed.

    A process that is killed removes nothing there, and who reads it notices what is missing.
    """
    place = locate(out)
    if isinstance(place, Path):
        with whole_file(place) if single else whole_folder(place) as partial_:
            yield str(partial_)
        return
    if list_files(place):
        raise already_there(show_address(place))
    filesystem, path = open_address(place)
    try:
        with reading(show_address(place), UsageError):
            yield path
    except BaseException:
        with suppress(UsageError, OSError):
            for file in list_files(place):
                filesystem.delete_file(file)
        raise


def _tables(pool: Pool) -> Iterator[Any]:
    """Whole questions, about as many responses each as a segment holds."""
    truths, manifest = Truths.open(pool.path), pool.manifest
    origin = Origin(
        manifest.task.as_json(),
        manifest.sampler,
        manifest.seed,
        [*manifest.schedule],
        len(pool.questions),
        manifest.responses,
        hashlib.sha256(json.dumps(manifest.hashes).encode()).hexdigest()[:16],
        manifest.each,
        written_by(),
        FORMAT,
    )
    for records in batches(pool):
        yield _table(records, origin, truths)


def _table(records: Iterable[Record], origin: Origin, truths: Truths | None) -> Any:
    rows = [
        {
            "question_id": _whole(record.question.id),
            "index": index,
            "question": _whole(record.question.text),
            "choices": [_whole(choice) for choice in record.question.choices],
            "system": _whole(record.question.system),
            "group": _whole(record.question.group),
            ANSWER: _whole(truths.answers.get(record.question.id)) if truths else None,
            **{name: _whole(getattr(response, name)) for name in RESPONSE_FIELDS},
            RESPONSE_ANSWER: _whole(response.answer),
            "prompt_tokens": response.prompt_tokens,
            TRACE: None if response.trace is None else trace_to_json(response.trace),
        }
        for record in records
        for index, response in enumerate(record.responses)
    ]
    told = {METADATA: json.dumps(asdict(origin)).encode()}
    schema = exported_schema(with_truths=truths is not None).with_metadata(told)
    return arrow().Table.from_pylist(rows, schema=schema)


def _whole(value: Any) -> Any:
    """A value whose text, if it is one, every encoding takes."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _write(tables: Iterable[Any], file: str, *, filesystem: Any) -> None:
    """Write tables to one file, each as a row group."""
    waiting = iter(tables)
    first = next(waiting)
    make = arrow("pyarrow.parquet").ParquetWriter
    with make(file, first.schema, filesystem=filesystem, compression="zstd") as writer:
        for table in chain([first], waiting):
            writer.write_table(table)
