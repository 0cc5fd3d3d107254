"""Files of other programs come in as they were written; the files themselves are in data/."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign import APPLES, DATA, FORMATS, TEXTS, imported, refused

from aera import Question
from aera.errors import AeraError, UsageError
from aera.lab import Truths, import_file
from aera.lab.formats.importing import ESTIMATED, recognise

WriteRows = Callable[..., Path]


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_recognised(name: str) -> None:
    assert recognise(DATA / name) == FORMATS[name]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"id": 1}', "no JSON", "\xff"])
def test_what_is_not_recognised_is_taken_for_our_own(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text, "latin-1")
    assert recognise(tmp_path / "file") == "jsonl"


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
    assert said == 'samples_tiny.jsonl, line 1: the field "id" is missing'
    with pytest.raises(UsageError, match=r"--format is one of jsonl, lm-eval, .* got \"xml\""):
        imported(DATA / "inspect.json", tmp_path / "pool", format_name="xml")


def test_without_a_task_the_file_must_name_one(tmp_path: Path) -> None:
    with pytest.raises(AeraError, match="no task is named; give --task"):
        import_file(DATA / "inspect.json", tmp_path / "pool")


# --- lm-eval --------------------------------------------------------------------------------------


@pytest.fixture
def sample() -> dict[str, Any]:
    """The first sample of the logged file."""
    with (DATA / "samples_tiny.jsonl").open() as lines:
        row: dict[str, Any] = json.loads(next(lines))
    return row


def test_tokens_that_nobody_counted_are_estimated_and_said_to_be(tmp_path: Path) -> None:
    pool = imported(DATA / "samples_tiny.jsonl", tmp_path / "pool")
    assert pool.manifest.sampler["tokens"] == ESTIMATED
    assert [each.tokens for each in next(iter(pool)).responses] == [5, 2, 3, 2]


def test_a_document_without_a_question_is_known_by_its_prompt(
    tmp_path: Path, sample: dict[str, Any], write_rows: WriteRows
) -> None:
    row = {**sample, "doc": {"x": 1}, "target": "7"}
    pool = imported(write_rows(tmp_path / "rows", [row]), tmp_path / "pool")
    assert pool.questions == {"0": Question("0", f"Question: {APPLES}\nAnswer:")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"doc_id": None}, 'the field "doc_id" is None'),
        ({"resps": [[[-1.5, False]], [[-2.5, True]]]}, '"resps" holds no generated texts'),
        ({"resps": []}, '"resps" holds no generated texts'),
        ({"target": ["7", "8"]}, 'the field "target" is'),
        ({"target": "many"}, "the field \"target\", 'many', is no numeric answer"),
        ({"doc": {}, "arguments": {}}, 'the field "gen_args_0" is missing'),
    ],
)
def test_a_bad_sample_is_named(
    tmp_path: Path,
    sample: dict[str, Any],
    write_rows: WriteRows,
    change: dict[str, Any],
    message: str,
) -> None:
    file = write_rows(tmp_path / "samples.jsonl", [sample, {**sample, "doc_id": 1, **change}])
    said = refused(file, tmp_path / "pool", format_name="lm-eval")
    assert said.startswith("samples.jsonl, line 2: ")
    assert message in said


def test_the_same_sample_twice_is_refused(
    tmp_path: Path, sample: dict[str, Any], write_rows: WriteRows
) -> None:
    said = refused(write_rows(tmp_path / "rows", [sample, sample]), tmp_path / "pool")
    assert said == "rows, line 2: the question 0 comes a second time"
