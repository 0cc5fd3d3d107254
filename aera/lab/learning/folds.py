"""Splits by question: all checkpoints of a question always stay together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from aera.arrays import Columns, Floats
from aera.policies.policy import Decision, Policy
from aera.response import Prefix
from aera.workers import SERIAL, Track, Workers, map_tracked, quiet

FOLDS = 5
Done = TypeVar("Done")


@dataclass(frozen=True, eq=False)
class Fold:
    """One fold of some questions: its own rows, and the rest that may teach about them."""

    number: int
    own: Columns
    rest: Columns


def fold_numbers(count: int, folds: int, *, seed: int) -> Columns:
    """A fold for each of `count` questions, sizes equal to within one."""
    numbers = np.arange(count, dtype=np.int64) % folds
    return np.random.default_rng(seed).permutation(numbers)


def deal(count: int, *, folds: int = FOLDS, seed: int) -> list[Fold]:
    """Every question is in one fold's own part and in the rest of all others."""
    numbers = fold_numbers(count, folds, seed=seed)
    return [
        Fold(fold, np.flatnonzero(numbers == fold), np.flatnonzero(numbers != fold))
        for fold in range(folds)
    ]


def each_fold(
    work: Callable[[Fold], Done],
    dealt: Sequence[Fold],
    *,
    name: str = "folds",
    workers: Workers = SERIAL,
    track: Track = quiet,
) -> list[Done]:
    """What the work makes of every fold."""
    return map_tracked(workers, work, dealt, name=name, track=track)


def out_of_fold(
    judge: Callable[[Fold], Floats],
    count: int,
    *,
    folds: int = FOLDS,
    seed: int,
    workers: Workers = SERIAL,
) -> Floats:
    """One row per question, each by what the other folds taught."""
    dealt = deal(count, folds=folds, seed=seed)
    return gather(each_fold(judge, dealt, workers=workers), dealt)


def gather(parts: Sequence[Floats], dealt: Sequence[Fold]) -> Floats:
    """The rows of all folds in the order of the questions."""
    order = np.argsort(np.concatenate([fold.own for fold in dealt]))
    rows: Floats = np.concatenate(parts)[order]
    return rows


def split_rows(rows: Columns, shares: Sequence[float], *, seed: int) -> list[Columns]:
    """Deal questions at random into parts of these shares."""
    shuffled = np.random.default_rng(seed).permutation(rows)
    ends = np.round(np.cumsum(shares) * len(rows)).astype(int)[:-1]
    return [np.sort(part) for part in np.split(shuffled, ends)]


@dataclass(frozen=True)
class Foldwise:
    """One label, a policy per fold: each question is judged by what never saw it."""

    label: str
    policies: Sequence[Policy]
    fold_of: Mapping[str, int] = field(repr=False)

    def decide(self, prefix: Prefix) -> Decision:
        return self.policies[self.fold_of[prefix.question.id]].decide(prefix)

    def __str__(self) -> str:
        return self.label
