from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_questions import trajectories_of

from aera.arrays import Floats
from aera.lab import Point, diagnostics

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
