"""Waiting times of an evaluation: who is timed, at which hurries, and by whose foresight."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from made_questions import SCHEDULE, TASK, made_records

import aera
from aera import Controller, Schedule
from aera.lab import Judgement, Report, Truths, VoteLearner
from aera.lab.judging.evaluation import Evaluation
from aera.lab.judging.waiting import Seen
from aera.lab.learning.perceptron import Perceptron
from aera.lab.learning.weigher import WeigherFit
from aera.lab.replay.server import Server
from aera.policies.ahead import default_ahead
from aera.pools.record import HeldRecords
from aera.workers import SERIAL

SERVER = "tokens_per_second=10"
QUICK = WeigherFit(Perceptron((32, 32), 0.2, 1e-2, 1e-2, epochs=4, batch=32))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> HeldRecords:
    folder = tmp_path_factory.mktemp("waiting")
    voted, answers = made_records()
    Truths(dict(answers)).save(folder)
    return HeldRecords(voted, TASK, SCHEDULE, folder=folder)


def evaluated(records: HeldRecords, **options: Any) -> Evaluation:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aera.lab.learning.crowd.VoteLearner", partial(VoteLearner, weigher=QUICK))
        return aera.evaluate(records, server=SERVER, **options)


@pytest.fixture(scope="module")
def nested(records: HeldRecords) -> Evaluation:
    return evaluated(records, protocol="nested", max_loss=0.3, hurries=(0.5, 1.0))


def rows_of(made: Evaluation) -> dict[tuple[str, float], dict[str, Any]]:
    return {(row["policy"], row["hurry"]): row for row in made.summary["waiting"]["rows"]}


def longest(records: HeldRecords, responses: int) -> float:
    """Mean seconds of the longest of the first responses."""
    lengths = [max(r.tokens for r in each.responses[:responses]) for each in records]
    return round(float(np.mean(lengths)) / 10, 4)


def test_fixed_budgets_wait_for_the_longest_response_on_plain_and_on_learned_votes(
    records: HeldRecords, nested: Evaluation
) -> None:
    rows = rows_of(nested)
    for budget in SCHEDULE:
        assert rows[f"fixed-{budget}", 0]["mean"] == longest(records, budget)
        own, plain = rows[f"weighted-{budget}", 0], rows[f"fixed-{budget}", 0]
        assert [own[n] for n in ("p50", "p95", "tokens")] == [
            plain[n] for n in ("p50", "p95", "tokens")
        ]


def test_the_policy_spoken_of_is_timed_at_every_hurry_and_answers_alike(
    nested: Evaluation,
) -> None:
    rows = rows_of(nested)
    calm, brisk, eager = (rows["aera-calibrated", hurry] for hurry in (0, 0.5, 1))
    assert calm["accuracy"] == brisk["accuracy"] == eager["accuracy"]
    assert calm["tokens"] == pytest.approx(nested.frontier["aera-calibrated"].tokens)
    assert calm["tokens"] <= brisk["tokens"] <= eager["tokens"]
    assert calm["mean"] >= brisk["mean"] >= eager["mean"]
    assert {hurry for policy, hurry in rows if policy != "aera-calibrated"} == {0.0}


def test_sweeps_and_hindsight_are_not_timed(nested: Evaluation) -> None:
    timed = {policy for policy, _ in rows_of(nested)}
    assert "oracle" not in timed
    assert not [policy for policy in timed if policy.startswith("aera-0")]


def test_every_question_is_foreseen_by_what_its_fold_did_not_teach(nested: Evaluation) -> None:
    assert isinstance(nested.done, Judgement)
    assert len(nested.done.aheads) == 5
    seen = Seen.judged(nested.done)
    for fold, ahead in zip(nested.done.folds, seen.aheads, strict=True):
        assert ahead is nested.done.aheads[fold]


def test_a_controller_foresees_by_its_own_and_else_by_what_is_bundled(
    records: HeldRecords,
) -> None:
    bare = Controller(TASK, SCHEDULE, aera.ASC(0.9))
    point = evaluated(records, controller=bare).frontier["asc-0.9"]
    seen = Seen.read(records, point, controller=bare, workers=SERIAL)
    assert seen.aheads == [default_ahead()] * 60
    assert [each.question.id for each in seen.records] == [*records.questions]
    assert not any(response.text for each in seen.records for response in each.responses)


def test_without_a_controller_the_default_policy_is_hurried(records: HeldRecords) -> None:
    made = evaluated(records)
    hurries = [hurry for policy, hurry in rows_of(made) if policy == "asc-0.95"]
    assert hurries == [0, 0.5, 0.8]
    [line] = [line for line in made.remarks if line.startswith("seconds waited")]
    assert "10 tokens per second each" in line
    assert "asc-0.95 at hurry 0.8" in line


def test_a_fixed_budget_has_nothing_to_hurry(records: HeldRecords) -> None:
    made = evaluated(records, policies="fixed-8")
    assert [*rows_of(made)] == [("fixed-2", 0), ("fixed-4", 0), ("fixed-8", 0)]


def test_other_checkpoints_are_timed_as_asked_for(records: HeldRecords) -> None:
    made = evaluated(records, policies="fixed-4,asc-0.95", schedule=Schedule((4,)))
    rows = rows_of(made)
    assert rows["fixed-4", 0]["mean"] == rows["asc-0.95", 0.8]["mean"] == longest(records, 4)


def test_without_a_server_nothing_speaks_of_waiting(records: HeldRecords) -> None:
    made = aera.evaluate(records)
    assert "waiting" not in made.summary
    assert not [line for line in made.remarks if "waited" in line]


def test_the_page_shows_waiting_beside_tokens(nested: Evaluation) -> None:
    [section] = [each for each in Report.of(nested).sections if each.name == "frontier"]
    assert [figure.tab for figure in section.figures if figure.tab] == [
        "responses",
        "tokens",
        "waiting",
    ]
    [figure] = [figure for figure in section.figures if figure.tab == "waiting"]
    assert figure.title == "Accuracy against waiting time"
    assert "10 tokens per second each" in figure.caption
    shown = {row["policy"]: row for row in figure.rows}
    assert shown["aera-calibrated, hurry 1"]["waiting"] <= shown["aera-calibrated"]["waiting"]
    assert shown["aera-calibrated, hurry 1"]["quality"] == shown["aera-calibrated"]["quality"]
    assert shown["aera-calibrated"]["shown"]
    assert not shown["aera-calibrated, hurry 1"]["shown"]


def test_a_server_may_be_given_as_a_value(records: HeldRecords) -> None:
    made = aera.evaluate(records, "fixed-8", server=Server(10.0, slots=2))
    assert made.summary["waiting"]["server"]["slots"] == 2
