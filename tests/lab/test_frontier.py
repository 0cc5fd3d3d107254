from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera import ASC, Schedule
from aera.errors import UsageError
from aera.lab import Frontier, Point, Trajectories
from aera.lab.frontier import Kind, fixed_points, oracle_point, shuffle

WIDTH = 4
QUESTIONS = 6


def frontier_of(seed: int, points: int) -> Frontier:
    """Random stops on random grades and costs."""
    rng = np.random.default_rng(seed)
    made = Trajectories(
        question_ids=tuple(f"q{i}" for i in range(QUESTIONS)),
        schedule=Schedule((1, 3, 6, 10)),
        tokens=np.cumsum(rng.integers(1, 90, (QUESTIONS, WIDTH)), axis=1).astype(float),
        agreement=np.ones((QUESTIONS, WIDTH)),
        evidence={},
        grades=rng.integers(0, 2, (QUESTIONS, WIDTH)).astype(float),
        re2_mean=rng.random((QUESTIONS, WIDTH)),
    )
    stops = rng.integers(0, WIDTH, (points, QUESTIONS))
    return Frontier(
        tuple(Point(f"p{i}", row, made, family=f"f{i}") for i, row in enumerate(stops)), made
    )


frontiers = st.builds(frontier_of, st.integers(0, 10**6), st.integers(1, 9))


def best_pair(frontier: Frontier, at: float, spend: str) -> float | None:
    """The best accuracy of any two points mixed so as to spend at most `at`."""
    best = None
    for one, other in product(frontier.points, repeat=2):
        low, high = getattr(one, spend), getattr(other, spend)
        if low > at or low > high:
            continue
        share = 1.0 if high <= at else (at - low) / (high - low)
        reached = (1 - share) * one.accuracy + share * other.accuracy
        best = max(reached, one.accuracy, best or 0.0)
    return best


@settings(max_examples=300)
@given(frontiers, st.floats(0.5, 12), st.sampled_from(["responses", "tokens"]))
def test_a_mixture_is_the_best_of_all_pairs(frontier: Frontier, at: float, spend: str) -> None:
    at = at * 20 if spend == "tokens" else at
    mixture, best = frontier.mixture(at, spend), best_pair(frontier, at, spend)
    if best is None:
        assert mixture is None
    else:
        assert mixture.accuracy == pytest.approx(best)
        low, high = (getattr(part, spend) for part in mixture.parts)
        assert mixture.share * low + (1 - mixture.share) * high <= at + 1e-9


def test_points_are_found_by_policy_or_label() -> None:
    frontier = frontier_of(0, 1)
    named = replace(frontier, points=(replace(frontier.points[0], policy="asc-0.95"),))
    assert named[ASC(0.95)] is named["asc-0.95"]
    with pytest.raises(UsageError, match=r'"esc-5"; there are asc-0\.95'):
        _ = named["esc-5"]


def test_a_full_budget_nobody_asked_for_is_judged_on_its_own_votes() -> None:
    plain, weighted = frontier_of(0, 1), frontier_of(1, 1)
    own = replace(weighted.points[0], policy="own", weighted=True)
    frontier = plain.with_point(own)
    for shown, whole, label in ((plain, False, "fixed-10"), (weighted, True, "weighted-10")):
        full = frontier.full_budget(weighted=whole)
        assert (full.policy, full.kind, full.weighted) == (label, Kind.FIXED, whole)
        assert full.scores.tolist() == shown.trajectories.known_grades[:, -1].tolist()
    asked = fixed_points(plain.trajectories)[-1]
    assert plain.with_point(asked).full_budget() is asked


def test_sweeps_are_left_out_but_for_the_gates_own() -> None:
    made = frontier_of(0, 3)
    told = (("asc", Kind.SWEPT), ("aera", Kind.SWEPT), ("asc", Kind.BASELINE))
    pairs = zip(made.points, told, strict=True)
    points = [replace(point, family=family, kind=kind) for point, (family, kind) in pairs]
    every = replace(made, points=tuple(points))
    assert [point.policy for point in every.without_sweeps().points] == ["p1", "p2"]


# --- hindsight ------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.sampled_from([0, 0.3, 1]), min_size=4, max_size=4), min_size=1))
def test_the_oracle_is_the_cheapest_of_the_best(grades: list[list[float]]) -> None:
    array, names = np.array(grades, dtype=float), tuple(map(str, range(len(grades))))
    made = Trajectories(names, Schedule((1, 2, 3, 4)), array, array, {}, grades=array)
    for row, stop in zip(grades, oracle_point(made).columns, strict=True):
        assert row[stop] == max(row)
        assert stop == 0 or max(row[:stop]) < row[stop]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), min_size=1), st.integers(0, 99))
def test_shuffled_stops_stay_in_their_fold(pairs: list[tuple[int, int]], seed: int) -> None:
    columns, folds = (np.array(values) for values in zip(*pairs, strict=True))
    dealt = shuffle(columns, folds, seed=seed)
    assert Counter(zip(dealt, folds, strict=True)) == Counter(zip(columns, folds, strict=True))
    assert columns.tolist() == [column for column, _ in pairs]
    assert (dealt == shuffle(columns, folds, seed=seed)).all()
    moved = shuffle(np.arange(50), np.zeros(50, dtype=int), seed=seed)
    assert (moved != np.arange(50)).any()
