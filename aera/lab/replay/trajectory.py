"""Trajectories: grade, cost and evidence of every question at every checkpoint, and their shapes.

Rows are questions, columns checkpoints. This is hindsight: no policy ever sees it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Columns, Floats
from aera.core import Schedule
from aera.errors import ProtocolError

TRANSITIONS = {
    "stable wrong": (0, 0),
    "recovery": (0, 1),
    "collapse": (1, 0),
    "stable right": (1, 1),
}
SHAPES = (
    "always right",
    "always wrong",
    "monotonic recovery",
    "oscillatory recovered",
    "monotonic collapse",
    "oscillatory failure",
)


def pick(values: Floats, columns: Columns) -> Floats:
    """The value of every question (row) at its own column."""
    picked: Floats = values[np.arange(len(columns)), columns]
    return picked


@dataclass(frozen=True, eq=False)
class Trajectories:
    """What replaying a pool shows. `grades` and `re2_mean` are None where there are no truths."""

    question_ids: tuple[str, ...]
    schedule: Schedule
    tokens: Floats
    """Completion tokens spent by each checkpoint."""
    agreement: Floats
    """1 where the answer equals the one at the full budget (no answer equals no answer)."""
    evidence: Mapping[str, Floats]
    """Observable quantities by name, as the transition table compares them."""
    grades: Floats | None = None
    re2_mean: Floats | None = None
    prompts: Floats | None = None
    """Tokens of each question's prompt, the most that a response recorded; 0 where none did."""
    rewarded: bool = False
    """Whether grades are rewards, any real numbers, and not 1 for right and 0 for wrong."""

    def subset(self, rows: Columns) -> "Trajectories":
        """The same for some of the questions."""
        return replace(
            self,
            question_ids=tuple(self.question_ids[row] for row in rows),
            tokens=self.tokens[rows],
            agreement=self.agreement[rows],
            evidence={name: values[rows] for name, values in self.evidence.items()},
            grades=None if self.grades is None else self.grades[rows],
            re2_mean=None if self.re2_mean is None else self.re2_mean[rows],
            prompts=None if self.prompts is None else self.prompts[rows],
        )

    @classmethod
    def join(cls, parts: "Sequence[Trajectories]") -> "Trajectories":
        """The questions of several, one after the other."""
        first = parts[0]

        def stack(name: str) -> Floats | None:
            arrays = [getattr(part, name) for part in parts]
            return None if arrays[0] is None else np.concatenate(arrays)

        return replace(
            first,
            question_ids=tuple(key for part in parts for key in part.question_ids),
            tokens=np.concatenate([part.tokens for part in parts]),
            agreement=np.concatenate([part.agreement for part in parts]),
            evidence={n: np.concatenate([p.evidence[n] for p in parts]) for n in first.evidence},
            grades=stack("grades"),
            re2_mean=stack("re2_mean"),
            prompts=stack("prompts"),
        )

    def with_evidence(self, name: str, values: Floats) -> "Trajectories":
        """One more observable quantity."""
        return replace(self, evidence={**self.evidence, name: values})

    def up_to(self, checkpoint: int) -> "Trajectories":
        """The same as if no checkpoint beyond this one existed, but for what is agreed with."""
        last = self.schedule.checkpoints.index(checkpoint) + 1
        return replace(
            self,
            schedule=Schedule(self.schedule.checkpoints[:last]),
            tokens=self.tokens[:, :last],
            agreement=self.agreement[:, :last],
            evidence={name: values[:, :last] for name, values in self.evidence.items()},
            grades=None if self.grades is None else self.grades[:, :last],
            re2_mean=None if self.re2_mean is None else self.re2_mean[:, :last],
        )

    @property
    def by_mean(self) -> "Trajectories":
        """The same graded by the paper's score: the mean of the responses that are no redo."""
        if self.re2_mean is None:
            raise ProtocolError("there are no truths, so responses have no mean grade")
        return replace(self, grades=self.re2_mean)

    @property
    def known_grades(self) -> Floats:
        """The grades, which learning, calibrating and judging cannot do without."""
        if self.grades is None:
            raise ProtocolError("there are no truths, so nothing can be learned or judged")
        return self.grades

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the answer is right: a grade of at least one half."""
        return self.known_grades >= 0.5

    def shapes(self) -> dict[str, int]:
        """How many questions follow each whole-trajectory shape."""
        names = [shape(row) for row in self.right]
        return {name: names.count(name) for name in SHAPES}

    def changes(self, name: str) -> Floats:
        """Change of an observable from each checkpoint to the next."""
        return np.diff(self.evidence[name], axis=1)

    def transitions(self) -> "list[Transition]":
        """The paper's table: adjacent transitions with the mean change of the evidence."""
        before, after = self.right[:, :-1], self.right[:, 1:]
        rows = []
        for name, (was, became) in TRANSITIONS.items():
            where = (before == was) & (after == became)
            means = {key: _mean(self.changes(key)[where]) for key in self.evidence}
            rows.append(Transition(name, int(where.sum()), means))
        return rows


def _mean(values: Floats) -> float:
    """Of the values that exist; NaN where none does."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


@dataclass(frozen=True)
class Transition:
    """One row of the transition table."""

    name: str
    count: int
    changes: dict[str, float]


def shape(right: NDArray[np.bool_]) -> str:
    """Which of the six shapes a row of right and wrong answers has."""
    changes = int(np.count_nonzero(right[1:] != right[:-1]))
    if changes == 0:
        return "always right" if right[0] else "always wrong"
    if changes == 1:
        return "monotonic recovery" if right[-1] else "monotonic collapse"
    return "oscillatory recovered" if right[-1] else "oscillatory failure"
