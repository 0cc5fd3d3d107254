from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_study import Bench

from aera.arrays import Floats
from aera.lab import Point, Trajectories
from aera.lab.diagnostics import (
    collapsing,
    counter_examples,
    loss_by_difficulty,
    residual_opportunity,
    worst_group,
)

Make = Callable[..., Trajectories]
SHAPE = (9, 4)
BINARY = arrays(np.float64, SHAPE, elements=st.sampled_from([0.0, 1.0]))
SHARES = arrays(np.float64, SHAPE, elements=st.integers(0, 20).map(lambda n: n / 20))
STOPS = arrays(np.int64, SHAPE[0], elements=st.integers(0, 3))


# --- residual opportunity -------------------------------------------------------------------------


@settings(deadline=None)
@given(SHARES, STOPS)
def test_opportunity_is_the_best_gain_still_to_come(
    trajectories_of: Make, scores: Floats, stops: Any
) -> None:
    point = Point("p", stops, trajectories_of(scores))
    rows = residual_opportunity(point, scores)
    assert [row["group"] for row in rows] == ["continued", "stopped at the first checkpoint"]
    for row, members in zip(rows, (stops > 0, stops == 0), strict=True):
        gains = [max(0.0, max(s[1:]) - s[0]) for s, m in zip(scores, members, strict=True) if m]
        assert row["questions"] == len(gains)
        if gains:
            assert row["gain"] == pytest.approx(100 * sum(gains) / len(gains))
            assert row["improvable"] == pytest.approx(100 * np.mean([g > 1e-12 for g in gains]))
        else:
            assert np.isnan(row["gain"])


# --- collapses ------------------------------------------------------------------------------------


@given(BINARY)
def test_a_question_collapses_when_right_is_followed_by_wrong(
    trajectories_of: Make, grades: Floats
) -> None:
    wanted = ["10" in "".join(str(int(g)) for g in row) for row in grades]
    assert collapsing(trajectories_of(grades)).tolist() == wanted


# --- difficulty -----------------------------------------------------------------------------------


@settings(deadline=None)
@given(BINARY, SHARES, STOPS)
def test_groups_of_difficulty_part_the_questions_and_their_losses_add_up(
    trajectories_of: Make, grades: Floats, support: Floats, stops: Any
) -> None:
    point = Point("p", stops, trajectories_of(grades, None, {"majority_ratio": support}))
    rows = loss_by_difficulty(point)
    assert sum(row["questions"] for row in rows) == len(grades)
    total = 100 * (grades[:, -1] - point.scores).sum()
    assert sum(row["loss"] * row["questions"] for row in rows) == pytest.approx(total, abs=1e-9)
    spent = sum(row["responses"] * row["questions"] for row in rows)
    assert spent == pytest.approx(point.counts.sum())
    assert worst_group(rows)["loss"] == max(row["loss"] for row in rows)


@pytest.mark.parametrize(
    ("support", "group"),
    [
        (0.0, "0.00-0.25"),
        (0.25, "0.25-0.50"),
        (0.75, "0.75-0.90"),
        (0.9, "0.90-1.00"),
        (1, "0.90-1.00"),
    ],
)
def test_the_borders_of_difficulty(support: float, group: str, trajectories_of: Make) -> None:
    made = trajectories_of([[0, 1]], None, {"majority_ratio": np.array([[0.1, support]])})
    (row,) = loss_by_difficulty(Point("p", np.array([0]), made))
    assert (row["group"], row["questions"], row["loss"]) == (f"support {group}", 1, 100)


# --- evidence against correctness -----------------------------------------------------------------


def count_against(grades: Floats, tables: dict[str, Floats], *, was: int) -> dict[str, int]:
    """Transitions by hand: collapses with stronger evidence, recoveries with weaker."""
    sign = {"majority_ratio": 1, "entropy": -1, "semantic_consensus": 1}
    found = {"count": 0, "all": 0, **dict.fromkeys(tables, 0)}
    for q, c in np.ndindex(9, 3):
        if grades[q, c] != was or grades[q, c + 1] == was:
            continue
        direction = 1 if was else -1
        moved = {
            name: direction * sign[name] * (table[q, c + 1] - table[q, c]) > 0
            for name, table in tables.items()
        }
        found["count"] += 1
        found["all"] += all(moved.values())
        for name, against in moved.items():
            found[name] += against
    return found


@settings(deadline=None)
@given(BINARY, SHARES, SHARES, SHARES, st.booleans())
def test_counter_examples_are_those_counted_by_hand(
    trajectories_of: Make, grades: Floats, one: Floats, two: Floats, three: Floats, embedded: bool
) -> None:
    tables = {"majority_ratio": one, "entropy": two}
    if embedded:
        tables["semantic_consensus"] = three
    rows = counter_examples(trajectories_of(grades, None, tables))
    assert [row["transition"] for row in rows] == ["collapse", "recovery"]
    for row, was in zip(rows, (1, 0), strict=True):
        wanted = count_against(grades, tables, was=was)
        assert {"count": row["count"], "all": row["all_against"], **row["against"]} == wanted


def test_collapses_of_a_table_are_those_of_its_transition_table(bench: Bench) -> None:
    trajectories = bench.table.trajectories
    counts = {row["name"]: row["count"] for row in trajectories.transitions()}
    found = {row["transition"]: row["count"] for row in counter_examples(trajectories)}
    assert found == {name: counts[name] for name in ("collapse", "recovery")}
