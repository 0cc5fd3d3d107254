"""Recipes on a few rows: our results beside the paper's, and rivals with what AERA has."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from made_questions import made_table

from aera.lab import VoteLearner, limit_for
from aera.lab.judging.protocols import learn_and_tune
from aera.lab.learning.perceptron import Perceptron
from aera.lab.learning.weigher import WeigherFit

ROOT = Path(__file__).parents[1]
PAGE = """# Results

<!-- begin nested -->
| policy | accuracy % | against Fixed-128 | 95 % | responses |
| --- | ---: | ---: | ---: | ---: |
| gsm8k aera | 71.00 | -2.00 | [-3.00, -1.00] | 20.00 |
| gsm8k asc | 72.00 | -1.00 | [-2.00, +0.10] | 10.00 |
| csqa aera | 55.00 | -2.00 | [-5.00, +1.00] | 12.00 |
| csqa asc | 54.00 | -3.00 | [-6.00, +1.00] | 14.00 |
<!-- end nested -->

<!-- begin live-gsm8k -->
Calibration (50 questions): fine.

| method | responses | accuracy % |
| --- | ---: | ---: |
| Fixed-4 | 4.00 | 58.67 |
| Fixed-8 | 8.00 | 66.00 |
| Fixed-16 | 16.00 | 69.33 |
| Fixed-32 | 32.00 | 69.67 |
| Fixed-64 | 64.00 | 69.00 |
| Fixed-128 | 128.00 | 69.33 |
| AERA, aera-0.70 | 32.00 | 65.67 |
<!-- end live-gsm8k -->

<!-- begin empty -->
<!-- end empty -->
"""


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "runs")
    import paper_claims

    return paper_claims


def test_claims_are_judged_by_the_published_rows(claims: ModuleType) -> None:
    found = claims.nested_claims(claims.Published(PAGE))
    assert [claim.holds for claim in found] == ["**no**", "**no**", "**no**"]
    better = PAGE.replace("[-3.00, -1.00]", "[-3.00, +0.50]").replace("| 54.00", "| 56.00")
    found = claims.nested_claims(claims.Published(better.replace("14.00 |", "9.00 |")))
    assert [claim.holds for claim in found] == ["yes", "**no**", "yes"]


def test_a_table_has_the_papers_number_beside_ours(claims: ModuleType) -> None:
    lines = claims.online_table(claims.Published(PAGE)).splitlines()
    assert lines[-1] == "| AERA | 4.44 | 32.00 | 92.61 | 65.67 | 96.53 | 75.00 |"


def test_a_claim_table_has_one_row_per_claim(claims: ModuleType) -> None:
    found = claims.nested_claims(claims.Published(PAGE))
    assert len(claims.claim_table(found).splitlines()) == 2 + len(found)


@pytest.mark.parametrize("section", ["empty", "missing"])
def test_a_section_that_is_not_there_is_named(claims: ModuleType, section: str) -> None:
    with pytest.raises(SystemExit, match=f"section {section} is not published"):
        claims.Published(PAGE).rows(section)


# --- rivals ---------------------------------------------------------------------------------------

QUICK = WeigherFit(Perceptron((32, 32), 0.2, 1e-2, 1e-2, epochs=4, batch=32))


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "runs")
    import rivals

    return rivals


def test_rivals_are_calibrated_on_what_aera_train_learns(rivals: ModuleType) -> None:
    table, rows = made_table(), np.arange(40)
    mine, tuning = learn_and_tune(
        rivals.RivalLearner(weigher=QUICK), table, rows, certified=False, seed=0
    )
    theirs, _ = learn_and_tune(VoteLearner(weigher=QUICK), table, rows, certified=False, seed=0)
    assert [*mine.families] == ["aera", *rivals.NAMES]
    assert mine.families["aera"] is theirs.families["aera"]
    seen = [model.values(table, np.arange(40, 60)).p_continue for model in (mine, theirs)]
    np.testing.assert_array_equal(*seen)
    for family in mine.families.values():
        assert tuning.choose(family, limit_for(VoteLearner(), 0.3), seed=0).feasible


def test_plain_votes_stay_plain(rivals: ModuleType) -> None:
    model = rivals.PLAIN.fit(made_table(), np.arange(40), seed=0)
    assert model.weigher is None
    assert model.gain == 0


def test_nobody_is_judged_on_a_question_that_taught(rivals: ModuleType) -> None:
    with pytest.raises(AssertionError):
        rivals.teach(rivals.PLAIN, made_table(), made_table())


def test_an_interval_is_wider_where_many_are_compared(rivals: ModuleType) -> None:
    chance = np.random.default_rng(0)
    ours = rivals.Outcome(chance.integers(0, 2, 80) * 1.0, np.ones(80), np.ones(80))
    rival = replace(ours, scores=chance.integers(0, 2, 80) * 1.0)
    shown = rivals.against_table(ours, {"one": rival, "two": rival}).splitlines()[2].split(" | ")
    alone, together = (json.loads(cell.replace("+", "")) for cell in shown[2:4])
    assert together[0] < alone[0] < alone[1] < together[1]


def test_means_over_seeds_are_taken_question_by_question(rivals: ModuleType) -> None:
    runs = [rivals.Outcome(*(np.array([1.0, value]),) * 3) for value in (0.0, 1.0)]
    assert rivals.Outcome.mean(runs).scores.tolist() == [1.0, 0.5]
