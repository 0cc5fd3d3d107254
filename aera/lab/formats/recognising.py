"""Recognise the format of a file by its name and its first lines."""

import json
import zlib
from pathlib import Path

from aera.errors import UsageError
from aera.lab.formats.rows import NAMES
from aera.lab.formats.sources import open_text, separator
from aera.pools.parquet import show_address, table_files

FORMATS = ("jsonl", "json", "csv", "tsv", "lm-eval", "inspect", "openai-batch", "parquet")
HEAD = 4096
"""Characters of a file that are looked at."""
LONGEST_LINE = 1 << 26
"""Characters of a first line beyond which it is not looked at."""


def choose_format(place: Path | str, named: str | None, *, in_rows: bool) -> str:
    """The format to read in what is at a place; `in_rows` leaves only tables."""
    if isinstance(place, str):
        if named not in (None, "parquet"):
            raise UsageError(f"only Parquet is read from a URI, but --format is {named}")
        if not table_files(place):
            raise UsageError(f'"{show_address(place)}" holds no Parquet or Arrow file to import')
        return "parquet"
    found = named or recognise(place)
    if found not in FORMATS:
        raise UsageError(f'--format is one of {", ".join(FORMATS)}, but got "{found}"')
    if place.is_dir() and (found != "parquet" or not table_files(place)):
        raise UsageError(f'the folder "{place}" holds no Parquet or Arrow file to import')
    own_rules = found in ("lm-eval", "openai-batch")
    return "jsonl" if in_rows and own_rules and not named else found


def recognise(file: Path) -> str:
    """The format a file seems to be in; JSON lines where nothing else fits."""
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() != ".gz"]
    suffix = suffixes[-1] if suffixes else ""
    if file.is_dir() or suffix == ".arrow":
        return "parquet"
    with file.open("rb") as opened:
        magic = opened.read(4)
    if magic in (b"PAR1", b"PK\x03\x04"):
        return "parquet" if magic == b"PAR1" else "inspect"
    if suffix in (".csv", ".tsv"):
        return suffix[1:]
    try:
        with open_text(file) as text:
            line = ""
            while not line.strip() and (read := text.readline(LONGEST_LINE)):
                line = read
            head = line + text.read(HEAD)
    except (OSError, EOFError, ValueError, zlib.error):
        return "jsonl"  # whose reader says what is wrong
    return _recognise_line(line, head)


def _recognise_line(line: str, head: str) -> str:
    if line.lstrip()[:1] == "[":
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
    if row is None and line.lstrip()[:1] != "{" and _names_columns(line):
        return "csv"
    return "jsonl"


def _names_columns(line: str) -> bool:
    """Whether a line is the first one of a table that has a question."""
    mark = separator(line)
    cells = {cell.strip(' "\r\n') for cell in line.split(mark)}
    return mark in line and any(cells & {*NAMES[key]} for key in ("question", "messages"))
