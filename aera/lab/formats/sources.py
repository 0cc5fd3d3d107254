"""Sources: what a file is, and the rows it holds, each with the place where it stands.

Tables of every kind give rows of JSON; what those mean is not asked here.
"""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, TypeGuard

from aera.errors import PoolError
from aera.files import open_bytes
from aera.pools.parquet import arrow, open_address, table_files

Row = dict[str, Any]
Rows = Iterator[tuple[str, Row]]

NAMES: dict[str, tuple[str, ...]] = {
    ours: tuple(theirs.split())
    for ours, theirs in {
        "question": "question problem prompt input query",
        "messages": "messages conversations conversation",
        "system": "system system_prompt",
        "id": "id question_id qid doc_id problem_id prompt_id unique_id task_id example_id "
        "sample_id request_id custom_id",
        "choices": "choices options",
        "answer": "target ground_truth gold correct_answer gold_answer gt expected_answer expected "
        "reference_answer reference answerkey answer solution label",
        "group": "group",
        "responses": "responses completions generations samples outputs model_outputs "
        "generated_texts",
        "text": "text response completion generation output content model_output generated_text "
        "model_response",
        "response_answer": "response_answer final_answer prediction extracted",
        "tokens": "tokens completion_tokens output_tokens num_tokens",
        "finish_reason": "finish_reason finish_reasons finish stop_reason",
        "index": "index response_index sample_index sample_idx sample_id sample",
    }.items()
}
"""What a column may be called; the first that holds anything counts."""
KNOWN = {name for names in NAMES.values() for name in names}
ASKS = {*NAMES["question"], *NAMES["messages"]}
HEAD = 50
"""Lines after the first that are looked at to recognise a file."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_UNREADABLE = (EOFError, zlib.error, gzip.BadGzipFile, UnicodeError)


# --- files ----------------------------------------------------------------------------------------


def text_lines(file: Path, *, newline: str | None = None) -> Iterator[str]:
    """The lines of a file of text, gzipped or plain, with a byte-order mark or without."""
    number = 0
    with open_bytes(file) as data:
        try:
            encoding = "utf-16" if data.read(2) in UTF_16 else "utf-8-sig"
            data.seek(0)
            text = io.TextIOWrapper(data, encoding, newline=newline)
            for line in text:
                number += 1
                yield line
        except _UNREADABLE as error:
            said = ""
            if isinstance(error, UnicodeDecodeError):  # of a stretch after the lines that came
                said = "; save it as UTF-8"
                number += error.object[: error.start].count(b"\n")
            where = f"{file.name}, line {number + 1}"
            raise PoolError(f"{where}: cannot be read, {error}{said}") from None


def parse_object(text: str | bytes, *, where: str) -> Row:
    """The JSON object a text holds."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "; on each line there must be a whole object of JSON, as json.dumps writes it"
        raise PoolError(f"{where}: not JSON ({error}){hint * (', line ' in where)}") from None
    return need_object(value, where=where)


def need_object(value: object, *, where: str) -> Row:
    """A JSON object, and nothing else."""
    if not isinstance(value, dict):
        raise PoolError(f"{where}: a JSON object is needed, but got {type(value).__name__}")
    return value


def read_whole(file: Path) -> Any:
    """What one file of JSON holds; a list where several values stand one after the other."""
    content = "".join(text_lines(file))
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        found = list[Any]()
        with suppress(ValueError, RecursionError):
            while content := content.lstrip():
                value, place = json.JSONDecoder().raw_decode(content)
                found.append(value)
                content = content[place:]
            return found
        raise PoolError(f"{file.name}: not JSON ({error})") from None


# --- tables ---------------------------------------------------------------------------------------


def read_lines(file: Path, *, plain: bool = False) -> Rows:
    """JSON objects, one per line; `plain` takes other lines for questions."""
    for number, line in enumerate(text_lines(file), start=1):
        where = f"{file.name}, line {number}"
        if plain and line.strip() and not line.lstrip().startswith(("{", "[")):
            yield where, {"question": line.rstrip("\r\n")}
        elif line.strip():
            yield where, parse_object(line, where=where)


def read_list(file: Path) -> Rows:
    """The objects of one JSON list, or of an object that has them by id or in a list of its own.

    Of a folder it is what all its files of JSON hold.
    """
    if file.is_dir():
        for each in sorted(file.glob("*.json*")):
            yield from SOURCES.get(recognise(each), read_lines)(each)
        return
    items = read_whole(file)
    if isinstance(items, dict):
        items = _items(items) or [items]
    if not isinstance(items, list):
        raise PoolError(f"{file.name}: a JSON list is needed, but got {type(items).__name__}")
    for number, value in enumerate(items, start=1):
        where = f"{file.name}, item {number}"
        yield where, need_object(value, where=where)


def _items(content: Row) -> list[Any]:
    """The rows an object holds, perhaps itself; also as pandas and wandb write tables."""
    columns, rows, values = content.get("columns"), content.get("data"), [*content.values()]
    if isinstance(columns, list) and isinstance(rows, list) and {*map(type, rows)} == {list}:
        return [dict(zip(map(str, columns), row, strict=False)) for row in rows]
    if is_objects(values) and not KNOWN & {*content}:
        return [{"id": name, **each} for name, each in content.items()]
    if is_objects(values) and len({*map(tuple, values)}) == 1:  # each column has the same rows
        cells = zip(*(each.values() for each in values), strict=True)
        return [dict(zip(content, row, strict=True)) for row in cells]
    found = [each for each in values if is_objects(each)]
    return [content] if ASKS & {*content} else found[0] if len(found) == 1 else []


def is_objects(value: object) -> TypeGuard[list[Row]]:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def read_csv(file: Path) -> Rows:
    """The rows of a table of text by the names in its first line; an empty cell is nothing.

    Columns of one name are numbered, as response_1 and response_2.
    """
    csv.field_size_limit(2**31 - 1)
    text = text_lines(file, newline="")
    begin, head = next(((n, line) for n, line in enumerate(text, 1) if line.strip()), (1, ""))
    mark = _separator(head)
    lines = csv.reader(chain([head], text), delimiter=mark, strict=True)
    above = begin - 1
    try:
        names = [name.strip() for name in next(lines, [])]
        names = [
            f"{name}_{names[: place + 1].count(name)}" if name and names.count(name) > 1 else name
            for place, name in enumerate(names)
        ]
        begin = above + lines.line_num + 1
        for cells in lines:
            where, begin = f"{file.name}, line {begin}", above + lines.line_num + 1
            if not any(cells):
                continue
            if len(cells) != len(names):
                raise PoolError(
                    f"{where}: it has {len(cells)} cells, but the first line {len(names)}"
                )
            marks = {line.count("\t") for line in "\t".join(cells).split("\n")}
            if mark == "\t" and marks == {len(names) - 1} and "\n" in "".join(cells):
                raise PoolError(f"{where}: a stray quote swallows rows; double it, or save JSON")
            yield where, {name: cell or None for name, cell in zip(names, cells, strict=True)}
    except csv.Error as error:
        raise PoolError(f"{file.name}, line {begin}: no CSV ({error})") from None


def _separator(head: str) -> str:
    """What parts the cells of a table, by its first line."""
    return max(",\t;", key=head.count)


def read_table(address: str | Path) -> Rows:
    """The rows of Parquet files and folders, and of what Hugging Face datasets saves.

    Needs pyarrow, the extra `data`, and then also takes a URI that pyarrow or fsspec opens.
    """
    for file in table_files(address):
        number, name = 0, PurePath(file).name
        try:
            for batch in _batches(open_address(address)[0], file):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{name}, row {number}", row
        except (arrow().ArrowException, OSError, UnicodeDecodeError) as error:
            said = str(error).partition("\n")[0]
            raise PoolError(f"{name}, row {number + 1}: cannot be read, {said}") from None


def _batches(filesystem: Any, file: str) -> Iterator[Any]:
    with filesystem.open_input_file(file) as source:
        if not file.endswith(".arrow"):
            yield from arrow("pyarrow.parquet").ParquetFile(source).iter_batches(batch_size=1024)
            return
        ipc = arrow("pyarrow.ipc")
        try:
            yield from ipc.open_stream(source)
        except arrow().ArrowInvalid:
            table = ipc.open_file(source)
            yield from map(table.get_batch, range(table.num_record_batches))


SOURCES: dict[str, Callable[[Path], Rows]] = {
    "jsonl": read_lines,
    "json": read_list,
    "csv": read_csv,
    "tsv": read_csv,
    "parquet": read_table,
}
"""Tables by the name of their format."""


# --- what a file is -------------------------------------------------------------------------------


def recognise(file: Path) -> str:
    """The format a file seems to be in; JSON lines where nothing else fits."""
    suffix = PurePath(file.name.lower().removesuffix(".gz")).suffix
    if file.is_dir():
        has_tables = any(each.suffix in (".parquet", ".arrow") for each in file.rglob("*"))
        return "json" if any(file.glob("*.json*")) and not has_tables else "parquet"
    if suffix == ".arrow":
        return "parquet"
    with file.open("rb") as opened:
        magic = opened.read(4)
    if magic[:1] == b"\x80" or suffix in (".pkl", ".pickle", ".pt", ".xlsx", ".xls"):
        kind, instead = ("spreadsheet", "CSV") if suffix[:3] == ".xl" else ("pickle", "JSON lines")
        raise PoolError(f"{file.name} is a {kind}, which is not read; save it as {instead}")
    if magic in (b"PAR1", b"PK\x03\x04"):
        return "parquet" if magic == b"PAR1" else "inspect"
    if suffix in (".csv", ".tsv"):
        return suffix[1:]
    lines = text_lines(file)
    line = next((each for each in lines if each.strip()), "")
    return _recognise_line(line, "".join([line, *islice(lines, HEAD)]))


def _recognise_line(line: str, head: str) -> str:
    if line.lstrip()[:1] == "[" or (line.strip() == "{" and '"eval": {' not in head):
        return "json"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    keys = set(row) if isinstance(row, dict) else set()
    if "custom_id" in keys:
        return "openai-batch"
    if {"doc_id", "resps"} <= keys:
        return "lm-eval"
    if {"version", "eval", "samples"} <= keys or (row is None and '"eval": {' in head):
        return "inspect"
    rows = _items(row) if keys else []
    if rows and (not keys & KNOWN or (rows[0] is not row and ASKS & {*rows[0]})):
        return "json"
    mark = _separator(line)
    cells = {plain_name(cell.strip(' "\r\n')) for cell in line.split(mark)}
    table = row is None and line.lstrip()[:1] != "{" and mark in line
    return "csv" if table and cells & ASKS else "jsonl"


@lru_cache(1024)
def plain_name(name: str) -> str:
    """A name in small letters, with underscores."""
    return re.sub(r"[\s-]+", "_", name.strip()).lower()


# --- fields ---------------------------------------------------------------------------------------


def shown(value: object) -> str:
    """A value in a sentence: short, on one line, and without what a terminal would obey."""
    try:
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:39]}…"
    except (RecursionError, ValueError):  # too deep, or a number of too many digits
        return type(value).__name__


def need_field(row: Mapping[str, Any], name: str, *kinds: type, where: str) -> Any:
    """A field that must be there and be of one of these types."""
    value = row.get(name)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise bad_field(row, name, where=where)
    return value


def bad_field(row: Mapping[str, Any], name: str, what: str = "", *, where: str) -> PoolError:
    """What is said of a field that cannot be used, and what it should be."""
    problem = f"is {shown(row[name])}" if name in row else "is missing"
    problem += f", which is no {what}" if what and name in row else ""
    return PoolError(f'{where}: the field "{name}" {problem}')
