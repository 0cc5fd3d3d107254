import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import refusal
from foreign_questions import BUNDLED
from lab_fixtures import Bench
from made_questions import SCHEDULE, TASK, Long, made_records, made_table, table_of

from aera import ASC, BestOfN, Controller, Schedule, parse_policy
from aera.errors import ProtocolError, UsageError
from aera.lab import LossLimit, PaperLearner, Truths, VoteLearner, build, evaluate, limit_for
from aera.lab.asked import ask_policies, check_label, choose_schedule
from aera.lab.build import BUILD_SHARES, Built, build_stated
from aera.lab.calibrating.families import ASC_FAMILY, GATE_FAMILY, Family
from aera.lab.judging import Learner
from aera.lab.learning.folds import split_rows
from aera.lab.replay import Dataset
from aera.policies.rules import Bounded, Fixed
from aera.pools.pool import HeldRecords
from aera.solving.controller import question_hashes


@pytest.fixture(scope="module")
def paper(quick: PaperLearner) -> PaperLearner:
    return replace(quick, shares=BUILD_SHARES)


def test_a_built_gate_is_calibrated_on_other_questions(bench: Bench, built: Built) -> None:
    controller = built.controller
    assert controller.policy.threshold == built.choice.setting
    assert controller.policy.gate is controller.gate
    assert (controller.task, controller.schedule) == (bench.pool.task, bench.pool.schedule)
    assert controller.card.startswith("---\nlibrary_name: aera")
    assert f"`{controller.policy}`" in controller.card
    assert "**Learned from** 42 questions, **calibrated on** 18 others" in controller.card
    questions = bench.pool.questions
    *_, tune = split_rows(np.arange(60), (0.55, 0.15, 0.3), groups=np.arange(60), seed=0)
    asked = [questions[bench.table.trajectories.question_ids[row]] for row in tune]
    assert controller.calibrated == {question_hashes(q)[0] for q in asked}
    assert not controller.fitted & controller.calibrated
    assert (len(controller.fitted), built.choice.questions) == (42, 18)
    assert controller.seen == {question_hashes(q)[0] for q in questions.values()}
    assert built.choice.reference == pytest.approx(bench.table.grades[tune, -1].mean())


def test_a_gate_steps_aside_for_what_saves_most(bench: Bench, paper: PaperLearner) -> None:
    several = [(), ("asc",), ("esc",), ("asc", "esc")]
    *alone, made = [build(paper, bench.table, LossLimit(0.05), baselines=b) for b in several]
    assert made.choice.token_saving == max(each.choice.token_saving for each in alone)
    assert set(made.controller.calibration["tried"]) == {"aera", "asc", "esc"}
    assert made.controller.calibration["family"] == made.choice.family


def test_a_certificate_is_shared_by_all_that_were_tried(bench: Bench, paper: PaperLearner) -> None:
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


def test_an_impossible_certificate_keeps_budget_and_weights(table: Dataset, tmp_path: Path) -> None:
    build(LEARNER, table, limit_for(LEARNER, 0.02, 0.1)).controller.save(tmp_path)
    loaded = Controller.load(tmp_path)
    assert (loaded.policy, loaded.start(table.records[0].question).want) == (Fixed(8), 8)
    assert loaded.weigher is not None
    told = json.loads((tmp_path / "calibration.json").read_text())
    assert (told["feasible"], told["setting"]) == (False, None)
    assert told["needed"] >= 114
    assert "NOT FEASIBLE" in (tmp_path / "README.md").read_text()


# --- stated policies ------------------------------------------------------------------------------

VOTED, ANSWERS = made_records()
RECORDS, TRUTHS = HeldRecords(VOTED, TASK, SCHEDULE), Truths(dict(ANSWERS))


def stated(label: str, learner: Learner = LEARNER, *, schedule: Schedule = SCHEDULE) -> Built:
    return build_stated(label, learner, RECORDS, TRUTHS, schedule=schedule)


@pytest.mark.parametrize("label", ["fixed-4", "esc-3+min4", "first-valid", "entropy-0.3"])
def test_a_plain_policy_is_kept_and_said_to_be_stated(label: str, tmp_path: Path) -> None:
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
    learner = VoteLearner("scores", best_of_n=BestOfN(Long()), price=0.3, judge="score")
    built = stated("fixed-4", learner=learner)
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
    assert reason in refusal(UsageError, check_label, label, SCHEDULE, scored=scored, paper=paper)


# --- what may be asked for by name ----------------------------------------------------------------


def test_labels_on_a_controllers_votes_are_kept_apart(bench: Bench) -> None:
    labels = "fixed-8, asc-0.9+weighted ,weighted-32,aera-0.2,aera-0.2+min8,asc-0.8,oracle"
    plain, own = ask_policies(labels, bench.pool.schedule, controller=BUNDLED)
    assert plain == [Fixed(8), ASC(0.8)]
    *others, gated, bounded = own
    assert others == [ASC(0.9), Fixed(32)]
    assert (gated.gate, gated.threshold) == (BUNDLED.gate, 0.2)
    assert bounded == Bounded(gated, 8, need_vote=False)


def test_what_a_controller_has_not_is_refused(bench: Bench, built: Built) -> None:
    schedule = bench.pool.schedule
    plain = Controller(bench.pool.task, schedule, ASC(0.9))
    for label, controller, reason in (
        ("aera-0.2", None, "belongs to a --controller"),
        ("aera-0.2", plain, "needs a gate"),
        ("asc-0.9+weighted", None, r'"asc-0\.9"'),
        ("asc-0.9+weighted", built.controller, r'"asc-0\.9"'),
        ("weighted-20", BUNDLED, "weighted-20 is no checkpoint"),
    ):
        with pytest.raises(UsageError, match=reason):
            ask_policies(label, schedule, controller=controller)


@pytest.mark.parametrize(
    ("asked", "most", "found"),
    [
        (None, None, (4, 8, 16, 32)),
        ("2,6", None, (2, 6)),
        (None, 20, (4, 8, 16, 20)),
        (None, 16, (4, 8, 16)),
        (None, 3, (3,)),
        (Schedule((2, 6)), 20, (2, 6)),
        (Schedule((2, 6)), 5, (2, 5)),
    ],
)
def test_a_schedule_is_cut_at_the_most_responses(
    asked: Schedule | str | None, most: int | None, found: tuple[int, ...]
) -> None:
    own = Schedule((4, 8, 16, 32))
    assert choose_schedule(own, asked, most=most, recorded=32).checkpoints == found
    for wrong in (0, -1, 33):
        with pytest.raises(UsageError, match="from 1 to 32"):
            choose_schedule(own, asked, most=wrong, recorded=32)
