import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import Done, refused, run
from foreign_questions import DEMO, short_questions
from small_study import Bench

from aera.paper.features import NAMES, PaperGate
from aera.policies.features import VOTE_FEATURE_NAMES
from aera.policies.gate import Gate
from aera.solving.controller import Controller


@dataclass(frozen=True)
class Shell:
    """A directory with a pool in it, and the command line called from there."""

    folder: Path

    def __call__(self, *arguments: object) -> Done:
        return run(self.folder, *arguments, COLUMNS="100")

    def json(self, *arguments: object) -> dict[str, Any]:
        """Call it with --json, which must succeed, and read what it wrote."""
        done = self(*arguments, "--json", "out.json")
        assert (done.returncode, done.stderr) == (0, ""), done
        made: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return made


@pytest.fixture(scope="module")
def shell(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("shell")
    shutil.copytree(bench.pool.path, folder / "pool")
    return Shell(folder)


@pytest.fixture(scope="module")
def trained(shell: Shell) -> Done:
    """Train once; the controller is at C."""
    return shell("train", "pool", "--out", "C", "--max-loss", 0.5, "--seed", 1)


@pytest.fixture(scope="module")
def paper(shell: Shell) -> Done:
    """The paper's gate or ASC, whichever is cheaper; the controller is at P."""
    return shell("train", "pool", "--out", "P", "--paper", "--baseline", "asc", "--max-loss", 0.5)


def test_training_writes_a_controller_and_says_what_it_is(shell: Shell, trained: Done) -> None:
    assert (trained.returncode, trained.stderr) == (0, "")
    loaded = Controller.load(shell.folder / "C")
    assert f"C: {loaded.policy}" in trained.stdout
    assert "lost at most 50 points" in " ".join(trained.stdout.split())
    files = {file.name for file in (shell.folder / "C").iterdir()}
    assert files == {"config.json", "model.safetensors", "calibration.json", "README.md"}
    assert isinstance(loaded.gate, Gate)
    told = json.loads((shell.folder / "C" / "calibration.json").read_text())
    assert " ".join(told["learned"].split()) in " ".join(trained.stdout.split())


def test_the_papers_gate_is_trained_on_request(shell: Shell, paper: Done) -> None:
    assert (paper.returncode, paper.stderr) == (0, "")
    loaded = Controller.load(shell.folder / "P")
    assert isinstance(loaded.gate, PaperGate)
    assert loaded.gate.features == NAMES
    assert loaded.weigher is None
    assert set(loaded.calibration["tried"]) == {"aera", "asc"}
    assert (len(loaded.fitted), len(loaded.calibrated)) == (42, 18)
    assert shell("leaks", "P").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("train pool --out X --baseline asc", 2, "--paper"),
        ("train pool --out X --encoder somewhere", 2, "--paper"),
        ("train pool --out X --paper --baseline luck", 2, '"luck"'),
        ("evaluate pool --workers many", 2, 'a number of processes, "ray" or "ray:ADDRESS"'),
        ("evaluate pool --controller C --protocol holdout", 1, "60 of these questions"),
        ("leaks pool pool", 2, '"pool" is no controller'),
    ],
)
@pytest.mark.usefixtures("trained")
def test_a_wrong_call_is_one_line_and_leaves_nothing(
    shell: Shell, words: str, code: int, said: str
) -> None:
    assert said in refused(shell(*words.split()), code)
    assert not (shell.folder / "X").exists()


def test_a_certificate_is_asked_for_by_its_chance_of_error(shell: Shell) -> None:
    assert "NOT FEASIBLE" in shell("train", "pool", "--out", "S", "--certify", "0.1").stdout
    loaded = Controller.load(shell.folder / "S")
    assert (len(loaded.fitted), len(loaded.calibrated)) == (30, 30)
    assert str(loaded.policy) == "fixed-32"


@pytest.mark.usefixtures("trained")
def test_a_controller_on_its_own_questions_is_marked_in_sample(shell: Shell) -> None:
    made = shell.json("evaluate", "pool", "--controller", "C")
    label = Controller.load(shell.folder / "C").label
    assert made["controller"]["policy"] == label
    assert made["controller"]["seen"] == 60
    assert made["controller"]["abroad"] is None
    assert made["controller"]["status"].startswith("in-sample: 60 questions")
    assert label in {point["policy"] for point in made["points"]}


def test_a_pool_of_another_kind_is_remarked_upon(shell: Shell) -> None:
    said = {"answer": "7", "responses": [{"text": "\\boxed{7}", "tokens": 5}] * 4}
    lines = [{"id": each.id, "question": each.text, **said} for each in short_questions(40)]
    (shell.folder / "short.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert shell("import", "short.jsonl", "--out", "short", "--task", "gsm8k").returncode == 0
    known = ("--controller", DEMO / "controller", "--schedule", "2,4")
    told = shell.json("evaluate", "short", *known)["controller"]["abroad"]
    assert told.startswith("these questions are not like those it was taught on: they are ")
    assert "not like those" in " ".join(shell("evaluate", "short", *known).stdout.split())


@pytest.mark.usefixtures("trained")
def test_workers_change_nothing(shell: Shell) -> None:
    again = ("train", "pool", "--out", "D", "--max-loss", 0.5, "--seed", 1, "--workers", 2)
    assert shell(*again).returncode == 0
    for name in ("config.json", "model.safetensors"):
        one, other = ((shell.folder / place / name).read_bytes() for place in "CD")
        assert one == other
    known = ("evaluate", "pool", "--controller", "C", "--policies", "asc-0.9,lead-3")
    alone = shell.json(*known, "--report", "alone.html")
    assert shell.json(*known, "--report", "spread.html", "--workers", 2) == alone
    pages = [(shell.folder / f"{name}.html").read_bytes() for name in ("alone", "spread")]
    assert pages[0] == pages[1]


@pytest.mark.usefixtures("trained")
def test_pool_and_controller_pass_the_audit_and_a_planted_input_does_not(shell: Shell) -> None:
    assert shell("leaks", "C").returncode == 0
    both = shell("leaks", "C", "pool")
    assert both.returncode == 0
    told = " ".join(both.stdout.split())
    assert "the same 60: each was judged" in told
    info = " ".join(shell("info", "C").stdout.split())
    assert "taught on 60 questions, calibrated on the same, out of fold" in info
    assert "60 of 60" in told
    planted = shell.folder / "planted"
    shutil.copytree(shell.folder / "C", planted)
    config = json.loads((planted / "config.json").read_text())
    config["features"] = [*VOTE_FEATURE_NAMES[:-1], "z_next"]
    (planted / "config.json").write_text(json.dumps(config))
    done = shell("leaks", "planted")
    assert done.returncode == 1
    assert done.stderr == "aera: 2 leaks, the first is z_next\n"


LEARNED = {"aera": "", "gate": "", "asc": "+weighted"}
PAPER = dict.fromkeys(["aera", "asc", "esc", "lead", "majority", "entropy", "consensus"], "")


@pytest.mark.parametrize(("option", "families"), [((), LEARNED), (("--paper",), PAPER)])
def test_nested_writes_choices_and_savings_of_every_family(
    shell: Shell, option: tuple[str, ...], families: dict[str, str]
) -> None:
    made = shell.json("evaluate", "pool", "--protocol", "nested", "--max-loss", 0.1, *option)
    assert made["protocol"] == "nested"
    assert set(made["calibration"]) == set(families)
    assert all(len(choices) == 5 for choices in made["calibration"].values())
    assert all(choice["summary"] for choice in made["calibration"]["aera"])
    savings = {row["policy"]: row for row in made["savings"]}
    assert set(savings) == {f"{name}-calibrated{votes}" for name, votes in families.items()}
    points = {point["policy"]: point for point in made["points"]}
    for name, row in savings.items():
        assert sum(points[name]["stops"].values()) == 60
        assert row["low"] <= row["high"]
    assert {"fixed-4", "fixed-32", "aera-0.10", "aera-0.90", "oracle"} <= set(points)
    assert ("weighted-32" in points) == (not option)


@pytest.fixture
def blind(shell: Shell, tmp_path: Path) -> Path:
    """The pool without its truths."""
    copied = shutil.copytree(shell.folder / "pool", tmp_path / "blind")
    (copied / "truths.jsonl").unlink()
    return copied


def test_without_truths_the_paper_is_refused_in_one_sentence(shell: Shell, blind: Path) -> None:
    for options in (("crossfit",), ("nested", "--paper")):
        sentence = refused(shell("evaluate", blind, "--protocol", *options), 1)
        assert '"blind" has no truths, so nothing can be learned' in sentence


def test_without_truths_questions_are_judged_by_agreement(
    shell: Shell, blind: Path, tmp_path: Path
) -> None:
    files = ("--json", tmp_path / "e.json", "--report", tmp_path / "r.html")
    done = shell("evaluate", blind, "--protocol", "holdout", "--max-loss", 0.2, *files)
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "e.json").read_text())
    assert made["headline"]["status"] == "on questions kept apart, without truths"
    assert made["headline"]["changed"]["questions"] == made["pool"]["questions"]
    assert all(choice["by_agreement"] for own in made["calibration"].values() for choice in own)
    assert {point["accuracy"] for point in made["points"]} == {None}
    assert (tmp_path / "r.html").stat().st_size > 100_000


def test_too_few_questions_to_train_on_are_refused(
    shell: Shell, tmp_path: Path, row_of: Callable[..., Any], write_rows: Callable[..., Path]
) -> None:
    rows = [row_of(f"q{i}", ["1", "2"] * 4) for i in range(3)]
    file = write_rows(tmp_path / "few.jsonl", rows)
    assert shell("import", file, "--out", tmp_path / "few").returncode == 0
    for name, *words in (
        ("train", "--out", "X"),
        ("train", "--out", "X", "--paper"),
        ("evaluate", "--protocol", "nested"),
    ):
        assert "has 3 questions" in refused(shell(name, tmp_path / "few", *words), 1)
    assert not (shell.folder / "X").exists()
