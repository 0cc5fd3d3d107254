"""Training and evaluating from the command line: stated policies, checkpoints, money, best-of-n."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import refusal
from commands import said as call
from made_questions import TASK, made_records

from aera import Controller, Fixed, Schedule
from aera.errors import AeraError
from aera.lab import Truths
from aera.policies.gate import Gated
from aera.pools.pool import Plan, write_pool

JUDGE = """
made = []

class Short:
    def __init__(self):
        made.append(self)

    def score(self, question, responses):
        return [1 / len(response.text) for response in responses]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pool and a scorer, in which commands are run."""
    voted, answers = made_records()
    (tmp_path / "pool").mkdir()
    pool = write_pool(tmp_path / "pool", [*voted], Plan(TASK))
    Truths(dict(answers)).save(pool.path)
    (tmp_path / "training_judges.py").write_text(JUDGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "training_judges", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def refused(*words: object) -> str:
    """The one sentence with which a command is refused, which leaves nothing behind."""
    said = refusal(AeraError, call, *words)
    assert not Path("X").exists()
    return said


def evaluated(*words: object) -> dict[str, Any]:
    call("evaluate", "pool", *words, "--json", "out.json")
    made: dict[str, Any] = json.loads(Path("out.json").read_text("utf-8"))
    return made


def points_of(made: dict[str, Any]) -> dict[str, Any]:
    return {point["policy"]: point for point in made["points"]}


pytestmark = pytest.mark.usefixtures("folder")
SCORED = ("--scorer", "training_judges:Short")
TRAIN, JUDGED = ("train", "pool", "--out", "X"), ("evaluate", "pool", *SCORED)


# --- stated policies ------------------------------------------------------------------------------


def test_a_stated_policy_on_weighted_votes_is_evaluated_with_its_own_labels() -> None:
    call("train", "pool", "--out", "C", "--policy", "asc-0.9+weighted", "--max-samples", 6)
    assert Controller.load("C").schedule == Schedule((4, 6))
    labels = "fixed-4,weighted-4,aera-0.2,asc-0.8+weighted,asc-0.9+weighted"
    asked = ("--controller", "C", "--policies", labels, "--report", "page.html")
    points = points_of(evaluated(*asked))
    assert "asc-0.8+weighted" in Path("page.html").read_text("utf-8")
    assert {"fixed-4", "weighted-4", "weighted-6", "aera-0.20", "asc-0.8+weighted"} < set(points)
    assert points["asc-0.9+weighted"]["kind"] == "controller"
    assert points["weighted-4"]["in_sample"]
    assert points["weighted-4"]["accuracy"] > points["fixed-4"]["accuracy"]
    assert "weights belong to a controller" in refused("evaluate", "pool", "--policies", labels)


def test_training_uses_the_checkpoints_that_are_asked_for() -> None:
    call("train", "pool", "--out", "C", "--policy", "aera-0.4", "--schedule", "1,3,5")
    loaded = Controller.load("C")
    assert loaded.schedule == Schedule((1, 3, 5))
    assert isinstance(loaded.policy, Gated)
    assert evaluated("--max-samples", 5)["pool"]["schedule"] == [4, 5]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((*TRAIN, "--policy", "asc-0.9", "--max-loss", 0.1), "nothing to choose"),
        ((*TRAIN, "--policy", "asc-0.9", "--certify", 0.1), "nothing to choose"),
        ((*TRAIN, "--max-samples", 9), "from 1 to 8"),
        ((*TRAIN, "--price", 0.1), "go with --scorer"),
        ((*TRAIN, *SCORED, "--paper"), "without --paper"),
        ((*TRAIN, *SCORED, "--certify", 0.1), "without --certify"),
        ((*TRAIN, *SCORED, "--max-loss", 0.1), "without --max-loss"),
        ((*TRAIN, *SCORED, "--price", -1), "0 or more"),
        ((*TRAIN, *SCORED, "--judge", "luck"), "truth, score"),
        ((*TRAIN, *SCORED, "--policy", "asc-0.9"), "best-of-n has none"),
        ((*TRAIN, "--prices", "1"), "a prompt and a completion price"),
        ((*TRAIN, "--prices", "1,-1"), "0 or more"),
        ((*JUDGED, "--paper"), "without --paper"),
        ((*JUDGED, "--protocol", "crossfit"), "without --protocol crossfit"),
        ((*JUDGED, "--rule", "re2-vote"), "without --rule"),
        ((*JUDGED, "--certify", 0.1), "without --certify"),
        ((*JUDGED, "--max-loss", 0.1), "without --max-loss"),
        ((*JUDGED, "--report", "page.html"), "use --json"),
        ((*JUDGED, "--policies", "asc-0.9"), "best-of-n has none"),
        ((*JUDGED, "--policies", "aera-0.3"), "belongs to a --controller"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[object, ...], reason: str) -> None:
    assert reason in refused(*words)


def test_without_truths_too_few_questions_keep_the_full_budget_and_say_how_many_it_takes() -> None:
    """No answer of these sixty changes at the safest setting, and sixty still cannot show 1 %."""
    said = call("train", "pool", "--out", "C", "--without-truths", "--max-loss", 0.01)
    assert "weights taught by the clear votes" in said
    assert "no setting could be seen to change at most 1 % on 60 questions (it takes about" in said
    assert "so the full budget is kept" in said
    assert "a certificate of 1 % takes 460 questions at least" in said
    assert "expect other ones to" not in said
    assert isinstance(Controller.load("C").policy, Fixed)


# --- money ----------------------------------------------------------------------------------------


def test_money_is_told_and_what_prompts_nobody_recorded() -> None:
    assert "money" not in call("evaluate", "pool")
    prices = ("--prices", "0.5,1.5")
    said = call("train", "pool", "--out", "C", "--policy", "asc-0.9", *prices)
    assert "% of what fixed-" in said
    for told in (said, call("evaluate", "pool", *prices)):
        assert "60 of 60 questions recorded" in told
        assert "lead-4 costs" in told or "asc-0.9 costs" in told
    assert "60 of 60 questions" not in call("evaluate", "pool", "--prices", "0,1.5")


# --- best-of-n ------------------------------------------------------------------------------------


def test_best_of_n_is_trained_saved_and_evaluated() -> None:
    """By one scorer, which may be a model that takes long to load."""
    said = call("train", "pool", "--out", "C", *SCORED, "--price", 0.3)
    assert len(sys.modules["training_judges"].made) == 1
    assert "the truth is the judge" in said
    assert "worth most at a price of 0.3" in said
    told = json.loads(Path("C/calibration.json").read_text("utf-8"))
    assert told["price"] == 0.3
    assert "max_loss" not in told
    assert json.loads(Path("C/config.json").read_text("utf-8"))["scorer"] == {"name": "Short"}
    made = evaluated("--controller", "C", *SCORED)
    assert made["best_of_n"] == {"scorer": "Short", "judge": "truth", "price": 0.3}
    points = points_of(made)
    assert points[made["controller"]["policy"]]["kind"] == "controller"
    assert points["fixed-8"]["accuracy"] > 50
    assert "made for a scorer" in refused("evaluate", "pool", "--controller", "C")


def test_the_judge_of_a_returned_response_is_the_truth_or_its_score() -> None:
    """Here short responses are right, and the shortest is worth one over its length."""
    right, scored = (points_of(evaluated(*SCORED, "--judge", who)) for who in ("truth", "score"))
    assert set(right) == set(scored) == {"fixed-4", "fixed-8", "oracle"}
    assert right["fixed-8"]["accuracy"] >= right["fixed-4"]["accuracy"] > 50
    assert "reward" not in right["fixed-8"]
    assert scored["fixed-8"]["accuracy"] is None
    assert scored["fixed-8"]["reward"] == pytest.approx(0.06, abs=0.02)
    assert "reward" in call("evaluate", "pool", *SCORED, "--judge", "score")


def test_without_truths_the_score_is_the_reward(folder: Path) -> None:
    (folder / "pool" / "truths.jsonl").unlink()
    made = evaluated(*SCORED, "--protocol", "nested")
    assert made["best_of_n"]["judge"] == "score"
    assert set(made["calibration"]) == {"aera", "score"}
    assert {"aera-calibrated", "score-calibrated", "oracle"} < set(points_of(made))
    assert any("utility" in line for line in made["outcome"])
    assert "has no truths" in refused("evaluate", "pool", *SCORED, "--judge", "truth")
    call("train", "pool", "--out", "C", *SCORED)
    assert "has no truths" in refused("train", "pool", "--out", "X", "--paper")


def test_no_policy_is_worth_more_than_the_oracle_of_best_of_n() -> None:
    points = points_of(evaluated(*SCORED, "--protocol", "holdout", "--price", 0.5))
    best = points["oracle"]["utility"]
    alone = [point for point in points.values() if "stored_order" not in point]  # as the oracle is
    assert all(point["utility"] <= best + 1e-9 for point in alone)
