"""Sources: JSON lines, a JSON list, or CSV, gzipped or plain, as rows that say where they stand."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO

from aera.errors import RecordError
from aera.lab.formats.entry import Row

Rows = Iterator[tuple[str, Row]]

_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
UNREADABLE = (EOFError, zlib.error, gzip.BadGzipFile, UnicodeError)


@contextmanager
def open_text(file: Path, *, newline: str | None = None) -> Iterator[IO[str]]:
    """A file of text, gzipped or plain, with a byte-order mark or without."""
    with file.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if zipped else raw as data:
            encoding = _MARKS.get(data.read(2), "utf-8-sig")
            data.seek(0)
            yield io.TextIOWrapper(data, encoding, newline=newline)


def read_lines(file: Path) -> Rows:
    """JSON objects, one per line; blank lines are passed over."""
    number = 0
    try:
        with open_text(file) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    where = f"{file.name}, line {number}"
                    yield where, parse_object(line, where=where)
    except UNREADABLE as error:
        raise RecordError(f"{file.name}, line {number + 1}: cannot be read, {error}") from None


def parse_object(text: str | bytes, *, where: str) -> Row:
    """The JSON object a text holds."""
    try:
        return need_object(json.loads(text), where=where)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: not JSON ({error})") from None


def need_object(value: object, *, where: str) -> Row:
    """A JSON object, and nothing else."""
    if not isinstance(value, dict):
        raise RecordError(f"{where}: a JSON object is needed, but got {type(value).__name__}")
    return value


# --- a JSON list ----------------------------------------------------------------------------------


def read_list(file: Path) -> Rows:
    """The objects of one JSON list, which is read whole."""
    try:
        with open_text(file) as text:
            items = json.load(text)
    except UNREADABLE as error:
        raise RecordError(f"{file.name}: cannot be read, {error}") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file.name}: not JSON ({error})") from None
    if not isinstance(items, list):
        raise RecordError(f"{file.name}: a JSON list is needed, but got {type(items).__name__}")
    for number, value in enumerate(items, start=1):
        where = f"{file.name}, item {number}"
        yield where, need_object(value, where=where)


# --- CSV ------------------------------------------------------------------------------------------


def read_csv(file: Path) -> Rows:
    """The rows of a table of text by the names in its first line; an empty cell is nothing."""
    csv.field_size_limit(2**31 - 1)
    begin = 1
    try:
        with open_text(file, newline="") as text:
            head = next((line for line in text if line.strip()), "")
            lines = csv.reader(chain([head], text), delimiter=separator(head), strict=True)
            names = [name.strip() for name in next(lines, [])]
            begin = lines.line_num + 1
            for cells in lines:
                where, begin = f"{file.name}, line {begin}", lines.line_num + 1
                if not any(cells):
                    continue
                if len(cells) != len(names):
                    raise RecordError(
                        f"{where}: it has {len(cells)} cells, but the first line {len(names)}"
                    )
                yield where, {name: cell or None for name, cell in zip(names, cells, strict=True)}
    except csv.Error as error:
        raise RecordError(f"{file.name}, line {begin}: no CSV ({error})") from None
    except UNREADABLE as error:
        raise RecordError(f"{file.name}, line {begin}: cannot be read, {error}") from None


def separator(head: str) -> str:
    """What parts the cells of a table, by its first line."""
    return max(",\t;", key=head.count)
