import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_questions import trajectories_of

from aera.lab.frontier import SHAPES, shape

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
    assert math.isnan(by_name["stable wrong"]["changes"]["majority"])


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
