from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from small_course import SCHEDULE, course_of, made_ballots, made_course
from small_study import Bench

from aera import Schedule
from aera.errors import ProtocolError
from aera.gate import VoteGate
from aera.lab import learning, replay, weighing
from aera.lab.calibration import Choice
from aera.lab.dials import ASC_DIAL, GATE, Dial
from aera.lab.learning import (
    Course,
    Learned,
    Votes,
    holdout_learned,
    judge,
    learn,
    learn_and_tune,
    nested_learned,
    open_course,
)
from aera.lab.protocols import Demand, Verdict
from aera.lab.trajectory import Columns
from aera.lab.weighing import Marked, crossfit_weights
from aera.standing import STANDING_NAMES, standing
from aera.weigher import Weigher

EVERY = np.arange(60)
LOOSE, SURE = Demand(0.05), Demand(0.3, alpha=0.2)


@pytest.fixture(scope="module", autouse=True)
def _short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighing, "EPOCHS", 4)
        yield


@pytest.fixture(scope="module")
def course() -> Course:
    return made_course()


@pytest.fixture(scope="module")
def learned(course: Course) -> Learned:
    return learn(course, np.arange(40), seed=0)


@dataclass
class Watched:
    """Which questions went into a fit of the weigher, of the gate, and into calibration."""

    weighers: list[set[int]] = field(default_factory=list)
    gates: list[int] = field(default_factory=list)
    tunes: list[tuple[float | None, frozenset[str]]] = field(default_factory=list)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    seen = Watched()
    fit_weigher, fit_gate, calibrate = (
        learning.fit_weigher,
        learning.fit_vote_gate,
        learning.calibrate,
    )

    def weighing_fit(marked: Marked, rows: Columns, *, seed: int) -> Weigher:
        seen.weighers.append(set(rows.tolist()))
        return fit_weigher(marked, rows, seed=seed)

    def gate_fit(evidence: Any, grades: Any, tokens: Any) -> VoteGate:
        seen.gates.append(len(grades))
        return fit_gate(evidence, grades, tokens)

    def tuning(dial: Dial, values: Any, trajectories: Any, **rest: Any) -> Choice:
        seen.tunes.append((rest["alpha"], frozenset(trajectories.question_ids)))
        return calibrate(dial, values, trajectories, **rest)

    monkeypatch.setattr(learning, "fit_weigher", weighing_fit)
    monkeypatch.setattr(weighing, "fit_weigher", weighing_fit)
    monkeypatch.setattr(learning, "fit_vote_gate", gate_fit)
    monkeypatch.setattr(learning, "calibrate", tuning)
    return seen


def names(rows: set[int] | Columns) -> frozenset[str]:
    return frozenset(f"q{row}" for row in rows)


# --- a course -------------------------------------------------------------------------------------


def test_measuring_replays_the_weighed_votes(course: Course) -> None:
    rows, weights = np.array([3, 8]), np.random.default_rng(0).random((2, 8))
    measured = course.measured(rows, weights)
    assert measured.evidence.shape == (2, 3, len(STANDING_NAMES))
    assert measured.trajectories.question_ids == ("q3", "q8")
    for place, ballot in enumerate(course.marked.reweighed(rows, weights)):
        for column, prefix in enumerate(ballot.prefixes(SCHEDULE)):
            np.testing.assert_array_equal(measured.evidence[place, column], standing(prefix))
            truth = course.truths[prefix.question.id]
            right = prefix.tally.leaders.answer == truth
            assert measured.grades[place, column] == float(right)
            asc = ASC_DIAL.value(prefix)
            assert measured.confidence[place, column] == asc


def test_opening_a_course_cuts_to_the_schedule(bench: Bench) -> None:
    made = open_course(
        bench.pool, bench.truths, ballots=bench.ballots[:20], schedule=Schedule((2, 4))
    )
    assert made.marked.traits.shape[:2] == (20, 4)
    assert made.schedule == Schedule((2, 4))


@pytest.mark.parametrize(("questions", "schedule"), [(19, (4, 8)), (60, (8,))])
def test_too_little_to_learn_from_is_refused(
    bench: Bench, questions: int, schedule: tuple[int, ...]
) -> None:
    with pytest.raises(ProtocolError, match=bench.pool.path.name) as refusal:
        open_course(
            bench.pool,
            bench.truths,
            ballots=bench.ballots[:questions],
            schedule=Schedule(schedule),
        )
    assert "\n" not in str(refusal.value)


# --- what is kept ---------------------------------------------------------------------------------


def test_a_weigher_is_kept_where_a_trait_reveals_the_truth(learned: Learned) -> None:
    assert learned.weigher is not None
    assert learned.gain > 10


def test_a_weigher_is_left_out_where_traits_are_noise() -> None:
    kept = [learn(made_course(seed, telling=False), EVERY, seed=0) for seed in range(4)]
    assert [one.weigher for one in kept] == [None] * 4
    assert all(one.gain < 10 for one in kept)


def test_a_weigher_is_left_out_where_the_grades_are_shuffled() -> None:
    ballots, truths = made_ballots()
    rng = np.random.default_rng(0)
    # Every question keeps its two answers, but chance says which of them is right.
    for ballot in ballots:
        said = sorted({vote.answer for vote in ballot.votes if vote.answer})
        truths[ballot.record.question.id] = str(rng.choice(said))
    assert learn(course_of(ballots, truths), EVERY, seed=0).weigher is None


def test_without_a_weigher_the_votes_are_plain() -> None:
    course = made_course(0, telling=False)
    learned = learn(course, np.arange(40), seed=0)
    assert learned.weigher is None
    plain = course.measured(np.arange(40, 60), None)
    seen = learned.votes(course, np.arange(40, 60))
    np.testing.assert_array_equal(seen.measured.evidence, plain.evidence)


def test_the_gain_is_measured_out_of_fold(course: Course, learned: Learned) -> None:
    rows = np.arange(40)
    plain = course.measured(rows, None).grades
    weighed = course.measured(rows, crossfit_weights(course.marked, rows, seed=0)).grades
    assert learned.gain == pytest.approx(100 * (weighed.mean() - plain.mean()))


@pytest.mark.parametrize(("gate", "asc", "dial"), [(0.3, 0.4, ASC_DIAL), (0.4, 0.3, GATE)])
def test_the_gate_steps_aside_where_asc_saves_more(
    course: Course,
    monkeypatch: pytest.MonkeyPatch,
    gate: float,
    asc: float,
    dial: Dial,
) -> None:
    savings = {GATE.name: gate, ASC_DIAL.name: asc}
    monkeypatch.setattr(Votes, "saving", lambda self, dial: savings[dial.name])
    learned = learn(course, np.arange(30), seed=0)
    assert learned.dial is dial
    judged = learned.votes(course, np.arange(30, 60))
    verdict = judge(learned, learned.own, judged, demand=LOOSE, seed=0)
    twin = "asc" if dial is ASC_DIAL else "gate"
    assert verdict.stops["aera"].tolist() == verdict.stops[twin].tolist()
    assert verdict.choices["aera"] == verdict.choices[twin]
    assert verdict.choices["aera"][0].dial == dial.name


def test_a_saving_is_the_mean_over_a_few_losses(learned: Learned) -> None:
    savings = [
        learned.own.calibrated(GATE, Demand(loss), margin=0.0, seed=0).token_saving
        for loss in learning.LOSSES
    ]
    assert learned.own.saving(GATE) == pytest.approx(np.mean(savings))


def test_learning_is_the_same_by_seed(course: Course, learned: Learned) -> None:
    again, other = (learn(course, np.arange(40), seed=s) for s in (0, 1))
    assert again.gate.identity == learned.gate.identity
    assert again.gain == learned.gain
    assert other.gate.identity != learned.gate.identity


def test_the_rest_of_a_pool_has_no_part_in_what_is_learned(learned: Learned) -> None:
    ballots, truths = made_ballots()
    turned = course_of(ballots, truths | {f"q{row}": "1000" for row in range(40, 60)})
    again = learn(turned, np.arange(40), seed=0)
    assert again.gate.identity == learned.gate.identity
    assert again.dial is learned.dial


def test_what_is_judged_live_is_what_was_measured(course: Course, learned: Learned) -> None:
    """A decision taken prefix by prefix equals the one read from the table."""
    rows = np.arange(40, 60)
    votes = learned.votes(course, rows)
    assert learned.weigher is not None
    weights = learned.weigher.weights(course.marked.traits[rows])
    for row, ballot in enumerate(course.marked.reweighed(rows, weights)):
        found = [learned.gate.p_continue(prefix) for prefix in ballot.prefixes(SCHEDULE)]
        assert found == pytest.approx(votes.values[GATE.name][row].tolist())
        asc = ASC_DIAL.make
        assert asc is not None
        stop = replay(ballot.prefixes(SCHEDULE), asc(0.8), task=course.task).prefix
        column = ASC_DIAL.stops(votes.values[ASC_DIAL.name][[row]], 0.8)[0]
        assert len(stop) == SCHEDULE.checkpoints[column]


# --- who may see what -----------------------------------------------------------------------------


def test_own_questions_are_weighed_by_weighers_of_others(course: Course, watched: Watched) -> None:
    learn(course, np.arange(40), seed=3)
    *folds, last = watched.weighers
    assert last == set(range(40)), "what is kept learns from all of them"
    held = [set(range(40)) - fold for fold in folds]
    assert sorted(row for part in held for row in part) == list(range(40))
    assert watched.gates == [32] * 5 + [40]


def test_a_certificate_comes_from_questions_nothing_was_learned_from(
    course: Course, watched: Watched
) -> None:
    learned, tuning = learn_and_tune(course, EVERY, certified=True, seed=1)
    taught = set.union(*watched.weighers)
    tuned = set(tuning.measured.trajectories.question_ids)
    assert names(taught) | tuned == names(EVERY)
    assert not names(taught) & tuned
    assert set(learned.own.measured.trajectories.question_ids) == names(taught)
    assert len(tuned) == len(taught) == 30


def test_without_a_certificate_every_question_teaches(course: Course) -> None:
    learned, tuning = learn_and_tune(course, EVERY, certified=False, seed=1)
    assert tuning is learned.own
    assert tuning.measured.trajectories.question_ids == tuple(f"q{row}" for row in EVERY)


def taught_by(watched: Watched, folds: Columns) -> dict[int, set[int]]:
    """All questions that a weigher saw, by the outer fold it worked for: six fits or five each."""
    by_fold: dict[int, set[int]] = {}
    for rows in watched.weighers:
        outside = set(range(len(folds))) - rows
        home = [f for f in range(folds.max() + 1) if set(np.flatnonzero(folds == f)) <= outside]
        for fold in home:
            by_fold.setdefault(fold, set()).update(rows)
    return by_fold


@pytest.fixture(scope="module")
def verdicts(course: Course) -> list[Verdict]:
    return nested_learned(course, [LOOSE, Demand(0.2)], folds=3, seed=1)


def test_nested_judges_every_question_once(verdicts: list[Verdict]) -> None:
    assert len(verdicts) == 2
    for verdict in verdicts:
        assert verdict.trajectories.question_ids == tuple(f"q{row}" for row in EVERY)
        assert verdict.rows.tolist() == EVERY.tolist()
        assert np.bincount(verdict.folds).tolist() == [20, 20, 20]
        assert set(verdict.stops) == set(verdict.choices) == {"aera", "gate", "asc"}
        assert all(len(stops) == 60 for stops in verdict.stops.values())
        assert all(len(choices) == 3 for choices in verdict.choices.values())
        assert {c.max_loss for c in verdict.choices["aera"]} <= {0.05, 0.2}
        assert [point.policy for point in verdict.fixed()] == [f"weighed-{c}" for c in SCHEDULE]


def test_a_looser_demand_is_cheaper(verdicts: list[Verdict]) -> None:
    tight, loose = (verdict.point("aera").tokens for verdict in verdicts)
    assert loose <= tight


def test_each_fold_stops_where_its_own_choice_says(verdicts: list[Verdict]) -> None:
    (verdict, _) = verdicts
    for row, fold in enumerate(verdict.folds):
        setting = verdict.choices["gate"][fold].setting
        wanted = 2 if setting is None else GATE.stops(verdict.p_continue[[row]], setting)[0]
        assert verdict.stops["gate"][row] == wanted


def test_judged_questions_have_no_part_in_their_own_judgement(verdicts: list[Verdict]) -> None:
    """Other truths for one fold: nothing about it moves but its grades; other folds do."""
    before = verdicts[0]
    outer = np.flatnonzero(before.folds == 0)
    ballots, truths = made_ballots()
    turned = course_of(ballots, truths | {f"q{row}": "1000" for row in outer})
    (after,) = nested_learned(turned, [LOOSE], folds=3, seed=1)
    assert before.p_continue[outer].tobytes() == after.p_continue[outer].tobytes()
    for name in before.choices:
        assert before.choices[name][0] == after.choices[name][0]
        assert before.stops[name][outer].tolist() == after.stops[name][outer].tolist()
        assert before.choices[name][1:] != after.choices[name][1:]
    assert after.trajectories.grades is not None
    assert not after.trajectories.grades[outer].any()


@pytest.mark.parametrize("demands", [[SURE], [LOOSE, SURE], [SURE, LOOSE]])
def test_nested_certifies_on_questions_nothing_was_learned_from(
    course: Course, watched: Watched, demands: list[Demand]
) -> None:
    (verdict, *_) = nested_learned(course, demands, folds=2, seed=1)
    taught = taught_by(watched, verdict.folds)
    for alpha, tuned in watched.tunes:
        if alpha is None:
            continue
        rows = {int(name[1:]) for name in tuned}
        (fold,) = (f for f in (0, 1) if not rows & set(np.flatnonzero(verdict.folds == f)))
        assert not rows & taught[fold]
        assert len(rows) == 15
    assert any(alpha for alpha, _ in watched.tunes)


def test_holdout_tests_on_questions_nobody_has_seen(course: Course, watched: Watched) -> None:
    verdict = holdout_learned(course, demand=LOOSE, seed=1)
    tested = set(verdict.rows.tolist())
    assert len(tested) == 24
    assert set.union(*watched.weighers) == set(range(60)) - tested
    assert not names(tested) & frozenset.union(*(tuned for _, tuned in watched.tunes))
    assert verdict.trajectories.question_ids == tuple(f"q{row}" for row in sorted(tested))
    assert {len(stops) for stops in verdict.stops.values()} == {24}


def test_a_certified_holdout_keeps_three_parts_apart(course: Course, watched: Watched) -> None:
    verdict = holdout_learned(course, demand=SURE, seed=1)
    taught = set.union(*watched.weighers)
    tuned = {int(name[1:]) for alpha, ids in watched.tunes if alpha for name in ids}
    tested = set(verdict.rows.tolist())
    assert [len(taught), len(tuned), len(tested)] == [18, 18, 24]
    assert taught | tuned | tested == set(range(60))


def test_holdout_ignores_the_truths_of_what_it_tests(course: Course) -> None:
    before = holdout_learned(course, demand=LOOSE, seed=1)
    ballots, truths = made_ballots()
    turned = course_of(ballots, truths | {f"q{row}": "1000" for row in before.rows})
    after = holdout_learned(turned, demand=LOOSE, seed=1)
    assert before.choices == after.choices
    assert all((before.stops[n] == after.stops[n]).all() for n in before.stops)


def test_a_demand_nobody_meets_keeps_the_full_budget(course: Course) -> None:
    (verdict,) = nested_learned(course, [Demand(0.02, alpha=0.1)], folds=2)
    assert all((stops == 2).all() for stops in verdict.stops.values())
    assert not any(choice.feasible for choices in verdict.choices.values() for choice in choices)


def test_a_pool_of_real_responses_goes_through(bench: Bench) -> None:
    made = open_course(bench.pool, bench.truths, ballots=bench.ballots)
    (verdict,) = nested_learned(made, [Demand(0.02)], folds=3)
    assert verdict.trajectories.question_ids == tuple(bench.pool.questions)
    assert np.isfinite(verdict.p_continue).all()
    assert verdict.point("aera").tokens <= verdict.fixed()[-1].tokens
