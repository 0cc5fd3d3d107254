"""Stated policies: what is learned for them, what is said of them, and which are refused."""

from pathlib import Path

import numpy as np
import pytest
from made_questions import SCHEDULE, TASK, Long, made_records, table_of

from aera import BestOfN, Controller, Schedule, parse_policy
from aera.errors import ProtocolError, UsageError
from aera.lab import PaperLearner, Truths, VoteLearner, evaluate
from aera.lab.asked import check_label
from aera.lab.build import Built, build_stated
from aera.lab.calibrating.families import ASC_FAMILY, GATE_FAMILY
from aera.lab.judging import Learner
from aera.pools.pool import HeldRecords

LEARNER = VoteLearner()
VOTED, ANSWERS = made_records()
RECORDS, TRUTHS = HeldRecords(VOTED, TASK, SCHEDULE), Truths(dict(ANSWERS))


def stated(label: str, learner: Learner = LEARNER, *, schedule: Schedule = SCHEDULE) -> Built:
    return build_stated(label, learner, RECORDS, TRUTHS, schedule=schedule)


@pytest.mark.parametrize("label", ["fixed-4", "esc-3+min4", "first-valid", "entropy-0.3"])
def test_a_plain_policy_is_kept_as_it_stands_and_said_to_be_stated(
    label: str, tmp_path: Path
) -> None:
    stated(label).controller.save(tmp_path)
    loaded = Controller.load(tmp_path)
    assert (loaded.label, loaded.gate, loaded.weigher) == (label, None, None)
    assert loaded.seen == frozenset()
    point, told = evaluate(RECORDS, [parse_policy(label)], truths=TRUTHS)[label], loaded.calibration
    assert point.accuracy == pytest.approx(100 * told["accuracy"])
    assert point.token_saving == pytest.approx(100 * told["token_saving"])
    assert (told["learned"], told["stated"]) == ("nothing was learned", True)
    assert told["full_budget"] == f"fixed-{SCHEDULE.last}"
    assert told["gain_low"] <= told["gain"] <= told["gain_high"]
    assert "stated, not chosen" in told["summary"]
    assert told["summary"] in loaded.card
    assert "max_loss" not in told


def test_a_gate_runs_with_the_stated_threshold_and_is_judged_out_of_fold(tmp_path: Path) -> None:
    built = stated("aera-0.37")
    built.controller.save(tmp_path)
    loaded = Controller.load(tmp_path)
    assert loaded.policy.threshold == 0.37
    assert loaded.weigher is not None
    table = table_of(VOTED, ANSWERS)
    model = LEARNER.fit(table, np.arange(60), seed=0)
    columns = GATE_FAMILY.stops(model.own.values["aera"], 0.37)
    np.testing.assert_array_equal(built.point.columns, columns[:, 0])
    assert len(loaded.fitted) == 60
    assert built.controller.calibration["out_of_fold"]


def test_weighted_votes_are_those_of_the_learner_out_of_fold(tmp_path: Path) -> None:
    """The figures are the learner's own, which no question had a part in."""
    built = stated("asc-0.9+weighted")
    built.controller.save(tmp_path)
    assert Controller.load(tmp_path).label == "asc-0.9+weighted"
    own = LEARNER.fit(table_of(VOTED, ANSWERS), np.arange(60), seed=0).own
    columns = ASC_FAMILY.stops(own.values["asc"], 0.9)
    np.testing.assert_array_equal(built.point.columns, columns[:, 0])
    grades = built.point.trajectories.known_grades
    np.testing.assert_array_equal(grades, own.stored.known_grades)
    assert built.controller.calibration["full_budget"] == f"weighted-{SCHEDULE.last}"


def test_a_weighted_fixed_budget_stops_there() -> None:
    built = stated("weighted-4", schedule=Schedule((2, 4)))
    assert (built.controller.label, built.controller.schedule.last) == ("weighted-4", 4)
    assert set(built.point.counts) == {4.0}


def test_weights_that_do_not_gain_are_not_made_up() -> None:
    voted, answers = made_records(0, telling=False)
    records = HeldRecords(voted, TASK, SCHEDULE)
    with pytest.raises(ProtocolError, match='without them is "fixed-4"'):
        build_stated("weighted-4", LEARNER, records, Truths(dict(answers)), schedule=SCHEDULE)


def test_the_papers_gate_can_be_stated_too(quick: PaperLearner, tmp_path: Path) -> None:
    built = stated("aera-0.30", learner=quick)
    built.controller.save(tmp_path)
    assert Controller.load(tmp_path).label == "aera-0.30"
    assert built.controller.calibration["questions"] < 60


def test_best_of_n_is_told_in_rewards(tmp_path: Path) -> None:
    built = stated("fixed-4", learner=VoteLearner("scores", best_of_n=BestOfN(Long()), price=0.3))
    assert "of reward against fixed-8" in built.controller.calibration["summary"]
    assert built.controller.calibration["price"] == 0.3
    built.controller.save(tmp_path)
    assert Controller.load(tmp_path, scorer=Long()).label == "fixed-4"


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("oracle", "knows the right answers"),
        ("consensus-0.9", "all pairs"),
        ("one-shot", "crossfit"),
        ("aera-calibrated", "chosen fold by fold"),
        ("asc-calibrated+weighted", "chosen fold by fold"),
        ("aera-x", "by its threshold"),
        ("aera-2", "between 0 and 1"),
        ("asc-2+weighted", "between 0 and 1"),
        ("fixed-3", "no checkpoint of"),
        ("luck", "no policy is called"),
    ],
)
def test_what_no_controller_can_run_is_refused_with_the_reason(label: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as refusal:
        check_label(label, SCHEDULE, scored=False, paper=False)
    assert "\n" not in str(refusal.value)


def test_votes_do_not_go_with_scores_nor_weights_with_the_papers_gate() -> None:
    for label in ("asc-0.9", "weighted-4", "first-valid"):
        with pytest.raises(UsageError, match="best-of-n has none"):
            check_label(label, SCHEDULE, scored=True, paper=False)
    check_label("fixed-4", SCHEDULE, scored=True, paper=False)
    with pytest.raises(UsageError, match="--paper learns none"):
        check_label("weighted-4", SCHEDULE, scored=False, paper=True)
