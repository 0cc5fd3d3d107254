"""Learning without truths: who teaches, what is refused, and that no truth is looked at."""

from dataclasses import replace

import numpy as np
import pytest
from made_questions import SCHEDULE, TASK, made_records

from aera.arrays import Floats
from aera.lab import LossLimit, Truths, build
from aera.lab.calibrating.families import ASC_FAMILY
from aera.lab.judging.protocols import learn_and_tune
from aera.lab.learning.crowd import (
    HARM,
    UNSURE,
    CrowdLearner,
    CrowdModel,
    Support,
    clear_rows,
    graded_by_crowd,
    winner_of,
)
from aera.lab.learning.perceptron import Perceptron
from aera.lab.learning.votes import VoteTable
from aera.lab.learning.weigher import Responses, WeigherFit
from aera.lab.replay.trajectory import pick
from aera.pools.pool import HeldRecords
from aera.voting.weigher import Weigher

QUICK = WeigherFit(Perceptron((32, 32), 0.2, 1e-2, 1e-2, epochs=4, batch=32))
LEARNER = CrowdLearner(QUICK)
EVERY = np.arange(60)
CERTIFIED = LossLimit(0.3, 0.2, by_agreement=True)


def prepared(truths: dict[str, str] | None) -> VoteTable:
    records, _ = made_records()
    known = None if truths is None else Truths(truths)
    return LEARNER.prepare(HeldRecords(records, TASK, SCHEDULE), known)


@pytest.fixture(scope="module")
def table() -> VoteTable:
    return prepared(None)


def kept(monkeypatch: pytest.MonkeyPatch, *, holds: bool = True) -> None:
    """Let weights be used, or never."""
    monkeypatch.setattr(Support, "holds", holds)


def test_the_crowd_calls_its_own_winner_right(table: VoteTable) -> None:
    for record, grades in zip(table.records, table.responses.grades, strict=True):
        winner = winner_of(record)
        assert list(grades) == [float(vote.answer == winner) for vote in record.votes]


def test_the_clearest_votes_teach(table: VoteTable) -> None:
    shares = table.responses.grades.mean(axis=1)
    clear = clear_rows(table, EVERY)
    assert 0.6 <= clear.mean() < 1
    assert shares[clear].min() > shares[~clear].max()


def test_truths_change_nothing_that_is_learned_or_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    _, truths = made_records()
    lies = dict.fromkeys(truths, "5")
    found: list[tuple[Floats, Floats, float | None]] = []
    for known in (None, truths, lies):
        own = prepared(known)
        kept(monkeypatch)
        model, tuning = learn_and_tune(LEARNER, own, EVERY, certified=True, seed=1)
        choice = tuning.choose(model.families["aera"], CERTIFIED, seed=1)
        assert isinstance(model, CrowdModel)
        assert model.weigher is not None
        weights = model.weigher.weights(own.responses.traits)
        found.append((weights, tuning.values["asc"], choice.setting))
    for weights, confidence, setting in found[1:]:
        assert np.array_equal(weights, found[0][0])
        assert np.array_equal(confidence, found[0][1])
        assert setting == found[0][2]


def test_the_questions_that_certify_shape_nothing(
    table: VoteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(monkeypatch)
    split = LEARNER.split(table, EVERY, certified=True, seed=0)
    assert not set(split.fit) & set(split.tune)
    (moved, _), (other, _) = made_records(), made_records(seed=9)
    for row in split.tune:
        moved[row] = replace(other[row], question=moved[row].question)
    changed = LEARNER.prepare(HeldRecords(moved, TASK, SCHEDULE), None)
    one, two = (LEARNER.fit(each, split.fit, seed=0) for each in (table, changed))
    assert one.learned == two.learned
    assert one.weigher is not None
    assert two.weigher is not None
    traits = table.responses.traits
    assert np.array_equal(one.weigher.weights(traits), two.weigher.weights(traits))


def test_a_certificate_counts_answers_that_differ_from_the_full_budget(table: VoteTable) -> None:
    model, tuning = learn_and_tune(LEARNER, table, EVERY, certified=True, seed=0)
    choice = tuning.choose(ASC_FAMILY, CERTIFIED, seed=0)
    stops = choice.stops(ASC_FAMILY, tuning.values["asc"])
    agreement = pick(tuning.trajectories.agreement, stops).mean()
    assert choice.feasible
    assert choice.accuracy == pytest.approx(agreement)
    assert "to change at most 30 % of the answers" in choice.summary
    assert model.learned.startswith("without truths: ")


def test_weights_that_lead_votes_astray_are_refused() -> None:
    first = ["a"] * 400
    astray = ["a"] * 360 + ["b"] * 40
    harmed = Support.of(first, first, astray)
    assert harmed.plain - harmed.weighted > HARM
    assert harmed.error < UNSURE
    assert not harmed.holds
    assert "beyond the 5 allowed" in harmed.summary
    assert Support.of(first, first, ["a"] * 390 + ["b"] * 10).holds


def test_weights_are_refused_where_too_few_questions_could_tell() -> None:
    first, still = ["a"] * 20, ["a"] * 19 + ["b"]
    unsure = Support.of(first, first, still)
    assert unsure.plain - unsure.weighted <= HARM + 1e-9
    assert not unsure.holds
    assert "too few questions to say" in unsure.summary


@pytest.mark.parametrize(("questions", "holds"), [(48, False), (200, True)])
def test_few_questions_on_which_nothing_changes_do_not_support_weights(
    questions: int, *, holds: bool
) -> None:
    same = ["a"] * questions
    quiet = Support.of(same, same, same)
    assert quiet.plain == quiet.weighted
    assert quiet.error == pytest.approx(1 / questions)
    assert quiet.holds == holds
    assert ("too few questions to say" in quiet.summary) == (not holds)


def test_refused_weights_leave_plain_votes(
    table: VoteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(monkeypatch, holds=False)
    model = LEARNER.fit(table, EVERY, seed=0)
    assert model.weigher is None
    assert "are refused" in model.learned
    never = replace(LEARNER, weighted=False).fit(table, EVERY, seed=0)
    assert np.array_equal(model.own.values["asc"], never.own.values["asc"])


def test_asc_is_what_is_calibrated_and_there_is_no_gate(table: VoteTable) -> None:
    made = build(LEARNER, table, CERTIFIED, seed=0)
    assert made.controller.gate is None
    assert made.controller.label.startswith(("asc-", "fixed-"))
    assert made.learned.endswith("ASC is what was calibrated")


def test_weights_brought_along_are_used_as_they_are_and_checked_alike(
    table: VoteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    graded = Responses(table.responses.traits, table.responses.voted, table.responses.grades)
    given: Weigher = QUICK.fit(graded, seed=3)
    checked: list[Support] = []
    of = Support.of

    def watched(*halves: list[str | None]) -> Support:
        checked.append(of(*halves))
        return checked[-1]

    monkeypatch.setattr(Support, "of", watched)
    kept(monkeypatch)
    model = replace(LEARNER, given=given).fit(table, EVERY, seed=0)
    assert model.weigher is given
    assert model.support is checked[0]
    assert "weights taught elsewhere" in model.learned


def test_a_table_with_truths_is_graded_anew_by_its_crowd(table: VoteTable) -> None:
    wrong = replace(
        table.responses, grades=np.zeros_like(table.responses.grades), traits=table.responses.traits
    )
    again = graded_by_crowd(replace(table, responses=wrong))
    assert np.array_equal(again.responses.grades, table.responses.grades)
