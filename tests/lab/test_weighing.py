from dataclasses import replace

import numpy as np
import pytest
from small_course import SCHEDULE, TASK, course_of, made_ballots, made_course

from aera import Question, Record, Response
from aera.errors import PoolError, ProtocolError
from aera.lab import Truths, fold_numbers, read_ballots, weighing
from aera.lab.learning import Course
from aera.lab.trajectory import Columns
from aera.lab.weighing import Marked, crossfit_weights, fit_weigher, mark
from aera.traits import TRAIT_NAMES, traits
from aera.weigher import Weigher

pytestmark = pytest.mark.usefixtures("short")
EVERY = np.arange(60)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighing, "EPOCHS", 4)


@pytest.fixture(scope="module")
def course() -> Course:
    return made_course()


# --- marking --------------------------------------------------------------------------------------


def test_marking_reads_traits_votes_and_grades_of_every_response(course: Course) -> None:
    marked = course.marked
    assert marked.traits.shape == (len(marked), 8, len(TRAIT_NAMES)) == (60, 8, len(TRAIT_NAMES))
    for place, ballot in enumerate(marked.ballots):
        record = ballot.record
        wanted = traits(record.question, record.responses, ballot.votes)
        np.testing.assert_array_equal(marked.traits[place], wanted)
        truth = course.truths[record.question.id]
        assert marked.grades[place].tolist() == [float(v.answer == truth) for v in ballot.votes]


def test_marking_leaves_out_what_the_schedule_does_not_reach() -> None:
    ballots, truths = made_ballots(questions=3)
    marked = mark(ballots, Truths(truths), task=TASK, responses=4)
    assert marked.traits.shape[:2] == marked.voted.shape == marked.grades.shape == (3, 4)
    assert {len(ballot.votes) for ballot in marked.ballots} == {4}
    assert {len(ballot.record.responses) for ballot in marked.ballots} == {4}


def test_a_question_with_too_few_responses_is_named() -> None:
    ballots, truths = made_ballots(questions=3)
    ballots[1] = ballots[1].first(5)
    with pytest.raises(PoolError, match="question q1 has 5 responses") as refusal:
        mark(ballots, Truths(truths), task=TASK, responses=8)
    assert "\n" not in str(refusal.value)


def test_reweighing_changes_weights_and_nothing_else(course: Course) -> None:
    marked, rows = course.marked, np.array([7, 3])
    weights = np.random.default_rng(0).random((2, 8))
    assert marked.reweighed(rows, None) == [marked.ballots[7], marked.ballots[3]]
    for ballot, row, own in zip(marked.reweighed(rows, weights), rows, weights, strict=True):
        plain = marked.ballots[row]
        assert [vote.weight for vote in ballot.votes] == own.tolist()
        assert [replace(vote, weight=1.0) for vote in ballot.votes] == list(plain.votes)
        assert ballot.record is plain.record


# --- fitting --------------------------------------------------------------------------------------


def test_what_reveals_the_truth_is_learned(course: Course) -> None:
    weigher, other = fit_weigher(course.marked, EVERY, seed=0), made_course(1).marked
    weights = weigher.weights(other.traits)
    right = other.grades == 1
    assert ((weights > 0) & (weights < 1)).all()
    assert weights[right].min() > weights[~right].max()


def test_a_fit_is_the_same_by_seed(course: Course) -> None:
    seen = course.marked.traits
    one, two, other = (fit_weigher(course.marked, EVERY, seed=s).weights(seen) for s in (3, 3, 4))
    assert one.tobytes() == two.tobytes()
    assert one.tobytes() != other.tobytes()


def test_a_fit_looks_only_at_its_own_rows(course: Course) -> None:
    marked, rows = course.marked, np.arange(20, 60)
    seen, grades = marked.traits.copy(), marked.grades.copy()
    seen[:20], grades[:20] = 1e6, 1 - grades[:20]
    changed = replace(
        marked, traits=seen, grades=grades, voted=marked.voted & (EVERY >= 20)[:, None]
    )
    one, other = (fit_weigher(m, rows, seed=0).weights(marked.traits) for m in (marked, changed))
    assert one.tobytes() == other.tobytes()


def test_what_abstainers_look_like_is_not_part_of_the_range(course: Course) -> None:
    marked = course.marked
    seen, voted = marked.traits.copy(), marked.voted.copy()
    seen[:, 0], voted[:, 0] = 1e6, False
    network = fit_weigher(replace(marked, traits=seen, voted=voted), EVERY, seed=0).network
    assert network.highs is not None
    assert (network.highs < 1e4).all()


def test_a_missing_trait_is_filled_with_the_median_of_training(course: Course) -> None:
    marked, column = course.marked, TRAIT_NAMES.index("logprob")
    assert np.isnan(marked.traits[..., column]).all(), "nobody gave logprobs"
    seen = marked.traits.copy()
    seen[:, ::2, column] = -5.0
    network = fit_weigher(replace(marked, traits=seen), EVERY, seed=0).network
    assert network.medians[column] == -5.0


def spoiled(marked: Marked, answers: list[str]) -> Marked:
    """The same with the last question answered like this."""
    question = Question("odd", "how many?")
    record = Record(question, tuple(Response(f"\\boxed{{{a}}}", 30) for a in answers))
    more = mark(read_ballots([record], TASK), Truths({"odd": "5"}), task=TASK, responses=8)
    return Marked(
        (*marked.ballots, *more.ballots),
        np.concatenate([marked.traits, more.traits]),
        np.concatenate([marked.voted, more.voted]),
        np.concatenate([marked.grades, more.grades]),
    )


@pytest.mark.parametrize("answers", [["9" * 400] * 8, ["?"] * 8, ["1/3", "-7"] * 4])
def test_an_odd_question_does_not_spoil_the_rest(course: Course, answers: list[str]) -> None:
    marked = spoiled(course.marked, answers)
    weights = fit_weigher(marked, np.arange(61), seed=0).weights(marked.traits)
    assert np.isfinite(weights).all()


@pytest.mark.parametrize("grade", [0.0, 1.0])
def test_where_everybody_is_right_or_nobody_weights_stay_finite(
    course: Course, grade: float
) -> None:
    marked = replace(course.marked, grades=np.full((60, 8), grade))
    weights = fit_weigher(marked, EVERY, seed=0).weights(marked.traits)
    assert np.isfinite(weights).all()
    assert ((weights > 0.5) == grade).all()


def test_batches_in_which_nobody_votes_teach_nothing(course: Course) -> None:
    voted = np.zeros((60, 8), dtype=np.bool_)
    voted[0, :4] = True  # two batches of questions: one of them is always silent
    marked = replace(course.marked, voted=voted)
    assert np.isfinite(fit_weigher(marked, EVERY, seed=0).weights(marked.traits)).all()


def test_without_a_readable_response_nothing_can_be_weighed(course: Course) -> None:
    silent = replace(course.marked, voted=np.zeros((60, 8), dtype=np.bool_))
    with pytest.raises(ProtocolError, match="can be read") as refusal:
        fit_weigher(silent, EVERY, seed=0)
    assert "\n" not in str(refusal.value)


# --- out of fold ----------------------------------------------------------------------------------


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Which questions every fit was given."""
    seen: list[set[int]] = []
    plain = weighing.fit_weigher

    def watched(marked: Marked, rows: Columns, *, seed: int) -> Weigher:
        seen.append(set(rows.tolist()))
        return plain(marked, rows, seed=seed)

    monkeypatch.setattr(weighing, "fit_weigher", watched)
    return seen


def test_every_question_is_weighed_by_the_other_folds(course: Course, fits: list[set[int]]) -> None:
    rows = np.arange(10, 50)
    weights = crossfit_weights(course.marked, rows, folds=4, seed=2)
    numbers = fold_numbers(40, 4, seed=2)
    assert fits == [set(rows[numbers != fold].tolist()) for fold in range(4)]
    for fold in range(4):
        weigher = fit_weigher(course.marked, rows[numbers != fold], seed=2 + fold)
        own = rows[numbers == fold]
        np.testing.assert_allclose(
            weights[numbers == fold], weigher.weights(course.marked.traits[own]), rtol=1e-12
        )


def test_the_grades_of_a_question_do_not_reach_its_own_weights(course: Course) -> None:
    """Turn one question round: its fold stays as it was, every other fold moves."""
    grades = course.marked.grades.copy()
    grades[17] = 1 - grades[17]
    turned = replace(course.marked, grades=grades)
    before, after = (crossfit_weights(m, EVERY, seed=5) for m in (course.marked, turned))
    numbers = fold_numbers(60, 5, seed=5)
    own = numbers == numbers[17]
    assert before[own].tobytes() == after[own].tobytes()
    for fold in set(range(5)) - {numbers[17]}:
        assert before[numbers == fold].tobytes() != after[numbers == fold].tobytes()


def test_a_course_of_other_truths_differs_only_in_grades() -> None:
    ballots, truths = made_ballots(questions=5)
    one = course_of(ballots, truths).marked
    other = course_of(ballots, {**truths, "q2": "1000"}).marked
    np.testing.assert_array_equal(one.traits, other.traits)
    assert np.flatnonzero((one.grades != other.grades).any(axis=1)).tolist() == [2]
    assert SCHEDULE.last == one.traits.shape[1]
