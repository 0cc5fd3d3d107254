"""Tables of columns, in and out: Parquet files and folders, and what Hugging Face datasets saves.

A row is a question with its list of responses, or one response. Needs pyarrow, the extra `data`,
and then also takes a URI of any file system pyarrow knows.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aera.errors import RecordError
from aera.lab.formats.entry import (
    QUESTION_NAMES,
    Entry,
    Row,
    choices_in,
    estimated_tokens,
    join_entries,
    messages_text,
    need_field,
    truth_in,
)
from aera.pools.parquet import Origin, table_files, told_origin
from aera.pools.places import Place, arrow
from aera.pools.pool import RESPONSE_FIELDS
from aera.pools.record import Record
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


def zstd_decompressed(data: bytes, *, size: int) -> bytes:
    """Bytes that zstd packed, which Python cannot unpack before 3.14."""
    unpacked: bytes = arrow().decompress(data, size, codec="zstd", asbytes=True)
    return unpacked


# --- in -------------------------------------------------------------------------------------------


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
        place = need_field(row, names["index"], int, where=where) if names["index"] else count
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
    question_id = str(need_field(row, named, str, int, where=where)) if named else number
    choices = choices_in(row, names["choices"] or "choices", where=where)
    told: list[Any] = [row]
    if names["many"]:
        told = need_field(row, names["many"], list, where=where)
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
    text = "" if fields[name] is None else need_field(fields, name, str, where=where)
    guessed = fields.get(counted or "") is None
    tokens = estimated_tokens(text)
    if counted and not guessed:
        tokens = need_field(fields, counted, int, where=where)
    others = {
        key: need_field(fields, key, *kinds, where=where)
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
        known, last = join_entries(known, entry), place
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


# --- out ------------------------------------------------------------------------------------------
