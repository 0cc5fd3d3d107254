"""The format of a file is told by its name and its first lines."""

import gzip
from pathlib import Path

import pytest
from foreign import DATA, FORMATS, TEXTS, imported, refused

from aera.errors import AeraError, UsageError
from aera.lab import Truths, import_file
from aera.lab.formats.recognising import recognise


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_recognised(name: str) -> None:
    assert recognise(DATA / name) == FORMATS[name]


@pytest.mark.parametrize("text", ["", "{", "1", '{"id": 1}', "no JSON", "\xff"])
def test_what_is_not_recognised_is_taken_for_our_own(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text, "latin-1")
    assert recognise(tmp_path / "file") == "jsonl"


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
        ("a", "name,text\n", "jsonl"),
    ],
)
def test_tables_of_text_and_lists_are_recognised(
    tmp_path: Path, name: str, text: str, found: str
) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert recognise(tmp_path / name) == found
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert recognise(tmp_path / f"{name}.gz") == found


@pytest.mark.parametrize("name", ["samples_tiny.jsonl", "wide.parquet", "saved"])
def test_repeats_become_responses_in_order(tmp_path: Path, name: str) -> None:
    pool = imported(DATA / name, tmp_path / "pool")
    found = {r.question.text: [each.text for each in r.responses] for r in pool}
    assert found == TEXTS
    truths = Truths.open(pool.path)
    assert truths is not None
    assert [truths[name] for name in pool.questions] == ["7", "36"]


def test_a_named_format_is_believed_and_an_unknown_one_refused(tmp_path: Path) -> None:
    said = refused(DATA / "samples_tiny.jsonl", tmp_path / "pool", format_name="jsonl")
    assert said.startswith("samples_tiny.jsonl, line 1: there is no question; its column is one of")
    assert said.endswith("target_hash, exact_match")
    with pytest.raises(UsageError, match=r"--format is one of jsonl, json, csv, .* got \"xml\""):
        imported(DATA / "inspect.json", tmp_path / "pool", format_name="xml")


def test_without_a_task_the_file_must_name_one(tmp_path: Path) -> None:
    with pytest.raises(AeraError, match="no task is named; give --task"):
        import_file(DATA / "inspect.json", tmp_path / "pool")
