import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_questions import SCHEDULE, TASK, made_records, made_table
from small_study import Bench

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


def test_a_built_controller_holds_the_calibrated_gate(
    bench: Bench, built: Built, tmp_path: Path
) -> None:
    controller = built.controller
    assert controller.policy.threshold == built.choice.setting
    assert controller.policy.gate is controller.gate
    assert (controller.task, controller.schedule) == (bench.pool.task, bench.pool.schedule)
    assert controller.card.startswith("---\nlibrary_name: aera")
    assert f"`{controller.policy}`" in controller.card
    assert "**Learned from** 42 questions, **calibrated on** 18 others" in controller.card
    controller.save(tmp_path)
    loaded = Controller.load(tmp_path)
    assert loaded.label == controller.label
    for record in bench.records.records[:5]:
        one, other = (
            [gate.p_continue(prefix) for prefix in record.prefixes(bench.pool.schedule)]
            for gate in (loaded.gate, controller.gate)
        )
        assert one == other


def test_fitting_and_calibration_use_different_questions(bench: Bench, built: Built) -> None:
    controller, questions = built.controller, bench.pool.questions
    *_, tune = split_rows(np.arange(60), (0.55, 0.15, 0.3), groups=np.arange(60), seed=0)
    asked = [questions[bench.table.trajectories.question_ids[row]] for row in tune]
    assert controller.calibrated == {question_hashes(q)[0] for q in asked}
    assert not controller.fitted & controller.calibrated
    assert (len(controller.fitted), built.choice.questions) == (42, 18)
    assert controller.seen == {question_hashes(q)[0] for q in questions.values()}
    assert built.choice.reference == pytest.approx(bench.table.grades[tune, -1].mean())


def test_an_infeasible_limit_saves_the_full_budget(
    bench: Bench, paper: PaperLearner, tmp_path: Path
) -> None:
    made = build(paper, bench.table, LossLimit(0.02, alpha=0.1))
    assert made.controller.policy == Fixed(32)
    assert not made.choice.feasible
    made.controller.save(tmp_path)
    assert Controller.load(tmp_path).policy == Fixed(32)
    told = json.loads((tmp_path / "calibration.json").read_text())
    assert (told["feasible"], told["setting"]) == (False, None)
    assert told["needed"] >= 114
    assert "NOT FEASIBLE" in (tmp_path / "README.md").read_text()


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


@pytest.mark.parametrize("feasible", [True, False])
def test_a_taught_controller_is_the_same_when_loaded(
    table: Dataset, taught: Built, feasible: bool, tmp_path: Path
) -> None:
    made = taught.controller if feasible else replace(taught.controller, policy=Fixed(8))
    made.save(tmp_path)
    loaded = Controller.load(tmp_path)
    assert loaded.weigher.weights(table.traits).tobytes() == (
        made.weigher.weights(table.traits).tobytes()
    )
    for record in made_records()[0][:10]:
        runs = [c.start(record.question) for c in (made, loaded)]
        for run in runs:
            while run.want:
                run.feed(record.responses[run.delivered : run.delivered + run.want])
        assert runs[0].allocation == runs[1].allocation


def test_an_impossible_certificate_keeps_the_full_budget_and_the_weights(table: Dataset) -> None:
    made = build(LEARNER, table, limit_for(LEARNER, 0.02, 0.1))
    assert made.controller.policy == Fixed(8)
    assert made.controller.weigher is not None
    assert "NOT FEASIBLE" in made.controller.card
    run = made.controller.start(table.records[0].question)
    assert run.want == 8
