"""Tables of columns, in and out: Parquet files and folders, and what Hugging Face datasets saves.

A row is a question with its list of responses, or one response. Needs pyarrow, the extra `data`,
and then also takes a URI of any file system pyarrow knows.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

from aera.errors import RecordError
from aera.lab.formats import (
    QUESTION_NAMES,
    Entry,
    Row,
    choices_in,
    estimated_tokens,
    joined,
    messages_text,
    needed,
    truth_in,
)
from aera.lab.places import Place, arrow, located, whole_file, whole_folder, whole_place
from aera.lab.truths import Truths
from aera.pool import RESPONSE_FIELDS, Pool, Record, batches
from aera.response import Question, Response

NAMES: dict[str, tuple[str, ...]] = {
    "question": QUESTION_NAMES,
    "id": ("id", "question_id", "doc_id", "problem_id"),
    "choices": ("choices", "options"),
    "truth": ("answer", "target", "ground_truth", "gold"),
    "many": ("responses", "completions", "generations", "samples", "outputs"),
    "one": ("text", "response", "completion", "generation", "output"),
    "tokens": ("tokens", "completion_tokens", "output_tokens"),
    "index": ("index", "response_index", "sample_index", "sample_idx"),
}
"""What a column may be called, the first that is there counts."""
METADATA = b"aera"
"""Where an exported file keeps what the pool said of itself."""


@dataclass(frozen=True)
class Origin:
    """What a pool said of itself before it was exported."""

    task: Mapping[str, Any]
    sampler: Mapping[str, Any]
    seed: int | None
    schedule: Sequence[int] | None = None
    """None where an older version exported it, as with what follows."""
    questions: int | None = None
    responses: int | None = None
    pool: str | None = None
    """A digest of all its responses."""
    part: Mapping[str, int] | None = None
    """Of a file that is one of many: its number, the question it ends before, and how many
    responses it holds."""


def part_name(number: int) -> str:
    """The file name of a part."""
    return f"part-{number:05}.parquet"


def zstd_decompressed(data: bytes, *, size: int) -> bytes:
    """Bytes that zstd packed, which Python cannot unpack before 3.14."""
    unpacked: bytes = arrow().decompress(data, size, codec="zstd", asbytes=True)
    return unpacked


# --- in -------------------------------------------------------------------------------------------


def table_files(path: Path | Place) -> list[Path] | list[Place]:
    """The tables at a path: itself, or those in the folder, without what is hidden or cached."""
    if isinstance(path, Place):
        files = path.files()
        tables = [file for file in files if _is_table(file.path, below=path.path)]
        return files if files == [path] else sorted(tables, key=lambda file: file.path)
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if _is_table(file, below=path))


def _is_table(file: str | Path, *, below: str | Path) -> bool:
    inside = PurePath(file).relative_to(below)
    hidden = any(part.startswith((".", "_", "cache-")) for part in inside.parts)
    return inside.suffix in (".parquet", ".arrow") and not hidden


def read_table(path: Path | Place) -> Iterator[Entry]:
    """The questions of a table, whether a row holds all responses to one or a single one."""
    singles: dict[str, list[tuple[int, Entry]]] = {}
    numbers: dict[str, str] = {}
    for count, (where, row) in enumerate(_rows(path)):
        names = {key: _first(options, row) for key, options in NAMES.items()}
        text = messages_text(row.get(names["question"] or ""))
        if not text:
            known = ", ".join(NAMES["question"])
            raise RecordError(f"{where}: there is no question; its column is one of {known}")
        if names["many"]:
            yield _entry(row, names, text=text, number=str(count), where=where)
            continue
        number = numbers.setdefault(text, str(len(numbers)))
        entry = _entry(row, names, text=text, number=number, where=where)
        place = needed(row, names["index"], int, where=where) if names["index"] else count
        singles.setdefault(entry.record.question.id, []).append((place, entry))
    for found in singles.values():
        yield _together(found)


def _first(options: Iterable[str], row: Mapping[str, Any]) -> str | None:
    return next((name for name in options if name in row), None)


def _rows(path: Path | Place) -> Iterator[tuple[str, Row]]:
    """The rows of all tables, each with where it stands."""
    unreadable = arrow().ArrowException
    for file in table_files(path):
        number = 0
        try:
            for batch in _batches(file):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{file.name}, row {number}", row
        except (unreadable, OSError, UnicodeDecodeError) as error:
            said = str(error).partition("\n")[0]
            raise RecordError(f"{file.name}, row {number + 1}: cannot be read, {said}") from None


def _batches(file: Path | Place) -> Iterator[Any]:
    if file.suffix != ".arrow":
        with file.open("rb") as source, arrow("pyarrow.parquet").ParquetFile(source) as table:
            yield from table.iter_batches(batch_size=1024)
        return
    ipc = arrow("pyarrow.ipc")
    with file.open("rb") as source:
        try:
            stream = ipc.open_stream(source)
        except arrow().ArrowInvalid:
            table = ipc.open_file(source)
            stream = map(table.get_batch, range(table.num_record_batches))
        yield from stream


def _entry(
    row: Row, names: Mapping[str, str | None], *, text: str, number: str, where: str
) -> Entry:
    """The question of a row with the responses it holds; without an id it is given a number."""
    named = names["id"]
    question_id = str(needed(row, named, str, int, where=where)) if named else number
    choices = choices_in(row, names["choices"] or "choices", where=where)
    told: list[Any] = [row]
    if names["many"]:
        told = needed(row, names["many"], list, where=where)
        if not told:
            raise RecordError(f"{where}: the question {question_id} has no responses")
    read = [_response(each, where=where) for each in told]
    record = Record(Question(question_id, text, choices), tuple(response for response, _ in read))
    truth = truth_in(row, names["truth"] or "answer", where=where)
    estimated = any(guessed for _, guessed in read)
    return Entry(where, record, truth, names["truth"] or "answer", estimated=estimated)


def _response(row: Any, *, where: str) -> tuple[Response, bool]:
    """A response from a text or from a row of fields, and whether its tokens are estimated."""
    fields: Row = row if isinstance(row, dict) else {"text": row}
    name, counted = _first(NAMES["one"], fields), _first(NAMES["tokens"], fields)
    if name is None:
        known = ", ".join(NAMES["one"])
        raise RecordError(f"{where}: there is no response; its column is one of {known}")
    text = "" if fields[name] is None else needed(fields, name, str, where=where)
    guessed = fields.get(counted or "") is None
    tokens = estimated_tokens(text)
    if counted and not guessed:
        tokens = needed(fields, counted, int, where=where)
    others = {
        key: needed(fields, key, *kinds, where=where)
        for key, kinds in RESPONSE_FIELDS.items()
        if key not in ("text", "tokens") and fields.get(key) is not None
    }
    return Response(text, tokens, **others), guessed


def _together(found: list[tuple[int, Entry]]) -> Entry:
    """The responses to one question from rows of their own, in the order of their index."""
    found.sort(key=lambda each: each[0])
    known, last = None, None
    for place, entry in found:
        if place == last:
            raise RecordError(
                f"{entry.where}: the question {entry.record.question.id} has response {place} twice"
            )
        known, last = joined(known, entry), place
    assert known is not None
    return known


def read_origin(path: Path | Place) -> Origin | None:
    """What an exported pool said of itself; None for a table from elsewhere."""
    file = table_files(path)[0]
    if file.suffix == ".arrow":
        return None
    try:
        with file.open("rb") as source:
            return told_origin(arrow("pyarrow.parquet").read_schema(source))
    except (arrow().ArrowException, OSError):
        return None


def told_origin(schema: Any) -> Origin | None:
    """What the schema of an exported file says of its pool."""
    metadata = schema.metadata or {}
    try:
        return Origin(**json.loads(metadata[METADATA])) if METADATA in metadata else None
    except (ValueError, TypeError):
        return None


# --- out ------------------------------------------------------------------------------------------


def export_pool(pool: Pool, out: str | Path | Place) -> None:
    """Write a pool as Parquet, a row per response: one file for *.parquet, else a folder of parts.

    A URI puts it on that file system, where parts are written in their order, so that an export
    that was cut off misses its last ones. Truths go along where the pool has them. Half a
    surrogate pair, which Parquet cannot hold, becomes U+FFFD.
    """
    place = located(out)
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
    )
    ends = 0
    for number, records in enumerate(batches(pool, lambda record: len(record.responses))):
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
            "answer": _whole(truths.answers.get(record.question.id)) if truths else None,
            **{name: _whole(getattr(response, name)) for name in RESPONSE_FIELDS},
        }
        for record in records
        for index, response in enumerate(record.responses)
    ]
    told = {METADATA: json.dumps(asdict(origin)).encode()}
    schema = exported_schema(with_truths=truths is not None).with_metadata(told)
    return arrow().Table.from_pylist(rows, schema=schema)


def exported_schema(*, with_truths: bool) -> Any:
    """The columns of an exported file."""
    pa = arrow()
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    columns = {"question_id": str, "index": int, "question": str, "choices": list, "answer": str}
    columns |= {name: told[0] for name, told in RESPONSE_FIELDS.items()}
    if not with_truths:
        del columns["answer"]
    fields = [(name, kinds.get(kind, pa.list_(pa.string()))) for name, kind in columns.items()]
    return pa.schema(fields)


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
