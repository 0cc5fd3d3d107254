"""JSON lines, JSON lists and CSV give the same rows, or break off at a place that is named."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aera.errors import RecordError
from aera.lab.formats.sources import Rows, read_csv, read_lines, read_list

ROWS = [{"a": 'x, "y"\r\nz ü', "b": "1"}, {"a": "\u2028 [1]", "b": None}, {"a": "}{", "b": "2"}]
CSV = 'a,b\r\n"x, ""y""\r\nz ü",1\r\n\u2028 [1],\r\n\r\n,\r\n}{,2'


def written(kind: str) -> str:
    if kind == "lines":
        return "\n\n".join(map(json.dumps, ROWS))
    if kind == "list":
        return f" \n{json.dumps(ROWS, indent=3)}\n\n"
    return (
        CSV if kind == "csv" else CSV.replace("x, ", "x\t ").replace(",", "\t").replace("\t ", ", ")
    )


READ: dict[str, Callable[[Path], Rows]] = {
    "lines": read_lines,
    "list": read_list,
    "csv": read_csv,
    "tsv": read_csv,
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("kind", READ)
def test_rows_are_read_whatever_they_are_written_as(
    tmp_path: Path, kind: str, zipped: bool, encoding: str
) -> None:
    data = written(kind).encode(encoding)
    (tmp_path / "file").write_bytes(gzip.compress(data) if zipped else data)
    assert [row for _, row in READ[kind](tmp_path / "file")] == ROWS


def test_places_are_named_by_where_a_row_begins(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV, "utf-8", newline="")
    found = [where for where, _ in read_csv(tmp_path / "t.csv")]
    assert found == ["t.csv, line 2", "t.csv, line 4", "t.csv, line 7"]
    (tmp_path / "t.json").write_text(written("list"))
    assert [where for where, _ in read_list(tmp_path / "t.json")][-1] == "t.json, item 3"


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_list, "[]x", ": not JSON (Extra data"),
        (read_list, "", ": not JSON (Expecting value"),
        (read_list, '[{"a": "b', ": not JSON (Unterminated string"),
        (read_list, '{"a": "b"}', ": a JSON list is needed, but got dict"),
        (read_list, "[{}, 17]", ", item 2: a JSON object is needed, but got int"),
        (read_list, "[" * 99_999, ": not JSON ("),
        (read_csv, "a,b\n1,2\n1,2,3\n", ", line 3: it has 3 cells, but the first line 2"),
        (read_csv, "a,b\n1\n", ", line 2: it has 1 cells, but the first line 2"),
        (read_csv, 'a,b\n1,2\n"1,2\n', ", line 3: no CSV (unexpected end of data)"),
        (read_csv, 'a,b\n"1"x,2\n', ", line 2: no CSV ("),
        (read_lines, '{"a": 1}\n{"a"', ", line 2: not JSON"),
    ],
)
def test_what_is_broken_is_said_with_its_place(
    tmp_path: Path, read: Callable[[Path], Rows], text: str, message: str
) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(RecordError) as caught:
        list(read(tmp_path / "file"))
    assert str(caught.value).startswith(f"file{message}")


@pytest.mark.parametrize("read", READ.values())
def test_bytes_of_another_encoding_and_half_an_archive_are_refused(
    tmp_path: Path, read: Callable[[Path], Rows]
) -> None:
    for content in (b'[{"a,b": "\xe9"}]', gzip.compress(b'[{"a": 1}]' * 99)[:-12]):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(RecordError, match="cannot be read"):
            list(read(tmp_path / "file"))


def test_a_cell_may_be_longer_than_a_page(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(f"a,b\n{'x' * 300_000},1\n")
    assert [len(row["a"]) for _, row in read_csv(tmp_path / "file")] == [300_000]
