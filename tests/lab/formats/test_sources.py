"""A format is told by name and first lines; lines, lists and CSV give the same rows."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from foreign import DATA, TEXTS, imported

from aera.lab import Truths
from aera.lab.formats.sources import Rows, read_csv, read_lines, read_list, recognise

ROWS = [{"a": 'x, "y"\r\nz ü', "b": "1"}, {"a": "\u2028 [1]", "b": None}, {"a": "}{", "b": "2"}]
CSV = 'a,b\r\n"x, ""y""\r\nz ü",1\r\n\u2028 [1],\r\n\r\n,\r\n}{,2'


LIST = f" \n{json.dumps(ROWS, indent=3)}\n\n"
READ: dict[str, tuple[Callable[[Path], Rows], str]] = {
    "lines": (read_lines, "\n\n".join(map(json.dumps, ROWS))),
    "list": (read_list, LIST),
    "csv": (read_csv, CSV),
    "tsv": (read_csv, CSV.replace("x, ", "x\t ").replace(",", "\t").replace("\t ", ", ")),
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("kind", READ)
def test_rows_are_read_whatever_they_are_written_as(
    tmp_path: Path, kind: str, zipped: bool, encoding: str
) -> None:
    read, text = READ[kind]
    data = text.encode(encoding)
    (tmp_path / "file").write_bytes(gzip.compress(data) if zipped else data)
    assert [row for _, row in read(tmp_path / "file")] == ROWS


def test_places_are_named_by_where_a_row_begins(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV, "utf-8", newline="")
    found = [where for where, _ in read_csv(tmp_path / "t.csv")]
    assert found == ["t.csv, line 2", "t.csv, line 4", "t.csv, line 7"]
    (tmp_path / "long.csv").write_text(f"a,b\n{'x' * 300_000},1\n")
    assert [len(row["a"]) for _, row in read_csv(tmp_path / "long.csv")] == [300_000]
    (tmp_path / "t.json").write_text(LIST)
    assert [where for where, _ in read_list(tmp_path / "t.json")][-1] == "t.json, item 3"


# --- what a file is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.csv", "x", "csv"),
        ("a.TSV", "x", "tsv"),
        ("a", "question,text\n", "csv"),
        ("a.txt", 'id\t"prompt"\ttext\n', "csv"),
        ("a", "\ufeff\nquestion;text\n", "csv"),
        ("a.jsonl", "[1]", "json"),
        ("a", '\n [\n{"question": 1}]', "json"),
        *(("a", text, "jsonl") for text in ("name,text\n", "", "{x", "1", '{"id": 1}', "no JSON")),
    ],
)
def test_tables_and_lists_are_recognised(tmp_path: Path, name: str, text: str, found: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert recognise(tmp_path / name) == found
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert recognise(tmp_path / f"{name}.gz") == found


@pytest.mark.parametrize("name", ["samples_tiny.jsonl", "wide.parquet", "saved"])
def test_repeats_become_responses_in_order(tmp_path: Path, name: str) -> None:
    pool = imported(DATA / name, tmp_path / "pool")
    found = {r.question.text: [each.text for each in r.responses] for r in pool}
    assert found == TEXTS
    assert Truths.open(pool.path) == Truths(dict(zip(pool.questions, ["7", "36"], strict=True)))
