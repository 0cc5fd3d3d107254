"""Recipes on a few rows: rivals have what AERA has."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from made_questions import made_table

from aera.lab import VoteLearner, limit_for
from aera.lab.judging import learn_and_tune

ROOT = Path(__file__).parents[1]
# --- rivals ---------------------------------------------------------------------------------------


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "runs")
    import rivals

    return rivals


def test_rivals_are_calibrated_on_what_aera_train_learns(rivals: ModuleType) -> None:
    table, rows = made_table(), np.arange(40)
    model, tuning = learn_and_tune(rivals.WEIGHTED, table, rows, certified=False, seed=0)
    limit = limit_for(VoteLearner(), 0.3)
    assert {*rivals.NAMES} == {*rivals.ANSWERS}
    for family in (*model.families(limit).values(), *rivals.ANSWERS.values()):
        choice = limit.choose(family, tuning, grid=model.grid(family))
        assert choice.feasible or family.name in ("majority", "entropy")


def test_plain_votes_stay_plain(rivals: ModuleType) -> None:
    model = rivals.PLAIN.fit(made_table(), np.arange(40), seed=0)
    assert model.weigher is None


def test_nobody_is_judged_on_a_question_that_taught(rivals: ModuleType) -> None:
    with pytest.raises(AssertionError):
        rivals.teach(rivals.PLAIN, made_table(), made_table())


def test_an_interval_is_wider_where_many_are_compared(rivals: ModuleType) -> None:
    chance = np.random.default_rng(0)
    ours = rivals.Outcome(chance.integers(0, 2, 80) * 1.0, np.ones(80), np.ones(80))
    rival = replace(ours, scores=chance.integers(0, 2, 80) * 1.0)
    shown = rivals.against_table(ours, {"one": rival, "two": rival})[0].rows[0]
    alone, together = (json.loads(cell.replace("+", "")) for cell in shown[2:4])
    assert together[0] < alone[0] < alone[1] < together[1]


def test_means_over_seeds_are_taken_question_by_question(rivals: ModuleType) -> None:
    runs = [rivals.Outcome(*(np.array([1.0, value]),) * 3) for value in (0.0, 1.0)]
    assert rivals.Outcome.mean(runs).scores.tolist() == [1.0, 0.5]
