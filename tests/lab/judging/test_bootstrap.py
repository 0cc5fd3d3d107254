import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera.lab.judging.bootstrap import (
    Interval,
    bootstrap_ratio,
    bootstrap_ratios,
    compare_all,
    matched_random,
    paired_bootstrap,
)


def test_counts_say_on_how_many_questions_the_first_was_better() -> None:
    result = paired_bootstrap(np.array([1.0, 1, 0, 0, 1]), np.array([0.0, 0, 1, 0, 1]), seed=0)
    assert (result.higher, result.lower, result.equal) == (2, 1, 2)
    assert result.difference == pytest.approx(0.2)


def test_interval_matches_the_normal_one_on_a_large_sample() -> None:
    rng = np.random.default_rng(0)
    scores, reference = rng.normal(0.1, 1, 2_000), rng.normal(0, 1, 2_000)
    result = paired_bootstrap(scores, reference, seed=1)
    half = 1.96 * (scores - reference).std() / math.sqrt(2_000)
    centre = (scores - reference).mean()
    assert (result.low, result.high) == pytest.approx((centre - half, centre + half), abs=0.004)


def test_two_sided_p_matches_the_normal_one() -> None:
    differences = np.random.default_rng(2).normal(0, 1, 1_000)
    differences += 2 * differences.std() / math.sqrt(1_000) - differences.mean()
    result = paired_bootstrap(differences, np.zeros(1_000), seed=1)
    assert result.p == pytest.approx(0.0455, abs=0.008)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    inside = 0
    for study in range(400):
        differences = rng.choice([-1.0, 0, 1], size=200, p=[0.1, 0.75, 0.15])
        result = paired_bootstrap(differences, np.zeros(200), resamples=400, seed=study, level=0.9)
        inside += result.low <= 0.05 <= result.high
    assert inside / 400 == pytest.approx(0.9, abs=3 * math.sqrt(0.09 / 400))


def test_equal_policies_have_no_difference_and_p_one() -> None:
    scores = np.array([1.0, 0, 1, 0.5])
    assert paired_bootstrap(scores, scores, seed=0) == Interval(0, 0, 0, 1.0, 0, 0, 4)


def test_p_is_never_zero_however_clear_the_difference() -> None:
    result = paired_bootstrap(np.ones(50), np.zeros(50), resamples=999, seed=0)
    assert result.p == pytest.approx(2 / 1_000)


def test_pairing_removes_what_questions_have_in_common() -> None:
    rng = np.random.default_rng(4)
    hardness = rng.random(300)
    result = paired_bootstrap(hardness + 0.01, hardness, seed=0)
    assert result.low == pytest.approx(0.01)
    assert result.high == pytest.approx(0.01)


def test_swapping_the_policies_mirrors_the_interval() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random((2, 100)).round()
    one, other = paired_bootstrap(a, b, seed=6), paired_bootstrap(b, a, seed=6)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    assert (one.p, one.higher, one.lower) == (other.p, other.lower, other.higher)


def test_all_pairs_get_the_interval_they_would_get_alone() -> None:
    rng = np.random.default_rng(7)
    scores, references = rng.random((3, 60)).round(), rng.random((2, 60)).round()
    table = compare_all(scores, references, resamples=500, seed=8)
    assert [len(row) for row in table] == [2, 2, 2]
    assert table[2][1] == paired_bootstrap(scores[2], references[1], resamples=500, seed=8)


def test_seed_decides_everything() -> None:
    a, b = np.random.default_rng(9).random((2, 80))
    runs = [paired_bootstrap(a, b, resamples=500, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0].low != runs[2].low


def test_results_do_not_depend_on_how_draws_are_chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.random.default_rng(10).random((2, 50)).round()
    whole = paired_bootstrap(a, b, resamples=1_000, seed=1)
    monkeypatch.setattr("aera.lab.judging.bootstrap.CHUNK", 50 * 64)
    assert paired_bootstrap(a, b, resamples=1_000, seed=1) == whole


def test_wider_level_gives_a_wider_interval() -> None:
    a, b = np.random.default_rng(11).random((2, 80))
    narrow, wide = (paired_bootstrap(a, b, seed=1, level=level) for level in (0.8, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_saving_is_the_share_of_tokens_not_spent() -> None:
    saving = bootstrap_ratio(np.array([50.0, 100, 30]), np.array([100.0, 200, 60]), seed=0)
    # Half on every question: no draw of questions can change the ratio.
    assert (saving.percent, saving.low, saving.high) == pytest.approx((50, 50, 50))


def test_saving_weighs_questions_by_their_tokens() -> None:
    saving = bootstrap_ratio(np.array([0.0, 900]), np.array([100.0, 900]), seed=0)
    assert saving.percent == pytest.approx(10)
    assert (saving.low, saving.high) == pytest.approx((0, 100))


def test_saving_interval_matches_the_delta_method() -> None:
    rng = np.random.default_rng(12)
    full = rng.uniform(500, 1_500, 1_000)
    spent = full * rng.uniform(0.2, 0.8, 1_000)
    saving = bootstrap_ratio(spent, full, seed=1)
    ratio = spent.sum() / full.sum()
    half = 196 * (spent - ratio * full).std() / full.mean() / math.sqrt(1_000)
    assert saving.high - saving.low == pytest.approx(2 * half, rel=0.05)
    assert saving.low < saving.percent < saving.high


def test_savings_of_many_policies_equal_savings_one_by_one() -> None:
    spent, full = np.random.default_rng(13).uniform(1, 2, (4, 70)), np.full(70, 3.0)
    together = bootstrap_ratios(spent, full, resamples=300, seed=2)
    alone = bootstrap_ratio(spent[3], full, resamples=300, seed=2)
    assert (together[3].low, together[3].high) == pytest.approx((alone.low, alone.high))


def test_matched_random_keeps_the_stops_of_every_fold() -> None:
    # A grade that depends on fold and checkpoint only cannot change unless stops leave their fold.
    rng = np.random.default_rng(14)
    folds, stops = np.arange(100) % 4, rng.integers(6, size=100)
    grades = rng.random((4, 6))[folds]
    result = matched_random(grades, stops, folds=folds, permutations=500, seed=0)
    assert result.mean == pytest.approx(result.observed)
    assert result.p == 1.0


def test_matched_random_permutes_within_the_fold() -> None:
    # Two questions, right only with each other's stop or their own: one deal in two is right.
    grades = np.eye(2)
    apart = matched_random(grades, np.array([0, 1]), folds=np.array([0, 1]), seed=0)
    together = matched_random(grades, np.array([0, 1]), folds=np.array([0, 0]), seed=0)
    assert (apart.mean, apart.p) == (1.0, 1.0)
    assert together.mean == pytest.approx(0.5, abs=0.02)
    assert together.p == pytest.approx(0.5, abs=0.02)


def test_matched_random_finds_a_policy_that_stops_the_right_questions() -> None:
    rng = np.random.default_rng(15)
    recovery = rng.integers(6, size=200)
    grades = (np.arange(6) >= recovery[:, None]).astype(float)
    result = matched_random(grades, recovery, folds=np.arange(200) % 5, permutations=999, seed=0)
    assert result.observed == 1.0
    assert result.mean < 0.7
    assert result.p == pytest.approx(1 / 1_000)


def test_matched_random_p_is_uniform_when_stops_are_random() -> None:
    rng = np.random.default_rng(16)
    folds = np.arange(120) % 3
    p_values = []
    for study in range(300):
        grades, stops = rng.random((120, 4)), rng.integers(4, size=120)
        p_values.append(matched_random(grades, stops, folds=folds, permutations=99, seed=study).p)
    assert np.mean(np.array(p_values) <= 0.1) == pytest.approx(0.1, abs=3 * math.sqrt(0.09 / 300))


def test_matched_random_is_decided_by_its_seed() -> None:
    rng = np.random.default_rng(17)
    grades, stops, folds = rng.random((40, 3)), rng.integers(3, size=40), np.zeros(40, dtype=int)
    runs = [
        matched_random(grades, stops, folds=folds, permutations=200, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert runs[0].mean != runs[2].mean


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_interval_is_ordered_and_counts_add_up(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    result = paired_bootstrap(a, b, resamples=200, seed=0)
    assert result.low <= result.high
    assert result.higher + result.lower + result.equal == len(pairs)
    assert 0 < result.p <= 1
