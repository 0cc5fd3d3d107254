"""Protocols: which question may teach, which may tune, which may only be judged.

crossfit  every question judged by a model of the other folds; held-out loss ends training, as in
          the paper, so the frontier is descriptive. `clean` ends training on an inner split.
nested    model, duration and threshold come from inner splits; the outer fold is touched once.
holdout   fit, calibrate, freeze, then test on questions nobody has seen.

All of them take any learner (aera/lab/learning/learner.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from aera.arrays import Columns, Floats
from aera.lab.calibrating.calibration import Choice, Goal, LossLimit
from aera.lab.calibrating.families import GATE_FAMILY, ONE_SHOT_FAMILY, Family
from aera.lab.learning.folds import FOLDS, Fold, deal, split_rows
from aera.lab.learning.learner import Learner, Model, Split, check_enough, choose
from aera.lab.replay.frontier import Kind, Point, fixed_points, point_in_orders, sweep
from aera.lab.replay.trajectory import Trajectories
from aera.workers import SERIAL, Workers, map_named


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

    @cached_property
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
        behind = "+weighted" if self.weighted and self.families[name] is not GATE_FAMILY else ""
        return point_in_orders(
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
    check_enough(table)
    dealt = deal(table.groups, folds=folds, seed=seed)
    work = partial(_crossfit_fold, learner, table, seed=seed, clean=clean)
    done = map_named(workers, work, dealt, "fitting")
    measured = gather([judged for _, judged in done], dealt)
    models = tuple(model for model, _ in done)
    return Judgement(
        measured, np.arange(len(table)), fold_of(dealt), learner.weighted, models=models
    )


def _crossfit_fold(
    learner: Learner, table: Any, fold: Fold, *, seed: int, clean: bool
) -> tuple[Model, Trajectories]:
    held = None if clean else fold.own
    model = learner.fit(table, fold.rest, held=held, seed=seed + fold.number)
    return model, model.values(table, fold.own)


def gather(parts: Sequence[Trajectories], dealt: Sequence[Fold]) -> Trajectories:
    """The questions of all folds, in their order."""
    order = np.argsort(np.concatenate([fold.own for fold in dealt]))
    return Trajectories.concat(parts).take(order)


def fold_of(dealt: Sequence[Fold]) -> Columns:
    """The fold of each question."""
    numbers = np.empty(sum(len(fold.own) for fold in dealt), dtype=np.int64)
    for fold in dealt:
        numbers[fold.own] = fold.number
    return numbers


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
    check_enough(table)
    dealt = deal(table.groups, folds=folds, seed=seed)
    work = partial(_nested_fold, learner, table, goals=goals, seed=seed)
    done = map_named(workers, work, dealt, "nested folds")
    return [_merge([fold[place] for fold in done], dealt) for place in range(len(goals))]


def _nested_fold(
    learner: Learner, table: Any, fold: Fold, *, goals: Sequence[Goal], seed: int
) -> list[Judgement]:
    return _judge(learner, table, fold.rest, fold.own, goals=goals, seed=seed + fold.number)


def holdout(
    learner: Learner, table: Any, goal: Goal, *, seed: int = 0, test: float = 0.4
) -> Judgement:
    """Fit, calibrate and freeze on one part of the questions, then test once on the other."""
    check_enough(table)
    rest, judged = split_rows(
        np.arange(len(table)), (1 - test, test), groups=table.groups, seed=seed
    )
    [judgement] = _judge(learner, table, rest, judged, goals=[goal], seed=seed)
    return judgement


def _judge(
    learner: Learner,
    table: Any,
    rest: Columns,
    judged: Columns,
    *,
    goals: Sequence[Goal],
    seed: int,
) -> list[Judgement]:
    """Learn and calibrate every family on the rest, then stop the judged questions, by goal."""
    certified = any(goal.certified for goal in goals)
    model, tuning = learn_and_tune(learner, table, rest, certified=certified, seed=seed)
    measured = model.values(table, judged)
    return [
        _stop(model, tuning, measured, judged, goal=goal, seed=seed, weighted=learner.weighted)
        for goal in goals
    ]


def learn_and_tune(
    learner: Learner, table: Any, rows: Columns, *, certified: bool, seed: int
) -> tuple[Model, Trajectories]:
    """What these questions teach, with those to calibrate on as the model sees them."""
    split = learner.split(table, rows, certified=certified, seed=seed)
    return fit_split(learner, table, split, seed=seed)


def fit_split(
    learner: Learner, table: Any, split: Split, *, seed: int
) -> tuple[Model, Trajectories]:
    """What one part of a split teaches, with the part to calibrate on as the model sees it."""
    model = learner.fit(table, split.fit, held=split.held, seed=seed)
    tuning = model.values(table, split.tune) if len(split.tune) else model.own
    assert tuning is not None, "a learner that keeps nothing to tune on judges out of fold"
    return model, tuning


def _stop(
    model: Model,
    tuning: Trajectories,
    measured: Trajectories,
    rows: Columns,
    *,
    goal: Goal,
    seed: int,
    weighted: bool,
) -> Judgement:
    families = model.families(goal)
    choices = {n: choose(model, tuning, each, goal, seed=seed) for n, each in families.items()}
    stops = {
        name: choices[name].stops(each, measured.values[each.name])
        for name, each in families.items()
    }
    return Judgement(
        measured,
        rows,
        np.zeros(len(rows), np.int64),
        weighted,
        families,
        stops,
        {name: (choice,) for name, choice in choices.items()},
        (model,),
    )


def _merge(parts: Sequence[Judgement], dealt: Sequence[Fold]) -> Judgement:
    """The judgements of all outer folds as one, the questions in the pool's order."""
    order = np.argsort(np.concatenate([part.rows for part in parts]))
    first = parts[0]
    return Judgement(
        Trajectories.concat([part.measured for part in parts]).take(order),
        np.arange(len(order)),
        fold_of(dealt),
        first.weighted,
        first.families,
        {n: np.concatenate([part.stops[n] for part in parts])[order] for n in first.stops},
        {n: tuple(part.choices[n][0] for part in parts) for n in first.choices},
        tuple(part.models[0] for part in parts),
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
