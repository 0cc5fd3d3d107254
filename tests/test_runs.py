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
PAGE = """# The paper

<!-- begin nested -->
| policy, calibrated by | vote % | against Fixed-128 | mean % | against Fixed-128 | responses |
| --- | ---: | ---: | ---: | ---: | ---: |
| csqa aera, by vote | 55.00 | -2.00 [-5.00, +1.00] | 48.00 | +1.00 [+0.10, +1.90] | 12.00 |
| csqa aera, by mean | 50.00 | -7.00 [-9.00, -5.00] | 48.00 | +1.00 [+0.10, +1.90] | 4.10 |
| csqa asc, by vote | 54.00 | -3.00 [-6.00, +1.00] | 48.00 | +1.00 [+0.10, +1.90] | 14.00 |
| csqa asc, by mean | 50.00 | -7.00 [-9.00, -5.00] | 49.00 | +2.00 [+0.10, +3.90] | 4.00 |
| gsm8k aera, by vote | 71.00 | -2.00 [-3.00, -1.00] | 57.00 | +3.00 [+2.00, +4.00] | 20.00 |
| gsm8k aera, by mean | 64.00 | -9.00 [-9.90, -8.00] | 54.00 | +0.50 [-0.50, +1.50] | 4.20 |
| gsm8k asc, by vote | 72.00 | -1.00 [-2.00, +0.10] | 57.00 | +3.00 [+2.00, +4.00] | 10.00 |
| gsm8k asc, by mean | 64.00 | -9.00 [-9.90, -8.00] | 54.00 | +0.50 [-0.50, +1.50] | 4.00 |
<!-- end nested -->

<!-- begin nested-rivals -->
| pool, rule | AERA against ASC | responses, AERA : ASC |
| --- | ---: | ---: |
| gsm8k, 2 points, by vote | -1.00 [-2.00, +0.10] | 20.00 : 10.00 |
| gsm8k, 2 points, by mean | +0.00 [-1.00, +1.00] | 4.20 : 4.00 |
<!-- end nested-rivals -->

<!-- begin nested-rules -->
| policy, calibrated by | vote % | against Fixed-128 | mean % | against Fixed-128 | responses |
| --- | ---: | ---: | ---: | ---: | ---: |
| gsm8k aera, no loss, by vote | 73.0 | -1.0 [-2.0, -0.1] | 57.0 | +3.0 [+2.0, +4.0] | 40.0 |
| gsm8k aera, no loss, by mean | 64.0 | -9.0 [-9.9, -8.0] | 54.0 | +0.5 [-0.5, +1.5] | 5.0 |
| gsm8k aera, most utility, by vote | 72.0 | -2.0 [-3.0, -0.1] | 57.0 | +3.0 [+2.0, +4.0] | 9.0 |
| gsm8k aera, most utility, by mean | 64.0 | -9.0 [-9.9, -8.0] | 54.0 | +0.5 [-0.5, +1.5] | 6.0 |
<!-- end nested-rules -->

<!-- begin benchmarks -->
| benchmark: policy | the paper's | vote % | against all | mean % | against all | responses |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| GPQA-Diamond, Phi-4-reasoning: aera nested, by vote |  | 71.00 | -1.00 | 65.00 | +0.00 | 17.00 |
| GPQA-Diamond, Phi-4-reasoning: asc nested, by vote |  | 72.00 | +0.00 | 66.00 | +0.00 | 9.00 |
| GPQA-Diamond, Phi-4-reasoning: aera nested, by mean |  | 71.00 | -1.00 | 65.00 | +0.00 | 17.00 |
| GPQA-Diamond, Phi-4-reasoning: asc nested, by mean |  | 72.00 | +0.00 | 66.00 | +0.00 | 9.00 |
<!-- end benchmarks -->

<!-- begin live-gsm8k -->
| method | responses | vote % | against Fixed-128 | mean % | against Fixed-128 |
| --- | ---: | ---: | ---: | ---: | ---: |
| Fixed-4 | 4.00 | 58.67 | -9.00 | 52.00 | +0.00 |
| Fixed-8 | 8.00 | 66.00 | -9.00 | 52.00 | +0.00 |
| Fixed-16 | 16.00 | 69.33 | -9.00 | 52.00 | +0.00 |
| Fixed-32 | 32.00 | 69.67 | -9.00 | 52.00 | +0.00 |
| Fixed-64 | 64.00 | 69.00 | -9.00 | 52.00 | +0.00 |
| Fixed-128 | 128.00 | 69.33 | -9.00 | 52.00 | +0.00 |
| AERA by vote, aera-0.70 | 32.00 | 65.67 | -9.00 | 54.00 | +0.00 |
| AERA by mean, aera-0.90 | 4.00 | 58.67 | -9.00 | 52.00 | +0.00 |
<!-- end live-gsm8k -->

<!-- begin empty -->
<!-- end empty -->
"""


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "runs")
    import paper_claims

    return paper_claims


def test_claims_are_judged_by_the_published_rows_in_each_metric(claims: ModuleType) -> None:
    found = claims.nested_claims(claims.Published(PAGE))
    assert [claim.holds for claim in found] == ["**no**", "partly", "partly"]
    assert [claim.holds_mean for claim in found] == ["yes", "yes", "yes"]
    better = PAGE.replace("[-2.0, -0.1]", "[-2.0, +0.5]").replace("20.00 : 10.00", "9.00 : 8.00")
    found = claims.nested_claims(claims.Published(better.replace("| 14.00 |", "| 9.00 |")))
    assert [claim.holds for claim in found] == ["partly", "yes", "partly"]


def test_claims_that_turn_from_one_metric_to_the_other_are_named(claims: ModuleType) -> None:
    told = claims.tell_verdicts(claims.nested_claims(claims.Published(PAGE)))
    assert told.startswith("Of 3 claims about scores, in the vote: 0 yes, 2 partly, 1 no;")
    assert "as accurate as Fixed-128 (no, yes)" in told


def test_a_table_has_the_papers_number_beside_ours(claims: ModuleType) -> None:
    lines = claims.online_table(claims.Published(PAGE)).splitlines()
    assert lines[-2] == "| AERA by vote | 4.44 | 32.00 | 92.61 | 65.67 | 54.00 | 96.53 | 75.00 |"
    assert lines[-1] == "| AERA by mean | 4.44 | 4.00 | 92.61 | 58.67 | 52.00 | 96.53 | 96.88 |"


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
