"""Splits: every question once, judged by others, in its order."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera.arrays import Floats
from aera.core import Question
from aera.lab.learning.folds import Fold, deal, group_questions, out_of_fold, split_rows
from aera.workers import SERIAL, Processes, Workers

COUNT, PARTS, SEED = st.integers(0, 60), st.integers(1, 9), st.integers(0, 99)


# --- dealing --------------------------------------------------------------------------------------


@given(COUNT, PARTS, SEED)
def test_folds_are_even_and_every_row_is_one_folds_own_and_in_the_rest_of_all_others(
    count: int, folds: int, seed: int
) -> None:
    dealt = deal(np.arange(count), folds=folds, seed=seed)
    assert [fold.number for fold in dealt] == [*range(folds)]
    sizes = [len(fold.own) for fold in dealt]
    assert max(sizes) - min(sizes) <= 1
    assert sorted(np.concatenate([fold.own for fold in dealt]).tolist()) == [*range(count)]
    for fold in dealt:
        assert sorted([*fold.own.tolist(), *fold.rest.tolist()]) == [*range(count)]
        assert (np.diff(fold.own) > 0).all()
        assert (np.diff(fold.rest) > 0).all()


# --- out of fold ----------------------------------------------------------------------------------


def identity(fold: Fold) -> Floats:
    """Every row says which one it is, and how many taught about it."""
    return np.stack([fold.own.astype(np.float64), np.full(len(fold.own), len(fold.rest))], axis=1)


@given(COUNT, PARTS, SEED)
def test_rows_come_back_in_the_order_of_the_questions(count: int, folds: int, seed: int) -> None:
    rows = out_of_fold(identity, np.arange(count), folds=folds, seed=seed)
    assert rows[:, 0].tolist() == [*range(count)]


@pytest.mark.parametrize("workers", [SERIAL, Processes(2)])
def test_whoever_works_on_the_folds_the_rows_are_the_same(workers: Workers) -> None:
    found = out_of_fold(identity, np.arange(23), seed=3, workers=workers)
    np.testing.assert_array_equal(found, out_of_fold(identity, np.arange(23), seed=3))
    assert set(found[:, 1]) == {18, 19}


# --- parts of given shares ------------------------------------------------------------------------


def test_a_split_deals_every_row_once_in_about_the_given_shares() -> None:
    rows = np.arange(100, 300)
    split = partial(split_rows, rows, (0.6, 0.15, 0.25), groups=np.arange(1_000))
    parts, again, other = ([part.tolist() for part in split(seed=seed)] for seed in (1, 1, 2))
    assert sorted(np.concatenate(parts).tolist()) == rows.tolist()
    assert [len(part) for part in parts] == [120, 30, 50]
    assert parts == again != other


# --- groups ---------------------------------------------------------------------------------------


def test_questions_that_share_a_group_or_their_words_are_one() -> None:
    asked = [
        Question("a", "one?"),
        Question("b", "two?", group="x"),
        Question("c", "one?  "),
        Question("d", "three?", group="x"),
        Question("e", "three?"),
        Question("f", "one?", choices=("yes", "no")),
    ]
    assert group_questions(asked).tolist() == [0, 1, 0, 1, 1, 2]


@given(st.lists(st.integers(0, 12), max_size=60), PARTS, SEED)
def test_no_split_parts_a_group(groups: list[int], folds: int, seed: int) -> None:
    numbers = np.array(groups, dtype=np.int64)
    for fold in deal(numbers, folds=folds, seed=seed):
        assert not set(numbers[fold.own].tolist()) & set(numbers[fold.rest].tolist())
    parts = split_rows(np.arange(len(groups)), (0.6, 0.4), groups=numbers, seed=seed)
    assert all((np.diff(part) > 0).all() for part in parts)
    assert not set(numbers[parts[0]].tolist()) & set(numbers[parts[1]].tolist())
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(groups)))
