"""Intervals of headlines; how often they hold is counted in bench/headlines.py."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera.lab.judging.difference import FEW, paired_gap, share_interval, spent_share

grades = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40)


@pytest.mark.parametrize("questions", [5, 50, 500])
def test_where_nothing_differs_a_difference_is_still_not_ruled_out(questions: int) -> None:
    gap = paired_gap(np.ones(questions), np.ones(questions))
    assert gap.difference == 0
    assert gap.low == pytest.approx(-gap.high)
    # Never narrower than what no event in so many questions can prove (Clopper and Pearson).
    assert gap.high >= 100 * (1 - 0.025 ** (1 / questions)) - 1e-9
    assert (gap.better, gap.worse, gap.questions) == (0, 0, questions)


def test_what_few_questions_mean_is_what_the_constant_says() -> None:
    assert 8 < paired_gap(np.ones(FEW), np.ones(FEW)).high < 9


def test_it_is_the_usual_interval_where_many_questions_differ() -> None:
    # With many changed questions it is the normal approximation.
    scores = np.repeat([1.0, 0.0, 1.0], [300, 500, 9200])
    reference = np.repeat([0.0, 1.0, 1.0], [300, 500, 9200])
    gap = paired_gap(scores, reference)
    error = 100 * np.sqrt((0.08 - 0.02**2) / 10_000)
    assert gap.low == pytest.approx(-2 - 1.96 * error, abs=0.03)
    assert gap.high == pytest.approx(-2 + 1.96 * error, abs=0.03)


def test_exchanging_the_policies_turns_it_round() -> None:
    rng = np.random.default_rng(0)
    one, other = (rng.random((2, 80)) < 0.7).astype(float)
    there, back = paired_gap(one, other), paired_gap(other, one)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert (there.better, there.worse) == (back.worse, back.better)


@settings(max_examples=60, deadline=None)
@given(grades)
def test_it_holds_what_was_seen_and_stays_within_what_is_possible(
    pairs: list[tuple[float, float]],
) -> None:
    one, other = np.array(pairs).T
    gap = paired_gap(one, other)
    assert -100 <= gap.low <= gap.difference + 1e-9
    assert gap.difference - 1e-9 <= gap.high <= 100
    assert gap.low < gap.high


def test_more_questions_make_it_narrower() -> None:
    widths = []
    for times in (1, 4, 16):
        gap = paired_gap(np.tile([1.0, 0, 1, 1], 10 * times), np.tile([1.0, 1, 1, 1], 10 * times))
        widths.append(gap.high - gap.low)
    assert widths == sorted(widths, reverse=True)


def test_a_share_of_everything_is_not_certain() -> None:
    low, high = share_interval(1.0, 5)
    assert 0.5 < low < 0.6
    assert high == 1


def test_what_is_spent_is_the_share_of_the_sum() -> None:
    spent, full = np.array([10.0, 30, 5] * 20), np.array([100.0, 300, 100] * 20)
    share = spent_share(spent, full)
    assert share.percent == pytest.approx(9)
    assert 0 < share.low < 9 < share.high < 15


def test_what_always_spends_alike_is_not_certain_to_go_on_so() -> None:
    share = spent_share(np.full(60, 4.0), np.full(60, 128.0))
    assert share.low == pytest.approx(share.percent)
    assert share.high > share.percent + 1


def test_the_full_budget_is_a_hundred_percent() -> None:
    share = spent_share(np.full(9, 7.0), np.full(9, 7.0))
    assert (share.percent, share.high) == (100, 100)
