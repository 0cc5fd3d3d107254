import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Aera, refused
from typer.testing import CliRunner

from aera.cli import app
from aera.lab import import_file

RowOf = Callable[..., dict[str, Any]]
WriteRows = Callable[..., Path]


@pytest.fixture
def rows(tmp_path: Path, row_of: RowOf, write_rows: WriteRows) -> Path:
    """A file of three questions with eight responses each."""
    streams = (["1"] * 8, ["2", "1"] * 4, ["2", "2", "2", "1", "1", "1", "1", None])
    return write_rows(
        tmp_path / "rows.jsonl.gz", [row_of(f"q{i}", s) for i, s in enumerate(streams)]
    )


def test_import_then_evaluate_then_json(aera: Aera, rows: Path, tmp_path: Path) -> None:
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


def test_policies_schedule_and_rule_may_be_chosen(aera: Aera, rows: Path, tmp_path: Path) -> None:
    import_file(rows, tmp_path / "pool")
    labels = "fixed-2,lead-2+min3+vote"
    chosen = ("--policies", labels, "--schedule", "1-8", "--rule", "re2-vote")
    done = aera("evaluate", "pool", *chosen, "--json", "out.json")
    assert (done.returncode, done.stderr) == (0, "")
    made = json.loads((tmp_path / "out.json").read_text())
    assert [p["policy"] for p in made["points"]] == [*labels.split(","), "oracle"]
    assert made["pool"]["schedule"] == list(range(1, 9))


def test_without_truths_it_is_a_dry_run(
    aera: Aera, tmp_path: Path, row_of: RowOf, write_rows: WriteRows
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
    aera: Aera, rows: Path, tmp_path: Path, arguments: tuple[str, str]
) -> None:
    import_file(rows, tmp_path / "pool")
    assert refused(aera("evaluate", "pool", *arguments), 2)


def test_wrong_imports_are_one_line_and_exit_2(aera: Aera, rows: Path) -> None:
    assert "no file" in refused(aera("import", "none.jsonl", "--out", "pool"), 2)
    assert "cookery" in refused(aera("import", rows, "--out", "pool", "--task", "cookery"), 2)
    import_file(rows, rows.parent / "pool")
    assert "exists already" in refused(aera("import", rows, "--out", "pool"), 2)


def test_a_file_that_cannot_be_used_is_one_line_and_exit_1(
    aera: Aera, tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [row_of("a", ["1"]), "{"])
    assert "rows.jsonl, line 2: not JSON" in refused(aera("import", file, "--out", "pool"), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_damaged_pool_is_one_line_and_exit_1(aera: Aera, rows: Path, tmp_path: Path) -> None:
    assert "there is no pool" in refused(aera("evaluate", "pool"), 1)
    import_file(rows, tmp_path / "pool")
    assert "goes to 16" in refused(aera("evaluate", "pool", "--schedule", "8,16"), 1)
    segment = tmp_path / "pool" / "responses-00000.jsonl.gz"
    segment.write_bytes(segment.read_bytes()[:-20])
    assert segment.name in refused(aera("evaluate", "pool"), 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("import", "Missing argument 'file'. Try: aera import FILE --out OUT"),
        ("train pool", "Missing option '--out'. Try: aera train pool --out OUT"),
        ("solve q --model M", "Try: aera solve q --model M --base-url URL"),
        ("evalute pool", "Did you mean 'evaluate'?"),
    ],
)
def test_a_wrong_call_is_told_the_one_that_would_do(words: str, said: str) -> None:
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_in_the_place_of_a_pool_is_told_how_to_become_one(aera: Aera, rows: Path) -> None:
    said = refused(aera("evaluate", rows), 1)
    assert f'aera import "{rows}" --out pool' in said


def test_aera_alone_shows_five_commands_and_its_help_all_of_them() -> None:
    alone, whole = (CliRunner().invoke(app, words) for words in ([], ["--help"]))
    assert (alone.exit_code, whole.exit_code) == (0, 0)
    first = re.findall(r"^  aera (\w+)", alone.stdout, re.MULTILINE)
    assert first == ["demo", "import", "evaluate", "train", "solve"]
    names = [command.name for command in app.registered_commands]
    assert all(re.search(rf"^  {name} +\S.*[.?]$", whole.stdout, re.MULTILINE) for name in names)
    assert not re.search(r"\d %|points", whole.stdout), "what was measured is in docs/results.md"


@pytest.mark.parametrize("name", [command.name for command in app.registered_commands])
def test_options_stand_under_headings_in_whole_sentences(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80"})
    assert max(map(len, done.stdout.splitlines())) <= 80
    headings = re.findall(r"^(\w.*):$", done.stdout, re.MULTILINE)
    assert len(headings) == len({*headings})
    options = re.findall(r"^  --", done.stdout, re.MULTILINE)
    assert len(options) < 13 or len(headings) > 2


def test_the_shell_completes_commands_and_choices() -> None:
    for words, place, wanted in (
        ("aera ev", 1, "evaluate"),
        ("aera evaluate --protocol ho", 3, "holdout"),
    ):
        asked = {"_AERA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        done = CliRunner().invoke(app, [], env=asked, prog_name="aera")
        assert done.stdout.split() == [wanted]


def test_a_configuration_is_printed_line_by_line_also_on_a_terminal(aera: Aera) -> None:
    shown = [aera("serve", "--print-config", FORCE_COLOR=each).stdout for each in ("", "1")]
    assert shown[0] == shown[1]
    assert "\n[[upstream]]" in shown[0]
