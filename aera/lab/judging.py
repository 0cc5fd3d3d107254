"""Protocols: which question may teach, which may tune, which may only be judged.

crossfit  every question judged by a model of the other folds; held-out loss ends training, as in
          the paper, so the frontier is descriptive. `clean` ends training on an inner split.
nested    model, duration and threshold come from inner splits; the outer fold is touched once.
holdout   fit, calibrate, freeze, then test on questions nobody has seen.

All of them, and build, take whoever satisfies the contract of a learner:

learner = VoteLearner()                                  # its fields are its hyper-parameters
data = learner.prepare(pool, truths)                     # everything known of a pool's questions
model = learner.fit(data, rows, seed=0)                  # weights and a gate, from these rows alone
seen = model.values(data, other_rows)                    # other questions as the model sees them
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Schedule, Weighting
from aera.errors import UsageError
from aera.lab.calibrating.calibration import Choice, Goal, LossLimit
from aera.lab.calibrating.families import GATE_FAMILY, ONE_SHOT_FAMILY, Family
from aera.lab.frontier import Kind, Point, Trajectories, fixed_points, sweep
from aera.lab.learning.folds import FOLDS, Fold, Split, deal, split_rows
from aera.lab.truths import Truths
from aera.policies.gate import Gate, Gated
from aera.policies.rules import Fixed, Policy
from aera.pools.pool import Records
from aera.workers import SERIAL, Workers, map_named


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
    return policy_at(family, choice.setting, model.gate)


def policy_at(family: Family, setting: float, gate: Gate | None) -> Policy:
    """The policy of a family at one setting, with the gate that was learned where it needs it."""
    if family.make is not None:
        return family.make(setting)
    if family != GATE_FAMILY:
        raise UsageError(f'"{family.name}" is only shown beside the gate; it is no policy')
    assert gate is not None, "every family of a model without a gate needs only answers"
    return Gated(gate, setting)


@dataclass(frozen=True, eq=False)
class Judgement:
    """Questions as models see them that did not learn from them, and calibrated policies there."""

    measured: Trajectories
    """Of the judged questions, in every order."""
    rows: Columns
    """Which questions of the pool were judged."""
    folds: Columns
    """The outer fold of each judged question."""
    weighted: bool = False
    families: Mapping[str, Family] = field(default_factory=dict)
    stops: Mapping[str, Columns] = field(default_factory=dict)
    """By name: the column at which each judged question stopped, in every order."""
    choices: Mapping[str, tuple[Choice, ...]] = field(default_factory=dict)
    """By name: what calibration chose, once per outer fold; nothing after crossfit."""
    models: tuple[Model, ...] = ()

    @property
    def trajectories(self) -> Trajectories:
        """Of the judged questions, in the stored order."""
        return self.measured.stored

    @property
    def p_continue(self) -> Floats:
        """What gates said that never saw the questions, NaN where there are none."""
        silent = np.full(self.trajectories.tokens.shape, np.nan)
        return self.trajectories.values.get(GATE_FAMILY.name, silent)

    def point(self, name: str) -> Point:
        """One calibrated family as a point over the judged questions."""
        behind = "+weighted" if self.weighted and self.families[name] != GATE_FAMILY else ""
        return Point(
            f"{name}-calibrated{'' if name == 'aera' else behind}",
            self.stops[name],
            self.measured,
            kind=Kind.CALIBRATED,
            family=name,
            weighted=self.weighted,
        )

    def points(self) -> list[Point]:
        """Every calibrated family, the model's own first."""
        return [self.point(name) for name in self.stops]

    def fixed(self) -> list[Point]:
        """Every fixed budget on the same questions and votes."""
        return fixed_points(self.measured, weighted=self.weighted)

    def at(self, threshold: float) -> Point:
        """The frontier point of one threshold of the gate."""
        family = replace(GATE_FAMILY, settings=(threshold,))
        [point] = sweep(family, self.measured, weighted=self.weighted)
        return point

    def sweep(self) -> list[Point]:
        """The paper's grid of the gate's thresholds; nothing where the learner has no gate."""
        if GATE_FAMILY.name not in self.measured.values:
            return []
        return sweep(GATE_FAMILY, self.measured, weighted=self.weighted)

    def one_shot(self) -> Point | None:
        """The checkpoint named once, at the first one, where the learner fits that."""
        if ONE_SHOT_FAMILY.name not in self.measured.values:
            return None
        [point] = sweep(ONE_SHOT_FAMILY, self.measured)
        return replace(point, policy=ONE_SHOT_FAMILY.name, kind=Kind.BASELINE)


def crossfit(
    learner: Learner,
    table: Any,
    *,
    folds: int = FOLDS,
    seed: int = 0,
    clean: bool = False,
    workers: Workers = SERIAL,
) -> Judgement:
    """Fit one model per fold on the other folds and judge the fold with it."""
    work = partial(_crossfit_fold, learner, table, seed=seed, clean=clean)
    dealt = deal(table.groups, folds=folds, seed=seed)
    return _merge(map_named(workers, work, dealt, "fitting"))


def _crossfit_fold(
    learner: Learner, table: Any, fold: Fold, *, seed: int, clean: bool
) -> Judgement:
    held = None if clean else fold.own
    model = learner.fit(table, fold.rest, held=held, seed=seed + fold.number)
    return _see(learner, table, fold, model)


def _see(learner: Learner, table: Any, fold: Fold, model: Model) -> Judgement:
    """The questions of a fold as a model sees them that learned from others."""
    seen, folds = model.values(table, fold.own), np.full(len(fold.own), fold.number)
    return Judgement(seen, fold.own, folds, learner.weighted, models=(model,))


def nested(
    learner: Learner,
    table: Any,
    goals: Sequence[Goal],
    *,
    folds: int = FOLDS,
    seed: int = 0,
    workers: Workers = SERIAL,
) -> list[Judgement]:
    """Per outer fold: fit and calibrate inside the rest, then judge the fold; once per goal."""
    work = partial(_judge, learner, table, goals=goals, seed=seed)
    dealt = deal(table.groups, folds=folds, seed=seed)
    done = map_named(workers, work, dealt, "nested folds")
    return [_merge(parts) for parts in zip(*done, strict=True)]


def holdout(
    learner: Learner, table: Any, goal: Goal, *, seed: int = 0, test: float = 0.4
) -> Judgement:
    """Fit, calibrate and freeze on one part of the questions, then test once on the other."""
    rest, judged = split_rows(
        np.arange(len(table)), (1 - test, test), groups=table.groups, seed=seed
    )
    [judgement] = _judge(learner, table, Fold(0, judged, rest), goals=[goal], seed=seed)
    return judgement


def _judge(
    learner: Learner, table: Any, fold: Fold, *, goals: Sequence[Goal], seed: int
) -> list[Judgement]:
    """Learn and calibrate every family on the rest, then stop the judged questions, by goal."""
    certified, seed = any(goal.certified for goal in goals), seed + fold.number
    model, tuning = learn_and_tune(learner, table, fold.rest, certified=certified, seed=seed)
    judged, done = _see(learner, table, fold, model), []
    for goal in goals:
        families, values = model.families(goal), judged.measured.values
        once = {f: choose(model, tuning, f, goal, seed=seed) for f in {*families.values()}}
        choices = {name: once[family] for name, family in families.items()}
        stops = {n: choices[n].stops(f, values[f.name]) for n, f in families.items()}
        told = {name: (choice,) for name, choice in choices.items()}
        done.append(replace(judged, families=families, stops=stops, choices=told))
    return done


def learn_and_tune(
    learner: Learner, table: Any, rows: Columns, *, certified: bool, seed: int
) -> tuple[Model, Trajectories]:
    """What these questions teach, with those to calibrate on as the model sees them."""
    fit, held, tune = learner.split(table, rows, certified=certified, seed=seed)
    model = learner.fit(table, fit, held=held, seed=seed)
    tuning = model.values(table, tune) if len(tune) else model.own
    assert tuning is not None, "a learner that keeps nothing to tune on judges out of fold"
    return model, tuning


def _merge(parts: Sequence[Judgement]) -> Judgement:
    """The judgements of all outer folds as one, the questions in the pool's order."""
    rows = np.concatenate([part.rows for part in parts])
    order, first = np.argsort(rows), parts[0]
    return replace(
        first,
        measured=Trajectories.concat([part.measured for part in parts]).take(order),
        rows=rows[order],
        folds=np.concatenate([part.folds for part in parts])[order],
        stops={n: np.concatenate([part.stops[n] for part in parts])[order] for n in first.stops},
        choices={n: tuple(part.choices[n][0] for part in parts) for n in first.choices},
        models=tuple(part.models[0] for part in parts),
    )


def limit_for(
    learner: Learner,
    max_loss: float,
    alpha: float | None = None,
    *,
    by_agreement: bool = False,
) -> LossLimit:
    """A limit on the loss with the margin that a learner keeps."""
    return LossLimit(max_loss, alpha, learner.margin, by_agreement)
