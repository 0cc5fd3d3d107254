import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aera.lab import import_jsonl

RowOf = Callable[..., dict[str, Any]]
WriteRows = Callable[..., Path]


@pytest.fixture
def aera(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Call the command line from an empty directory."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "aera", *map(str, arguments)]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )

    return call


Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def rows(tmp_path: Path, row_of: RowOf, write_rows: WriteRows) -> Path:
    """A file of three questions with eight responses each."""
    streams = (["1"] * 8, ["2", "1"] * 4, ["2", "2", "2", "1", "1", "1", "1", None])
    return write_rows(
        tmp_path / "rows.jsonl.gz", [row_of(f"q{i}", s) for i, s in enumerate(streams)]
    )


def refused(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line with which a call ended."""
    assert done.returncode == code, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("aera: ")
    return done.stderr


def test_import_then_evaluate_then_json(aera: Call, rows: Path, tmp_path: Path) -> None:
    done = aera("import", rows, "--out", "pool")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 questions, 24 responses, task numeric, checkpoints 4, 8" in done.stdout
    done = aera("evaluate", "pool", "--json", "out.json", "--seed", 3)
    assert (done.returncode, done.stderr) == (0, "")
    made = json.loads((tmp_path / "out.json").read_text())
    points = {point["policy"]: point for point in made["points"]}
    assert (made["protocol"], made["seed"], made["pool"]["questions"]) == ("replay", 3, 3)
    assert {"fixed-4", "fixed-8", "asc-0.95", "esc-5", "lead-3", "oracle"} <= set(points)
    assert points["fixed-4"]["accuracy"] == pytest.approx(33.3333)
    assert points["fixed-8"]["accuracy"] == pytest.approx(66.6667)
    assert "fixed-8" in done.stdout


def test_policies_schedule_and_rule_may_be_chosen(aera: Call, rows: Path, tmp_path: Path) -> None:
    import_jsonl(rows, tmp_path / "pool")
    labels = "fixed-2,lead-2+min3+vote"
    chosen = ("--policies", labels, "--schedule", "1-8", "--rule", "re2-vote")
    done = aera("evaluate", "pool", *chosen, "--json", "out.json")
    assert (done.returncode, done.stderr) == (0, "")
    made = json.loads((tmp_path / "out.json").read_text())
    assert [p["policy"] for p in made["points"]] == [*labels.split(","), "oracle"]
    assert made["pool"]["schedule"] == list(range(1, 9))


def test_without_truths_it_is_a_dry_run(
    aera: Call, tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [row_of("a", ["1"] * 4, None)])
    aera("import", file, "--out", "pool")
    done = aera("evaluate", "pool", "--json", "out.json")
    assert done.returncode == 0
    assert "no truths" in done.stdout
    made = json.loads((tmp_path / "out.json").read_text())
    assert {point["accuracy"] for point in made["points"]} == {None}
    assert made["comparisons"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--policies", "best"),
        ("--policies", "asc-2"),
        ("--schedule", "8,4"),
        ("--schedule", "often"),
        ("--rule", "coin"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_2(
    aera: Call, rows: Path, tmp_path: Path, arguments: tuple[str, str]
) -> None:
    import_jsonl(rows, tmp_path / "pool")
    assert refused(aera("evaluate", "pool", *arguments), 2)


def test_wrong_imports_are_one_line_and_exit_2(aera: Call, rows: Path) -> None:
    assert "no file" in refused(aera("import", "none.jsonl", "--out", "pool"), 2)
    assert "cookery" in refused(aera("import", rows, "--out", "pool", "--task", "cookery"), 2)
    import_jsonl(rows, rows.parent / "pool")
    assert "exists already" in refused(aera("import", rows, "--out", "pool"), 2)


def test_a_file_that_cannot_be_used_is_one_line_and_exit_1(
    aera: Call, tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [row_of("a", ["1"]), "{"])
    assert "rows.jsonl, line 2: not JSON" in refused(aera("import", file, "--out", "pool"), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_damaged_pool_is_one_line_and_exit_1(aera: Call, rows: Path, tmp_path: Path) -> None:
    assert "there is no pool" in refused(aera("evaluate", "pool"), 1)
    import_jsonl(rows, tmp_path / "pool")
    assert "goes to 16" in refused(aera("evaluate", "pool", "--schedule", "8,16"), 1)
    segment = tmp_path / "pool" / "responses-00000.jsonl.gz"
    segment.write_bytes(segment.read_bytes()[:-20])
    assert segment.name in refused(aera("evaluate", "pool"), 1)


def test_a_missing_argument_exits_with_2(aera: Call) -> None:
    done = aera("import", "rows.jsonl")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
