"""Protocols: which question may teach, which may tune, which may only be judged.

crossfit  every question judged by a gate of the other folds; held-out loss ends training, as in
          the paper, so the frontier is descriptive. `clean` ends training on an inner split.
nested    model, duration and threshold come from inner splits; the outer fold is touched once.
holdout   fit, calibrate, freeze, then test on questions nobody has seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from aera.crew import ALONE, Crew
from aera.errors import ProtocolError, UsageError
from aera.gate import PaperGate, sigmoid
from aera.lab.calibration import Choice, calibrate, chosen_stops
from aera.lab.dials import GATE
from aera.lab.evaluation import Ballot
from aera.lab.folds import fold_numbers
from aera.lab.frontier import Point
from aera.lab.states import Track, quiet
from aera.lab.study import Study
from aera.lab.training import Fit, fit_gate, fit_one_shot
from aera.lab.trajectory import Columns, Floats, Trajectories
from aera.schedule import Schedule

FEWEST = 20


def check_enough(name: str, questions: int, schedule: Schedule) -> None:
    """Refuse what nothing can be learned from."""
    if questions < FEWEST:
        raise ProtocolError(
            f'"{name}" has {questions} questions; training needs at least {FEWEST}, and '
            "a few hundred to be worth it"
        )
    if len(schedule) < 2:
        raise ProtocolError(
            f'"{name}" is studied at one checkpoint only, so there is nothing to decide; '
            "training needs a schedule of two or more"
        )


def chances(study: Study, gate: PaperGate, rows: Columns) -> Floats:
    """The gate's p_continue for these questions at every checkpoint."""
    evidence = study.states.evidence(gate.projection)[rows]
    flat = evidence.reshape(-1, evidence.shape[2])
    return sigmoid(gate.network.outputs(flat)).reshape(evidence.shape[:2])


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Out-of-fold chances for every question."""

    study: Study
    folds: Columns
    p_continue: Floats
    """Shape (questions, checkpoints)."""
    one_shot: Columns
    fits: tuple[Fit, ...]

    def at(self, threshold: float) -> Point:
        """The frontier point of one threshold."""
        columns = GATE.stops(self.p_continue, threshold)
        return self.study.point(GATE.label(threshold), columns)

    def sweep(self) -> list[Point]:
        """The paper's grid, complete."""
        return [self.at(threshold) for threshold in GATE.settings]


def crossfit(
    study: Study,
    *,
    folds: int = 5,
    seed: int = 0,
    clean: bool = False,
    one_shot: bool = True,
    crew: Crew = ALONE,
    track: Track = quiet,
) -> CrossFit:
    """Fit one gate per fold on the other folds and judge the fold with it."""
    check_enough(study.name, len(study), study.trajectories.schedule)
    numbers = fold_numbers(len(study), folds, seed=seed)
    p_continue = np.empty(study.grades.shape)
    first = np.zeros(len(study), dtype=np.int64)
    fits = []
    work = partial(_fold, study, numbers, seed=seed, clean=clean, one_shot=one_shot)
    done = zip(track(range(folds), "fitting"), crew.map(work, range(folds)), strict=True)
    for fold, (fit, judged, stops) in done:
        p_continue[numbers == fold] = judged
        first[numbers == fold] = stops
        fits.append(fit)
    return CrossFit(study, numbers, p_continue, first, tuple(fits))


def _fold(
    study: Study, numbers: Columns, fold: int, *, seed: int, clean: bool, one_shot: bool
) -> tuple[Fit, Floats, Columns]:
    """The gate of one fold, with the chances and the one-shot stops of its questions."""
    outer = np.flatnonzero(numbers == fold)
    rest = np.flatnonzero(numbers != fold)
    fit, stop = split_rows(rest, (0.85, 0.15), seed=seed) if clean else [rest, outer]
    done = fit_study(study, fit, stop, seed=seed + fold)
    stops: Columns = np.zeros(len(outer), dtype=np.int64)
    if one_shot:
        stops = _one_shot_stops(study, fit, stop, judged=outer, seed=seed + fold)
    return done, chances(study, done.gate, outer), stops


def fit_study(study: Study, fit: Columns, stop: Columns, *, seed: int) -> Fit:
    """Fit a gate on some questions of a study, ending by others."""
    labels = study.labels.astype(np.float64)
    return fit_gate(study.states, labels, fit=fit, stop=stop, encoder=study.encoder, seed=seed)


def _one_shot_stops(
    study: Study, fit: Columns, stop: Columns, *, judged: Columns, seed: int
) -> Columns:
    """Where a checkpoint named once, at the first one, sends each question."""
    head = fit_one_shot(
        study.states, study.one_shot_targets, fit=fit, stop=stop, encoder=study.encoder, seed=seed
    ).gate
    evidence = study.states.evidence(head.projection)[judged, 0]
    columns: Columns = head.network.outputs(evidence).argmax(axis=1)
    return columns


def split_rows(rows: Columns, shares: Sequence[float], *, seed: int) -> list[Columns]:
    """Deal questions at random into parts of these shares."""
    shuffled = np.random.default_rng(seed).permutation(rows)
    ends = np.round(np.cumsum(shares) * len(rows)).astype(int)[:-1]
    return [np.sort(part) for part in np.split(shuffled, ends)]


INNER = (0.6, 0.15, 0.25)
"""Shares for fitting, for ending the fit in time, and for calibration."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """Calibrated policies on questions that had no part in choosing them."""

    trajectories: Trajectories
    """Of the judged questions."""
    rows: Columns
    """Which questions of the pool they are."""
    stops: Mapping[str, Columns]
    """By dial: the column at which each judged question stopped."""
    choices: Mapping[str, tuple[Choice, ...]]
    """By dial: what calibration chose, once per outer fold."""
    p_continue: Floats
    """Of the judged questions, by a gate that never saw them."""
    folds: Columns
    """The outer fold of each judged question."""
    budget: str = "fixed"
    """What fixed budgets are called: `weighed` where the votes carry learned weights."""
    ballots: tuple[Ballot, ...] = ()
    """The judged questions with those weights."""

    def point(self, name: str) -> Point:
        """One calibrated dial as a point over the judged questions."""
        return Point(f"{name}-calibrated", self.stops[name], self.trajectories)

    def sweep(self) -> list[Point]:
        """Every threshold of the paper's grid on the judged questions."""
        return [
            Point(GATE.label(setting), GATE.stops(self.p_continue, setting), self.trajectories)
            for setting in GATE.settings
        ]

    def fixed(self) -> list[Point]:
        """Every fixed budget on the same questions."""
        return [
            Point(f"{self.budget}-{checkpoint}", np.full(len(self.rows), column), self.trajectories)
            for column, checkpoint in enumerate(self.trajectories.schedule)
        ]


def merged(parts: Sequence[Verdict], folds: Columns) -> Verdict:
    """The verdicts of all outer folds as one, the questions in the pool's order."""
    order = np.argsort(np.concatenate([part.rows for part in parts]))
    first = parts[0]
    return Verdict(
        Trajectories.joined([part.trajectories for part in parts]).subset(order),
        np.arange(len(order)),
        {n: np.concatenate([part.stops[n] for part in parts])[order] for n in first.stops},
        {n: tuple(part.choices[n][0] for part in parts) for n in first.choices},
        np.concatenate([part.p_continue for part in parts])[order],
        folds,
        first.budget,
        tuple(ballot for part in parts for ballot in part.ballots),
    )


@dataclass(frozen=True)
class Demand:
    """What calibration must guarantee: at most this loss, and with which chance of error."""

    max_loss: float = 0.02
    alpha: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.max_loss < 1:
            raise UsageError(
                f"the allowed loss is a fraction from 0 up, as 0.02, but got {self.max_loss}"
            )
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise UsageError(
                f"the certified chance of error lies between 0 and 1, as 0.1, but got {self.alpha}"
            )


def nested(
    study: Study,
    *,
    folds: int = 5,
    seed: int = 0,
    demand: Demand | None = None,
    crew: Crew = ALONE,
    track: Track = quiet,
) -> Verdict:
    """Per outer fold: fit, end and calibrate inside the rest, then judge the fold once."""
    check_enough(study.name, len(study), study.trajectories.schedule)
    numbers = fold_numbers(len(study), folds, seed=seed)
    work = partial(_nested_fold, study, numbers, seed=seed, demand=demand or Demand())
    done = zip(track(range(folds), "nested folds"), crew.map(work, range(folds)), strict=True)
    return merged([verdict for _, verdict in done], numbers)


def _nested_fold(
    study: Study, numbers: Columns, fold: int, *, seed: int, demand: Demand
) -> Verdict:
    outer = np.flatnonzero(numbers == fold)
    parts = split_rows(np.flatnonzero(numbers != fold), INNER, seed=seed + fold)
    return _judge(study, parts, outer, seed=seed + fold, demand=demand)


def holdout(
    study: Study, *, seed: int = 0, demand: Demand | None = None, test: float = 0.4
) -> Verdict:
    """Fit, calibrate and freeze on one part of the questions, then test once on the other."""
    check_enough(study.name, len(study), study.trajectories.schedule)
    rest, judged = split_rows(np.arange(len(study)), (1 - test, test), seed=seed)
    parts = split_rows(rest, INNER, seed=seed)
    return _judge(study, parts, judged, seed=seed, demand=demand or Demand())


def _judge(
    study: Study, parts: Sequence[Columns], judged: Columns, *, seed: int, demand: Demand
) -> Verdict:
    """Calibrate the gate and every other dial on the same questions, then stop the judged ones."""
    fit, stop, tune = parts
    gate = fit_study(study, fit, stop, seed=seed).gate
    p_continue = chances(study, gate, judged)
    tuned = {GATE.name: (GATE, chances(study, gate, tune), p_continue)}
    for name, dial in study.dials.items():
        tuned[name] = (dial, study.values[name][tune], study.values[name][judged])
    tuning = study.trajectories.subset(tune)
    stops: dict[str, Columns] = {}
    choices: dict[str, tuple[Choice, ...]] = {}
    for name, (dial, before, after) in tuned.items():
        choice = calibrate(
            dial, before, tuning, max_loss=demand.max_loss, alpha=demand.alpha, seed=seed
        )
        stops[name], choices[name] = chosen_stops(choice, dial, after), (choice,)
    tested = study.trajectories.subset(judged)
    return Verdict(tested, judged, stops, choices, p_continue, np.zeros(len(judged), np.int64))
