"""`aera train`, `aera evaluate` and `aera leaks` on sixty real questions."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import Done, refused, run
from foreign_questions import DEMO, short_questions
from lab_fixtures import Bench
from streams import edit, row_of, write_rows

from aera.paper.features import NAMES, PaperGate
from aera.policies.gate import VOTE_FEATURE_NAMES, Gate
from aera.solving.controller import Controller

pytestmark = pytest.mark.usefixtures("trained", "others")


@dataclass(frozen=True)
class Shell:
    """A directory with a pool in it, and the command line called from there."""

    folder: Path

    def __call__(self, *arguments: object) -> Done:
        return run(self.folder, *arguments, COLUMNS="100")

    def said(self, *arguments: object) -> str:
        """What it says in one line, where it succeeds without a word of warning."""
        done = self(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return " ".join(done.stdout.split())

    def json(self, *arguments: object) -> dict[str, Any]:
        """Call it with --json and read what it wrote."""
        self.said(*arguments, "--json", "out.json")
        made: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return made


@pytest.fixture(scope="module")
def shell(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("shell")
    shutil.copytree(bench.pool.path, folder / "pool")
    return Shell(folder)


@pytest.fixture(scope="module")
def trained(shell: Shell) -> str:
    """Train once; the controller is at C."""
    return shell.said("train", "pool", "--out", "C", "--max-loss", 0.5, "--seed", 1)


def test_training_writes_a_controller_and_says_what_it_is(shell: Shell, trained: str) -> None:
    loaded = Controller.load(shell.folder / "C")
    assert f"C: {loaded.policy}" in trained
    assert "lost at most 50 points" in trained
    files = {file.name for file in (shell.folder / "C").iterdir()}
    assert files == {"config.json", "model.safetensors", "calibration.json", "README.md"}
    assert isinstance(loaded.gate, Gate)
    assert "Next: aera evaluate pool --protocol nested" in trained, "its questions are few"
    assert " ".join(loaded.calibration["learned"].split()) in trained


def test_the_papers_gate_is_trained_on_request(shell: Shell) -> None:
    """Or ASC, whichever is cheaper."""
    shell.said("train", "pool", "--out", "P", "--paper", "--baseline", "asc", "--max-loss", 0.5)
    loaded = Controller.load(shell.folder / "P")
    assert isinstance(loaded.gate, PaperGate)
    assert (loaded.gate.features, loaded.weigher) == (NAMES, None)
    assert set(loaded.calibration["tried"]) == {"aera", "asc"}
    assert (len(loaded.fitted), len(loaded.calibrated)) == (42, 18)
    shell.said("leaks", "P")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("train pool --out X --baseline asc", 2, "--paper"),
        ("train pool --out X --encoder somewhere", 2, "--paper"),
        ("train pool --out X --paper --baseline luck", 2, '"luck"'),
        ("train few --out X", 1, "has 3 questions"),
        ("train few --out X --paper", 1, "has 3 questions"),
        ("evaluate few --protocol nested", 1, "has 3 questions"),
        ("evaluate pool --workers many", 2, 'a number of processes, "ray" or "ray:ADDRESS"'),
        ("evaluate pool --controller C --protocol holdout", 1, "60 of these questions"),
        ("evaluate blind --protocol crossfit", 1, '"blind" has no truths, so nothing can be'),
        ("evaluate blind --protocol nested --paper", 1, '"blind" has no truths, so nothing can be'),
        ("leaks pool pool", 2, '"pool" is no controller'),
    ],
)
def test_a_wrong_call_is_one_line_alone(shell: Shell, words: str, code: int, said: str) -> None:
    assert said in refused(shell(*words.split()), code)
    assert not (shell.folder / "X").exists()


@pytest.fixture(scope="module")
def others(shell: Shell) -> None:
    """The pool without its truths, and three questions."""
    copied = shutil.copytree(shell.folder / "pool", shell.folder / "blind")
    (copied / "truths.jsonl").unlink()
    rows = [row_of(f"q{i}", ["1", "2"] * 4) for i in range(3)]
    shell.said("import", write_rows(shell.folder / "few.jsonl", rows), "--out", "few")


def test_without_truths_questions_are_judged_by_agreement(shell: Shell) -> None:
    words = ("--protocol", "holdout", "--max-loss", 0.2, "--report", "r.html")
    made = shell.json("evaluate", "blind", *words)
    assert made["headline"]["status"] == "on questions kept apart, without truths"


def test_a_certificate_is_asked_for_by_its_chance_of_error(shell: Shell) -> None:
    assert "NOT FEASIBLE" in shell.said("train", "pool", "--out", "S", "--certify", "0.1")
    loaded = Controller.load(shell.folder / "S")
    assert (len(loaded.fitted), len(loaded.calibrated)) == (30, 30)
    assert str(loaded.policy) == "fixed-32"


def test_a_controller_on_its_own_questions_is_marked_in_sample(shell: Shell) -> None:
    made = shell.json("evaluate", "pool", "--controller", "C")
    told, label = made["controller"], Controller.load(shell.folder / "C").label
    assert (told["policy"], told["seen"], told["abroad"]) == (label, 60, None)
    assert told["status"].startswith("in-sample: 60 questions")
    assert label in {point["policy"] for point in made["points"]}


def test_a_pool_of_another_kind_is_remarked_upon(shell: Shell) -> None:
    said = {"answer": "7", "responses": [{"text": "\\boxed{7}", "tokens": 5}] * 4}
    lines = [{"id": each.id, "question": each.text, **said} for each in short_questions(40)]
    (shell.folder / "short.jsonl").write_text("\n".join(map(json.dumps, lines)))
    shell.said("import", "short.jsonl", "--out", "short", "--task", "gsm8k")
    known = ("--controller", DEMO / "controller", "--schedule", "2,4")
    told = shell.json("evaluate", "short", *known)["controller"]["abroad"]
    assert told.startswith("these questions are not like those it was taught on: they are ")
    said_of_it = shell.said("evaluate", "short", *known)
    assert "not like those" in said_of_it
    assert "Next: aera train short" in said_of_it, "and not: run it"


def test_workers_change_nothing(shell: Shell) -> None:
    shell.said("train", "pool", "--out", "D", "--max-loss", 0.5, "--seed", 1, "--workers", 2)
    known = ("evaluate", "pool", "--controller", "C", "--policies", "asc-0.9,lead-3")
    alone = shell.json(*known, "--report", "C/page.html")
    assert shell.json(*known, "--report", "D/page.html", "--workers", 2) == alone
    for name in ("config.json", "model.safetensors", "page.html"):
        one, other = ((shell.folder / place / name).read_bytes() for place in "CD")
        assert one == other


def test_pool_and_controller_pass_the_audit_and_a_planted_input_does_not(shell: Shell) -> None:
    assert "60 of 60" in shell.said("leaks", "C", "pool")
    taught = "taught on 60 questions, calibrated on the same, out of fold"
    assert taught in shell.said("info", "C")
    planted = shutil.copytree(shell.folder / "C", shell.folder / "planted")
    edit(planted, features=[*VOTE_FEATURE_NAMES[:-1], "z_next"])
    done = shell("leaks", "planted")
    assert (done.returncode, done.stderr) == (1, "aera: 2 leaks, the first is z_next\n")
