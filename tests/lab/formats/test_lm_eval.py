"""The samples that lm-eval logs come in as they were written; the file itself is in data/."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign import APPLES, DATA, imported, refused

from aera import Question
from aera.lab import Truths
from aera.lab.formats.importing import ESTIMATED

WriteRows = Callable[..., Path]


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


def test_a_target_that_cannot_be_read_leaves_one_question_without_a_truth(
    tmp_path: Path, sample: dict[str, Any], write_rows: WriteRows
) -> None:
    rows = [sample, {**sample, "doc_id": 1, "target": ["7", "8"]}]
    pool = imported(write_rows(tmp_path / "rows", rows), tmp_path / "pool")
    assert [*(Truths.open(pool.path) or ())] == ["0"]
