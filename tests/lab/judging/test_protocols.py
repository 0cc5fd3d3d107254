from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from small_study import Bench

from aera import Schedule
from aera.arrays import Columns
from aera.errors import ProtocolError
from aera.lab import (
    Choice,
    Judgement,
    LossLimit,
    PaperLearner,
    VoteLearner,
    crossfit,
    holdout,
    limit_for,
    nested,
)
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.learning import paper
from aera.lab.learning.paper import PaperModel, PaperTable
from aera.lab.learning.states import States

FOLDS = 3


@dataclass
class Watched:
    """Which questions were passed to a fit, and which to calibration, call by call."""

    fits: list[tuple[set[int], set[int]]] = field(default_factory=list)
    """Those that teach and those that end the fit."""
    networks: list[tuple[int, int, int]] = field(default_factory=list)
    """Examples to learn from, examples that end the fit, and outputs."""
    tunes: list[set[str]] = field(default_factory=list)


@contextmanager
def watching() -> Iterator[Watched]:
    """A note of what every fit and every calibration is given."""
    seen = Watched()
    fit, fit_network, choose = PaperLearner.fit, paper.fit_network, LossLimit.choose

    def fitting(
        self: PaperLearner, table: PaperTable, rows: Columns, *, held: Columns | None, seed: int
    ) -> PaperModel:
        seen.fits.append((set(rows.tolist()), set() if held is None else set(held.tolist())))
        return fit(self, table, rows, held=held, seed=seed)

    def network(train: Any, held: Any, *, outputs: int, **rest: Any) -> Any:
        seen.networks.append((len(train.targets), len(held.targets), outputs))
        return fit_network(train, held, outputs=outputs, **rest)

    def tuning(self: LossLimit, family: Any, known: Any, **rest: Any) -> Choice:
        seen.tunes.append(set(known.question_ids))
        return choose(self, family, known, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PaperLearner, "fit", fitting)
        patch.setattr(paper, "fit_network", network)
        patch.setattr(LossLimit, "choose", tuning)
        yield seen


Crossed = tuple[Judgement, Watched]
Judged = tuple[Judgement, Watched]
LIMIT = LossLimit(0.05)


@pytest.fixture(scope="module")
def both(quick: PaperLearner) -> PaperLearner:
    """It fits the one-shot head too."""
    return replace(quick, one_shot=True)


@pytest.fixture(scope="module")
def crossed(bench: Bench, both: PaperLearner) -> Crossed:
    """One crossfit with what it looked at."""
    with watching() as seen:
        return crossfit(both, bench.table, folds=FOLDS, seed=1), seen


@pytest.fixture(scope="module")
def judged(bench: Bench, quick: PaperLearner) -> Judged:
    """One nested run with what it looked at."""
    with watching() as seen:
        [done] = nested(quick, bench.table, [LIMIT], folds=FOLDS, seed=1)
    return done, seen


def rows_of(table: PaperTable, names: set[str]) -> set[int]:
    return {table.trajectories.question_ids.index(name) for name in names}


# --- crossfit -------------------------------------------------------------------------------------


def test_crossfit_judges_each_fold_by_a_gate_of_the_others(crossed: Crossed) -> None:
    done, watched = crossed
    assert len(watched.fits) == FOLDS
    for fold, (fit, held) in enumerate(watched.fits):
        outer = set(np.flatnonzero(done.folds == fold).tolist())
        assert fit == set(range(60)) - outer
        assert held == outer, "as in the paper: the held-out fold ends the fit"
    # A gate and a one-shot head per fold, of 40 questions at three checkpoints or at the first.
    assert watched.networks == [(120, 60, 1), (40, 20, 4)] * FOLDS


def test_a_clean_crossfit_ends_the_fit_without_the_judged_fold(
    bench: Bench, quick: PaperLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner: list[list[set[int]]] = []
    split_rows = paper.split_rows

    def splitting(rows: Columns, shares: Any, *, groups: Columns, seed: int) -> list[Columns]:
        parts = split_rows(rows, shares, groups=groups, seed=seed)
        inner.append([set(part.tolist()) for part in parts])
        return parts

    monkeypatch.setattr(paper, "split_rows", splitting)
    with watching() as watched:
        done = crossfit(quick, bench.table, folds=2, seed=1, clean=True)
    for fold, (fit, held) in enumerate(inner):
        outer = set(np.flatnonzero(done.folds == fold).tolist())
        assert not outer & (fit | held)
        assert not fit & held
        assert fit | held | outer == set(range(60))
        assert watched.fits[fold] == (fit | held, set()), "nobody names what ends it"
        assert watched.networks[fold] == (3 * len(fit), 3 * len(held), 1)
    assert len(inner) == len(watched.networks) == 2


def test_crossfit_gives_every_question_the_chances_of_its_own_folds_gate(
    bench: Bench, crossed: Crossed
) -> None:
    done, _ = crossed
    for fold, model in enumerate(done.models):
        rows = np.flatnonzero(done.folds == fold)
        wanted = model.values(bench.table, rows).values
        np.testing.assert_array_equal(done.p_continue[rows], wanted["aera"])
        np.testing.assert_array_equal(done.measured.values["one-shot"][rows], wanted["one-shot"])
    assert np.isfinite(done.p_continue).all()
    assert done.trajectories.question_ids == bench.table.trajectories.question_ids


def test_crossfit_shows_the_papers_nine_thresholds(crossed: Crossed) -> None:
    done, _ = crossed
    points = done.sweep()
    assert [point.policy for point in points] == [f"aera-0.{i}0" for i in range(1, 10)]
    assert all(a.responses >= b.responses for a, b in pairwise(points))
    np.testing.assert_array_equal(points[2].columns, GATE_FAMILY.stops(done.p_continue, 0.3))


def same(one: Judgement, other: Judgement) -> bool:
    return one.p_continue.tobytes() == other.p_continue.tobytes()


def test_crossfit_is_the_same_by_seed(
    bench: Bench, both: PaperLearner, quick: PaperLearner, crossed: Crossed
) -> None:
    one, _ = crossed
    two = crossfit(both, bench.table, folds=FOLDS, seed=1)
    assert same(one, two)
    stops = [done.one_shot() for done in (one, two)]
    assert stops[0] is not None
    assert stops[1] is not None
    assert stops[0].columns.tolist() == stops[1].columns.tolist()
    assert not same(one, crossfit(quick, bench.table, folds=FOLDS, seed=2))


def test_one_shot_is_shown_only_where_it_was_fitted(
    bench: Bench, quick: PaperLearner, crossed: Crossed
) -> None:
    point = crossed[0].one_shot()
    assert point is not None
    assert point.policy == "one-shot"
    assert crossfit(quick, bench.table, folds=2).one_shot() is None


# --- nested ---------------------------------------------------------------------------------------


def test_nested_keeps_fit_ending_calibration_and_judgement_apart(
    bench: Bench, judged: Judged
) -> None:
    done, watched = judged
    per_fold = len(done.choices)
    assert len(watched.fits) == FOLDS
    for fold, (fit, held) in enumerate(watched.fits):
        outer = set(np.flatnonzero(done.folds == fold).tolist())
        tunes = watched.tunes[fold * per_fold : (fold + 1) * per_fold]
        (tune,) = {frozenset(rows_of(bench.table, names)) for names in tunes}
        parts = [fit, held, tune, outer]
        assert sum(map(len, parts)) == len(set.union(*map(set, parts))) == 60
        assert min(map(len, parts)) > 0


def test_nested_judges_every_question_once(bench: Bench, judged: Judged) -> None:
    done, _ = judged
    assert done.rows.tolist() == [*range(60)]
    sizes = np.bincount(done.folds)
    assert (len(sizes), sizes.max() - sizes.min()) == (FOLDS, 0)
    assert {len(stops) for stops in done.stops.values()} == {60}
    assert {len(choices) for choices in done.choices.values()} == {FOLDS}
    assert set(done.stops) == {"aera", *bench.table.families}


def test_each_question_stops_where_its_own_folds_choice_stops_it(
    bench: Bench, judged: Judged
) -> None:
    done, _ = judged
    for name, values in (
        ("aera", done.p_continue),
        ("asc", bench.table.trajectories.values["asc"]),
    ):
        family = GATE_FAMILY if name == "aera" else bench.table.families[name]
        for row, fold in enumerate(done.folds):
            wanted = done.choices[name][fold].stops(family, values[[row]])[0]
            assert done.stops[name][row] == wanted


def test_the_outer_fold_has_no_part_in_its_own_choice(
    bench: Bench, quick: PaperLearner, judged: Judged
) -> None:
    """Turn all grades of one fold round: its choices and stops stay, those of others move."""
    before, _ = judged
    outer = np.flatnonzero(before.folds == 0)
    grades = bench.table.grades.copy()
    grades[outer] = 1 - grades[outer]
    turned = bench.table.graded_by(grades, cost_weight=0.1)
    [after] = nested(quick, turned, [LIMIT], folds=FOLDS, seed=1)
    assert before.p_continue[outer].tobytes() == after.p_continue[outer].tobytes()
    for name in before.choices:
        assert before.choices[name][0] == after.choices[name][0]
        assert before.stops[name][outer].tolist() == after.stops[name][outer].tolist()
    assert any(before.choices[name][1:] != after.choices[name][1:] for name in before.choices)


def test_nested_is_the_same_by_seed(bench: Bench, quick: PaperLearner, judged: Judged) -> None:
    one, _ = judged
    [two], [other] = (nested(quick, bench.table, [LIMIT], folds=FOLDS, seed=s) for s in (1, 2))
    assert same(one, two)
    assert one.choices == two.choices
    assert not same(one, other)


def test_several_goals_give_what_each_gives_alone(
    bench: Bench, quick: PaperLearner, judged: Judged
) -> None:
    loose, one = nested(quick, bench.table, [LossLimit(0.3), LIMIT], folds=FOLDS, seed=1)
    assert same(one, judged[0])
    assert one.choices == judged[0].choices
    assert loose.choices != one.choices


def test_a_limit_nobody_meets_keeps_the_full_budget(bench: Bench, quick: PaperLearner) -> None:
    [done] = nested(quick, bench.table, [LossLimit(0.02, alpha=0.1)], folds=2, seed=1)
    for name, choices in done.choices.items():
        assert not any(choice.feasible for choice in choices)
        assert (done.stops[name] == 3).all()
        assert done.point(name).responses == 32


def test_a_judgement_shows_fixed_budgets_on_the_same_questions(
    bench: Bench, quick: PaperLearner
) -> None:
    done = holdout(quick, bench.table, LossLimit(), seed=1)
    assert [point.policy for point in done.fixed()] == [f"fixed-{c}" for c in (4, 8, 16, 32)]
    assert [point.responses for point in done.fixed()] == [4, 8, 16, 32]
    labels = [GATE_FAMILY.label(t) for t in GATE_FAMILY.settings]
    assert [point.policy for point in done.sweep()] == labels
    assert done.point("asc").policy == "asc-calibrated"


def test_a_limit_keeps_the_margin_of_the_learner(quick: PaperLearner) -> None:
    assert limit_for(quick, 0.05) == LossLimit(0.05, None, None)
    assert limit_for(VoteLearner(), 0.05, 0.1) == LossLimit(0.05, 0.1, 1.64)


# --- holdout --------------------------------------------------------------------------------------


def test_holdout_tests_on_questions_nobody_has_seen(bench: Bench, quick: PaperLearner) -> None:
    with watching() as watched:
        done = holdout(quick, bench.table, LossLimit(), seed=1)
    ((fit, held),) = watched.fits
    tune = rows_of(bench.table, set.union(*watched.tunes))
    tested = set(done.rows.tolist())
    assert len(tested) == len(done.rows) == 24
    assert sum(map(len, (fit, held, tune, tested))) == len(fit | held | tune | tested) == 60
    assert done.trajectories.question_ids == tuple(
        bench.table.trajectories.question_ids[row] for row in done.rows
    )


def test_holdout_is_the_same_by_seed(bench: Bench, quick: PaperLearner) -> None:
    one, two, other = (holdout(quick, bench.table, LossLimit(), seed=s) for s in (1, 1, 2))
    assert same(one, two)
    assert one.rows.tolist() == two.rows.tolist()
    assert one.rows.tolist() != other.rows.tolist()


# --- refusals -------------------------------------------------------------------------------------


def small(table: PaperTable, rows: int) -> PaperTable:
    some = np.arange(rows)
    return replace(
        table,
        questions=table.questions[:rows],
        trajectories=table.trajectories.take(some),
        states=States(table.states.scalars[some], table.states.centroids[some]),
    )


def nested_once(learner: PaperLearner, table: PaperTable) -> object:
    return nested(learner, table, [LossLimit()])


def holdout_once(learner: PaperLearner, table: PaperTable) -> object:
    return holdout(learner, table, LossLimit())


Protocol = Callable[[PaperLearner, PaperTable], object]
PROTOCOLS: list[Protocol] = [crossfit, nested_once, holdout_once]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("questions", [1, 3, 19])
def test_too_few_questions_are_refused_in_one_sentence(
    protocol: Protocol, questions: int, bench: Bench, quick: PaperLearner
) -> None:
    with pytest.raises(ProtocolError, match=f"has {questions} questions") as error:
        protocol(quick, small(bench.table, questions))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_schedule_of_one_checkpoint_leaves_nothing_to_learn(
    protocol: Protocol, bench: Bench, quick: PaperLearner
) -> None:
    only = replace(bench.table.trajectories, schedule=Schedule((8,)))
    with pytest.raises(ProtocolError, match="one checkpoint"):
        protocol(quick, replace(bench.table, trajectories=only))
