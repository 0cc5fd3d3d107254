"""Trajectories: grade, cost and evidence of every question at every checkpoint, and their shapes.

Rows are questions, columns checkpoints. This is hindsight: no policy ever sees it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Columns, Flags, Floats
from aera.core import Schedule, Vote
from aera.errors import ProtocolError
from aera.pools.pool import Record, VotedRecord

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
    """The value of every row at its own column; the last axis are the columns."""
    picked: Floats = np.take_along_axis(values, columns[..., None], -1)[..., 0]
    return picked


def by_question(values: Floats) -> Floats:
    """One number for each question: the mean over its orders, where there are several."""
    mean: Floats = values if values.ndim == 1 else values.mean(axis=1)
    return mean


@dataclass(frozen=True, eq=False)
class Trajectories:
    """What replaying a pool shows. `grades` and `re2_mean` are None where there are no truths.

    Arrays are (questions, checkpoints), or (questions, orders, checkpoints) where the responses of
    every question were replayed in several orders: the stored one first, then random ones.
    """

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
    values: Mapping[str, Floats] = field(default_factory=dict)
    """What every family of policies looks at, by its name."""
    features: Floats | None = None
    """What a gate on votes looks at, with one axis more."""
    records: tuple[VotedRecord, ...] = ()
    """The questions with their weights, where somebody may want to look at them."""

    def take(self, rows: Columns) -> "Trajectories":
        """The same for some of the questions."""
        kept = self._each(lambda values: values[rows])
        return replace(
            kept,
            question_ids=tuple(self.question_ids[row] for row in rows),
            prompts=None if self.prompts is None else self.prompts[rows],
            records=tuple(self.records[row] for row in rows) if self.records else (),
        )

    @classmethod
    def concat(cls, parts: "Sequence[Trajectories]") -> "Trajectories":
        """The questions of several, one after the other."""
        first, arrays = parts[0], [iter(part._arrays()) for part in parts]
        joined = first._each(lambda _: np.concatenate([next(own) for own in arrays]))
        prompts = [part.prompts for part in parts if part.prompts is not None]
        return replace(
            joined,
            question_ids=tuple(key for part in parts for key in part.question_ids),
            prompts=np.concatenate(prompts) if prompts else None,
            records=tuple(record for part in parts for record in part.records),
        )

    @cached_property
    def stored(self) -> "Trajectories":
        """The same in the stored order alone."""
        return self if self.tokens.ndim == 2 else self._each(lambda values: values[:, 0])

    @cached_property
    def mixed(self) -> "Trajectories":
        """The same in the random orders, or in the stored one where there are no others."""
        if self.tokens.ndim == 2:
            return self._each(lambda values: values[:, None])
        return self._each(lambda values: values[:, 1:] if values.shape[1] > 1 else values)

    def with_evidence(self, name: str, values: Floats) -> "Trajectories":
        """One more observable quantity."""
        return replace(self, evidence={**self.evidence, name: values})

    def up_to(self, checkpoint: int) -> "Trajectories":
        """The same as if no checkpoint beyond this one existed, but for what is agreed with."""
        last = self.schedule.checkpoints.index(checkpoint) + 1
        cut = replace(self, features=None)._each(lambda values: values[..., :last])
        return replace(cut, schedule=Schedule(self.schedule.checkpoints[:last]))

    def _arrays(self) -> list[Floats]:
        """All of them, prompts aside."""
        found: list[Floats] = []

        def keep(values: Floats) -> Floats:
            found.append(values)
            return values

        self._each(keep)
        return found

    def _each(self, change: Callable[[Floats], Floats]) -> "Trajectories":
        """The same with every array changed, prompts aside; all of them in one order."""
        single = ("tokens", "agreement", "grades", "re2_mean", "features")
        known: dict[str, Any] = {name: getattr(self, name) for name in single}
        for name in ("evidence", "values"):
            known[name] = {key: change(array) for key, array in getattr(self, name).items()}
        given = {name: known[name] for name in single if known[name] is not None}
        return replace(self, **{**known, **{name: change(given[name]) for name in given}})

    @property
    def by_mean(self) -> "Trajectories":
        """The same graded by the paper's score: the mean of the responses that are no redo."""
        if self.re2_mean is None:
            raise ProtocolError("there are no truths, so responses have no mean grade")
        return replace(self, grades=self.re2_mean)

    def by(self, metric: str) -> "Trajectories":
        """The same graded in the vote, or in the paper's score, "re2_mean"."""
        return self if metric == "vote" else self.by_mean

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


def prompt_lengths(records: Sequence[Record]) -> Floats:
    """Tokens of each question's prompt: the most that any of its responses recorded."""
    lengths = [max((r.prompt_tokens for r in each.responses), default=0) for each in records]
    return np.array(lengths, dtype=np.float64)


def re2_means(grades: Floats, kept: Flags, ends: Columns) -> Floats:
    """The Re2 mean score of each prefix: the average grade of the responses that are no redo.

    Where every response is a redo, all of them count, by what they boxed.
    """
    right = np.cumsum(grades * kept, axis=-1)[..., ends - 1]
    valid = np.cumsum(kept, axis=-1)[..., ends - 1]
    everything = np.cumsum(grades, axis=-1)[..., ends - 1] / ends
    means: Floats = np.where(valid > 0, right / np.maximum(valid, 1), everything)
    return means


def silent(record: Record) -> VotedRecord:
    """The same with no vote read: nothing has to be readable."""
    votes = (Vote(None),) * len(record.responses)
    return VotedRecord(record.question, record.responses, votes)
