"""Labels where they decide: the questions on which two ways to answer differ."""

import csv
from itertools import islice
from pathlib import Path

import pytest
from lab_fixtures import Bench
from streams import NUMERIC, record_of

from aera import ASC, Fixed, Pool, Question, Response, Schedule
from aera.errors import UsageError
from aera.lab import Truths
from aera.lab.label import STOPPED, find_candidates, fit_labels, open_graded, write_labels
from aera.pools.log import Log
from aera.pools.pool import HeldRecords, Plan

# The first two agree and the full vote says otherwise; in the others early and late agree.
SAID = {"turns": "11222222", "same": "11111111", "slow": "12222222"}


def test_only_questions_that_are_answered_differently_are_listed(tmp_path: Path) -> None:
    voted = [record_of(name, said).read(NUMERIC) for name, said in SAID.items()]
    records = HeldRecords(voted, NUMERIC, Schedule((2, 8)))
    found = find_candidates(records, [Fixed(2), ASC(0.99)])
    assert [question.id for question, _ in found] == ["turns", "slow"]
    assert found[0][1] == {"fixed-8": "2", "fixed-2": "1", "asc-0.99": "2"}
    write_labels(tmp_path / "labels.csv", found)
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["id"] == "turns"
    assert rows[0]["answer"] == ""
    assert rows[0]["answers"] == "2: fixed-8, asc-0.99; 1: fixed-2"
    with pytest.raises(UsageError, match="exists already"):
        write_labels(tmp_path / "labels.csv", found)


def test_labels_that_cannot_be_used_are_counted_and_named(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = islice(bench.pool.questions, 3)
    labels = {first: "so #### 1", second: "5 (or 6)", "nobody": "2", third: "3"}
    assert fit_labels(Truths(labels), bench.records) == Truths({first: "1", third: "3"})
    assert caplog.messages == [
        f"of 4 labels, no use have those of 2 questions: {second} (no numeric answer: '5 (or 6)'), "
        f'nobody (no question of "{bench.records.name}")'
    ]
    with pytest.raises(UsageError, match="of 1 labels, no use have those of 1 question: nobody"):
        fit_labels(Truths({"nobody": "2"}), bench.records)


def test_questions_that_a_policy_stopped_early_are_said_to_be_missing(tmp_path: Path) -> None:
    asked = [Question(name, "?") for name in "abc"]
    plan = Plan(NUMERIC, None, request=lambda question: {"prompt": question.text})
    with Log(tmp_path, plan, asked) as log:
        for question, count in zip(asked, (4, 8, 8), strict=True):
            log.add(question, 0, [Response(str(n), 1) for n in range(count)])
    left = "left out: 1 question: a (has 4 responses, fewer than 8)"
    assert open_graded(Pool.open(tmp_path)).remark == left + STOPPED
