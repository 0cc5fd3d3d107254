import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_course import SCHEDULE, made_course
from small_study import Bench

from aera.baselines import ASC
from aera.controller import Controller, question_hash
from aera.errors import ProtocolError
from aera.gate import Gated, VoteGate
from aera.lab import weighing
from aera.lab.building import Built, build_controller, build_paper_controller
from aera.lab.dials import ASC_DIAL, GATE, Dial
from aera.lab.evaluation import evaluate
from aera.lab.learning import Course, Votes, open_course
from aera.lab.protocols import Demand, split_rows
from aera.policy import Fixed


def test_a_built_controller_holds_the_calibrated_gate(bench: Bench, built: Built) -> None:
    controller = built.controller
    assert isinstance(controller.policy, Gated)
    assert controller.policy.threshold == built.choice.setting
    assert controller.policy.gate is controller.gate
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
    gate = built.controller.gate
    assert loaded.gate is not None
    assert gate is not None
    for ballot in bench.ballots[:5]:
        chances = [loaded.gate.p_continue(p) for p in ballot.prefixes(bench.pool.schedule)]
        again = [gate.p_continue(p) for p in ballot.prefixes(bench.pool.schedule)]
        assert chances == again
    assert str(loaded.policy) == str(built.controller.policy)


@pytest.mark.usefixtures("quick")
def test_an_infeasible_demand_saves_the_full_budget(bench: Bench, tmp_path: Path) -> None:
    made = build_paper_controller(bench.study, bench.pool, demand=Demand(0.02, alpha=0.1))
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
    assert "**Learned from** 42 questions, **calibrated on** 18 others" in built.card
    assert "the paper's gate, fitted in" in built.card


@pytest.mark.usefixtures("quick")
def test_a_seed_builds_the_same_controller_twice(bench: Bench) -> None:
    one, two, other = (
        build_paper_controller(bench.study, bench.pool, demand=Demand(0.5), seed=s)
        for s in (4, 4, 5)
    )
    gates = [made.controller.gate for made in (one, two)]
    assert len({gate.identity for gate in gates if gate}) == 1
    assert one.choice == two.choice
    assert one.controller.fitted != other.controller.fitted


def test_too_few_questions_are_refused(bench: Bench) -> None:
    few = replace(bench.study, trajectories=bench.study.trajectories.subset(np.arange(19)))
    with pytest.raises(ProtocolError, match="has 19 questions"):
        build_paper_controller(few, bench.pool, demand=Demand())


# --- learned votes --------------------------------------------------------------------------------


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighing, "EPOCHS", 4)


@pytest.fixture(scope="module")
def course() -> Course:
    return made_course()


@pytest.fixture(scope="module")
def taught(course: Course) -> Built:
    """A controller of questions whose responses tell whether they are right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighing, "EPOCHS", 4)
        return build_controller(course, demand=Demand(0.1))


def test_without_a_certificate_every_question_teaches(course: Course, taught: Built) -> None:
    controller = taught.controller
    questions = {question_hash(ballot.record.question) for ballot in course.marked.ballots}
    assert controller.fitted == questions
    assert controller.calibrated == frozenset()
    assert taught.choice.questions == 60
    assert "**Learned from** 60 questions, **calibrated on** the same, out of fold" in taught.card


def test_the_story_says_what_was_kept(taught: Built) -> None:
    assert taught.controller.weigher is not None
    assert taught.story.startswith("learned weights gain +")
    assert taught.story in taught.card
    assert taught.controller.calibration["learned"] == taught.story
    assert "\n" not in taught.story


def test_a_taught_controller_keeps_its_demand_on_other_questions(taught: Built) -> None:
    """Its weights lift the accuracy above the plain full budget, for less."""
    controller, other = taught.controller, made_course(7)
    assert controller.weigher is not None
    rows = np.arange(60)
    weights = controller.weigher.weights(other.marked.traits)
    known = {"task": other.task, "schedule": SCHEDULE, "truths": other.truths}
    ours, full = (
        evaluate(other.marked.reweighed(rows, w), [policy], **known).points[0]
        for w, policy in ((weights, controller.policy), (None, Fixed(8)))
    )
    assert ours.accuracy > full.accuracy
    assert ours.tokens < full.tokens


@pytest.mark.parametrize("feasible", [True, False])
def test_a_taught_controller_is_the_same_when_loaded(
    course: Course, taught: Built, feasible: bool, tmp_path: Path
) -> None:
    made = taught.controller if feasible else replace(taught.controller, policy=Fixed(8))
    made.save(tmp_path, card=taught.card)
    loaded = Controller.load(tmp_path)
    assert made.weigher is not None
    assert loaded.weigher is not None
    seen = course.marked.traits
    assert loaded.weigher.weights(seen).tobytes() == made.weigher.weights(seen).tobytes()
    for ballot in course.marked.ballots[:10]:
        runs = [c.start(ballot.record.question) for c in (made, loaded)]
        for run in runs:
            while run.want:
                run.feed(ballot.record.responses[run.delivered : run.delivered + run.want])
        assert runs[0].allocation == runs[1].allocation


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("dial", [ASC_DIAL, GATE])
def test_the_policy_is_of_the_dial_that_saved_more(
    course: Course, monkeypatch: pytest.MonkeyPatch, dial: Dial, tmp_path: Path
) -> None:
    monkeypatch.setattr(Votes, "saving", lambda self, asked: float(asked is dial))
    made = build_controller(course, demand=Demand(0.1))
    policy = made.controller.policy
    assert isinstance(policy, ASC if dial is ASC_DIAL else Gated)
    assert isinstance(made.controller.gate, VoteGate)
    assert made.choice.dial == dial.name
    made.controller.save(tmp_path)
    assert str(Controller.load(tmp_path).policy) == str(policy)


@pytest.mark.usefixtures("_short")
def test_a_certificate_comes_from_questions_that_taught_nothing(course: Course) -> None:
    made = build_controller(course, demand=Demand(0.3, alpha=0.2), seed=3)
    controller = made.controller
    assert (len(controller.fitted), len(controller.calibrated)) == (30, 30)
    assert not controller.fitted & controller.calibrated
    assert made.choice.questions == 30
    assert made.choice.alpha == 0.2
    assert "**Learned from** 30 questions, **calibrated on** 30 others" in made.card


@pytest.mark.usefixtures("_short")
def test_an_impossible_certificate_keeps_the_full_budget_and_the_weights(course: Course) -> None:
    made = build_controller(course, demand=Demand(0.02, alpha=0.1))
    assert made.controller.policy == Fixed(8)
    assert made.controller.weigher is not None
    assert "NOT FEASIBLE" in made.card
    run = made.controller.start(course.marked.ballots[0].record.question)
    assert run.want == 8


@pytest.mark.usefixtures("_short")
def test_noise_leaves_plain_votes() -> None:
    made = build_controller(made_course(0, telling=False), demand=Demand(0.1))
    assert made.controller.weigher is None
    assert "do not clearly gain, so votes are plain" in made.story


@pytest.mark.usefixtures("_short")
def test_real_responses_make_a_controller(bench: Bench, tmp_path: Path) -> None:
    made, again = (
        build_controller(
            open_course(bench.pool, bench.truths, ballots=bench.ballots), demand=Demand(0.05)
        )
        for _ in range(2)
    )
    assert made.controller.gate is not None
    assert again.controller.gate is not None
    assert made.controller.gate.identity == again.controller.gate.identity
    assert (made.choice, made.card) == (again.choice, again.card)
    made.controller.save(tmp_path, card=made.card)
    loaded = Controller.load(tmp_path)
    assert (loaded.task, loaded.schedule) == (bench.pool.task, bench.pool.schedule)
    assert loaded.seen == {question_hash(q) for q in bench.pool.questions.values()}
