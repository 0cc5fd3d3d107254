from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from small_study import Bench

from aera import Schedule
from aera.errors import ProtocolError, UsageError
from aera.lab import fold_numbers, protocols, training
from aera.lab.calibration import Choice
from aera.lab.dials import GATE
from aera.lab.protocols import CrossFit, Demand, Verdict, crossfit, holdout, nested, split_rows
from aera.lab.states import States
from aera.lab.study import Study
from aera.lab.trajectory import Columns

pytestmark = pytest.mark.usefixtures("quick")
FOLDS = 3


@dataclass
class Watched:
    """Which questions were passed to a fit, and which to calibration, call by call."""

    fits: list[tuple[set[int], set[int]]] = field(default_factory=list)
    tunes: list[set[str]] = field(default_factory=list)


@contextmanager
def watching() -> Iterator[Watched]:
    """Short fits, and a note of what every one of them is given."""
    seen = Watched()
    fit_gate, fit_one_shot = protocols.fit_gate, protocols.fit_one_shot
    calibrate = protocols.calibrate

    def fitting(fit_with: Callable[..., Any]) -> Callable[..., Any]:
        def fit(*data: Any, fit: Columns, stop: Columns, **rest: Any) -> Any:
            seen.fits.append((set(fit.tolist()), set(stop.tolist())))
            return fit_with(*data, fit=fit, stop=stop, **rest)

        return fit

    def tuning(dial: Any, values: Any, trajectories: Any, **rest: Any) -> Choice:
        seen.tunes.append(set(trajectories.question_ids))
        return calibrate(dial, values, trajectories, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "EPOCHS", 8)
        patch.setattr(protocols, "fit_gate", fitting(fit_gate))
        patch.setattr(protocols, "fit_one_shot", fitting(fit_one_shot))
        patch.setattr(protocols, "calibrate", tuning)
        yield seen


Crossed = tuple[CrossFit, Watched]
Judged = tuple[Verdict, Watched]


@pytest.fixture(scope="module")
def crossed(bench: Bench) -> Crossed:
    """One crossfit with what it looked at."""
    with watching() as seen:
        return crossfit(bench.study, folds=FOLDS, seed=1), seen


@pytest.fixture(scope="module")
def judged(bench: Bench) -> Judged:
    """One nested run with what it looked at."""
    with watching() as seen:
        return nested(bench.study, folds=FOLDS, seed=1, demand=Demand(0.05)), seen


def rows_of(study: Study, names: set[str]) -> set[int]:
    return {study.trajectories.question_ids.index(name) for name in names}


# --- splits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "folds"), [(60, 5), (61, 5), (7, 3), (1319, 5)])
def test_folds_are_equal_to_within_one(count: int, folds: int) -> None:
    sizes = np.bincount(fold_numbers(count, folds, seed=4), minlength=folds)
    assert sizes.sum() == count
    assert sizes.max() - sizes.min() <= 1


def test_a_split_deals_every_row_once_in_about_the_given_shares() -> None:
    rows = np.arange(100, 300)
    parts = split_rows(rows, (0.6, 0.15, 0.25), seed=1)
    assert sorted(np.concatenate(parts).tolist()) == rows.tolist()
    assert [len(part) for part in parts] == [120, 30, 50]
    again, other = split_rows(rows, (0.6, 0.15, 0.25), seed=1), split_rows(rows, (0.6, 0.4), seed=2)
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))
    assert parts[0].tolist() != other[0].tolist()


# --- crossfit -------------------------------------------------------------------------------------


def test_crossfit_judges_each_fold_by_a_gate_of_the_others(crossed: Crossed) -> None:
    done, watched = crossed
    assert len(watched.fits) == 2 * FOLDS, "a gate and a one-shot head per fold"
    for fold in range(FOLDS):
        outer = set(np.flatnonzero(done.folds == fold).tolist())
        for fit, stop in watched.fits[2 * fold : 2 * fold + 2]:
            assert fit == set(range(60)) - outer
            assert stop == outer, "as in the paper: the held-out fold ends the fit"


def test_a_clean_crossfit_ends_the_fit_without_the_judged_fold(bench: Bench) -> None:
    with watching() as watched:
        done = crossfit(bench.study, folds=2, seed=1, clean=True, one_shot=False)
    for fold, (fit, stop) in enumerate(watched.fits):
        outer = set(np.flatnonzero(done.folds == fold).tolist())
        assert not outer & (fit | stop)
        assert not fit & stop
        assert fit | stop | outer == set(range(60))


def test_crossfit_gives_every_question_the_chances_of_its_own_folds_gate(
    bench: Bench, crossed: Crossed
) -> None:
    done, _ = crossed
    for fold, fit in enumerate(done.fits):
        rows = np.flatnonzero(done.folds == fold)
        wanted = protocols.chances(bench.study, fit.gate, rows)
        np.testing.assert_array_equal(done.p_continue[rows], wanted)
    assert np.isfinite(done.p_continue).all()


def test_crossfit_shows_the_papers_nine_thresholds(crossed: Crossed) -> None:
    done, _ = crossed
    points = done.sweep()
    assert [point.policy for point in points] == [f"aera-0.{i}0" for i in range(1, 10)]
    assert all(a.responses >= b.responses for a, b in pairwise(points))
    np.testing.assert_array_equal(points[2].columns, GATE.stops(done.p_continue, 0.3))


def same(one: CrossFit | Verdict, other: CrossFit | Verdict) -> bool:
    return one.p_continue.tobytes() == other.p_continue.tobytes()


def test_crossfit_is_the_same_by_seed(bench: Bench, crossed: Crossed) -> None:
    one, _ = crossed
    two = crossfit(bench.study, folds=FOLDS, seed=1)
    assert same(one, two)
    assert one.one_shot.tolist() == two.one_shot.tolist()
    assert not same(one, crossfit(bench.study, folds=FOLDS, seed=2, one_shot=False))


# --- nested ---------------------------------------------------------------------------------------


def test_nested_keeps_fit_ending_calibration_and_judgement_apart(
    bench: Bench, judged: Judged
) -> None:
    verdict, watched = judged
    per_fold = len(verdict.choices)
    for fold, (fit, stop) in enumerate(watched.fits):
        outer = set(np.flatnonzero(verdict.folds == fold).tolist())
        tunes = watched.tunes[fold * per_fold : (fold + 1) * per_fold]
        (tune,) = {frozenset(rows_of(bench.study, names)) for names in tunes}
        parts = [fit, stop, tune, outer]
        assert sum(map(len, parts)) == len(set.union(*map(set, parts))) == 60
        assert min(map(len, parts)) > 0


def test_nested_judges_every_question_once(bench: Bench, judged: Judged) -> None:
    verdict, _ = judged
    assert verdict.rows.tolist() == [*range(60)]
    sizes = np.bincount(verdict.folds)
    assert (len(sizes), sizes.max() - sizes.min()) == (FOLDS, 0)
    assert {len(stops) for stops in verdict.stops.values()} == {60}
    assert {len(choices) for choices in verdict.choices.values()} == {FOLDS}
    assert set(verdict.stops) == {"aera", *bench.study.dials}


def test_each_question_stops_where_its_own_folds_choice_stops_it(
    bench: Bench, judged: Judged
) -> None:
    verdict, _ = judged
    for name, values in (("aera", verdict.p_continue), ("asc", bench.study.values["asc"])):
        dial = GATE if name == "aera" else bench.study.dials[name]
        for row, fold in enumerate(verdict.folds):
            choice = verdict.choices[name][fold]
            wanted = protocols.chosen_stops(choice, dial, values[[row]])[0]
            assert verdict.stops[name][row] == wanted


def test_the_outer_fold_has_no_part_in_its_own_choice(bench: Bench, judged: Judged) -> None:
    """Turn all grades of one fold round: its choices and stops stay, those of others move."""
    before, _ = judged
    outer = np.flatnonzero(before.folds == 0)
    grades = bench.study.grades.copy()
    grades[outer] = 1 - grades[outer]
    turned = bench.study.graded_by(grades, cost_weight=0.1)
    after = nested(turned, folds=FOLDS, seed=1, demand=Demand(0.05))
    assert before.p_continue[outer].tobytes() == after.p_continue[outer].tobytes()
    for name in before.choices:
        assert before.choices[name][0] == after.choices[name][0]
        assert before.stops[name][outer].tolist() == after.stops[name][outer].tolist()
    assert any(before.choices[name][1:] != after.choices[name][1:] for name in before.choices)


def test_nested_is_the_same_by_seed(bench: Bench, judged: Judged) -> None:
    one, _ = judged
    two, other = (nested(bench.study, folds=FOLDS, seed=s, demand=Demand(0.05)) for s in (1, 2))
    assert same(one, two)
    assert one.choices == two.choices
    assert not same(one, other)


def test_a_demand_nobody_meets_keeps_the_full_budget(bench: Bench) -> None:
    verdict = nested(bench.study, folds=2, seed=1, demand=Demand(0.02, alpha=0.1))
    for name, choices in verdict.choices.items():
        assert not any(choice.feasible for choice in choices)
        assert (verdict.stops[name] == 3).all()
        assert verdict.point(name).responses == 32


def test_a_verdict_shows_fixed_budgets_on_the_same_questions(bench: Bench) -> None:
    verdict = holdout(bench.study, seed=1)
    assert [point.policy for point in verdict.fixed()] == [f"fixed-{c}" for c in (4, 8, 16, 32)]
    assert [point.responses for point in verdict.fixed()] == [4, 8, 16, 32]
    assert [point.policy for point in verdict.sweep()] == [GATE.label(t) for t in GATE.settings]
    assert verdict.point("asc").policy == "asc-calibrated"


# --- holdout --------------------------------------------------------------------------------------


def test_holdout_tests_on_questions_nobody_has_seen(bench: Bench) -> None:
    with watching() as watched:
        verdict = holdout(bench.study, seed=1)
    ((fit, stop),) = watched.fits
    tune = rows_of(bench.study, set.union(*watched.tunes))
    tested = set(verdict.rows.tolist())
    assert len(tested) == len(verdict.rows) == 24
    assert sum(map(len, (fit, stop, tune, tested))) == len(fit | stop | tune | tested) == 60
    assert verdict.trajectories.question_ids == tuple(
        bench.study.trajectories.question_ids[row] for row in verdict.rows
    )


def test_holdout_is_the_same_by_seed(bench: Bench) -> None:
    one, two, other = (holdout(bench.study, seed=s) for s in (1, 1, 2))
    assert same(one, two)
    assert one.rows.tolist() == two.rows.tolist()
    assert one.rows.tolist() != other.rows.tolist()


# --- refusals -------------------------------------------------------------------------------------


def small(study: Study, rows: int) -> Study:
    some = np.arange(rows)
    return replace(
        study,
        trajectories=study.trajectories.subset(some),
        states=States(study.states.scalars[some], study.states.centroids[some]),
        values={name: values[some] for name, values in study.values.items()},
    )


@pytest.mark.parametrize("protocol", [crossfit, nested, holdout])
@pytest.mark.parametrize("questions", [1, 3, 19])
def test_too_few_questions_are_refused_in_one_sentence(
    protocol: Callable[[Study], object], questions: int, bench: Bench
) -> None:
    with pytest.raises(ProtocolError, match=f"has {questions} questions") as error:
        protocol(small(bench.study, questions))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("demand", [(2.0, None), (1.0, 0.1), (-0.1, None), (0.02, 0.0), (0.02, 5)])
def test_a_demand_that_is_no_fraction_is_refused(demand: tuple[float, float | None]) -> None:
    with pytest.raises(UsageError, match="but got"):
        Demand(*demand)


@pytest.mark.parametrize("protocol", [crossfit, nested, holdout])
def test_a_schedule_of_one_checkpoint_leaves_nothing_to_learn(
    protocol: Callable[[Study], object], bench: Bench
) -> None:
    only = replace(bench.study.trajectories, schedule=Schedule((8,)))
    with pytest.raises(ProtocolError, match="one checkpoint"):
        protocol(replace(bench.study, trajectories=only))
