"""Splits: every question once, judged by others, in its order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aera.core import Question
from aera.lab.learning.folds import deal, group_questions, split_rows

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
