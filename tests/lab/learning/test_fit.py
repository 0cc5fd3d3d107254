"""The weigher and the gate, each held against a slower way to find the same."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_questions import made_table, trajectories_of

from aera.arrays import Flags, Floats
from aera.errors import ProtocolError
from aera.lab import Dataset, Trajectories
from aera.lab.learning import fit
from aera.lab.learning.folds import deal
from aera.policies.gate import VOTE_FEATURE_NAMES
from aera.trace import TRACE_NAMES
from aera.voting.traits import TRAIT_NAMES, UNTRACED, columns_of
from aera.voting.weigher import Weigher

EVERY, SIZE = np.arange(60), len(VOTE_FEATURE_NAMES)


@pytest.fixture(scope="module")
def seen() -> Dataset:
    return made_table()


def weigher_of(seen: Dataset, **known: Floats) -> Weigher:
    """Taught by all of these questions, some arrays of theirs exchanged."""
    return fit.fit_weigher(*replace(seen, **known).examples(EVERY))


def same(one: Floats, other: Floats) -> bool:
    return one.tobytes() == other.tobytes()


# --- the fit --------------------------------------------------------------------------------------


def objective(weights: Floats, inputs: Floats, grades: Floats, counts: list[int]) -> float:
    """The loss as it is written down, question by question."""
    chance = 1 / (1 + np.exp(-(inputs @ weights[:-1] + weights[-1])))
    ends, shares = np.cumsum(counts), []
    for start, end in zip(ends - counts, ends, strict=True):
        right = (chance * grades)[start:end].sum()
        if 0 < grades[start:end].sum() < end - start:
            shares.append(-np.log(right / chance[start:end].sum()))
    own = -np.mean(grades * np.log(chance) + (1 - grades) * np.log(1 - chance))
    return float(np.mean(shares) + fit.OWN * own + fit.RIDGE * weights[:-1] @ weights[:-1])


@pytest.mark.parametrize("seed", range(3))
def test_no_weights_near_the_fit_have_a_smaller_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs, counts = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4)), [10] * 6
    grades = (inputs[:, 0] + rng.normal(size=60) > 0).astype(float)
    grades[:10] = 1.0  # nothing is contested there
    found = fit.fit_shares(inputs, grades, np.array(counts))
    least = objective(found, inputs, grades, counts)
    for step in rng.normal(size=(200, 5)):
        for size in (1e-3, 1e-2, 0.1):
            assert objective(found + size * step, inputs, grades, counts) >= least - 1e-9


def test_what_abstainers_look_like_is_not_part_of_the_range(seen: Dataset) -> None:
    answers, traits = seen.answers.copy(), seen.traits.copy()
    answers[:, 0] = -1
    plain = weigher_of(seen, answers=answers)
    traits[:, 0] = 1e6
    odd = weigher_of(seen, answers=answers, traits=traits)
    np.testing.assert_array_equal(plain.network.highs, odd.network.highs)
    assert same(plain.weights(seen.traits), odd.weights(seen.traits))


@pytest.mark.parametrize("grade", [0.0, 1.0])
def test_where_all_are_right_or_nobody_weights_stay_finite(seen: Dataset, grade: float) -> None:
    weigher = weigher_of(seen, grades=np.full_like(seen.grades, grade))
    weights = weigher.weights(seen.traits)
    assert np.isfinite(weights).all()
    assert (weights > 0.5).all() == bool(grade)


def test_without_a_readable_response_nothing_can_be_weighed(seen: Dataset) -> None:
    with pytest.raises(ProtocolError, match="none of the responses to learn from can be read"):
        weigher_of(seen, answers=np.full_like(seen.answers, -1))


# --- what responses bring -------------------------------------------------------------------------


def traced(seen: Dataset, share: float) -> Dataset:
    """The same with traces on this share of the responses, which know the grade."""
    traits = seen.traits.copy()
    has = np.random.default_rng(0).random(seen.grades.shape) < share
    for name in TRACE_NAMES:
        [column] = columns_of([name])
        traits[..., column] = np.where(has, seen.grades, np.nan)
    return replace(seen, traits=traits)


def test_traces_are_learned_from_where_nearly_all_have_them(seen: Dataset) -> None:
    best, most = (weigher_of(traced(seen, share)) for share in (1.0, 0.9))
    assert (best.features, best.tier) == (TRAIT_NAMES[2:], "traces")  # all but sums of logprobs
    assert most.features == UNTRACED[2:]


def test_a_weigher_brings_one_for_each_lower_tier(seen: Dataset) -> None:
    learned = traced(seen, 1.0)
    best = fit.fit_tiers(*learned.examples(EVERY))
    assert [each.tier for each in (best, *best.lower)] == ["traces", "text"]
    bare = fit.fit_weigher(*learned.examples(EVERY), without={"traces"})
    assert same(best.weights(seen.traits), bare.weights(seen.traits))


# --- what going on is worth -----------------------------------------------------------------------


def follow(utility: list[float], rule: tuple[bool, ...], start: int) -> float:
    """What one question brings if the rule decides from `start` on."""
    column = start
    while column < len(rule) and rule[column]:
        column += 1
    return utility[column]


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=5))
def test_going_on_is_worth_what_following_the_rule_brings(utility: list[float]) -> None:
    rules = list(product([False, True], repeat=len(utility) - 1))
    found = fit.advantages(np.array([utility] * len(rules)), np.array(rules))
    for row, rule in zip(found, rules, strict=True):
        for column, worth in enumerate(row):
            wanted = follow(utility, rule, column + 1) - utility[column]
            assert worth == pytest.approx(wanted)


# --- the regression -------------------------------------------------------------------------------


def problem(seed: int, rows: int = 80) -> tuple[Floats, Flags, Floats]:
    rng = np.random.default_rng(seed)
    inputs = np.column_stack([rng.normal(size=(rows, 3)), np.ones(rows)])
    wanted = inputs @ np.array([2.0, -1.0, 0.0, 0.5]) + rng.normal(size=rows) > 0
    return inputs, wanted, rng.uniform(0, 2, size=rows)


@pytest.mark.parametrize("same", [True, False])
def test_one_sided_examples_leave_finite_weights_and_nothing_at_stake_none(same: bool) -> None:
    inputs, wanted, stakes = problem(2)
    found = fit.logistic(inputs, np.full_like(wanted, same), stakes)
    assert np.isfinite(found).all()
    assert (inputs @ found > 0).all() == same
    assert not fit.logistic(inputs, wanted, 0 * stakes).any()


# --- the gate -------------------------------------------------------------------------------------


def lessons(seed: int, questions: int = 400) -> Trajectories:
    """Going on pays exactly where the fourth feature is above one half."""
    rng = np.random.default_rng(seed)
    evidence = rng.uniform(size=(questions, 3, SIZE))
    hopeful = evidence[:, 0, 3] > 0.5
    evidence[:, 1, 3] = np.where(hopeful, evidence[:, 1, 3], 0.5 * evidence[:, 1, 3])
    grades = np.stack([~hopeful, np.ones(questions), np.ones(questions)], axis=1).astype(float)
    # Wrong until the end where the second look is hopeful too.
    grades[:, 1] = np.where(evidence[:, 1, 3] > 0.5, 0.0, 1.0)
    return replace(trajectories_of(grades), features=evidence)


def chances(seen: Trajectories, other: Trajectories | None = None) -> Floats:
    """What a gate of these questions says of others, or of them."""
    return fit.fit_gate(seen).chances((other or seen).features)


def test_a_gate_learns_the_feature_that_says_when_going_on_pays() -> None:
    gate, other = fit.fit_gate(lessons(0)), lessons(1)
    goes_on = chances(lessons(0), other)[:, 0] > 0.5
    assert (goes_on == (other.known_grades[:, 0] == 0)).mean() > 0.9
    weights = np.abs(gate.network.weight[0])
    assert weights.argmax() == 3
    assert weights[3] > 5 * np.delete(weights, 3).max()


def test_the_gate_stops_where_going_on_never_pays_and_goes_on_where_it_does() -> None:
    seen = lessons(0)
    for grades in (np.zeros((400, 3)), np.ones((400, 3))):
        assert (chances(replace(seen, grades=grades)) < 0.5).all()
    late = np.tile([0.0, 0.0, 1.0], (400, 1))
    cheap = replace(seen, grades=late, tokens=np.tile([10.0, 11.0, 12.0], (400, 1)))
    assert (chances(cheap)[:, :-1] > 0.5).all()
    dear = replace(seen, grades=late / 2, tokens=np.tile([1.0, 20.0, 400.0], (400, 1)))
    assert (chances(dear)[:, :-1] < 0.5).all()


def test_a_feature_that_never_varies_and_free_tokens_are_no_trouble() -> None:
    seen = lessons(0)
    seen.features[:, :, 0] = 7.0
    free = replace(seen, tokens=0 * seen.tokens)
    assert np.isfinite(chances(free)).all()
    assert fit.fit_gate(free).network.weight[0, 0] == 0


def test_out_of_fold_every_question_is_judged_by_a_gate_of_the_others() -> None:
    seen = lessons(0, questions=50)
    found = fit.judge_out_of_fold(seen, groups=np.arange(50), seed=2)
    for fold in deal(np.arange(50), seed=2):
        wanted = chances(seen.take(fold.rest), seen.take(fold.own))
        np.testing.assert_allclose(found[fold.own], wanted)
