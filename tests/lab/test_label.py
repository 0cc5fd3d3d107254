"""Labels where they decide: the questions on which two ways to answer differ."""

import csv
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from foreign_questions import BUNDLED
from lab_fixtures import Bench
from made_questions import SCHEDULE, TASK, made_records
from streams import NUMERIC, record_of

import aera
from aera import ASC, Fixed, Pool, Question, Response, Schedule
from aera.errors import PoolError, UsageError
from aera.lab import LossLimit, Truths, VoteLearner, grade, label, nested, open_truths
from aera.lab.build import build
from aera.lab.replay import Dataset
from aera.lab.truths import grade_all
from aera.pools.log import Log
from aera.pools.pool import HeldRecords, Plan
from aera.solving.controller import default_controller

# The first two agree and the full vote says otherwise; in the others early and late agree.
SAID = {"turns": "11222222", "same": "11111111", "slow": "12222222"}


def test_only_questions_that_are_answered_differently_are_listed(tmp_path: Path) -> None:
    voted = [record_of(name, said).read(NUMERIC) for name, said in SAID.items()]
    records = HeldRecords(voted, NUMERIC, Schedule((2, 8)))
    found = label.find_candidates(records, [Fixed(2), ASC(0.99)])
    assert [question.id for question, _ in found] == ["turns", "slow"]
    assert found[0][1] == {"fixed-8": "2", "fixed-2": "1", "asc-0.99": "2"}
    label.write_labels(tmp_path / "labels.csv", found)
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["id"] == "turns"
    assert rows[0]["answer"] == ""
    assert rows[0]["answers"] == "2: fixed-8, asc-0.99; 1: fixed-2"
    with pytest.raises(UsageError, match="exists already"):
        label.write_labels(tmp_path / "labels.csv", found)


def test_labels_that_cannot_be_used_are_counted_and_named(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = islice(bench.pool.questions, 3)
    labels = {first: "so #### 1", second: "5 (or 6)", "nobody": "2", third: "3"}
    assert label.fit_labels(Truths(labels), bench.records) == Truths({first: "1", third: "3"})
    assert caplog.messages == [
        f"of 4 labels, no use have those of 2 questions: {second} (no numeric answer: '5 (or 6)'), "
        f'nobody (no question of "{bench.records.name}")'
    ]
    with pytest.raises(UsageError, match="of 1 labels, no use have those of 1 question: nobody"):
        label.fit_labels(Truths({"nobody": "2"}), bench.records)


def test_questions_that_a_policy_stopped_early_are_said_to_be_missing(tmp_path: Path) -> None:
    asked = [Question(name, "?") for name in "abc"]
    plan = Plan(NUMERIC, None, request=lambda question: {"prompt": question.text})
    with Log(tmp_path, plan, asked) as log:
        for question, count in zip(asked, (4, 8, 8), strict=True):
            log.add(question, 0, [Response(str(n), 1) for n in range(count)])
    left = "left out: 1 question: a (has 4 responses, fewer than 8)"
    assert label.open_graded(Pool.open(tmp_path))[2] == left + label.STOPPED


# --- without truths -------------------------------------------------------------------------------

LEARNER = VoteLearner("majority")
EVERY = np.arange(300)
VOTED, ANSWERS = made_records(questions=300, shares=(0.6, 0.9, 0.95, 1.0))
"""Questions whose crowd is mostly right."""
HELD = HeldRecords(VOTED, TASK, SCHEDULE)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> HeldRecords:
    folder = tmp_path_factory.mktemp("graded")
    Truths(ANSWERS).save(folder)
    return replace(HELD, folder=folder)


@pytest.fixture(scope="module")
def table() -> Dataset:
    return LEARNER.prepare(HELD, None)


def test_a_clear_crowd_teaches_weights_that_gain(table: Dataset) -> None:
    model = LEARNER.fit(table, EVERY, seed=0)
    assert model.weigher is not None
    assert "weights taught by the clear votes" in model.learned
    graded = LEARNER.prepare(HELD, Truths(ANSWERS))
    weighted = model.values(graded, EVERY).known_grades[..., -1].mean()
    plain = graded.replay(EVERY).known_grades[..., -1].mean()
    assert weighted > plain + 0.01


def test_a_certificate_of_agreement_rests_on_other_questions(table: Dataset) -> None:
    goal = LossLimit(0.1, 0.2, by_agreement=True)
    made = build(LEARNER, table, goal, seed=0)
    controller = made.controller
    assert not controller.fitted & controller.calibrated
    assert "P(answers that differ from its own full budget's ≤ 10 %)" in controller.card
    assert "**Without truths**" in controller.card
    [judged] = nested(LEARNER, table, [goal], seed=0)
    point = judged.point("aera")
    assert point.accuracy is None
    assert point.agreements.mean() > 0.85
    assert all(choice.by_agreement for choice in judged.choices["aera"])


def test_training_looks_at_truths_unless_told_not_to(graded: HeldRecords) -> None:
    bare = aera.train(graded, max_loss=0.1, without_truths=True).calibration["learned"]
    assert bare == aera.train(HELD, max_loss=0.1).calibration["learned"]
    assert bare.startswith("without truths: ")
    seen = aera.train(graded, max_loss=0.1).calibration["learned"]
    assert not seen.startswith("without")
    with pytest.raises(UsageError, match="needs no --labels"):
        aera.train(graded, max_loss=0.1, labels=ANSWERS)


def test_labels_are_read_as_a_spreadsheet_saves_them(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    with pytest.raises(UsageError, match="cannot be read"):
        label.read_labels(file)
    wrong = {
        "id,answer\na,\n": "has no right answer yet",
        "name\na\n": 'no CSV with columns "id" and "answer"',
    }
    wrong["id,answer\na,7\na,8\n"] = "has two answers to the question a"
    for text, said in wrong.items():
        file.write_text(text)
        with pytest.raises(UsageError, match=said):
            label.read_labels(file)
    for separator in ",;":  # as a spreadsheet saves them, here and there
        file.write_text("id,question,answer\na,?, 7 \nb,?,\n".replace(",", separator))
        assert dict(label.read_labels(file)) == {"a": "7"}


def test_the_card_names_whose_weights_they_are() -> None:
    built = aera.train(HELD, max_loss=0.1, weigher=BUNDLED)
    brought = "**Weights** of another controller: aera-0.19, taught on 325 questions"
    assert (brought in built.card) == (built.weigher is not None)
    with pytest.raises(UsageError, match="its votes are plain"):
        aera.train(HELD, max_loss=0.1, weigher=default_controller())


def test_truths_may_judge_what_was_learned_without_them(graded: HeldRecords) -> None:
    done = aera.evaluate(graded, [], protocol="holdout", max_loss=0.1, without_truths=True)
    assert done.headline["gap"]
    assert done.headline["changed"]
    assert any("answers differ from" in line for line in done.headline["lines"])


# --- truths of a pool -----------------------------------------------------------------------------


def test_they_are_read_back_as_saved_where_there_are_any(tmp_path: Path) -> None:
    assert Truths.open(tmp_path) is None
    truths = Truths({"a": "1", "b": "\\frac{1}{2} é"})
    truths.save(tmp_path)
    assert Truths.open(tmp_path) == Truths.open(tmp_path / "truths.jsonl") == truths
    assert (dict(truths), len(truths)) == (truths.answers, 2)
    with pytest.raises(PoolError, match="no truth for question c"):
        _ = truths["c"]


def test_a_damaged_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "truths.jsonl").write_text(
        '{"id": "a", "answer": "1"}\n{"id": "b", "answer": null}\n'
    )
    with pytest.raises(PoolError, match=r'^truths.jsonl, line 2: the field "answer" is None$'):
        Truths.open(tmp_path)


@pytest.mark.parametrize(
    ("answer", "truth", "expected"),
    [("18", "18.0", 1), ("18", "19", 0), (None, "18", 0), ("?", "18", 0), ("2125", "2,125", 1)],
)
def test_grades_compare_meaning(answer: str | None, truth: str, expected: float) -> None:
    assert grade(answer, truth, task=NUMERIC) == expected
    assert grade_all(iter([answer, None, answer]), truth, task=NUMERIC) == [expected, 0, expected]


def test_records_in_memory_have_the_truths_of_their_pool(bench: Bench) -> None:
    assert open_truths(bench.pool) == open_truths(bench.records) == bench.truths
    assert open_truths(replace(bench.records, folder=None)) is None
