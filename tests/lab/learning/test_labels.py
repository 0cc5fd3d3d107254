import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from aera.arrays import Floats
from aera.lab.learning.labels import continuation_labels, one_shot_targets

SHAPE = (4, 5)
BINARY = arrays(np.float64, SHAPE, elements=st.sampled_from([0.0, 1.0]))
GRADED = arrays(np.float64, SHAPE, elements=st.integers(0, 8).map(lambda n: n / 8))
COSTS = arrays(np.float64, SHAPE, elements=st.integers(1, 900)).map(lambda c: c.cumsum(axis=1))
WEIGHT = st.floats(0, 0.999)


def brute_gain(grades: Floats, costs: Floats, weight: float, *, c: int) -> float:
    """Eq. 1 for one question, the best over all later checkpoints."""
    return max(
        grades[t] - grades[c] - weight * (costs[t] - costs[c]) / costs[-1]
        for t in range(c + 1, len(grades))
    )


def recoverable(grades: Floats) -> list[list[bool]]:
    """Wrong now and right later: what the labels are when grades are 0 or 1 (Eq. 3)."""
    return [[row[c] == 0 and row[c + 1 :].any() for c in range(len(row))] for row in grades]


@given(GRADED, COSTS, st.floats(0, 3), st.floats(-0.5, 0.5))
def test_a_label_says_that_some_later_checkpoint_gains_more_than_the_margin(
    grades: Floats, costs: Floats, weight: float, margin: float
) -> None:
    labels = continuation_labels(grades, costs, cost_weight=weight, margin=margin)
    for q in range(4):
        gains = [brute_gain(grades[q], costs[q], weight, c=c) for c in range(4)]
        assume(all(abs(gain - margin) > 1e-9 for gain in gains))
        assert labels[q].tolist() == [*(gain > margin for gain in gains), False]


@given(BINARY, COSTS, WEIGHT)
def test_with_right_and_wrong_only_the_label_is_recoverability_whatever_tokens_cost(
    grades: Floats, costs: Floats, weight: float
) -> None:
    labels = continuation_labels(grades, costs, cost_weight=weight)
    assert labels.tolist() == recoverable(grades)


def test_with_graded_rewards_the_price_of_tokens_decides() -> None:
    grades, costs = np.array([[0.5, 0.7]]), np.array([[50.0, 100.0]])
    assert continuation_labels(grades, costs, cost_weight=0.1)[0, 0]
    assert not continuation_labels(grades, costs, cost_weight=0.5)[0, 0]


def test_equal_utilities_are_no_gain_and_free_responses_divide_nothing_by_zero() -> None:
    grades, costs = np.array([[0.3, 0.1 + 0.2, 0.3]]), np.array([[1.0, 2.0, 3.0]])
    assert not continuation_labels(grades, costs, cost_weight=0.0).any()
    labels = continuation_labels(np.array([[0.0, 1.0]]), np.zeros((1, 2)))
    assert labels.tolist() == [[True, False]]


@given(BINARY, COSTS, WEIGHT)
def test_who_knows_the_labels_stops_at_the_earliest_recovery_or_at_once(
    grades: Floats, costs: Floats, weight: float
) -> None:
    stops = np.argmin(continuation_labels(grades, costs, cost_weight=weight), axis=1)
    for row, stop in zip(grades, stops, strict=True):
        assert stop == (row.argmax() if row.any() else 0)


@given(GRADED, COSTS, st.floats(0, 3))
def test_one_shot_aims_at_the_cheapest_checkpoint_of_highest_utility(
    grades: Floats, costs: Floats, weight: float
) -> None:
    targets = one_shot_targets(grades, costs, cost_weight=weight)
    for row, cost, target in zip(grades, costs, targets, strict=True):
        utility = [g - weight * k / cost[-1] for g, k in zip(row, cost, strict=True)]
        best = max(utility)
        assert target == next(i for i, u in enumerate(utility) if u >= best - 1e-12)
