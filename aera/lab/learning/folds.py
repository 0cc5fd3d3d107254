"""Splits by question: all checkpoints of a question, and all questions of a group, stay together.

Questions with the same `group`, or with the same words, are one group: parted by a split, one would
teach about the other.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Question
from aera.errors import ProtocolError
from aera.workers import SERIAL, Workers

FOLDS = 5
FEWEST = 20
"""Questions below which nothing can be learned."""
Done = TypeVar("Done")


@dataclass(frozen=True, eq=False)
class Fold:
    """One fold of some questions: its own rows, and the rest that may teach about them."""

    number: int
    own: Columns
    rest: Columns


class Split(NamedTuple):
    """Who teaches, on whom the fit is watched so that it ends in time, and who calibrates.

    Nobody is watched where a fit needs it not; where nobody calibrates, those of the fit do, each
    judged out of fold.
    """

    fit: Columns
    held: Columns
    tune: Columns


def group_questions(questions: Sequence[Question]) -> Columns:
    """A number for each question, the same for those that share a group or their words."""
    parents = list(range(len(questions)))
    first: dict[str, int] = {}

    def root(row: int) -> int:
        while parents[row] != row:
            parents[row] = row = parents[parents[row]]
        return row

    for row, question in enumerate(questions):
        for key in question.keys:
            parents[root(row)] = root(first.setdefault(key, row))
    return _renumber([root(row) for row in range(len(parents))])


def _renumber(groups: Iterable[int]) -> Columns:
    """Groups numbered in the order in which they come."""
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(int(group), len(numbers)) for group in groups], np.int64)


def deal(groups: Columns, *, folds: int = FOLDS, seed: int) -> list[Fold]:
    """Every question is in one fold's own part and in the rest of all others.

    It goes where its group goes; equal numbers of groups to within one.
    """
    groups = _renumber(groups)
    count = np.arange(groups.max(initial=-1) + 1)
    numbers = np.random.default_rng(seed).permutation(count % folds)[groups]
    return [
        Fold(fold, np.flatnonzero(numbers == fold), np.flatnonzero(numbers != fold))
        for fold in range(folds)
    ]


def out_of_fold(
    judge: Callable[[Fold], Floats],
    groups: Columns,
    *,
    folds: int = FOLDS,
    seed: int,
    workers: Workers = SERIAL,
) -> Floats:
    """One row per question, each by what the other folds taught."""
    dealt = deal(groups, folds=folds, seed=seed)
    order = np.argsort(np.concatenate([fold.own for fold in dealt]))
    rows: Floats = np.concatenate([*workers.map(judge, dealt)])[order]
    return rows


def split_rows(
    rows: Columns, shares: Sequence[float], *, groups: Columns, seed: int
) -> list[Columns]:
    """Deal questions at random into parts of these shares, group by group.

    `groups` has a number for every question of the table; a part may miss its share by a group.
    """
    members: dict[int, list[int]] = {}
    for row in rows:
        members.setdefault(int(groups[row]), []).append(int(row))
    order = np.random.default_rng(seed).permutation([each[0] for each in members.values()])
    ends = np.round(np.cumsum(shares) * len(rows)).astype(int)[:-1]
    parts: list[list[int]] = [[] for _ in shares]
    dealt = 0
    for row in order:
        group = members[int(groups[row])]
        parts[int(np.searchsorted(ends, dealt, side="right"))] += group
        dealt += len(group)
    return [np.sort(np.array(part, dtype=rows.dtype)) for part in parts]


def check_enough(table: Any) -> None:
    """Refuse what nothing can be learned from."""
    if len(table) < FEWEST:
        raise ProtocolError(
            f'"{table.name}" has {len(table)} questions; training needs at least {FEWEST}, and '
            "a few hundred to be worth it"
        )
    if len(table.schedule) < 2:
        raise ProtocolError(
            f'"{table.name}" is studied at one checkpoint only, so there is nothing to decide; '
            "training needs a schedule of two or more"
        )
