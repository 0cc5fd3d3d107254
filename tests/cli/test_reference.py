"""`aera policies` and `aera tasks` list everything that may be named."""

import re

import pytest
from small_study import Bench
from typer.testing import CliRunner

from aera import parse_policy
from aera.cli import app
from aera.errors import UsageError
from aera.lab.asked import ask_policies
from aera.reading.task import TASKS

SETTINGS = {"N": "8", "W": "8", "M": "8"}
"""What stands for a number in a label; all others are fractions."""


def listed(command: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], str]:
    """The first column of the table, and all that is said."""
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(app, [command], catch_exceptions=False)
    assert done.exit_code == 0
    rows = [line.split() for line in done.output.splitlines()[3:] if line.startswith("  ")]
    return [row[0] for row in rows if row], done.output


def test_every_policy_is_listed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError) as caught:  # it tells whoever names another
        ask_policies("nobody", bench.records.schedule)
    known = {f"{kind}-" for kind in re.findall(r"(\w+)-N", str(caught.value))} | {"first-valid"}
    labels, said = listed("policies", monkeypatch)
    kinds = {re.sub("[A-Z]$", "", label) for label in labels}
    assert kinds == known | {"aera-"}
    assert len(kinds) == len(labels)
    assert all(limit in said for limit in ("+minN", "+maxN", "+vote", "+weighted"))


def test_a_listed_label_is_understood_with_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, _ = listed("policies", monkeypatch)
    plain = [each for each in labels if not each.startswith(("consensus-", "aera-"))]
    for label in plain:
        named = re.sub("[A-Z]$", lambda found: SETTINGS.get(found[0], "0.9"), label)
        assert str(parse_policy(named)) == named


def test_every_task_is_listed_with_what_its_answers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    names, said = listed("tasks", monkeypatch)
    assert names == list(TASKS)
    for task in TASKS.values():
        assert re.search(rf"^  {task.name} +{task.kind} +\S", said, re.MULTILINE)
