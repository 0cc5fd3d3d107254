from dataclasses import replace
from math import ceil, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_questions import trajectories_of

from aera.arrays import Floats
from aera.errors import UsageError
from aera.lab import Choice, LossLimit, Trajectories
from aera.lab.calibrating.calibration import ROUGH
from aera.lab.calibrating.families import GATE_FAMILY, Family

SHAPE = (12, 4)
SURE = LossLimit(alpha=0.1)
GRADES = arrays(np.float64, SHAPE, elements=st.sampled_from([0.0, 0.5, 1.0]))
VALUES = arrays(np.float64, SHAPE, elements=st.integers(0, 10).map(lambda n: n / 10))
TOKENS = arrays(np.float64, SHAPE, elements=st.integers(1, 9)).map(lambda t: t.cumsum(axis=1))
LOSSES, MARGINS = st.sampled_from([0.0, 0.02, 0.1, 0.3]), st.sampled_from([None, 0.0, 0.5, 1.0])


def chosen(
    values: Floats,
    trajectories: Trajectories,
    limit: LossLimit | None = None,
    *,
    family: Family = GATE_FAMILY,
    seed: int = 0,
) -> Choice:
    """What a limit chooses, by default two points as measured."""
    known = replace(trajectories, values={family.name: values})
    return (limit or LossLimit()).choose(family, known, seed=seed)


def stop(values: Floats, threshold: float) -> list[int]:
    """Where the gate's rule stops, one question after the other."""
    last = values.shape[1] - 1
    return [next((c for c in range(last) if row[c] < threshold), last) for row in values]


def total(table: Floats, columns: list[int]) -> float:
    return float(sum(row[column] for row, column in zip(table, columns, strict=True)))


# --- the paper's rule -----------------------------------------------------------------------------


@given(GRADES, VALUES, TOKENS, LOSSES, MARGINS)
def test_it_picks_the_cheapest_setting_whose_loss_is_allowed(
    grades: Floats, values: Floats, tokens: Floats, max_loss: float, margin: float | None
) -> None:
    """With a margin on the fine grid, so many standard errors on the safe side."""
    allowed, stops = {}, {}
    for setting in GATE_FAMILY.settings if margin is None else GATE_FAMILY.fine:
        columns = stops[setting] = stop(values, setting)
        losses = [row[-1] - row[column] for row, column in zip(grades, columns, strict=True)]
        mean = sum(losses) / 12
        error = sqrt(sum((loss - mean) ** 2 for loss in losses) / 12 / 12)
        spare = (margin or 0.0) * error if max_loss else 0.0
        if mean + spare <= max_loss + 1e-9 and spare <= max(max_loss, ROUGH) + 1e-9:
            allowed[setting] = total(tokens, columns)
    wanted = min(allowed, key=lambda t: (allowed[t], t), default=None)
    choice = chosen(values, trajectories_of(grades, tokens), LossLimit(max_loss, margin=margin))
    assert (choice.setting, choice.feasible) == (wanted, bool(allowed))
    assert choice.margin == ((margin or 0.0) if max_loss else 0.0)
    if wanted is not None:
        assert choice.accuracy == pytest.approx(total(grades, stops[wanted]) / 12)
        saved = 1 - allowed[wanted] / tokens[:, -1].sum()
        assert choice.token_saving == pytest.approx(saved)


AGREED = LossLimit(0.02, margin=1.0, by_agreement=True)


def changing(questions: int, changes: int, limit: LossLimit = AGREED) -> Choice:
    """Stopping at once, which every setting of the gate does, changes so many answers."""
    agreement = np.ones((questions, 2))
    agreement[:changes, 0] = 0
    made = trajectories_of(agreement, np.tile([1.0, 8.0], (questions, 1)))
    return chosen(np.zeros((questions, 2)), made, limit)


def test_few_questions_on_which_no_answer_changes_do_not_show_agreement() -> None:
    choice = changing(48, 0)
    assert (choice.setting, choice.token_saving, choice.needed) == (None, 0, 50)
    assert choice.summary == (
        "NOT FEASIBLE: no aera setting that was tried could change at most 2 % of the answers on "
        "48 questions, 1 standard errors to spare, so the full budget is kept; about 50 "
        "calibration questions would be needed"
    )
    assert changing(50, 0).feasible
    assert changing(48, 0, replace(AGREED, by_agreement=False)).feasible


@pytest.mark.parametrize("changes", [1, 5])
def test_as_many_questions_as_are_needed_show_agreement(changes: int) -> None:
    """One answer in sixty changes; as many questions rounded up to sixties, and sixty fewer."""
    needed = changing(60 * changes, changes).needed
    sixties = ceil(needed / 60)
    assert changing(60 * sixties, sixties).feasible
    assert not changing(60 * (sixties - 1), sixties - 1).feasible


def test_no_number_of_questions_is_named_where_too_much_changes() -> None:
    choice = changing(100, 3)
    assert (choice.feasible, choice.needed) == (False, None)


def test_when_nothing_is_good_enough_the_full_budget_is_kept_loudly() -> None:
    values, grades = np.zeros((5, 3)), [[0, 0, 1]] * 5
    choice = chosen(values, trajectories_of(grades), LossLimit(0.02))
    assert (choice.setting, choice.feasible, choice.token_saving) == (None, False, 0)
    assert choice.accuracy == choice.reference == 1
    assert choice.summary.startswith("NOT FEASIBLE")
    assert "full budget is kept" in choice.summary
    assert choice.stops(GATE_FAMILY, np.zeros((7, 3))).tolist() == [2] * 7


def test_a_choice_says_what_it_saves_and_stops_other_questions() -> None:
    made = trajectories_of(np.ones((5, 3)))
    choice = chosen(np.full((5, 3), 0.05), made)
    assert choice.setting == 0.1, "a tie goes to the safer setting"
    assert choice.summary == "aera 0.1: within 2 points of the full budget on 5 questions, " \
        "saving 75.0 % of the tokens"  # fmt: skip
    spare = chosen(np.zeros((5, 3)), made, LossLimit(margin=1.0))
    assert "on 5 questions, 1 standard errors to spare, saving" in spare.summary
    others = np.array([[0.3, 0.05, 0.0], [0.0, 0.0, 0.0], [0.5, 0.5, 0.5]])
    assert choice.stops(GATE_FAMILY, others).tolist() == [1, 0, 2]


def test_responses_that_cost_nothing_save_nothing() -> None:
    free = trajectories_of(np.ones((5, 3)), np.zeros((5, 3)))
    choice = chosen(np.zeros((5, 3)), free)
    assert (choice.setting, choice.token_saving) == (0.1, 0)


# --- the certified rule ---------------------------------------------------------------------------


@pytest.mark.parametrize(("questions", "feasible"), [(113, False), (114, True)])
def test_with_ties_alone_114_questions_certify_2_points(questions: int, feasible: bool) -> None:
    made = trajectories_of(np.ones((questions, 3)))
    choice = chosen(np.zeros((questions, 3)), made, SURE)
    assert choice.feasible == feasible
    assert ("certified (90%) within 2 points" in choice.summary) == feasible
    assert choice.needed == (None if feasible else 114)
    assert ("about 114 calibration questions" in choice.summary) == (not feasible)


def test_more_questions_than_there_were_are_promised_or_none() -> None:
    bad = np.tile([0.0, 0.0, 1.0], (300, 1))
    choice = chosen(np.zeros((300, 3)), trajectories_of(bad), SURE)
    assert (choice.feasible, choice.needed) == (False, None)
    assert choice.summary.endswith("so the full budget is kept")


def test_the_certified_setting_is_the_cheapest_of_those_certified() -> None:
    """Up to 0.30 nothing is lost; beyond it everything."""
    values = np.tile([0.3, 0.0, 0.0], (400, 1))
    made = trajectories_of(np.tile([0.0, 1.0, 1.0], (400, 1)))
    choice = chosen(values, made, SURE)
    assert choice.setting == 0.01
    assert choice.stops(GATE_FAMILY, values).tolist() == [1] * 400


LADDER = Family("ladder", (0.1, 0.5, 0.9), (0.1, 0.3, 0.5, 0.7, 0.9), GATE_FAMILY.ready)


def test_a_loss_above_the_limit_is_seldom_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting loses 6 points where 5 are allowed: wins 2, regrets 8 in a hundred."""
    monkeypatch.setattr(LossLimit, "_needed", lambda *_: None)
    rng, studies, alpha = np.random.default_rng(0), 400, 0.2
    wrong = 0
    for study in range(studies):
        draw = rng.random((120, 1))
        grades = np.hstack([draw > 0.5, draw > 0.5]).astype(np.float64)
        win, regret = draw[:, 0] < 0.02, draw[:, 0] > 0.92
        grades[win, 0], grades[regret, 0] = 1, 0
        values = rng.random((120, 2)) * 0.05
        limit = LossLimit(0.05, alpha)
        choice = chosen(values, trajectories_of(grades), limit, family=LADDER, seed=study)
        wrong += choice.feasible
    assert wrong / studies <= alpha + 3 * sqrt(alpha * (1 - alpha) / studies)
    assert wrong > 0, "the test has power: sometimes chance deceives"


# --- what may be asked for ------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [(2.0, None), (1.0, 0.1), (-0.1, None), (0.02, 0.0), (0.02, 5)])
def test_a_limit_that_is_no_fraction_is_refused(limit: tuple[float, float | None]) -> None:
    with pytest.raises(UsageError, match="but got"):
        LossLimit(*limit)
