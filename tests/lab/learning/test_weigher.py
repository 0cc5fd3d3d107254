from dataclasses import replace

import numpy as np
import pytest
from made_questions import made_table

from aera.arrays import Floats
from aera.errors import ProtocolError
from aera.lab.learning.folds import deal
from aera.lab.learning.weigher import (
    OWN,
    RIDGE,
    Responses,
    descend,
    fit_shares,
    fit_tiers,
    fit_weigher,
    weigh_out_of_fold,
)
from aera.trace import TRACE_NAMES
from aera.voting.traits import TRAIT_NAMES, columns_of

EVERY = np.arange(60)


@pytest.fixture(scope="module")
def seen() -> Responses:
    table = made_table()
    return Responses(table.traits, table.voted, table.grades)


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
    return float(np.mean(shares) + OWN * own + RIDGE * weights[:-1] @ weights[:-1])


@pytest.mark.parametrize("seed", range(3))
def test_no_weights_near_the_fit_have_a_smaller_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs, counts = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4)), [10] * 6
    grades = (inputs[:, 0] + rng.normal(size=60) > 0).astype(float)
    grades[:10] = 1.0  # nothing is contested there
    found = fit_shares(inputs, grades, np.array(counts))
    least = objective(found, inputs, grades, counts)
    for step in rng.normal(size=(200, 5)):
        for size in (1e-3, 1e-2, 0.1):
            assert objective(found + size * step, inputs, grades, counts) >= least - 1e-9


def test_descending_ends_where_a_bowl_is_deepest() -> None:
    bend, low = np.diag([1.0, 100.0, 0.01]), np.array([3.0, -2.0, 50.0])

    def bowl(place: Floats) -> tuple[float, Floats]:
        apart = place - low
        return float(apart @ bend @ apart) / 2, bend @ apart

    np.testing.assert_allclose(descend(bowl, np.zeros(3)), low, atol=1e-3)


def test_what_reveals_the_truth_is_learned(seen: Responses) -> None:
    weights = fit_weigher(seen).weights(seen.traits)
    right, wrong = weights[seen.grades == 1], weights[(seen.grades == 0) & seen.voted]
    assert right.min() > wrong.max()
    assert ((weights >= 0) & (weights <= 1)).all()


def test_a_fit_is_the_same_again_and_looks_only_at_its_own_rows(seen: Responses) -> None:
    rows = np.arange(30)
    turned = replace(seen, grades=np.where(EVERY[:, None] < 30, seen.grades, 1 - seen.grades))
    one, two = (fit_weigher(each.subset(rows)) for each in (seen, turned))
    assert same(one.weights(seen.traits), two.weights(seen.traits))
    assert not same(
        fit_weigher(turned).weights(seen.traits), fit_weigher(seen).weights(seen.traits)
    )


def test_what_abstainers_look_like_is_not_part_of_the_range(seen: Responses) -> None:
    voted, traits = seen.voted.copy(), seen.traits.copy()
    voted[:, 0] = False
    plain = fit_weigher(Responses(traits, voted, seen.grades))
    traits[:, 0] = 1e6
    odd = fit_weigher(Responses(traits, voted, seen.grades))
    np.testing.assert_array_equal(plain.network.highs, odd.network.highs)
    assert same(plain.weights(seen.traits), odd.weights(seen.traits))


def test_a_missing_trait_is_filled_with_the_median_of_training(seen: Responses) -> None:
    weigher = fit_weigher(seen)
    [column] = columns_of(["answer_size"])
    missing, usual = seen.traits[:1, :1].copy(), seen.traits[:1, :1].copy()
    missing[..., column] = np.nan
    usual[..., column] = np.median(seen.traits[seen.voted][:, column])
    assert same(weigher.weights(missing), weigher.weights(usual))


@pytest.mark.parametrize("grade", [0.0, 1.0])
def test_where_everybody_is_right_or_nobody_weights_stay_finite(
    seen: Responses, grade: float
) -> None:
    weigher = fit_weigher(replace(seen, grades=np.full_like(seen.grades, grade)))
    weights = weigher.weights(seen.traits)
    assert np.isfinite(weights).all()
    assert (weights > 0.5).all() == bool(grade)


def test_a_question_that_nobody_answers_teaches_nothing(seen: Responses) -> None:
    voted = seen.voted.copy()
    voted[0] = False
    with_it = fit_weigher(Responses(seen.traits, voted, seen.grades))
    without = fit_weigher(seen.subset(EVERY[1:]))
    np.testing.assert_allclose(
        with_it.weights(seen.traits), without.weights(seen.traits), atol=1e-6
    )


def test_without_a_readable_response_nothing_can_be_weighed(seen: Responses) -> None:
    with pytest.raises(ProtocolError, match="none of the responses to learn from can be read"):
        fit_weigher(replace(seen, voted=np.zeros_like(seen.voted)))


def test_every_question_is_weighed_by_the_other_folds(seen: Responses) -> None:
    found = weigh_out_of_fold(seen, groups=EVERY, seed=2)
    for fold in deal(EVERY, seed=2):
        wanted = fit_weigher(seen.subset(fold.rest)).weights(seen.traits[fold.own])
        np.testing.assert_array_equal(found[fold.own], wanted)


# --- what responses bring -------------------------------------------------------------------------


def traced(seen: Responses, share: float) -> Responses:
    """The same with traces on this share of the responses, which know the grade."""
    traits = seen.traits.copy()
    has = np.random.default_rng(0).random(seen.grades.shape) < share
    for name in TRACE_NAMES:
        [column] = columns_of([name])
        traits[..., column] = np.where(has, seen.grades, np.nan)
    return replace(seen, traits=traits)


def test_traces_are_learned_from_where_nearly_all_have_them(seen: Responses) -> None:
    assert fit_weigher(traced(seen, 1.0)).features == TRAIT_NAMES
    assert fit_weigher(traced(seen, 0.9)).features != TRAIT_NAMES
    assert fit_weigher(traced(seen, 1.0)).tier == "traces"


def test_a_weigher_brings_one_for_each_lower_tier(seen: Responses) -> None:
    learned = traced(seen, 1.0)
    best = fit_tiers(learned)
    assert [each.tier for each in (best, *best.lower)] == ["traces", "text"]
    bare = fit_weigher(learned, without={"traces"})
    assert same(best.weights(seen.traits), bare.weights(seen.traits))
