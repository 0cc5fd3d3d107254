import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import Bench

from aera.controller import Controller, question_hash
from aera.errors import ProtocolError
from aera.gate import Gated
from aera.lab.building import Built, build_controller
from aera.lab.protocols import Demand, split_rows
from aera.policy import Fixed


def test_a_built_controller_holds_the_calibrated_gate(bench: Bench, built: Built) -> None:
    controller = built.controller
    assert isinstance(controller.policy, Gated)
    assert controller.policy.threshold == built.choice.setting
    assert controller.policy.gate is controller.gate is built.fit.gate
    assert (controller.task, controller.schedule) == (bench.pool.task, bench.pool.schedule)


def test_fitting_and_calibration_use_different_questions(bench: Bench, built: Built) -> None:
    controller = built.controller
    assert not controller.fitted & controller.calibrated
    assert (len(controller.fitted), len(controller.calibrated)) == (42, 18)
    questions = bench.pool.questions.values()
    assert controller.seen == {question_hash(q) for q in questions}
    assert built.choice.questions == 18


def test_the_calibrated_questions_are_those_calibration_saw(bench: Bench, built: Built) -> None:
    *_, tune = split_rows(np.arange(60), (0.55, 0.15, 0.3), seed=0)
    asked = [bench.pool.questions[bench.study.trajectories.question_ids[row]] for row in tune]
    assert built.controller.calibrated == {question_hash(q) for q in asked}
    full = bench.study.grades[tune, -1].mean()
    assert built.choice.reference == pytest.approx(full)


def test_a_built_controller_decides_the_same_when_loaded(
    bench: Bench, built: Built, tmp_path: Path
) -> None:
    built.controller.save(tmp_path, card=built.card)
    loaded = Controller.load(tmp_path)
    assert loaded.gate is not None
    for ballot in bench.ballots[:5]:
        chances = [loaded.gate.p_continue(p) for p in ballot.prefixes(bench.pool.schedule)]
        again = [built.fit.gate.p_continue(p) for p in ballot.prefixes(bench.pool.schedule)]
        assert chances == again
    assert str(loaded.policy) == str(built.controller.policy)


@pytest.mark.usefixtures("quick")
def test_an_infeasible_demand_saves_the_full_budget(bench: Bench, tmp_path: Path) -> None:
    made = build_controller(bench.study, bench.pool, demand=Demand(0.02, alpha=0.1))
    assert made.controller.policy == Fixed(32)
    assert not made.choice.feasible
    made.controller.save(tmp_path, card=made.card)
    assert Controller.load(tmp_path).policy == Fixed(32)
    told = json.loads((tmp_path / "calibration.json").read_text())
    assert (told["feasible"], told["setting"]) == (False, None)
    assert told["needed"] >= 114
    assert "NOT FEASIBLE" in (tmp_path / "README.md").read_text()


def test_the_card_says_what_it_was_made_from(built: Built) -> None:
    assert built.card.startswith("---\nlibrary_name: aera")
    assert f"`{built.controller.policy}`" in built.card
    assert built.choice.verdict in built.card
    assert "**Fitted on** 42 and **calibrated on** 18" in built.card


@pytest.mark.usefixtures("quick")
def test_a_seed_builds_the_same_controller_twice(bench: Bench) -> None:
    one, two, other = (
        build_controller(bench.study, bench.pool, demand=Demand(0.5), seed=s) for s in (4, 4, 5)
    )
    assert one.fit.gate.identity == two.fit.gate.identity
    assert one.choice == two.choice
    assert one.controller.fitted != other.controller.fitted


def test_too_few_questions_are_refused(bench: Bench) -> None:
    few = replace(bench.study, trajectories=bench.study.trajectories.subset(np.arange(19)))
    with pytest.raises(ProtocolError, match="has 19 questions"):
        build_controller(few, bench.pool, demand=Demand())
