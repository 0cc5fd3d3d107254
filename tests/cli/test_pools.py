"""Import, export and equivalence as commands."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from foreign import DATA, FORMATS
from typer.testing import CliRunner

from aera import Controller, Fixed, Pool, Schedule, get_task
from aera.cli import app
from aera.errors import UsageError
from aera.lab import Truths


def aera(*arguments: object) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_comes_in_goes_out_and_comes_in_again(tmp_path: Path, name: str) -> None:
    told = aera("import", DATA / name, "--task", "numeric", "--out", tmp_path / "pool")
    assert ("tokens are estimated" in told) == (name in ("samples_tiny.jsonl", "wide.parquet"))
    aera("export", tmp_path / "pool", "--out", tmp_path / "out.parquet")
    aera("import", tmp_path / "out.parquet", "--out", tmp_path / "again")
    one, other = Pool.open(tmp_path / "pool"), Pool.open(tmp_path / "again")
    assert list(one) == list(other)
    assert Truths.open(one.path) == Truths.open(other.path)


def test_a_format_may_be_named_and_questions_given(tmp_path: Path) -> None:
    batch = ["import", DATA / "vllm_batch.jsonl", "--task", "numeric", "--out", tmp_path / "pool"]
    asked = DATA / "vllm_input.jsonl"
    told = aera(*batch, "--format", "openai-batch", "--questions", asked)
    assert "1 questions, 3 responses" in told.replace("\n", " ")


def test_a_short_question_that_ends_the_checkpoints_is_told_of(
    tmp_path: Path, row_of: Any, write_rows: Any
) -> None:
    rows = [{**row_of(name, ["7"] * n, "7"), "task": "numeric"} for name, n in (("a", 8), ("b", 5))]
    told = aera("import", write_rows(tmp_path / "rows.jsonl", rows), "--out", tmp_path / "pool")
    assert "some question has only 5 responses" in told


def test_allocations_go_out_as_a_batch(tmp_path: Path) -> None:
    row = {"question_id": "a", "answer": "7", "prompt_tokens": 3, "completion_tokens": 5}
    (tmp_path / "solved.jsonl").write_text(json.dumps(row) + "\n")
    aera("export", tmp_path / "solved.jsonl", "--out", tmp_path / "batch.jsonl")
    told = aera("import", tmp_path / "batch.jsonl", "--task", "numeric", "--out", tmp_path / "pool")
    assert "1 questions, 1 responses" in told.replace("\n", " ")


def test_allocations_do_not_go_to_object_storage(tmp_path: Path) -> None:
    (tmp_path / "solved.jsonl").write_text("")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "solved.jsonl"), "--out", "s3://b/x"])
    assert isinstance(done.exception, UsageError)
    assert "a file on this disk" in str(done.exception)


def accuracy(pool: Path, file: Path, *options: str) -> Any:
    aera("evaluate", pool, "--policies", "fixed-4", "--json", file, *options)
    evaluation = json.loads(file.read_text("utf-8"))
    return evaluation["pool"]["equivalence"], evaluation["points"][0]["accuracy"]


def test_equivalence_merges_votes_and_grades_where_asked_for(
    tmp_path: Path, row_of: Any, write_rows: Any
) -> None:
    answers = ["7", "x^2+2x+1", "(1+x)^2", "7", "(x+1)(x+1)", "1+2x+x^2"]
    row = {**row_of("a", answers, "(x+1)^2"), "task": "expression"}
    file = write_rows(tmp_path / "rows.jsonl", [{**row, "responses": row["responses"][1:5]}])
    aera("import", file, "--out", tmp_path / "pool")
    out = tmp_path / "evaluation.json"
    assert accuracy(tmp_path / "pool", out) == (False, 0.0)
    assert accuracy(tmp_path / "pool", out, "--equivalence") == (True, 100.0)
    for merges in (True, False):
        task = replace(get_task("expression"), equivalence=merges)
        controller = Controller(task, Schedule((4,)), Fixed(4))
        controller.save(tmp_path / f"merges-{merges}")
    trained = ["--controller", str(tmp_path / "merges-True")]
    assert accuracy(tmp_path / "pool", out, *trained) == (True, 100.0)
    call = ["evaluate", str(tmp_path / "pool"), "--equivalence", "--controller"]
    done = CliRunner().invoke(app, [*call, str(tmp_path / "merges-False")])
    assert "would change the votes" in str(done.exception)
