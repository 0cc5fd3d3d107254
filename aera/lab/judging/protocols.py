"""Protocols: which question may teach, which may tune, which may only be judged.

crossfit  every question judged by a model of the other folds; held-out loss ends training, as in
          the paper, so the frontier is descriptive. `clean` ends training on an inner split.
nested    model, duration and threshold come from inner splits; the outer fold is touched once.
holdout   fit, calibrate, freeze, then test on questions nobody has seen.

All of them take any learner (aera/lab/learning/learner.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from aera.arrays import Columns, Floats
from aera.lab.calibrating.calibration import Choice, Goal, LossLimit
from aera.lab.calibrating.families import GATE_FAMILY, ONE_SHOT_FAMILY, Family
from aera.lab.learning.folds import FOLDS, Fold, deal, each_fold, split_rows
from aera.lab.learning.learner import Learner, Measured, Model, T, check_enough
from aera.lab.learning.paper import sweep
from aera.lab.replay.frontier import Kind, Point, fixed_points
from aera.lab.replay.trajectory import Trajectories
from aera.workers import SERIAL, Track, Workers, quiet


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Every question as models of the other folds see it."""

    measured: Measured
    folds: Columns
    """The fold of each question."""
    models: tuple[Model[Any], ...]
    weighted: bool = False

    @property
    def trajectories(self) -> Trajectories:
        """Of all questions."""
        return self.measured.trajectories

    @property
    def p_continue(self) -> Floats:
        """What the gates said, shape (questions, checkpoints); NaN where a learner has none."""
        return self.measured.p_continue

    def at(self, threshold: float) -> Point:
        """The frontier point of one threshold of the gate."""
        family = replace(GATE_FAMILY, settings=(threshold,))
        [point] = sweep(family, self.p_continue, self.trajectories, weighted=self.weighted)
        return point

    def sweep(self) -> list[Point]:
        """The paper's grid of the gate's thresholds, complete."""
        return _sweep_gate(self.measured, weighted=self.weighted)

    def one_shot(self) -> Point | None:
        """The checkpoint named once, at the first one, where the learner fits that."""
        values = self.measured.values.get(ONE_SHOT_FAMILY.name)
        if values is None:
            return None
        [point] = sweep(ONE_SHOT_FAMILY, values, self.trajectories)
        return replace(point, policy=ONE_SHOT_FAMILY.name, kind=Kind.BASELINE)


def _sweep_gate(measured: Measured, *, weighted: bool) -> list[Point]:
    """Every threshold of the gate, none where the learner has no gate."""
    values = measured.values.get(GATE_FAMILY.name)
    if values is None:
        return []
    return sweep(GATE_FAMILY, values, measured.trajectories, weighted=weighted)


def crossfit(
    learner: Learner[T],
    table: T,
    *,
    folds: int = FOLDS,
    seed: int = 0,
    clean: bool = False,
    workers: Workers = SERIAL,
    track: Track = quiet,
) -> CrossFit:
    """Fit one model per fold on the other folds and judge the fold with it."""
    check_enough(table)
    dealt = deal(table.groups, folds=folds, seed=seed)
    work = partial(_crossfit_fold, learner, table, seed=seed, clean=clean)
    done = each_fold(work, dealt, name="fitting", workers=workers, track=track)
    measured = Measured.join([judged for _, judged in done], dealt)
    models = tuple(model for model, _ in done)
    return CrossFit(measured, _fold_of(dealt), models, learner.weighted)


def _crossfit_fold(
    learner: Learner[T], table: T, fold: Fold, *, seed: int, clean: bool
) -> tuple[Model[T], Measured]:
    held = None if clean else fold.own
    model = learner.fit(table, fold.rest, held=held, seed=seed + fold.number)
    return model, model.values(table, fold.own)


def _fold_of(dealt: Sequence[Fold]) -> Columns:
    numbers = np.empty(sum(len(fold.own) for fold in dealt), dtype=np.int64)
    for fold in dealt:
        numbers[fold.own] = fold.number
    return numbers


@dataclass(frozen=True, eq=False)
class Judgement:
    """Calibrated policies on questions that had no part in choosing them."""

    measured: Measured
    rows: Columns
    """Which questions of the pool were judged."""
    families: Mapping[str, Family]
    stops: Mapping[str, Columns]
    """By name: the column at which each judged question stopped."""
    choices: Mapping[str, tuple[Choice, ...]]
    """By name: what calibration chose, once per outer fold."""
    folds: Columns
    """The outer fold of each judged question."""
    weighted: bool = False

    @property
    def trajectories(self) -> Trajectories:
        """Of the judged questions."""
        return self.measured.trajectories

    @property
    def p_continue(self) -> Floats:
        """Of the judged questions, by a gate that never saw them; NaN where there is none."""
        return self.measured.p_continue

    def point(self, name: str) -> Point:
        """One calibrated family as a point over the judged questions."""
        behind = "+weighted" if self.weighted and self.families[name] is not GATE_FAMILY else ""
        return Point(
            f"{name}-calibrated{'' if name == 'aera' else behind}",
            self.stops[name],
            self.trajectories,
            kind=Kind.CALIBRATED,
            family=name,
            weighted=self.weighted,
        )

    def points(self) -> list[Point]:
        """Every calibrated family, the model's own first."""
        return [self.point(name) for name in self.stops]

    def sweep(self) -> list[Point]:
        """Every threshold of the paper's grid on the judged questions."""
        return _sweep_gate(self.measured, weighted=self.weighted)

    def fixed(self) -> list[Point]:
        """Every fixed budget on the same questions and votes."""
        return fixed_points(self.trajectories, weighted=self.weighted)


def nested(
    learner: Learner[T],
    table: T,
    goals: Sequence[Goal],
    *,
    folds: int = FOLDS,
    seed: int = 0,
    workers: Workers = SERIAL,
    track: Track = quiet,
) -> list[Judgement]:
    """Per outer fold: fit and calibrate inside the rest, then judge the fold; once per goal."""
    check_enough(table)
    dealt = deal(table.groups, folds=folds, seed=seed)
    work = partial(_nested_fold, learner, table, goals=goals, seed=seed)
    done = each_fold(work, dealt, name="nested folds", workers=workers, track=track)
    return [_merge([fold[place] for fold in done], dealt) for place in range(len(goals))]


def _nested_fold(
    learner: Learner[T], table: T, fold: Fold, *, goals: Sequence[Goal], seed: int
) -> list[Judgement]:
    return _judge(learner, table, fold.rest, fold.own, goals=goals, seed=seed + fold.number)


def holdout(
    learner: Learner[T], table: T, goal: Goal, *, seed: int = 0, test: float = 0.4
) -> Judgement:
    """Fit, calibrate and freeze on one part of the questions, then test once on the other."""
    check_enough(table)
    rest, judged = split_rows(
        np.arange(len(table)), (1 - test, test), groups=table.groups, seed=seed
    )
    [judgement] = _judge(learner, table, rest, judged, goals=[goal], seed=seed)
    return judgement


def _judge(
    learner: Learner[T],
    table: T,
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
    learner: Learner[T], table: T, rows: Columns, *, certified: bool, seed: int
) -> tuple[Model[T], Measured]:
    """What these questions teach, with those to calibrate on as the model sees them."""
    split = learner.split(table, rows, certified=certified, seed=seed)
    model = learner.fit(table, split.fit, held=split.held, seed=seed)
    tuning = model.values(table, split.tune) if len(split.tune) else model.own
    assert tuning is not None, "a learner that keeps nothing to tune on judges out of fold"
    return model, tuning


def _stop(
    model: Model[T],
    tuning: Measured,
    measured: Measured,
    rows: Columns,
    *,
    goal: Goal,
    seed: int,
    weighted: bool,
) -> Judgement:
    families = model.families
    choices = {name: tuning.choose(each, goal, seed=seed) for name, each in families.items()}
    stops = {
        name: choices[name].stops(each, measured.values[each.name])
        for name, each in families.items()
    }
    return Judgement(
        measured,
        rows,
        families,
        stops,
        {name: (choice,) for name, choice in choices.items()},
        np.zeros(len(rows), np.int64),
        weighted,
    )


def _merge(parts: Sequence[Judgement], dealt: Sequence[Fold]) -> Judgement:
    """The judgements of all outer folds as one, the questions in the pool's order."""
    order = np.argsort(np.concatenate([part.rows for part in parts]))
    first = parts[0]
    return Judgement(
        Measured.join([part.measured for part in parts], dealt),
        np.arange(len(order)),
        first.families,
        {n: np.concatenate([part.stops[n] for part in parts])[order] for n in first.stops},
        {n: tuple(part.choices[n][0] for part in parts) for n in first.choices},
        _fold_of(dealt),
        first.weighted,
    )


def limit_for(
    learner: Learner[Any],
    max_loss: float,
    alpha: float | None = None,
    *,
    by_agreement: bool = False,
) -> LossLimit:
    """A limit on the loss with the margin that a learner keeps."""
    return LossLimit(max_loss, alpha, learner.margin, by_agreement)
