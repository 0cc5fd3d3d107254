"""Export a pool as Parquet, a row per response, on disk or by URI."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aera.files import whole_file, whole_folder, written_by
from aera.lab.truths import Truths
from aera.pools.manifest import FORMAT
from aera.pools.parquet import (
    ANSWER,
    METADATA,
    RESPONSE_ANSWER,
    TRACE,
    Origin,
    exported_schema,
    part_name,
)
from aera.pools.places import Place, arrow, locate, whole_place
from aera.pools.pool import RESPONSE_FIELDS, Pool
from aera.pools.record import Record, batches
from aera.trace import trace_to_json


def export_pool(pool: Pool, out: str | Path | Place) -> None:
    """Write a pool as Parquet, a row per response: one file for *.parquet, else a folder of parts.

    A URI puts it on that file system, where parts are written in their order, so that an export
    that was cut off misses its last ones. Truths go along where the pool has them, questions left
    out do not. Half a surrogate pair, which Parquet cannot hold, becomes U+FFFD.
    """
    place = locate(out)
    single = place.suffix == ".parquet"
    tables = _tables(pool, in_parts=not single)
    files = [(None, tables)] if single else ((part_name(n), [t]) for n, t in enumerate(tables))
    if isinstance(place, Place):
        with whole_place(place), TemporaryDirectory() as folder:
            for name, content in files:
                _write(content, Path(folder, "table"))
                (place / name if name else place).upload(Path(folder, "table"))
        return
    with whole_file(place) if single else whole_folder(place) as partial:
        for name, content in files:
            _write(content, partial / name if name else partial)


def _tables(pool: Pool, *, in_parts: bool) -> Iterator[Any]:
    """About as many responses each as a segment holds; as parts they say where they belong."""
    truths, manifest = Truths.open(pool.path), pool.manifest
    origin = Origin(
        manifest.task.as_json(),
        manifest.sampler,
        manifest.seed,
        [*manifest.schedule],
        len(pool.questions),
        manifest.responses,
        hashlib.sha256(json.dumps(manifest.hashes).encode()).hexdigest()[:16],
        each=manifest.each,
        written_by=written_by(),
        format=FORMAT,
    )
    ends = 0
    for number, records in enumerate(batches(pool)):
        ends, held = ends + len(records), sum(len(record.responses) for record in records)
        part = {"number": number, "ends": ends, "responses": held} if in_parts else None
        yield _table(records, replace(origin, part=part), truths)


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


def _write(tables: Iterable[Any], file: Path) -> None:
    """Write tables to one file, each as a row group."""
    writer = None
    for table in tables:
        if writer is None:
            writer = arrow("pyarrow.parquet").ParquetWriter(file, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()
