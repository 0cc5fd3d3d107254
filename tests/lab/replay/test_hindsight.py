from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aera import Schedule
from aera.lab import Trajectories
from aera.lab.replay.hindsight import best_future, oracle, shuffle

grids = st.lists(st.lists(st.sampled_from([0, 0.3, 1]), min_size=4, max_size=4), min_size=1)


def oracle_of(grades: list[list[float]]) -> list[int]:
    array = np.array(grades, dtype=float)
    made = Trajectories(
        tuple(map(str, range(len(array)))), Schedule((1, 2, 3, 4)), array, array, {}, grades=array
    )
    return oracle(made).tolist()


def test_the_oracle_takes_the_cheapest_of_the_best() -> None:
    assert oracle_of([[0, 1, 1, 0], [0, 0, 0, 0], [0.3, 0.2, 0.9, 0.9]]) == [1, 0, 2]


@given(grids)
def test_the_oracle_is_never_beaten_and_never_early(grades: list[list[float]]) -> None:
    for row, stop in zip(grades, oracle_of(grades), strict=True):
        assert row[stop] == max(row)
        assert stop == 0 or max(row[:stop]) < row[stop]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), min_size=1), st.integers(0, 99))
def test_shuffled_stops_stay_in_their_fold(pairs: list[tuple[int, int]], seed: int) -> None:
    columns, folds = (np.array(values) for values in zip(*pairs, strict=True))
    dealt = shuffle(columns, folds, seed=seed)
    assert Counter(zip(dealt, folds, strict=True)) == Counter(zip(columns, folds, strict=True))
    assert columns.tolist() == [column for column, _ in pairs]
    assert (dealt == shuffle(columns, folds, seed=seed)).all()


def test_shuffling_does_move_stops() -> None:
    columns = np.arange(50)
    assert (shuffle(columns, np.zeros(50, dtype=int), seed=0) != columns).any()


@given(grids)
def test_the_best_future_is_strictly_later(grades: list[list[float]]) -> None:
    for column in range(3):
        future = best_future(np.array(grades, dtype=float), column)
        assert future.tolist() == [max(row[column + 1 :]) for row in grades]
