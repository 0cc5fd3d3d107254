from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera import Schedule
from aera.arrays import Flags, Floats
from aera.lab import Trajectories
from aera.lab.learning.folds import deal
from aera.lab.learning.vote_gate import (
    RIDGE,
    advantages,
    fit_gate,
    judge_out_of_fold,
    logistic,
)
from aera.policies.features import VOTE_FEATURE_NAMES

SIZE = len(VOTE_FEATURE_NAMES)


# --- what going on is worth -----------------------------------------------------------------------


def follow(utility: list[float], rule: tuple[bool, ...], start: int) -> float:
    """What one question brings if the rule decides from `start` on."""
    column = start
    while column < len(rule) and rule[column]:
        column += 1
    return utility[column]


@settings(deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=2, max_size=5))
def test_going_on_is_worth_what_following_the_rule_brings(utility: list[float]) -> None:
    rules = list(product([False, True], repeat=len(utility) - 1))
    found = advantages(np.array([utility] * len(rules)), np.array(rules))
    for row, rule in zip(found, rules, strict=True):
        for column, worth in enumerate(row):
            wanted = follow(utility, rule, column + 1) - utility[column]
            assert worth == pytest.approx(wanted)


@settings(deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=2, max_size=5))
def test_stopping_where_nothing_is_to_be_won_beats_every_other_rule(utility: list[float]) -> None:
    """The sign of the advantage, found backwards, is the best rule there is."""
    columns = len(utility) - 1
    best = np.zeros((1, columns), dtype=np.bool_)
    for column in reversed(range(columns)):
        best[0, column] = advantages(np.array([utility]), best)[0, column] > 0
    reached = follow(utility, tuple(best[0].tolist()), 0)
    rules = product([False, True], repeat=columns)
    assert reached == pytest.approx(max(follow(utility, rule, 0) for rule in rules))


def test_a_rule_that_never_stops_compares_with_the_full_budget() -> None:
    utility = np.array([[0.1, 0.9, 0.4], [0.5, 0.2, 0.8]])
    found = advantages(utility, np.ones((2, 2), dtype=np.bool_))
    np.testing.assert_allclose(found, utility[:, -1:] - utility[:, :-1])


# --- the regression -------------------------------------------------------------------------------


def objective(weights: Floats, inputs: Floats, wanted: Floats, stakes: Floats) -> float:
    logits = inputs @ weights
    losses = np.logaddexp(0, logits) - wanted * logits
    penalties = np.array([*[RIDGE] * (len(weights) - 1), 1e-6])
    return float(stakes @ losses + 0.5 * penalties @ weights**2)


def slow(inputs: Floats, wanted: Floats, stakes: Floats) -> Floats:
    """Plain gradient descent, with a step that cannot overshoot."""
    penalties = np.array([*[RIDGE] * (inputs.shape[1] - 1), 1e-6])
    steepest = 0.25 * np.linalg.norm(inputs * np.sqrt(stakes)[:, None], 2) ** 2 + RIDGE
    weights: Floats = np.zeros(inputs.shape[1])
    for _ in range(20_000):
        chance = 1 / (1 + np.exp(-inputs @ weights))
        weights = (
            weights - (inputs.T @ (stakes * (chance - wanted)) + penalties * weights) / steepest
        )
    return weights


def problem(seed: int, rows: int = 80) -> tuple[Floats, Flags, Floats]:
    rng = np.random.default_rng(seed)
    inputs = np.column_stack([rng.normal(size=(rows, 3)), np.ones(rows)])
    wanted = inputs @ np.array([2.0, -1.0, 0.0, 0.5]) + rng.normal(size=rows) > 0
    return inputs, wanted, rng.uniform(0, 2, size=rows)


@pytest.mark.parametrize("seed", range(4))
def test_newton_ends_where_slow_descent_ends(seed: int) -> None:
    inputs, wanted, stakes = problem(seed)
    np.testing.assert_allclose(
        logistic(inputs, wanted, stakes), slow(inputs, wanted, stakes), atol=1e-4
    )


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.01, 100), st.floats(0.1, 30))
def test_nothing_near_the_fit_is_better(seed: int, scale: float, spread: float) -> None:
    inputs, wanted, stakes = problem(seed, 30)
    inputs[:, :-1] *= spread
    found = logistic(inputs, wanted, scale * stakes)
    least = objective(found, inputs, wanted, scale * stakes)
    rng = np.random.default_rng(seed)
    for step in rng.normal(size=(20, 4)) * 0.05:
        assert least <= objective(found + step, inputs, wanted, scale * stakes) + 1e-9


def test_a_stake_counts_as_often_as_it_is_high() -> None:
    inputs, wanted, _ = problem(1)
    times = np.random.default_rng(1).integers(0, 4, size=len(wanted))
    repeated = np.repeat(np.arange(len(wanted)), times)
    np.testing.assert_allclose(
        logistic(inputs, wanted, times.astype(float)),
        logistic(inputs[repeated], wanted[repeated], np.ones(len(repeated))),
        atol=1e-7,
    )


@pytest.mark.parametrize("same", [True, False])
def test_one_sided_examples_leave_finite_weights(same: bool) -> None:
    inputs, wanted, stakes = problem(2)
    found = logistic(inputs, np.full_like(wanted, same), stakes)
    assert np.isfinite(found).all()
    assert (inputs @ found > 0).all() == same


def test_nothing_at_stake_teaches_nothing() -> None:
    inputs, wanted, stakes = problem(3)
    assert not logistic(inputs, wanted, 0 * stakes).any()


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
    return known(evidence, grades, np.tile([10.0, 20.0, 40.0], (questions, 1)))


def known(features: Floats, grades: Floats, tokens: Floats) -> Trajectories:
    names = tuple(f"q{row}" for row in range(len(grades)))
    schedule = Schedule((2, 4, 8))
    return Trajectories(names, schedule, tokens, grades, {}, grades, features=features)


def chances(seen: Trajectories, other: Trajectories | None = None) -> Floats:
    """What a gate of these questions says of others, or of them."""
    features = (other or seen).features
    assert features is not None
    return fit_gate(seen).chances(features)


def test_a_gate_learns_the_feature_that_says_when_going_on_pays() -> None:
    gate, other = fit_gate(lessons(0)), lessons(1)
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


def test_a_higher_price_stops_sooner() -> None:
    seen = lessons(0)
    assert seen.features is not None
    told = [fit_gate(seen, price).chances(seen.features) for price in (0, 1, 50)]
    spent = [int((each[:, :-1] > 0.5).sum()) for each in told]
    assert spent[0] > spent[1] > spent[2]


def test_the_full_budget_is_no_example() -> None:
    seen = lessons(0)
    assert seen.features is not None
    changed = seen.features.copy()
    changed[:, -1] = 1e6
    one, other = fit_gate(seen), fit_gate(replace(seen, features=changed))
    assert one.identity == other.identity
    assert one.network.highs is not None
    assert (one.network.highs <= 1).all()


def test_neither_the_order_of_questions_nor_the_unit_of_tokens_matters() -> None:
    seen = lessons(0)
    turned = seen.take(np.random.default_rng(0).permutation(400))
    dearer = replace(seen, tokens=1000 * seen.tokens)
    weights = [fit_gate(each).network.weight for each in (seen, turned, dearer)]
    assert fit_gate(seen).identity == fit_gate(seen).identity
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-6)
    np.testing.assert_allclose(weights[2], weights[0], atol=1e-9)


def test_orders_of_one_question_share_its_stakes() -> None:
    """The same order many times over teaches what it teaches once."""
    seen = lessons(0)
    assert seen.features is not None
    thrice = seen._each(lambda values: np.repeat(values[:, None], 3, axis=1))
    one, other = fit_gate(seen), fit_gate(thrice)
    np.testing.assert_allclose(other.network.weight, one.network.weight, atol=1e-7)


def test_a_feature_that_never_varies_and_free_tokens_are_no_trouble() -> None:
    seen = lessons(0)
    assert seen.features is not None
    seen.features[:, :, 0] = 7.0
    free = replace(seen, tokens=0 * seen.tokens)
    assert np.isfinite(chances(free)).all()
    assert fit_gate(free).network.weight[0, 0] == 0


def test_out_of_fold_every_question_is_judged_by_a_gate_of_the_others() -> None:
    seen = lessons(0, questions=50)
    found = judge_out_of_fold(seen, groups=np.arange(50), seed=2)
    for fold in deal(np.arange(50), seed=2):
        wanted = chances(seen.take(fold.rest), seen.take(fold.own))
        np.testing.assert_allclose(found[fold.own], wanted)
