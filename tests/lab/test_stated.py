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
from aera.lab.calibrating.families import ASC_FAMILY, GATE_FAMILY, Family
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


@pytest.mark.parametrize(
    ("label", "family", "setting"),
    [("aera-0.37", GATE_FAMILY, 0.37), ("asc-0.9+weighted", ASC_FAMILY, 0.9)],
)
def test_what_is_learned_runs_as_stated_and_is_judged_out_of_fold(
    label: str, family: Family, setting: float, tmp_path: Path
) -> None:
    """The figures are the learner's own, which no question had a part in."""
    built = stated(label)
    built.controller.save(tmp_path)
    loaded = Controller.load(tmp_path)
    assert (loaded.label, len(loaded.fitted), loaded.weigher is None) == (label, 60, False)
    own = LEARNER.fit(table_of(VOTED, ANSWERS), np.arange(60), seed=0).own
    columns = family.stops(own.values[family.name], setting)
    np.testing.assert_array_equal(built.point.columns, columns[:, 0])
    grades = built.point.trajectories.known_grades
    np.testing.assert_array_equal(grades, own.stored.known_grades)
    told = loaded.calibration
    assert (told["out_of_fold"], told["full_budget"]) == (True, f"weighted-{SCHEDULE.last}")


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
        *((each, "best-of-n has none") for each in ("asc-0.9", "weighted-6", "first-valid")),
        ("weighted-4", "--paper learns none"),
    ],
)
def test_what_no_controller_can_run_is_refused_with_the_reason(label: str, reason: str) -> None:
    scored, paper = "best-of-n" in reason, "--paper" in reason
    with pytest.raises(UsageError, match=reason) as refusal:
        check_label(label, SCHEDULE, scored=scored, paper=paper)
    assert "\n" not in str(refusal.value)
