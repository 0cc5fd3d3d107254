from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera import ASC, Schedule
from aera.errors import UsageError
from aera.lab import Frontier, Point, Trajectories
from aera.lab.replay.frontier import Kind, fixed_points

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


@settings(max_examples=300, deadline=None)
@given(frontiers, st.floats(0.5, 12), st.sampled_from(["responses", "tokens"]))
def test_a_mixture_is_the_best_of_all_pairs(frontier: Frontier, at: float, spend: str) -> None:
    at = at * 20 if spend == "tokens" else at
    mixture, best = frontier.mixture(at, spend), best_pair(frontier, at, spend)
    if best is None:
        assert mixture is None
    else:
        assert mixture is not None
        assert mixture.accuracy == pytest.approx(best)
        low, high = (getattr(part, spend) for part in mixture.parts)
        assert mixture.share * low + (1 - mixture.share) * high <= at + 1e-9


@settings(max_examples=200, deadline=None)
@given(frontiers)
def test_the_hull_holds_exactly_what_no_mixture_of_others_reaches(frontier: Frontier) -> None:
    kept = {point.policy for point in frontier.nondominated()}
    for point in frontier.points:
        others = Frontier(
            tuple(p for p in frontier.points if p is not point), frontier.trajectories
        )
        beaten = best_pair(others, point.responses, "responses")
        if beaten is None or beaten < point.accuracy - 1e-9:
            assert point.policy in kept
        elif beaten > point.accuracy + 1e-9:
            assert point.policy not in kept


@given(frontiers)
def test_the_hull_rises_in_spend_and_accuracy(frontier: Frontier) -> None:
    hull = frontier.nondominated()
    assert hull
    for one, other in pairwise(hull):
        assert one.responses < other.responses
        assert one.accuracy < other.accuracy


@given(frontiers)
def test_a_point_adds_up(frontier: Frontier) -> None:
    point, made = frontier.points[0], frontier.trajectories
    rows = list(zip(range(QUESTIONS), point.columns, strict=True))
    assert sum(point.stops.values()) == QUESTIONS
    assert point.accuracy == pytest.approx(100 * np.mean([made.grades[r, c] for r, c in rows]))
    assert point.re2_mean == pytest.approx(100 * np.mean([made.re2_mean[r, c] for r, c in rows]))
    mean = sum(int(c) * n for c, n in point.stops.items()) / QUESTIONS
    assert point.responses == pytest.approx(mean)
    assert point.response_saving == pytest.approx(100 * (1 - mean / 10))
    spent = sum(made.tokens[r, c] for r, c in rows)
    assert point.tokens == pytest.approx(spent / QUESTIONS)
    assert point.token_saving == pytest.approx(100 * (1 - spent / made.tokens[:, -1].sum()))


def test_points_are_found_by_policy_or_label() -> None:
    frontier = frontier_of(0, 2)
    named = Frontier((Point("asc-0.95", *_rest(frontier)),), frontier.trajectories)
    assert named[ASC(0.95)] is named["asc-0.95"]
    with pytest.raises(UsageError, match=r'"esc-5"; there are asc-0\.95'):
        _ = named["esc-5"]


def test_points_are_picked_by_their_family() -> None:
    frontier = frontier_of(0, 3)
    assert [point.policy for point in frontier.only("f1").points] == ["p1"]


def test_a_full_budget_nobody_asked_for_is_judged_on_its_own_votes() -> None:
    plain, weighted = frontier_of(0, 1), frontier_of(1, 1)
    own = replace(weighted.points[0], policy="own", weighted=True)
    frontier = plain.with_point(own)
    for shown, whole, label in ((plain, False, "fixed-10"), (weighted, True, "weighted-10")):
        full = frontier.full_budget(weighted=whole)
        assert (full.policy, full.kind, full.weighted) == (label, Kind.FIXED, whole)
        assert full.scores.tolist() == shown.trajectories.known_grades[:, -1].tolist()


def test_a_full_budget_that_was_asked_for_is_taken_as_it_is() -> None:
    made = frontier_of(0, 2)
    asked = fixed_points(made.trajectories)[-1]
    assert made.with_point(asked).full_budget() is asked


def test_sweeps_are_left_out_but_for_the_gates_own() -> None:
    made = frontier_of(0, 4)
    kinds = (Kind.SWEPT, Kind.SWEPT, Kind.BASELINE, Kind.CALIBRATED)
    families = ("asc", "aera", "asc", "asc")
    points = [
        replace(point, kind=kind, family=family)
        for point, kind, family in zip(made.points, kinds, families, strict=True)
    ]
    kept = Frontier(tuple(points), made.trajectories).without_sweeps()
    assert [point.policy for point in kept.points] == ["p1", "p2", "p3"]


def _rest(frontier: Frontier) -> tuple[object, Trajectories]:
    return frontier.points[0].columns, frontier.trajectories
