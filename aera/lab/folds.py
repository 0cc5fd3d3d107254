"""Splits by question: all checkpoints of a question always stay together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from aera.lab.trajectory import Columns
from aera.policy import Decision, Policy
from aera.response import Prefix


def fold_numbers(count: int, folds: int, *, seed: int) -> Columns:
    """A fold for each of `count` questions, sizes equal to within one."""
    numbers = np.arange(count, dtype=np.int64) % folds
    return np.random.default_rng(seed).permutation(numbers)


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
