import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lab_fixtures import Bench
from made_questions import SCHEDULE, TASK, made_table

from aera.lab import LossLimit, PaperLearner, VoteLearner, build, evaluate, limit_for
from aera.lab.build import BUILD_SHARES, Built
from aera.lab.learning.folds import split_rows
from aera.lab.replay import Dataset
from aera.policies.rules import Fixed
from aera.pools.pool import HeldRecords
from aera.solving.controller import Controller, question_hashes


@pytest.fixture(scope="module")
def paper(quick: PaperLearner) -> PaperLearner:
    return replace(quick, shares=BUILD_SHARES)


def test_a_built_controller_holds_the_calibrated_gate(bench: Bench, built: Built) -> None:
    controller = built.controller
    assert controller.policy.threshold == built.choice.setting
    assert controller.policy.gate is controller.gate
    assert (controller.task, controller.schedule) == (bench.pool.task, bench.pool.schedule)
    assert controller.card.startswith("---\nlibrary_name: aera")
    assert f"`{controller.policy}`" in controller.card
    assert "**Learned from** 42 questions, **calibrated on** 18 others" in controller.card


def test_fitting_and_calibration_use_different_questions(bench: Bench, built: Built) -> None:
    controller, questions = built.controller, bench.pool.questions
    *_, tune = split_rows(np.arange(60), (0.55, 0.15, 0.3), groups=np.arange(60), seed=0)
    asked = [questions[bench.table.trajectories.question_ids[row]] for row in tune]
    assert controller.calibrated == {question_hashes(q)[0] for q in asked}
    assert not controller.fitted & controller.calibrated
    assert (len(controller.fitted), built.choice.questions) == (42, 18)
    assert controller.seen == {question_hashes(q)[0] for q in questions.values()}
    assert built.choice.reference == pytest.approx(bench.table.grades[tune, -1].mean())


def test_a_gate_steps_aside_to_the_baseline_that_saves_most(
    bench: Bench, paper: PaperLearner
) -> None:
    several = [(), ("asc",), ("esc",), ("asc", "esc")]
    *alone, made = [build(paper, bench.table, LossLimit(0.05), baselines=b) for b in several]
    assert made.choice.token_saving == max(each.choice.token_saving for each in alone)
    assert set(made.controller.calibration["tried"]) == {"aera", "asc", "esc"}
    assert made.controller.calibration["family"] == made.choice.family


def test_a_certificate_is_shared_out_between_all_that_were_tried(
    bench: Bench, paper: PaperLearner
) -> None:
    made = build(paper, bench.table, LossLimit(0.5, alpha=0.3), baselines=("asc", "esc"))
    assert made.choice.alpha == pytest.approx(0.1)


# --- learned votes --------------------------------------------------------------------------------


LEARNER = VoteLearner()
LIMIT = limit_for(LEARNER, 0.1)


@pytest.fixture(scope="module")
def table() -> Dataset:
    return made_table()


@pytest.fixture(scope="module")
def taught(table: Dataset) -> Built:
    """A controller of questions whose responses tell whether they are right."""
    return build(LEARNER, table, LIMIT)


def test_a_taught_controller_keeps_its_limit_on_other_questions(taught: Built) -> None:
    """Its weights lift the accuracy above the plain full budget, for less."""
    controller, other = taught.controller, made_table(7)
    seen = other.replay(np.arange(60), controller.weigher.weights(other.traits))
    ours, full = (
        evaluate(
            HeldRecords(records, TASK, SCHEDULE), [policy], truths=other.settings.truths
        ).points[0]
        for records, policy in ((seen.records, controller.policy), (other.records, Fixed(8)))
    )
    assert ours.accuracy > full.accuracy
    assert ours.tokens < full.tokens


def test_an_impossible_certificate_keeps_the_full_budget_and_the_weights(
    table: Dataset, tmp_path: Path
) -> None:
    build(LEARNER, table, limit_for(LEARNER, 0.02, 0.1)).controller.save(tmp_path)
    loaded = Controller.load(tmp_path)
    assert (loaded.policy, loaded.start(table.records[0].question).want) == (Fixed(8), 8)
    assert loaded.weigher is not None
    told = json.loads((tmp_path / "calibration.json").read_text())
    assert (told["feasible"], told["setting"]) == (False, None)
    assert told["needed"] >= 114
    assert "NOT FEASIBLE" in (tmp_path / "README.md").read_text()
