"""The contract of learning: a Learner is a frozen value that makes a Model of some questions.

learner = VoteLearner()                                  # its fields are its hyper-parameters
table = learner.prepare(pool, truths)                    # everything known of a pool's questions
model = learner.fit(table, rows, seed=0)                 # weights and a gate, from these rows alone
judged = model.values(table, other_rows)                 # other questions as the model sees them
policy = model.policy(0.3)                               # its own policy at one setting

Whoever satisfies it is served by the same crossfit, nested, holdout and build (aera/lab/judging).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Question, Schedule
from aera.errors import ProtocolError
from aera.lab.calibrating.calibration import Choice, Goal
from aera.lab.calibrating.families import GATE_FAMILY, Family
from aera.lab.learning.folds import Fold, split_rows
from aera.lab.replay.trajectory import Trajectories
from aera.lab.truths import Truths
from aera.policies.gate import Gate
from aera.policies.rules import Fixed, Policy
from aera.pools.pool import Records, VotedRecord
from aera.reading.task import Readability, Task
from aera.voting.weigher import Weighting
from aera.workers import SERIAL, Track, Workers, quiet

FEWEST = 20
"""Questions below which nothing can be learned."""


class Table(Protocol):
    """Everything known of the questions of a pool that a learner works on, row by row."""

    @property
    def name(self) -> str:
        """Of the pool."""
        ...

    @property
    def task(self) -> Task:
        """What its questions are."""
        ...

    @property
    def schedule(self) -> Schedule:
        """Its checkpoints."""
        ...

    @property
    def questions(self) -> Sequence[Question]:
        """One per row."""
        ...

    @property
    def readability(self) -> Readability:
        """Which share of its responses could be read."""
        ...

    @property
    def groups(self) -> Columns:
        """A number per row, the same for questions that no split may part."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Measured:
    """Some questions as a model sees them, beside what each checkpoint was worth in hindsight."""

    trajectories: Trajectories
    values: Mapping[str, Floats]
    """What every family looks at, by its name; shape (questions, checkpoints)."""
    records: tuple[VotedRecord, ...] = ()
    """The questions with their weights, where somebody may want to look at them."""

    @property
    def p_continue(self) -> Floats:
        """What a gate says, under the name of its family; NaN where the model has none."""
        silent = np.full(self.trajectories.tokens.shape, np.nan)
        return self.values.get(GATE_FAMILY.name, silent)

    def choose(self, family: Family, goal: Goal, *, seed: int) -> Choice:
        """The setting of a family that serves the goal on these questions."""
        return goal.choose(family, self.values[family.name], self.trajectories, seed=seed)

    @classmethod
    def join(cls, parts: "Sequence[Measured]", folds: Sequence[Fold]) -> "Measured":
        """The questions of all folds, in their order."""
        order = np.argsort(np.concatenate([fold.own for fold in folds]))
        records = [record for part in parts for record in part.records]
        names = parts[0].values
        return cls(
            Trajectories.join([part.trajectories for part in parts]).subset(order),
            {name: np.concatenate([part.values[name] for part in parts])[order] for name in names},
            tuple(records[place] for place in order) if records else (),
        )


@dataclass(frozen=True, eq=False)
class Split:
    """Who teaches, who ends the fit in time, and who calibrates."""

    fit: Columns
    held: Columns
    """Questions on which a fit is watched so that it ends in time; none where it needs none."""
    tune: Columns
    """Questions to calibrate on; none: those of the fit, each judged out of fold."""

    @property
    def calibrating(self) -> Columns:
        """Those that calibrate, one way or the other."""
        return self.tune if len(self.tune) else self.fit


def split_certified(
    table: Table, rows: Columns, shares: Sequence[float], *, certified: bool, seed: int
) -> Split:
    """Two parts, to teach and to calibrate, for a certificate; else all of them teach."""
    none = rows[:0]
    if not certified:
        return Split(rows, none, none)
    fit, tune = split_rows(rows, shares, groups=table.groups, seed=seed)
    return Split(fit, none, tune)


T = TypeVar("T", bound=Table)
T_contra = TypeVar("T_contra", bound=Table, contravariant=True)


class Model(Protocol[T_contra]):
    """What some questions taught."""

    @property
    def families(self) -> Mapping[str, Family]:
        """What is calibrated and judged, by the name it is shown under; its own comes first."""
        ...

    @property
    def gate(self) -> Gate | None:
        """What a controller decides with; None where its policy needs none."""
        ...

    @property
    def weigher(self) -> Weighting | None:
        """What gives votes their weights; None where they stay plain."""
        ...

    @property
    def own(self) -> Measured | None:
        """The questions it was fitted on, each judged by models of others."""
        ...

    @property
    def learned(self) -> str:
        """How it was learned, in one sentence."""
        ...

    def values(self, table: T_contra, rows: Columns) -> Measured:
        """Other questions as this model sees them."""
        ...

    def policy(self, setting: float, family: Family | None = None) -> Policy:
        """A policy at one setting, of the model's own family unless another is named."""
        ...


class Learner(Protocol[T]):
    """A frozen value whose fields are its hyper-parameters."""

    @property
    def margin(self) -> float | None:
        """Standard errors that an uncertified loss must stay below its limit."""
        ...

    @property
    def weighted(self) -> bool:
        """Whether its votes may carry learned weights."""
        ...

    def prepare(
        self,
        records: Records,
        truths: Truths | None,
        *,
        schedule: Schedule | None = None,
        workers: Workers = SERIAL,
        track: Track = quiet,
    ) -> T:
        """Everything that it learns from."""
        ...

    def split(self, table: T, rows: Columns, *, certified: bool, seed: int) -> Split:
        """Who teaches and who calibrates among these questions."""
        ...

    def fit(self, table: T, rows: Columns, *, held: Columns | None = None, seed: int) -> Model[T]:
        """A model of these questions alone."""
        ...


def policy_of(model: Model[T], choice: Choice, family: Family, schedule: Schedule) -> Policy:
    """The calibrated policy; the full budget where nothing met the goal."""
    if choice.setting is None:
        return Fixed(schedule.last)
    return model.policy(choice.setting, family)


def check_enough(table: Table) -> None:
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
