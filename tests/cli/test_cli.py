import re
from pathlib import Path

import pytest
from commands import Aera, refused
from lab_fixtures import Bench
from streams import row_of, write_rows
from typer.testing import CliRunner

from aera import parse_policy
from aera.cli import app
from aera.errors import UsageError
from aera.lab import import_file
from aera.lab.asked import ask_policies
from aera.reading.task import TASKS


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("evaluate pool --policies best", 2, 'no policy is called "best"'),
        ("evaluate pool --policies asc-2", 2, "asc"),
        ("evaluate pool --schedule 8,4", 2, "increas"),
        ("evaluate pool --schedule often", 2, "often"),
        ("evaluate pool --rule coin", 2, "coin"),
        ("evaluate pool --schedule 8,16", 1, "goes to 16"),
        ("evaluate none", 1, "there is no pool"),
        ("demo --questions 0", 2, "--questions"),
        ("evaluate rows.jsonl.gz", 1, 'rows.jsonl.gz" --out pool'),
        ("evaluate damaged", 1, "responses-00000.jsonl.gz"),
        ("import rows.jsonl.gz --out new --task cookery", 2, "cookery"),
        ("import half.jsonl --task numeric --out new", 1, "half.jsonl, line 2: not JSON"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    aera: Aera, tmp_path: Path, words: str, code: int, said: str
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl.gz", [row_of("q", ["1", "2"] * 4)])
    for name in ("pool", "damaged"):
        import_file(rows, tmp_path / name)
    segment = tmp_path / "damaged" / "responses-00000.jsonl.gz"
    segment.write_bytes(segment.read_bytes()[:-20])
    (tmp_path / "half.jsonl").write_text('{"question": "?", "responses": ["1"]}\n{\n')
    before = {*tmp_path.rglob("*")}
    assert said in refused(aera(*words.split()), code)
    assert {*tmp_path.rglob("*")} == before


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


def listed(command: str) -> tuple[list[str], str]:
    """The first column of a table of names, and all that is said."""
    done = CliRunner().invoke(app, [command], env={"COLUMNS": "200"}, catch_exceptions=False)
    rows = [line.split() for line in done.output.splitlines()[3:] if line.startswith("  ")]
    return [row[0] for row in rows if row], done.output


def test_every_policy_is_listed_and_understood_with_its_setting(bench: Bench) -> None:
    with pytest.raises(UsageError) as caught:  # it tells whoever names another
        ask_policies("nobody", bench.records.schedule)
    known = {f"{kind}-" for kind in re.findall(r"(\w+)-N", str(caught.value))} | {"first-valid"}
    labels, said = listed("policies")
    assert sorted(re.sub("[A-Z]$", "", label) for label in labels) == sorted(known | {"aera-"})
    assert all(limit in said for limit in ("+minN", "+maxN", "+vote", "+weighted"))
    for label in labels:
        if not label.startswith(("consensus-", "aera-")):
            whole = "[NWM]$"  # what stands for a number; all others are fractions
            named = re.sub("[A-Z]$", "0.9", re.sub(whole, "8", label))
            assert str(parse_policy(named)) == named


def test_every_task_is_listed_with_what_its_answers_are() -> None:
    names, said = listed("tasks")
    assert names == list(TASKS)
    for task in TASKS.values():
        assert re.search(rf"^  {task.name} +{task.kind} +\S", said, re.MULTILINE)


def test_a_configuration_is_printed_line_by_line_also_on_a_terminal(aera: Aera) -> None:
    shown = [aera("serve", "--print-config", FORCE_COLOR=each).stdout for each in ("", "1")]
    assert shown[0] == shown[1]
    assert "\n[[upstream]]" in shown[0]
