"""The contract: a learner that the library has never heard of is served like its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path

import numpy as np
import pytest
from made_questions import QUESTIONS, SCHEDULE, TASK, made_records
from small_study import Bench

from aera import ASC, Controller, Fixed, Schedule
from aera.arrays import Columns, Floats
from aera.core import Question
from aera.errors import ProtocolError
from aera.lab import (
    Learner,
    LossLimit,
    Measured,
    Trajectories,
    Truths,
    build,
    crossfit,
    evaluate,
    holdout,
    limit_for,
    nested,
)
from aera.lab.calibrating.families import ASC_FAMILY, GATE_FAMILY, Family
from aera.lab.judging.summary import judgement_frontier, judgement_sections
from aera.lab.learning.folds import Fold, deal, group_questions, split_rows
from aera.lab.learning.learner import Split, policy_of
from aera.network import Network
from aera.policies.features import VOTE_FEATURE_NAMES
from aera.policies.gate import Gated, VoteGate
from aera.policies.rules import Policy, confidence, measure_all
from aera.pools.pool import HeldRecords, Records
from aera.reading.task import NOTHING, Readability, Task
from aera.solving.controller import question_hashes
from aera.workers import SERIAL, Track, Workers, quiet

# --- a fourth learner -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PlainTable:
    """Plain votes, and what ASC sees in them."""

    name: str
    task: Task
    questions: tuple[Question, ...]
    trajectories: Trajectories
    confidence: Floats

    readability: Readability = NOTHING

    @property
    def groups(self) -> Columns:
        return group_questions(self.questions)

    @property
    def schedule(self) -> Schedule:
        return self.trajectories.schedule

    def __len__(self) -> int:
        return len(self.questions)

    def measured(self, rows: Columns, chance: float) -> Measured:
        known = self.trajectories.subset(rows)
        values = {"aera": np.full(known.tokens.shape, chance), "asc": self.confidence[rows]}
        return Measured(known, values)


@dataclass(frozen=True, eq=False)
class Mood:
    """ASC on plain votes, beside a gate that says the same of every prefix."""

    chance: float
    taught: tuple[int, ...]
    own: Measured | None
    weigher: None = None
    learned: str = "how often more responses helped"

    @property
    def families(self) -> Mapping[str, Family]:
        return {"asc": ASC_FAMILY, "aera": GATE_FAMILY}

    @property
    def gate(self) -> VoteGate:
        size = len(VOTE_FEATURE_NAMES)
        none, bias = np.zeros(size), np.array([log(self.chance / (1 - self.chance))])
        return VoteGate(Network(none, none, np.ones(size), (), none[None], bias))

    def values(self, table: PlainTable, rows: Columns) -> Measured:
        return table.measured(rows, self.chance)

    def policy(self, setting: float, family: Family | None = None) -> Policy:
        return Gated(self.gate, setting) if family is GATE_FAMILY else ASC(setting)


@dataclass(frozen=True)
class MoodLearner:
    """Counts the questions on which the full budget was better than the first checkpoint."""

    apart: bool = True
    """Whether other questions calibrate; else the same, each judged out of fold."""
    margin: float = 0.5
    weighted: bool = False

    def prepare(
        self,
        records: Records,
        truths: Truths,
        *,
        schedule: Schedule | None = None,
        workers: Workers = SERIAL,
        track: Track = quiet,
    ) -> PlainTable:
        replayed = evaluate(records, (), schedule=schedule, truths=truths).trajectories
        chains = [record.read(records.task).prefixes(replayed.schedule) for record in records]
        [measured] = measure_all([confidence], chains)
        asked = tuple(records.questions.values())
        return PlainTable(records.name, records.task, asked, replayed, np.array(measured))

    def split(self, table: PlainTable, rows: Columns, *, certified: bool, seed: int) -> Split:
        if not (self.apart or certified):
            return Split(rows, rows[:0], rows[:0])
        fit, tune = split_rows(rows, (0.5, 0.5), groups=table.groups, seed=seed)
        return Split(fit, rows[:0], tune)

    def fit(
        self, table: PlainTable, rows: Columns, *, held: Columns | None = None, seed: int
    ) -> Mood:
        def judge(fold: Fold) -> Measured:
            return table.measured(rows[fold.own], mood(table, rows[fold.rest]))

        folds = deal(np.arange(len(rows)), seed=seed)
        own = None if self.apart else Measured.join([judge(fold) for fold in folds], folds)
        return Mood(mood(table, rows), tuple(rows.tolist()), own)


def mood(table: PlainTable, rows: Columns) -> float:
    grades = table.trajectories.known_grades[rows]
    return (1 + float((grades[:, -1] > grades[:, 0]).sum())) / (2 + len(rows))


LEARNER: Learner[PlainTable] = MoodLearner()
TOGETHER: Learner[PlainTable] = MoodLearner(apart=False)
EVERY = np.arange(QUESTIONS)
LIMIT = limit_for(LEARNER, 0.2)


def table_of(turned: Columns = EVERY[:0], *, questions: int = QUESTIONS) -> PlainTable:
    """Made-up questions; the truths of some may be turned into what nobody says."""
    records, truths = made_records(questions=questions)
    known = Truths(truths | {f"q{row}": "1000" for row in turned})
    return LEARNER.prepare(HeldRecords(records, TASK, SCHEDULE), known)


@pytest.fixture(scope="module")
def table() -> PlainTable:
    return table_of()


# --- goes through every protocol ------------------------------------------------------------------


def test_crossfit_judges_every_question_by_a_model_of_the_other_folds(table: PlainTable) -> None:
    done = crossfit(LEARNER, table, folds=3, seed=1)
    assert done.trajectories.question_ids == tuple(f"q{row}" for row in EVERY)
    for fold, model in enumerate(done.models):
        own = np.flatnonzero(done.folds == fold)
        assert isinstance(model, Mood)
        assert set(model.taught) == set(EVERY.tolist()) - set(own.tolist())
        assert (done.p_continue[own] == model.chance).all()
    np.testing.assert_array_equal(done.measured.values["asc"], table.confidence)
    assert done.one_shot() is None
    assert len(done.sweep()) == 9


@pytest.mark.parametrize("learner", [LEARNER, TOGETHER])
def test_nested_chooses_elsewhere_for_every_fold_and_goal(
    learner: Learner[PlainTable], table: PlainTable
) -> None:
    goals = [LIMIT, limit_for(learner, 0.0)]
    for done, goal in zip(nested(learner, table, goals, folds=3, seed=1), goals, strict=True):
        assert done.trajectories.question_ids == tuple(f"q{row}" for row in EVERY)
        assert [*done.stops] == [*done.choices] == ["asc", "aera"], "its own family comes first"
        assert [point.policy for point in done.points()] == ["asc-calibrated", "aera-calibrated"]
        for row, fold in enumerate(done.folds):
            choice = done.choices["asc"][fold]
            assert (choice.max_loss, choice.margin) == (goal.max_loss, 0.5)
            assert done.stops["asc"][row] == choice.stops(ASC_FAMILY, table.confidence[[row]])[0]


@pytest.mark.parametrize(("learner", "tuned"), [(LEARNER, 20), (TOGETHER, 40)])
def test_it_says_itself_which_questions_calibrate(
    learner: Learner[PlainTable], tuned: int, table: PlainTable
) -> None:
    [done] = nested(learner, table, [LIMIT], folds=3, seed=1)
    assert {choice.questions for choice in done.choices["asc"]} == {tuned}
    [certified] = nested(learner, table, [LossLimit(0.2, alpha=0.2)], folds=3, seed=1)
    assert {choice.questions for choice in certified.choices["asc"]} == {20}


@pytest.mark.parametrize("learner", [LEARNER, TOGETHER])
def test_judged_questions_have_no_part_in_their_own_judgement(
    learner: Learner[PlainTable], table: PlainTable
) -> None:
    [before] = nested(learner, table, [LIMIT], folds=3, seed=1)
    outer = np.flatnonzero(before.folds == 0)
    [after] = nested(learner, table_of(outer), [LIMIT], folds=3, seed=1)
    assert before.p_continue[outer].tolist() == after.p_continue[outer].tolist()
    for name in before.choices:
        assert before.choices[name][0] == after.choices[name][0]
        assert before.stops[name][outer].tolist() == after.stops[name][outer].tolist()
    assert before.choices["asc"][1:] != after.choices["asc"][1:]


def test_holdout_tests_once_on_the_rest(table: PlainTable) -> None:
    done = holdout(LEARNER, table, LIMIT, seed=1)
    after = holdout(LEARNER, table_of(done.rows), LIMIT, seed=1)
    assert len(done.rows) == 24
    assert done.choices == after.choices
    assert all((done.stops[name] == after.stops[name]).all() for name in done.stops)


def test_what_was_judged_can_be_shown(table: PlainTable) -> None:
    done = holdout(LEARNER, table, LIMIT, seed=1)
    frontier = judgement_frontier(done)
    assert {"fixed-8", "asc-calibrated", "aera-calibrated", "aera-0.30"} <= {
        point.policy for point in frontier.points
    }
    assert not any(point.weighted for point in frontier.points)
    told = judgement_sections(done, frontier, seed=0)
    assert [each["family"] for each in told["savings"]] == list(told["calibration"])


# --- becomes a controller -------------------------------------------------------------------------


def test_build_makes_a_controller_that_can_be_loaded(table: PlainTable, tmp_path: Path) -> None:
    made = build(LEARNER, table, LIMIT)
    controller, split = made.controller, LEARNER.split(table, EVERY, certified=False, seed=0)
    assert controller.policy == ASC(made.choice.setting or 0.0)
    for found, rows in ((controller.fitted, split.fit), (controller.calibrated, split.tune)):
        assert found == {question_hashes(table.questions[row])[0] for row in rows}
    assert made.learned == "how often more responses helped"
    assert made.learned in made.card
    controller.save(tmp_path)
    loaded = Controller.load(tmp_path)
    assert str(loaded.policy) == str(controller.policy)
    assert loaded.seen == {question_hashes(question)[0] for question in table.questions}


def test_build_calibrates_out_of_fold_where_all_questions_teach(table: PlainTable) -> None:
    made = build(TOGETHER, table, LIMIT)
    assert made.choice.questions == QUESTIONS
    assert len(made.controller.fitted) == QUESTIONS
    assert made.controller.calibrated == made.controller.fitted
    assert made.controller.calibration["out_of_fold"] is True


def test_build_tries_its_other_families_where_asked(table: PlainTable) -> None:
    made = build(LEARNER, table, LIMIT, baselines=["aera"])
    assert set(made.controller.calibration["tried"]) == {"asc", "aera"}


def test_what_nothing_meets_is_the_full_budget(table: PlainTable) -> None:
    impossible = LossLimit(0.01, alpha=0.01)
    made = build(LEARNER, table, impossible)
    assert made.controller.policy == Fixed(8)
    model = LEARNER.fit(table, EVERY, seed=0)
    assert policy_of(model, made.choice, ASC_FAMILY, SCHEDULE) == Fixed(8)


def test_every_policy_decides_live_as_it_was_measured(table: PlainTable) -> None:
    model = LEARNER.fit(table, EVERY, seed=0)
    measured = model.values(table, EVERY)
    records = HeldRecords(made_records()[0], TASK, SCHEDULE)
    for family, setting in ((ASC_FAMILY, 0.8), (GATE_FAMILY, 0.1), (GATE_FAMILY, 0.9)):
        [point] = evaluate(records, [model.policy(setting, family)]).points
        stops = family.stops(measured.values[family.name], setting)
        assert point.columns.tolist() == stops.tolist()


# --- is refused like the others -------------------------------------------------------------------


def test_too_few_questions_are_refused_whatever_the_learner_thinks() -> None:
    few = table_of(questions=19)
    for work in (
        lambda: crossfit(LEARNER, few),
        lambda: nested(LEARNER, few, [LIMIT]),
        lambda: holdout(LEARNER, few, LIMIT),
        lambda: build(LEARNER, few, LIMIT),
    ):
        with pytest.raises(ProtocolError, match="has 19 questions"):
            work()


def test_real_responses_go_through(bench: Bench) -> None:
    made = LEARNER.prepare(bench.records, bench.truths)
    [done] = nested(LEARNER, made, [LIMIT], folds=3)
    assert done.trajectories.question_ids == tuple(bench.pool.questions)
    assert done.point("asc").tokens <= done.fixed()[-1].tokens
