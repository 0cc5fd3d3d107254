"""Every learner by every protocol: who is judged, by what, and who may see what."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from commands import refusal
from lab_fixtures import Bench
from made_questions import (
    EVERY,
    GOALS,
    LEARNERS,
    SCHEDULE,
    TASK,
    TRUTHS,
    bytes_of,
    data_of,
    judge,
    judged_by,
    made_records,
    prepared,
)

from aera import Schedule, lab
from aera.errors import ProtocolError
from aera.lab.learning import paper
from aera.pools.pool import HeldRecords
from aera.solving.controller import question_hashes

VOTES = ("labels", "majority", "scores")
JUDGED = {"crossfit": 200, "nested": 200, "holdout": 80}
CASES = [(p, t) for p in JUDGED for t in LEARNERS if p != "crossfit" or t == "paper"]
each_case = pytest.mark.parametrize(("protocol", "teacher"), CASES)
each_teacher = pytest.mark.parametrize("teacher", LEARNERS)


# --- learner by protocol --------------------------------------------------------------------------


@each_case
def test_each_question_is_judged_once_and_by_its_own_fold(protocol: str, teacher: str) -> None:
    done, known = judged_by(protocol, teacher), data_of(teacher)
    assert len({*done.rows.tolist()}) == len(done.rows) == JUDGED[protocol]
    names = tuple(known.questions[row].id for row in done.rows)
    assert done.trajectories.question_ids == names
    if teacher in VOTES:
        assert [record.question.id for record in done.measured.records] == [*names]
    for fold, model in enumerate(done.models):
        own = done.folds == fold
        seen, families = model.values(known, done.rows[own]), model.families(GOALS[teacher])
        for name, values in seen.values.items():
            np.testing.assert_array_equal(done.measured.values[name][own], values)
        for name, choices in done.choices.items():
            family, choice = families[name], choices[fold]
            assert choice.family == family.name
            wanted = choice.stops(family, seen.values[family.name])
            np.testing.assert_array_equal(done.stops[name][own], wanted)


@each_case
def test_what_is_judged_shapes_nothing_that_judges_it(protocol: str, teacher: str) -> None:
    """Other responses and other truths in the judged fold: the model's bytes stay."""
    before = judged_by(protocol, teacher)
    own = before.rows if protocol == "holdout" else np.flatnonzero(before.folds == 0)
    after = judge(protocol, teacher, prepared(teacher, own))
    assert bytes_of(before.models[0]) == bytes_of(after.models[0])
    for name in before.choices:
        assert before.choices[name][0] == after.choices[name][0]
    if protocol != "holdout":
        assert bytes_of(before.models[1]) != bytes_of(after.models[1])


@pytest.mark.parametrize("protocol", JUDGED)
def test_another_seed_deals_other_questions(protocol: str) -> None:
    one, other = (judge(protocol, "paper", data_of("paper"), seed=seed) for seed in (1, 2))
    before = judged_by(protocol, "paper")
    assert one.p_continue.tobytes() == before.p_continue.tobytes()
    assert one.choices == before.choices
    assert (one.rows.tolist(), one.folds.tolist()) != (other.rows.tolist(), other.folds.tolist())


@each_teacher
def test_too_little_to_learn_from_is_refused(teacher: str) -> None:
    learner, goal, records = LEARNERS[teacher], GOALS[teacher], made_records(questions=20)[0]
    for some, schedule, why in (
        (records[:1], SCHEDULE, "has 1 questions"),
        (records[:19], SCHEDULE, "has 19 questions"),
        (records, Schedule((8,)), "one checkpoint"),
    ):
        few = learner.prepare(HeldRecords(some, TASK, schedule), TRUTHS)
        for attempt in (
            lambda few=few: learner.fit(few, np.arange(len(few)), seed=0),
            lambda few=few: lab.crossfit(learner, few),
            lambda few=few: lab.nested(learner, few, [goal]),
            lambda few=few: lab.holdout(learner, few, goal),
        ):
            assert why in refusal(ProtocolError, attempt)


# --- what a judgement shows -----------------------------------------------------------------------


@pytest.mark.parametrize("teacher", VOTES)
def test_a_point_is_the_mean_over_orders_with_the_stored_one_beside(teacher: str) -> None:
    done = judged_by("nested", teacher)
    point, stops = done.point("aera"), done.stops["aera"]
    spent = np.take_along_axis(done.measured.tokens, stops[..., None], 2)[..., 0]
    np.testing.assert_allclose(point.spent, spent[:, 1:].mean(axis=1))
    np.testing.assert_allclose(point.stored.spent, spent[:, 0])
    told = point.as_json()
    assert told["tokens"] == pytest.approx(spent[:, 1:].mean(), abs=1e-4)
    assert told["stored_order"]["tokens"] == pytest.approx(spent[:, 0].mean(), abs=1e-4)
    assert sum(told["stops"].values()) == len(done.rows)
    assert [each.responses for each in done.fixed()] == [*SCHEDULE]


def test_several_goals_give_what_each_gives_alone() -> None:
    alone, learner = judged_by("nested", "paper"), LEARNERS["paper"]
    goals = [lab.LossLimit(0.3), GOALS["paper"], lab.LossLimit(0.001, alpha=0.1)]
    loose, one, never = lab.nested(learner, data_of("paper"), goals, folds=3, seed=1)
    assert one.p_continue.tobytes() == alone.p_continue.tobytes()
    assert one.choices == alone.choices != loose.choices
    for name, choices in never.choices.items():  # a limit nobody meets keeps the full budget
        assert not any(choice.feasible for choice in choices)
        assert never.point(name).responses == SCHEDULE.last


# --- the paper's crossfit -------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_the_judged_fold_ends_the_fit_unless_the_crossfit_is_clean(
    clean: bool, bench: Bench, quick: lab.PaperLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate and a one-shot head per fold, of 40 questions at three checkpoints or at the first."""
    sizes, fit_network = [], paper.fit_network

    def watched(train: Any, held: Any, *, outputs: int, **rest: Any) -> Any:
        sizes.append((len(train[1]), len(held[1]), outputs))
        return fit_network(train, held, outputs=outputs, **rest)

    monkeypatch.setattr(paper, "fit_network", watched)
    learner = replace(quick, one_shot=True)
    done = lab.crossfit(learner, bench.table, folds=3, seed=1, clean=clean)
    fit, held = (34, 6) if clean else (40, 20)
    assert sizes == [(3 * fit, 3 * held, 1), (fit, held, 4)] * 3
    assert np.isfinite(done.p_continue).all()
    assert done.one_shot().policy == "one-shot"
    assert lab.crossfit(quick, bench.table, folds=2).one_shot() is None


# --- controllers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("teacher", VOTES)
def test_a_built_controller_holds_what_was_learned_from_its_own_rows(teacher: str) -> None:
    learner, data = LEARNERS[teacher], data_of(teacher)
    made = lab.build(learner, data, GOALS[teacher], seed=0)
    hashes = {question_hashes(question)[0] for question in data.questions}
    assert made.controller.fitted == made.controller.calibrated == hashes
    assert made.choice.questions == 200
    assert (made.controller.gate is None) == (teacher == "majority")
    assert made.controller.calibration["learned"] in made.controller.card
    both = "**Learned from** 200 questions, **calibrated on** the same, out of fold"
    assert both in made.controller.card
    assert made.controller.calibration["out_of_fold"] is True


@pytest.mark.parametrize("teacher", ["labels", "majority"])
def test_a_certificate_comes_from_questions_that_taught_nothing(teacher: str) -> None:
    learner, data = LEARNERS[teacher], data_of(teacher)
    goal = lab.limit_for(learner, 0.3, 0.2, by_agreement=teacher == "majority")
    made = lab.build(learner, data, goal, seed=3).controller
    assert (len(made.fitted), len(made.calibrated)) == (100, 100)
    assert "**Learned from** 100 questions, **calibrated on** 100 others" in made.card
    assert not made.fitted & made.calibrated
    fit, _, tune = learner.split(data, EVERY, certified=True, seed=3)
    turned = prepared(teacher, tune)
    again = lab.build(learner, turned, goal, seed=3).controller
    assert made.calibration["learned"] == again.calibration["learned"]
    one, other = (learner.fit(each, fit, seed=3) for each in (data, turned))
    assert bytes_of(one) == bytes_of(other)
