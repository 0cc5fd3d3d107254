from collections import Counter
from dataclasses import replace
from itertools import product
from math import isnan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_questions import trajectories_of

from aera import ASC, Budget, Question, Record, Response, Schedule, get_task
from aera.arrays import Floats
from aera.errors import UsageError
from aera.lab import Frontier, Point, Trajectories, diagnostics, evaluate
from aera.lab.frontier import (
    SHAPES,
    Kind,
    Prices,
    fixed_points,
    oracle_point,
    shape,
    shuffle,
    write_money,
)
from aera.lab.words import tell_money
from aera.policies.rules import parse_policy
from aera.pools.pool import HeldRecords, read_votes

WIDTH = 4
QUESTIONS = 6


def frontier_of(seed: int, points: int) -> Frontier:
    """Random stops on random grades and costs."""
    rng = np.random.default_rng(seed)
    tokens = np.cumsum(rng.integers(1, 90, (QUESTIONS, WIDTH)), axis=1).astype(float)
    made = trajectories_of(rng.integers(0, 2, (QUESTIONS, WIDTH)), tokens)
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
@given(frontiers, st.floats(2, 40), st.sampled_from(["responses", "tokens"]))
def test_a_mixture_is_the_best_of_all_pairs(frontier: Frontier, at: float, spend: str) -> None:
    at = at * 6 if spend == "tokens" else at
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
    for shown, whole, label in ((plain, False, "fixed-32"), (weighted, True, "weighted-32")):
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


# --- trajectories ------------------------------------------------------------------------------


rows = st.integers(2, 6).flatmap(
    lambda width: st.lists(
        st.lists(st.sampled_from([0.0, 1.0]), min_size=width, max_size=width), min_size=1
    )
)


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("1111", "always right"),
        ("0000", "always wrong"),
        ("0011", "monotonic recovery"),
        ("0101", "oscillatory recovered"),
        ("1011", "oscillatory recovered"),
        ("1000", "monotonic collapse"),
        ("0100", "oscillatory failure"),
        ("1010", "oscillatory failure"),
    ],
)
def test_a_row_has_one_of_six_shapes(row: str, name: str) -> None:
    assert shape(np.array([c == "1" for c in row])) == name


@given(rows)
def test_every_question_has_a_shape_and_every_step_a_transition(grades: list[list[float]]) -> None:
    made = trajectories_of(grades)
    assert list(made.shapes()) == [*SHAPES]
    assert sum(made.shapes().values()) == len(grades)
    counts = {row["name"]: row["count"] for row in made.transitions()}
    assert sum(counts.values()) == len(grades) * (len(grades[0]) - 1)
    net = counts["recovery"] - counts["collapse"]
    assert net == sum(row[-1] - row[0] for row in grades)


def test_transitions_carry_the_mean_change_of_the_evidence() -> None:
    majority = np.array([[0.1, 0.5, 0.6], [0.2, 0.4, 0.1]])
    made = trajectories_of([[0, 1, 1], [0, 1, 0]], majority=majority)
    by_name = {row["name"]: row for row in made.transitions()}
    assert by_name["recovery"]["changes"]["majority"] == pytest.approx((0.4 + 0.2) / 2)
    assert by_name["collapse"]["changes"]["majority"] == pytest.approx(-0.3)
    assert by_name["stable right"]["changes"]["majority"] == pytest.approx(0.1)
    assert by_name["stable wrong"]["count"] == 0
    assert isnan(by_name["stable wrong"]["changes"]["majority"])


def test_a_grade_of_one_half_counts_as_right() -> None:
    assert trajectories_of([[0.49, 0.5, 0.51]]).right.tolist() == [[False, True, True]]


def test_cut_at_a_checkpoint_nothing_later_is_left() -> None:
    means = np.array([[0.2, 0.4, 0.6], [1, 1, 1]])
    whole = trajectories_of([[0, 1, 0], [1, 1, 1]], majority=0.5 * means)
    made = replace(whole, re2_mean=means).up_to(8)
    assert made.schedule.checkpoints == (4, 8)
    counts = {row["name"]: row["count"] for row in made.transitions()}
    assert counts == {"stable wrong": 0, "recovery": 1, "collapse": 0, "stable right": 1}
    assert made.by_mean.known_grades.tolist() == [[0.2, 0.4], [1, 1]]
    assert made.tokens.shape == made.agreement.shape == (2, 2)


# --- money ----------------------------------------------------------------------------------------

TASK = get_task("numeric")
PRICES = Prices(1000.0, 1_000_000.0)  # a prompt token costs 0.001, a completion token 1


def replayed(*labels: str, prompts: tuple[int, ...] = (50, 0, 20, 0)) -> Frontier:
    """Two questions, one agreed and one torn, with these prompt tokens beside the responses."""
    rows = {"agreed": "1111", "torn": "1212"}
    records = [
        Record(
            Question(name, f"{name}?"),
            tuple(
                Response(f"\\boxed{{{said}}}", tokens=10, prompt_tokens=prompt)
                for said, prompt in zip(answers, prompts, strict=True)
            ),
        )
        for name, answers in rows.items()
    ]
    held = HeldRecords(read_votes(records, TASK), TASK, Schedule((1, 2, 4)))
    return evaluate(held, [parse_policy(label) for label in labels])


def test_every_block_bills_the_longest_prompt_that_was_recorded() -> None:
    [point] = replayed("majority-1+min2").points
    assert point.counts.tolist() == [2, 4]
    assert point.blocks.tolist() == [2, 3]
    assert point.money(PRICES) == pytest.approx(1000 * (60 + 5 * 0.05) / 2)


def test_a_fixed_budget_is_one_block_and_within_limits_decides_on_its_way() -> None:
    plain, limited = replayed("fixed-4", "fixed-4+min2").points
    assert plain.blocks.tolist() == [1, 1]
    assert plain.money(PRICES) == pytest.approx(40_050)
    assert limited.blocks.tolist() == [3, 3]


def saving(point: Point) -> str:
    [line] = [line for line in tell_money(point, PRICES) if " costs " in line]
    return line


def test_what_is_saved_or_lost_is_said_against_the_full_budget() -> None:
    [point] = replayed("majority-1+min2").points
    assert saving(point) == (
        "majority-1+min2 costs 30,125.00 for 1,000 questions, 75 % of what fixed-4 costs, 40,050.00"
    )
    [dear] = replayed("fixed-4+min4", prompts=(50_000, 0, 0, 0)).points
    assert "questions, 211 % of what fixed-4 costs" in saving(dear)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_a_price_that_is_none_is_refused(wrong: float) -> None:
    for one, other in ((wrong, 1.0), (1.0, wrong)):
        with pytest.raises(UsageError, match="0 or more"):
            Prices(one, other)
        with pytest.raises(UsageError, match="0 or more"):
            Budget(money=1.0, prompt_price=one, completion_price=other)


@pytest.mark.parametrize(
    ("amount", "text"), [(1234.5, "1,234.50"), (0.012345, "0.01235"), (0.0, "0")]
)
def test_small_amounts_keep_their_digits(amount: float, text: str) -> None:
    assert write_money(amount) == text


# --- diagnostics ----------------------------------------------------------------------------------

SHAPE = (9, 4)
BINARY = arrays(np.float64, SHAPE, elements=st.sampled_from([0.0, 1.0]))
SHARES = arrays(np.float64, SHAPE, elements=st.integers(0, 20).map(lambda n: n / 20))
STOPS = arrays(np.int64, SHAPE[0], elements=st.integers(0, 3))


def test_opportunity_is_the_best_gain_still_to_come() -> None:
    scores = np.array([[0.0, 1, 0], [0.5, 0.5, 0.25], [0, 0.5, 0.25], [1, 1, 1]])
    point = Point("p", np.array([1, 2, 0, 0]), trajectories_of(scores))
    continued, stopped = diagnostics.residual_opportunity(point, scores)
    assert (continued["questions"], continued["improvable"], continued["gain"]) == (2, 50, 50)
    assert (stopped["questions"], stopped["improvable"], stopped["gain"]) == (2, 50, 25)
    everybody = Point("p", np.ones(4, np.int64), trajectories_of(scores))
    assert np.isnan(diagnostics.residual_opportunity(everybody, scores)[1]["gain"])


# --- collapses ------------------------------------------------------------------------------------


@given(BINARY)
def test_a_question_collapses_when_right_is_followed_by_wrong(grades: Floats) -> None:
    wanted = ["10" in "".join(str(int(g)) for g in row) for row in grades]
    assert diagnostics.collapsing(trajectories_of(grades)).tolist() == wanted


# --- difficulty -----------------------------------------------------------------------------------


@given(BINARY, SHARES, STOPS)
def test_groups_of_difficulty_part_the_questions_and_their_losses_add_up(
    grades: Floats, support: Floats, stops: Any
) -> None:
    point = Point("p", stops, trajectories_of(grades, majority_ratio=support))
    rows = diagnostics.loss_by_difficulty(point)
    assert sum(row["questions"] for row in rows) == len(grades)
    total = 100 * (grades[:, -1] - point.scores).sum()
    assert sum(row["loss"] * row["questions"] for row in rows) == pytest.approx(total, abs=1e-9)
    spent = sum(row["responses"] * row["questions"] for row in rows)
    assert spent == pytest.approx(point.counts.sum())
    assert diagnostics.worst_group(rows)["loss"] == max(row["loss"] for row in rows)


@pytest.mark.parametrize(
    ("support", "group"),
    [(0.0, "0.00-0.25"), (0.25, "0.25-0.50"), (0.75, "0.75-0.90"), (0.9, "0.90-1.00")],
)
def test_the_borders_of_difficulty(support: float, group: str) -> None:
    made = trajectories_of([[0, 1]], majority_ratio=np.array([[0.1, support]]))
    (row,) = diagnostics.loss_by_difficulty(Point("p", np.array([0]), made))
    assert (row["group"], row["questions"], row["loss"]) == (f"support {group}", 1, 100)


# --- evidence against correctness -----------------------------------------------------------------


def test_counter_examples_go_against_the_evidence() -> None:
    """A collapse while it strengthens, two recoveries; the last one as the evidence has it."""
    grades = [[1, 0, 0], [0, 1, 1], [0, 0, 1]]
    majority = np.array([[0.5, 0.6, 0.9], [0.6, 0.5, 0.5], [0.1, 0.1, 0.9]])
    entropy = np.array([[0.5, 0.6, 0.9], [0.1, 0.3, 0.3], [0.9, 0.9, 0.1]])
    made = trajectories_of(grades, majority_ratio=majority, entropy=entropy)
    collapse, recovery = diagnostics.counter_examples(made)
    counts = {row["name"]: row["count"] for row in made.transitions()}
    assert [collapse["count"], recovery["count"]] == [counts["collapse"], counts["recovery"]]
    assert (collapse["count"], collapse["all_against"]) == (1, 0)
    assert collapse["against"] == {"majority_ratio": 1, "entropy": 0}
    assert (recovery["count"], recovery["all_against"]) == (2, 1)
    assert recovery["against"] == {"majority_ratio": 1, "entropy": 1}
