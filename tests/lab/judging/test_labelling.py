"""Labels where they decide: the questions on which two ways to answer differ."""

import csv
from pathlib import Path

import pytest

from aera import ASC, Fixed, Question, Record, Response, Schedule, get_task
from aera.errors import UsageError
from aera.lab.judging.labelling import Ways, find_candidates, usual_ways, write_labels
from aera.pools.pool import HeldRecords

SCHEDULE = Schedule((2, 8))
TASK = get_task("numeric")


def record(name: str, said: str) -> Record:
    return Record(Question(name, f"{name}?"), tuple(Response(f"\\boxed{{{a}}}", 5) for a in said))


# The first two agree and the full vote says otherwise; in the others early and late agree.
RECORDS = [record("turns", "11222222"), record("same", "11111111"), record("slow", "12222222")]


def test_only_questions_that_are_answered_differently_are_listed(tmp_path: Path) -> None:
    voted = HeldRecords([each.read(TASK) for each in RECORDS], TASK, SCHEDULE)
    found = find_candidates(voted, usual_ways(SCHEDULE, [Fixed(2), ASC(0.99)], None))
    assert [each.question.id for each in found] == ["turns", "slow"]
    assert found[0].answers == {"fixed-8": "2", "fixed-2": "1", "asc-0.99": "2"}
    write_labels(tmp_path / "labels.csv", found)
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["id"] == "turns"
    assert rows[0]["answer"] == ""
    assert rows[0]["answers"] == "2: fixed-8, asc-0.99; 1: fixed-2"
    with pytest.raises(UsageError, match="exists already"):
        write_labels(tmp_path / "labels.csv", found)


def test_one_way_alone_needs_no_labels() -> None:
    with pytest.raises(UsageError, match="two policies at least"):
        Ways(SCHEDULE, (Fixed(8),))
