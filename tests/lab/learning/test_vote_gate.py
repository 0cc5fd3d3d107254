from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera.arrays import Flags, Floats
from aera.lab.learning import vote_gate
from aera.lab.learning.folds import deal
from aera.lab.learning.labels import utilities
from aera.lab.learning.vote_gate import (
    VoteGateFit,
    VoteStates,
    advantages,
    logistic,
)
from aera.network import Network
from aera.policies.features import VOTE_FEATURE_NAMES

SIZE = len(VOTE_FEATURE_NAMES)
FIT = VoteGateFit()


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


def regress(inputs: Floats, wanted: Flags, stakes: Floats) -> Floats:
    return logistic(inputs, wanted, stakes, ridge=FIT.ridge)


def objective(weights: Floats, inputs: Floats, wanted: Floats, stakes: Floats) -> float:
    logits = inputs @ weights
    losses = np.logaddexp(0, logits) - wanted * logits
    penalties = np.array([*[FIT.ridge] * (len(weights) - 1), 1e-6])
    return float(stakes @ losses + 0.5 * penalties @ weights**2)


def slow(inputs: Floats, wanted: Floats, stakes: Floats) -> Floats:
    """Plain gradient descent, with a step that cannot overshoot."""
    penalties = np.array([*[FIT.ridge] * (inputs.shape[1] - 1), 1e-6])
    steepest = 0.25 * np.linalg.norm(inputs * np.sqrt(stakes)[:, None], 2) ** 2 + FIT.ridge
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
        regress(inputs, wanted, stakes), slow(inputs, wanted, stakes), atol=1e-4
    )


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.01, 100), st.floats(0.1, 30))
def test_nothing_near_the_fit_is_better(seed: int, scale: float, spread: float) -> None:
    inputs, wanted, stakes = problem(seed, 30)
    inputs[:, :-1] *= spread
    found = regress(inputs, wanted, scale * stakes)
    least = objective(found, inputs, wanted, scale * stakes)
    rng = np.random.default_rng(seed)
    for step in rng.normal(size=(20, 4)) * 0.05:
        assert least <= objective(found + step, inputs, wanted, scale * stakes) + 1e-9


def test_a_stake_counts_as_often_as_it_is_high() -> None:
    inputs, wanted, _ = problem(1)
    times = np.random.default_rng(1).integers(0, 4, size=len(wanted))
    repeated = np.repeat(np.arange(len(wanted)), times)
    np.testing.assert_allclose(
        regress(inputs, wanted, times.astype(float)),
        regress(inputs[repeated], wanted[repeated], np.ones(len(repeated))),
        atol=1e-7,
    )


@pytest.mark.parametrize("same", [True, False])
def test_one_sided_examples_leave_finite_weights(same: bool) -> None:
    inputs, wanted, stakes = problem(2)
    found = regress(inputs, np.full_like(wanted, same), stakes)
    assert np.isfinite(found).all()
    assert (inputs @ found > 0).all() == same


def test_nothing_at_stake_teaches_nothing() -> None:
    inputs, wanted, stakes = problem(3)
    assert not regress(inputs, wanted, 0 * stakes).any()


# --- the gate -------------------------------------------------------------------------------------


def lessons(seed: int, questions: int = 400) -> VoteStates:
    """Going on pays exactly where the fourth feature is above one half."""
    rng = np.random.default_rng(seed)
    evidence = rng.uniform(size=(questions, 3, SIZE))
    hopeful = evidence[:, 0, 3] > 0.5
    evidence[:, 1, 3] = np.where(hopeful, evidence[:, 1, 3], 0.5 * evidence[:, 1, 3])
    grades = np.stack([~hopeful, np.ones(questions), np.ones(questions)], axis=1).astype(float)
    # Wrong until the end where the second look is hopeful too.
    grades[:, 1] = np.where(evidence[:, 1, 3] > 0.5, 0.0, 1.0)
    tokens = np.tile([10.0, 20.0, 40.0], (questions, 1))
    return VoteStates(evidence, grades, tokens)


def test_a_gate_learns_the_feature_that_says_when_going_on_pays() -> None:
    gate, other = FIT.fit(lessons(0)), lessons(1)
    goes_on = gate.chances(other.evidence)[:, 0] > 0.5
    assert (goes_on == (other.grades[:, 0] == 0)).mean() > 0.9
    weights = np.abs(gate.network.weight[0])
    assert weights.argmax() == 3
    assert weights[3] > 5 * np.delete(weights, 3).max()


def test_where_going_on_never_pays_the_gate_stops() -> None:
    states = lessons(0)
    for grades in (np.zeros((400, 3)), np.ones((400, 3))):
        gate = FIT.fit(replace(states, grades=grades))
        assert (gate.chances(states.evidence) < 0.5).all()


def test_where_it_always_pays_the_gate_goes_on() -> None:
    evidence = lessons(0).evidence
    hopeful = VoteStates(
        evidence,
        grades=np.tile([0.0, 0.0, 1.0], (400, 1)),
        tokens=np.tile([10.0, 11.0, 12.0], (400, 1)),
    )
    assert (FIT.fit(hopeful).chances(evidence)[:, :-1] > 0.5).all()
    assert FIT.price == 1.0
    hopeless = VoteStates(
        evidence,
        grades=np.tile([0.0, 0.0, 0.5], (400, 1)),
        tokens=np.tile([1.0, 20.0, 400.0], (400, 1)),
    )
    assert (FIT.fit(hopeless).chances(evidence)[:, :-1] < 0.5).all()


def test_the_price_may_be_stated() -> None:
    states = lessons(0)
    cheap, usual, dear = (VoteGateFit(price=p).fit(states) for p in (0, FIT.price, 50))
    assert usual.identity == FIT.fit(states).identity
    spent = [(gate.chances(states.evidence)[:, :-1] > 0.5).sum() for gate in (cheap, usual, dear)]
    assert spent[0] > spent[1] > spent[2]


def test_the_full_budget_is_no_example() -> None:
    states = lessons(0)
    changed = states.evidence.copy()
    changed[:, -1] = 1e6
    one, other = FIT.fit(states), FIT.fit(replace(states, evidence=changed))
    assert one.identity == other.identity
    assert one.network.highs is not None
    assert (one.network.highs <= 1).all()


def test_fitting_twice_gives_the_same_gate_and_no_other_order_of_questions_another() -> None:
    states = lessons(0)
    one, two = FIT.fit(states), FIT.fit(states)
    assert one.identity == two.identity
    turned = FIT.fit(states.subset(np.random.default_rng(0).permutation(400)))
    np.testing.assert_allclose(turned.network.weight, one.network.weight, atol=1e-6)


def test_the_unit_of_tokens_does_not_matter() -> None:
    states = lessons(0)
    one, other = (FIT.fit(replace(states, tokens=states.tokens * unit)) for unit in (1.0, 1000.0))
    np.testing.assert_allclose(one.network.weight, other.network.weight, atol=1e-9)


def test_a_feature_that_never_varies_and_free_tokens_are_no_trouble() -> None:
    states = lessons(0)
    states.evidence[:, :, 0] = 7.0
    gate = FIT.fit(replace(states, tokens=0 * states.tokens))
    assert np.isfinite(gate.chances(states.evidence)).all()
    assert gate.network.weight[0, 0] == 0


def test_the_rule_shapes_its_own_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first round, what going on brings depends on where the rule will stop."""
    seen: list[Floats] = []

    def watched(inputs: Floats, wanted: Flags, stakes: Floats, *, ridge: float) -> Floats:
        seen.append(stakes)
        return logistic(inputs, wanted, stakes, ridge=ridge)

    monkeypatch.setattr(vote_gate, "logistic", watched)
    states = lessons(0)
    gate = FIT.fit(states)
    assert len(seen) == FIT.rounds == 4
    utility = utilities(states.grades, states.tokens / 40.0, FIT.price)
    never = np.abs(utility[:, -1:] - utility[:, :-1]).ravel()
    np.testing.assert_allclose(seen[0], never)
    assert not np.allclose(seen[1], never)
    assert isinstance(gate.network, Network)
    assert gate.network.layers == ()


def test_out_of_fold_every_question_is_judged_by_a_gate_of_the_others() -> None:
    states = lessons(0, questions=50)
    found = FIT.out_of_fold(states, groups=np.arange(len(states)), seed=2)
    for fold in deal(np.arange(50), seed=2):
        gate = FIT.fit(states.subset(fold.rest))
        np.testing.assert_allclose(found[fold.own], gate.chances(states.evidence[fold.own]))
