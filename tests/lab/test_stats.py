"""Estimates: value, bounds and p by one method; how often they hold is in bench/headlines.py."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera.lab import stats

GRADES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40)


# --- grades ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("questions", [5, 50, 500])
def test_where_nothing_differs_a_difference_is_still_not_ruled_out(questions: int) -> None:
    gap = stats.paired_gap(np.ones(questions), np.ones(questions))
    assert (gap.value, gap.p) == (0, 1)
    assert gap.low == pytest.approx(-gap.high)
    # Never narrower than what no event in so many questions can prove (Clopper and Pearson).
    assert gap.high >= 100 * (1 - 0.025 ** (1 / questions)) - 1e-9
    assert (gap.better, gap.worse, gap.questions) == (0, 0, questions)


def test_p_is_that_of_mcnemar_with_half_a_question_taken_off() -> None:
    gap = stats.paired_gap(np.repeat([1.0, 0.0, 1.0], [4, 15, 81]), np.repeat([0.0, 1.0], [4, 96]))
    z = (11 - 0.5) / math.sqrt(19)
    assert gap.p == pytest.approx(math.erfc(z / math.sqrt(2)))


@settings(max_examples=100)
@given(GRADES)
def test_bounds_and_p_agree_hold_what_was_seen_and_stay_within_what_is_possible(
    pairs: list[tuple[float, float]],
) -> None:
    one, other = np.array(pairs).T
    gap, back = stats.paired_gap(one, other), stats.paired_gap(other, one)
    assert -100 <= gap.low <= gap.value + 1e-9
    assert gap.value - 1e-9 <= gap.high <= 100
    assert gap.low < gap.high
    assert (gap.low, gap.high, gap.p) == pytest.approx((-back.high, -back.low, back.p))
    if abs(gap.p - 0.05) > 1e-9:
        assert (gap.p < 0.05) == (gap.low > 0 or gap.high < 0)


def test_few_questions_and_a_share_of_everything_are_not_certain() -> None:
    assert 8 < stats.paired_gap(np.ones(stats.FEW), np.ones(stats.FEW)).high < 9
    low, high = stats.share_interval(1.0, 5)
    assert 0.5 < low < 0.6
    assert high == 1


# --- what is spent --------------------------------------------------------------------------------


def test_what_is_spent_is_the_share_of_the_sum_and_the_rest_is_saved() -> None:
    spent, full = np.array([10.0, 30, 5] * 20), np.array([100.0, 300, 100] * 20)
    share, saved = stats.spent_share(spent, full), stats.saved_share(spent, full)
    assert share.value == pytest.approx(9)
    assert 0 < share.low < 9 < share.high < 15
    assert (saved.value, saved.low, saved.high) == pytest.approx(
        (91, 100 - share.high, 100 - share.low)
    )


@pytest.mark.parametrize(("each", "full", "value"), [(4.0, 128.0, 3.125), (7, 7, 100), (0, 0, 100)])
def test_what_always_spends_alike_may_not_go_on_so(each: float, full: float, value: float) -> None:
    share = stats.spent_share(np.full(60, each), np.full(60, full))
    assert share.value == value
    assert share.low == pytest.approx(value)
    assert share.high > value + 1 or share.high == 100


# --- by resampling --------------------------------------------------------------------------------


def test_a_bootstrap_is_the_normal_one_on_a_large_sample() -> None:
    differences = np.random.default_rng(2).normal(0, 1, 2_000)
    error = differences.std() / math.sqrt(2_000)
    differences += 2 * error - differences.mean()
    found = stats.paired_bootstrap(differences, np.zeros(2_000), seed=1)
    assert (found.low, found.high) == pytest.approx((0.04 * error, 3.96 * error), abs=0.004)
    assert found.p == pytest.approx(0.0455, abs=0.008)
    counts = int((differences > 0).sum()), int((differences < 0).sum())
    assert (found.better, found.worse, found.questions) == (*counts, 2_000)


def test_p_is_never_zero_and_one_where_nothing_differs() -> None:
    clear = stats.paired_bootstrap(np.ones(50), np.zeros(50), resamples=999, seed=0)
    assert clear.p == pytest.approx(2 / 1_000)
    same = stats.paired_bootstrap(np.ones(4), np.ones(4), seed=0)
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_a_seed_decides_and_neither_chunks_nor_company(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(7).random((4, 60)).round()
    alone, again, other = (
        stats.paired_bootstrap(scores[2], scores[1], resamples=500, seed=seed) for seed in (8, 8, 9)
    )
    assert alone == again
    assert (alone.low, alone.high) != (other.low, other.high)
    assert stats.paired_bootstraps(scores - scores[1], resamples=500, seed=8)[2] == alone
    monkeypatch.setattr("aera.lab.stats.CHUNK", 60 * 64)
    assert stats.paired_bootstrap(scores[2], scores[1], resamples=500, seed=8) == alone


def test_a_ratio_weighs_questions_by_their_tokens() -> None:
    half = stats.bootstrap_ratio(np.array([50.0, 100, 30]), np.array([100.0, 200, 60]), seed=0)
    # Half on every question: no draw of questions can change the ratio.
    assert (half.value, half.low, half.high) == pytest.approx((50, 50, 50))
    rare = stats.bootstrap_ratio(np.array([0.0, 900]), np.array([100.0, 900]), seed=0)
    assert (rare.value, rare.low, rare.high) == pytest.approx((10, 0, 100))


# --- the same stops, dealt at random --------------------------------------------------------------


def test_matched_random_keeps_the_stops_of_every_fold() -> None:
    # A grade that depends on fold and checkpoint only cannot change unless stops leave their fold.
    rng = np.random.default_rng(14)
    folds, stops = np.arange(100) % 4, rng.integers(6, size=100)
    result = stats.matched_random(rng.random((4, 6))[folds], stops, folds=folds, seed=0)
    assert result["mean"] == pytest.approx(result["observed"])
    assert result["p"] == 1.0


def test_matched_random_finds_a_policy_that_stops_the_right_questions() -> None:
    recovery = np.random.default_rng(15).integers(6, size=200)
    grades = (np.arange(6) >= recovery[:, None]).astype(float)
    folds = np.arange(200) % 5
    one, again, other = (
        stats.matched_random(grades, recovery, folds=folds, permutations=999, seed=seed)
        for seed in (0, 0, 1)
    )
    assert (one["observed"], one["p"]) == (1.0, pytest.approx(1 / 1_000))
    assert one == again
    assert 0 < one["mean"] != other["mean"] < 0.7


def test_matched_random_p_is_uniform_when_stops_are_random() -> None:
    rng = np.random.default_rng(16)
    folds, p_values = np.arange(120) % 3, []
    for study in range(300):
        grades, stops = rng.random((120, 4)), rng.integers(4, size=120)
        p_values.append(
            stats.matched_random(grades, stops, folds=folds, permutations=99, seed=study)["p"]
        )
    assert np.mean(np.array(p_values) <= 0.1) == pytest.approx(0.1, abs=3 * math.sqrt(0.09 / 300))
