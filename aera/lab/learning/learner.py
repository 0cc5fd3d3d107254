"""Learners: what some questions teach, and how a model sees others.

learner = VoteLearner()                                  # its fields are its hyper-parameters
data = learner.prepare(pool, truths)                     # everything known of a pool's questions
model = learner.fit(data, rows, seed=0)                  # weights and a gate, from these rows alone
seen = model.values(data, other_rows)                    # other questions as the model sees them
policy = model.policy(0.3)                               # its own policy at one setting

Whoever satisfies it is served by the same crossfit, nested and holdout (aera/lab/judging.py) and
build.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from aera.arrays import Columns
from aera.core import Schedule, Weighting
from aera.errors import ProtocolError
from aera.lab.calibrating.calibration import Choice, Goal
from aera.lab.calibrating.families import Family
from aera.lab.frontier import Trajectories
from aera.lab.truths import Truths
from aera.policies.gate import Gate
from aera.policies.rules import Fixed, Policy
from aera.pools.pool import Records
from aera.workers import SERIAL, Workers

FEWEST = 20
"""Questions below which nothing can be learned."""


@dataclass(frozen=True, eq=False)
class Split:
    """Who teaches, who ends the fit in time, and who calibrates."""

    fit: Columns
    held: Columns
    """Questions on which a fit is watched so that it ends in time; none where it needs none."""
    tune: Columns
    """Questions to calibrate on; none: those of the fit, each judged out of fold."""

    @property
    def taught(self) -> Columns:
        """Those that had a part in the fit."""
        return np.concatenate([self.fit, self.held])

    @property
    def calibrating(self) -> Columns:
        """Those that calibrate, one way or the other."""
        return self.tune if len(self.tune) else self.fit


class Model(Protocol):
    """What some questions taught."""

    @property
    def gate(self) -> Gate | None:
        """What a controller decides with; None where its policy needs none."""

    @property
    def weigher(self) -> Weighting | None:
        """What gives votes their weights; None where they stay plain."""

    @property
    def own(self) -> Trajectories | None:
        """The questions it was fitted on, each judged by models of others."""

    @property
    def learned(self) -> str:
        """How it was learned, in one sentence."""

    def families(self, goal: Goal) -> Mapping[str, Family]:
        """What is calibrated and judged, by the name it is shown under; its own comes first."""

    def grid(self, family: Family) -> Sequence[float] | None:
        """The settings to choose from, the safest first; None: those that the family has."""

    def values(self, table: Any, rows: Columns) -> Trajectories:
        """Other questions as this model sees them."""

    def policy(self, setting: float, family: Family | None = None) -> Policy:
        """A policy at one setting, of the model's own family unless another is named."""


class Learner(Protocol):
    """A frozen value whose fields are its hyper-parameters."""

    @property
    def margin(self) -> float | None:
        """Standard errors that an uncertified loss must stay below its limit."""

    @property
    def weighted(self) -> bool:
        """Whether its votes may carry learned weights."""

    def prepare(
        self,
        records: Records,
        truths: Truths | None,
        *,
        schedule: Schedule | None = None,
        workers: Workers = SERIAL,
    ) -> Any:
        """Everything that it learns from."""

    def split(self, table: Any, rows: Columns, *, certified: bool, seed: int) -> Split:
        """Who teaches and who calibrates among these questions."""

    def fit(self, table: Any, rows: Columns, *, held: Columns | None = None, seed: int) -> Model:
        """A model of these questions alone."""


def choose(model: Model, tuning: Trajectories, family: Family, goal: Goal, *, seed: int) -> Choice:
    """The setting of a family that serves the goal on these questions."""
    return goal.choose(family, tuning, grid=model.grid(family), seed=seed)


def policy_of(model: Model, choice: Choice, family: Family, schedule: Schedule) -> Policy:
    """The calibrated policy; the full budget where nothing met the goal."""
    if choice.setting is None:
        return Fixed(schedule.last)
    return model.policy(choice.setting, family)


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
