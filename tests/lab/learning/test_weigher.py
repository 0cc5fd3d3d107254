from dataclasses import replace

import numpy as np
import pytest
from made_questions import SCHEDULE, TASK, made_records, made_table, table_of

from aera import Question, Record, Response, Schedule
from aera.errors import PoolError, ProtocolError
from aera.lab import Truths, VoteLearner
from aera.lab.learning.folds import deal, fold_numbers
from aera.lab.learning.perceptron import Perceptron
from aera.lab.learning.votes import VoteTable
from aera.lab.learning.weigher import Responses, WeigherFit
from aera.pools.pool import HeldRecords, read_votes
from aera.trace import TRACE_NAMES
from aera.voting.traits import TRAIT_NAMES, columns_of, traits
from aera.voting.weigher import Weigher

EVERY = np.arange(60)
FIT = WeigherFit(Perceptron((32, 32), 0.2, 1e-2, 1e-2, epochs=4, batch=32))


@pytest.fixture(scope="module")
def table() -> VoteTable:
    return made_table()


@pytest.fixture(scope="module")
def seen(table: VoteTable) -> Responses:
    return table.responses


# --- what is learned from -------------------------------------------------------------------------


def test_a_table_has_the_traits_votes_and_grades_of_every_response(table: VoteTable) -> None:
    seen, (records, truths) = table.responses, made_records()
    assert seen.traits.shape == (len(table), 8, len(TRAIT_NAMES)) == (60, 8, len(TRAIT_NAMES))
    for place, record in enumerate(records):
        wanted = traits(record.question, record.responses, record.votes)
        np.testing.assert_array_equal(seen.traits[place], wanted)
        truth = truths[record.question.id]
        assert seen.grades[place].tolist() == [float(v.answer == truth) for v in record.votes]
        assert seen.voted[place].tolist() == [v.answer is not None for v in record.votes]
        assert table.records[place].votes == record.votes


def test_a_table_leaves_out_what_the_schedule_does_not_reach() -> None:
    records, truths = made_records(questions=3)
    held = HeldRecords(records, TASK, SCHEDULE)
    table = VoteLearner().prepare(held, Truths(truths), schedule=Schedule((2, 4)))
    seen = table.responses
    assert seen.traits.shape[:2] == seen.voted.shape == seen.grades.shape == (3, 4)
    assert {len(record.votes) for record in table.records} == {4}
    assert {len(record.responses) for record in table.records} == {4}


def test_a_question_with_too_few_responses_is_named() -> None:
    records, truths = made_records(questions=3)
    records[1] = records[1].first(5)
    with pytest.raises(PoolError, match="question q1 has 5 responses") as refusal:
        table_of(records, truths)
    assert "\n" not in str(refusal.value)


def test_weighing_changes_weights_and_nothing_else(table: VoteTable) -> None:
    rows, weights = np.array([7, 3]), np.random.default_rng(0).random((2, 8))
    assert table.weigh(rows, None) == [table.records[7], table.records[3]]
    for record, row, own in zip(table.weigh(rows, weights), rows, weights, strict=True):
        plain = table.records[row]
        assert [vote.weight for vote in record.votes] == own.tolist()
        assert [replace(vote, weight=1.0) for vote in record.votes] == list(plain.votes)
        assert record.question is plain.question
        assert record.responses is plain.responses


# --- fitting --------------------------------------------------------------------------------------


def test_what_reveals_the_truth_is_learned(seen: Responses) -> None:
    weigher, other = FIT.fit(seen, seed=0), made_table(1).responses
    weights = weigher.weights(other.traits)
    right = other.grades == 1
    assert ((weights > 0) & (weights < 1)).all()
    assert weights[right].min() > weights[~right].max()


def test_a_fit_is_the_same_by_seed(seen: Responses) -> None:
    one, two, other = (FIT.fit(seen, seed=s).weights(seen.traits) for s in (3, 3, 4))
    assert one.tobytes() == two.tobytes()
    assert one.tobytes() != other.tobytes()


def test_a_fit_looks_only_at_its_own_rows(seen: Responses) -> None:
    rows, traits, grades = np.arange(20, 60), seen.traits.copy(), seen.grades.copy()
    traits[:20], grades[:20] = 1e6, 1 - grades[:20]
    changed = Responses(traits, seen.voted & (EVERY >= 20)[:, None], grades)
    one, other = (FIT.fit(r.subset(rows), seed=0).weights(seen.traits) for r in (seen, changed))
    assert one.tobytes() == other.tobytes()


def test_what_abstainers_look_like_is_not_part_of_the_range(seen: Responses) -> None:
    traits, voted = seen.traits.copy(), seen.voted.copy()
    traits[:, 0], voted[:, 0] = 1e6, False
    network = FIT.fit(replace(seen, traits=traits, voted=voted), seed=0).network
    assert network.highs is not None
    assert (network.highs < 1e4).all()


def test_a_missing_trait_is_filled_with_the_median_of_training(seen: Responses) -> None:
    column = TRAIT_NAMES.index("box_place")
    traits = seen.traits.copy()
    traits[..., column] = np.nan
    traits[:, ::2, column] = -5.0
    network = FIT.fit(replace(seen, traits=traits), seed=0).network
    assert network.medians[column] == -5.0


def spoiled(seen: Responses, answers: list[str]) -> Responses:
    """The same with one more question, answered like this."""
    question = Question("odd", "how many?")
    record = Record(question, tuple(Response(f"\\boxed{{{a}}}", 30) for a in answers))
    more = table_of(read_votes([record], TASK), {"odd": "5"}).responses
    return Responses(
        np.concatenate([seen.traits, more.traits]),
        np.concatenate([seen.voted, more.voted]),
        np.concatenate([seen.grades, more.grades]),
    )


@pytest.mark.parametrize("answers", [["9" * 400] * 8, ["?"] * 8, ["1/3", "-7"] * 4])
def test_an_odd_question_does_not_spoil_the_rest(seen: Responses, answers: list[str]) -> None:
    both = spoiled(seen, answers)
    weights = FIT.fit(both, seed=0).weights(both.traits)
    assert len(weights) == 61
    assert np.isfinite(weights).all()


@pytest.mark.parametrize("grade", [0.0, 1.0])
def test_where_everybody_is_right_or_nobody_weights_stay_finite(
    seen: Responses, grade: float
) -> None:
    weights = FIT.fit(replace(seen, grades=np.full((60, 8), grade)), seed=0).weights(seen.traits)
    assert np.isfinite(weights).all()
    assert ((weights > 0.5) == grade).all()


def test_batches_in_which_nobody_votes_teach_nothing(seen: Responses) -> None:
    voted = np.zeros((60, 8), dtype=np.bool_)
    voted[0, :4] = True  # two batches of questions: one of them is always silent
    weigher = FIT.fit(replace(seen, voted=voted), seed=0)
    assert np.isfinite(weigher.weights(seen.traits)).all()


def test_without_a_readable_response_nothing_can_be_weighed(seen: Responses) -> None:
    silent = replace(seen, voted=np.zeros((60, 8), dtype=np.bool_))
    with pytest.raises(ProtocolError, match="can be read") as refusal:
        FIT.fit(silent, seed=0)
    assert "\n" not in str(refusal.value)


# --- out of fold ----------------------------------------------------------------------------------


def rows_in(all_of: Responses, some: Responses) -> set[int]:
    """Which questions these are: no two have the same traits."""
    known = {own.tobytes(): row for row, own in enumerate(all_of.traits)}
    assert len(known) == len(all_of)
    return {known[own.tobytes()] for own in some.traits}


@pytest.fixture
def fits(seen: Responses, monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Which questions every fit was given."""
    given: list[set[int]] = []
    plain = WeigherFit.fit

    def watched(self: WeigherFit, learned: Responses, *, seed: int) -> Weigher:
        given.append(rows_in(seen, learned))
        return plain(self, learned, seed=seed)

    monkeypatch.setattr(WeigherFit, "fit", watched)
    return given


def test_every_question_is_weighed_by_the_other_folds(
    seen: Responses, fits: list[set[int]]
) -> None:
    rows = np.arange(10, 50)
    weights = FIT.out_of_fold(seen.subset(rows), groups=np.arange(len(rows)), seed=2)
    folds = deal(np.arange(40), seed=2)
    assert fits == [set(rows[fold.rest].tolist()) for fold in folds]
    for fold in folds:
        weigher = FIT.fit(seen.subset(rows[fold.rest]), seed=2 + fold.number)
        wanted = weigher.weights(seen.traits[rows[fold.own]])
        np.testing.assert_allclose(weights[fold.own], wanted, rtol=1e-12)


def test_the_grades_of_a_question_do_not_reach_its_own_weights(seen: Responses) -> None:
    """Turn one question round: its fold stays as it was, every other fold moves."""
    grades = seen.grades.copy()
    grades[17] = 1 - grades[17]
    turned = replace(seen, grades=grades)
    before, after = (
        FIT.out_of_fold(each, groups=np.arange(len(each)), seed=5) for each in (seen, turned)
    )
    numbers = fold_numbers(np.arange(60), 5, seed=5)
    own = numbers == numbers[17]
    assert before[own].tobytes() == after[own].tobytes()
    for fold in set(range(5)) - {numbers[17]}:
        assert before[numbers == fold].tobytes() != after[numbers == fold].tobytes()


def test_a_table_of_other_truths_differs_only_in_grades() -> None:
    records, truths = made_records(questions=5)
    one = table_of(records, truths).responses
    other = table_of(records, {**truths, "q2": "1000"}).responses
    np.testing.assert_array_equal(one.traits, other.traits)
    assert np.flatnonzero((one.grades != other.grades).any(axis=1)).tolist() == [2]
    assert SCHEDULE.last == one.traits.shape[1]


# --- tiers ----------------------------------------------------------------------------------------


def traced(seen: Responses, share: float = 1.0) -> Responses:
    """The same with logprobs, and a share of the responses with traces that know the grade."""
    rng, values = np.random.default_rng(0), seen.traits.copy()
    noise = rng.normal(size=(*seen.voted.shape, len(TRACE_NAMES)))
    values[..., columns_of(["mean_logprob", "logprob"])] = noise[..., :2]
    told = noise + 4 * seen.grades[..., None]
    told[rng.random(seen.voted.shape) > share] = np.nan
    values[..., columns_of(TRACE_NAMES)] = told
    return replace(seen, traits=values)


def test_traces_are_learned_from_where_nearly_all_have_them(seen: Responses) -> None:
    assert FIT.fit(traced(seen), seed=0).tier == "traces"
    assert FIT.fit(traced(seen, 0.98), seed=0).tier == "traces"
    assert FIT.fit(traced(seen, 0.6), seed=0).tier == "logprobs"
    assert FIT.fit(seen, seed=0).tier == "text"


def test_a_weigher_brings_one_for_each_lower_tier(seen: Responses) -> None:
    weigher = FIT.fit_tiers(traced(seen), seed=0)
    assert [each.tier for each in (weigher, *weigher.lower)] == ["traces", "logprobs", "text"]
    assert FIT.fit_tiers(seen, seed=0).lower == ()


def test_a_lower_weigher_is_what_the_same_questions_teach_without_the_rest(
    seen: Responses,
) -> None:
    full, bare = traced(seen), traced(seen, 0.0)
    weigher = FIT.fit_tiers(full, seed=3)
    np.testing.assert_array_equal(
        weigher.weights(bare.traits), FIT.fit(bare, seed=3).weights(bare.traits)
    )
    np.testing.assert_array_equal(
        weigher.weights(seen.traits), FIT.fit(seen, seed=3).weights(seen.traits)
    )


def test_traces_that_know_the_grade_are_used(seen: Responses) -> None:
    full = traced(seen)
    weights = FIT.fit(full, seed=0).weights(full.traits)
    right, wrong = weights[seen.grades == 1].mean(), weights[seen.grades == 0].mean()
    assert right > wrong + 0.5
