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
from aera.errors import ReadingError, UsageError
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


def rows_file(folder: Path, row_of: Any, write_rows: Any, **answers: list[str | None]) -> Path:
    rows = [{**row_of(name, said, "7"), "task": "numeric"} for name, said in answers.items()]
    path: Path = write_rows(folder / "rows.jsonl", rows)
    return path


def test_questions_that_are_left_out_are_named(
    tmp_path: Path, row_of: Any, write_rows: Any
) -> None:
    counts = {"a": 8, "b": 8, "c": 1, "d": 2, "e": 3, "f": 3}
    said: dict[str, list[str | None]] = {name: ["7"] * count for name, count in counts.items()}
    file = rows_file(tmp_path, row_of, write_rows, **said)
    told = aera("import", file, "--out", tmp_path / "pool")
    assert "2 questions, 16 responses" in told
    assert "left out: 4 questions: c (has 1 response, fewer than 8), d (has 2" in told
    assert "f (" not in told
    told = aera("import", file, "--responses", 3, "--out", tmp_path / "three")
    assert "4 questions, 22 responses" in told
    assert "some questions have more than the 3 responses that count" in told


def test_an_import_says_how_much_could_be_read_and_shows_what_could_not(
    tmp_path: Path, row_of: Any, write_rows: Any
) -> None:
    file = rows_file(tmp_path, row_of, write_rows, a=["7", None], b=["7", "7"])
    told = aera("import", file, "--out", tmp_path / "pool")
    assert "75.0 % of 4 responses read, 25.0 %" in told
    assert "not read: a: hm" in told
    assert "ONLY" not in told
    file = rows_file(tmp_path, row_of, write_rows, a=["7", None], b=[None, None])
    told = aera("import", file, "--out", tmp_path / "little")
    assert "ONLY 25 % of the responses could be read" in told


def test_what_cannot_be_read_at_all_is_refused_and_nothing_is_left(
    tmp_path: Path, row_of: Any, write_rows: Any
) -> None:
    file = rows_file(tmp_path, row_of, write_rows, a=[None] * 4)
    done = CliRunner().invoke(app, ["import", str(file), "--out", str(tmp_path / "pool")])
    assert isinstance(done.exception, ReadingError)
    assert "the last box" in str(done.exception)
    assert [*tmp_path.iterdir()] == [file]


def test_questions_without_a_truth_are_named_and_a_file_without_truths_says_so(
    tmp_path: Path, row_of: Any, write_rows: Any
) -> None:
    rows = [row_of("a", ["7"], "7"), row_of("b", ["7"], None), row_of("c", ["7"], "many")]
    told = aera("import", write_rows(tmp_path / "rows", rows), "--out", tmp_path / "pool")
    assert "without a truth: 2 questions: b (none is given), c ('many' is no numeric" in told
    told = aera("import", write_rows(tmp_path / "one", rows[1:2]), "--out", tmp_path / "none")
    assert "no truths" in told


def test_columns_of_other_names_are_mapped(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("frage,modell,richtig\nhow many?,so 7,7\nhow many?,\\boxed{7},7\n")
    call = ["import", file, "--task", "gsm8k"]
    names = ["--map", "question=frage", "--map", "text=modell", "--map", "answer=richtig"]
    assert "1 questions, 2 responses" in aera(*call, "--out", tmp_path / "pool", *names)
    for wrong, message in (
        ("text=model", 'there is no column "model"; there are frage, modell, richtig'),
        ("words=modell", "ours one of question, messages, system, id"),
        ("text", "--map takes OURS=THEIRS"),
        ("question=modell", 'says twice what "question" is'),
    ):
        out = ["--out", str(tmp_path / "none")]
        done = CliRunner().invoke(app, [*map(str, call), *out, *names[:2], "--map", wrong])
        assert message in str(done.exception)


def test_answers_alone_come_in_go_out_and_are_evaluated(tmp_path: Path, write_rows: Any) -> None:
    said = [{"answer": "33", "tokens": 9}, {"answer": None, "tokens": 5}, {"answer": "34"}]
    row = {"id": "aime-0", "question": "aime-0", "answer": "33", "task": "numeric"}
    file = write_rows(tmp_path / "others.jsonl.gz", [{**row, "responses": said * 4}])
    assert "66.7 % of 12 responses read" in aera("import", file, "--out", tmp_path / "pool")
    assert accuracy(tmp_path / "pool", tmp_path / "evaluation.json") == (False, 100.0)
    aera("export", tmp_path / "pool", "--out", tmp_path / "out.parquet")
    aera("import", tmp_path / "out.parquet", "--out", tmp_path / "again")
    assert [*Pool.open(tmp_path / "again")] == [*Pool.open(tmp_path / "pool")]


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
