import re
from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from foreign import brought
from foreign_questions import demo_rows
from hypothesis import given
from hypothesis import strategies as st
from streams import NUMERIC, record_of

from aera import Pool, Question, Response, Schedule, Vote, get_task, standard_policies
from aera.errors import PoolError
from aera.lab import Frontier, Truths, evaluate
from aera.lab.replay import ReplaySettings
from aera.policies.rules import ASC, FirstValid, Fixed, Lead
from aera.pools.pool import HeldRecords, VotedRecord, hold, read_votes
from aera.reading.task import with_redo
from aera.voting.rules import re2_vote


@dataclass(frozen=True)
class Demo:
    """The bundled responses, evaluated once, and their lines as they stand in the file."""

    pool: Pool
    frontier: Frontier
    rows: list[dict[str, Any]]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    rows = demo_rows()
    pool = brought(tmp_path_factory.mktemp("demo"), rows, task=get_task("gsm8k")).pool
    truths = Truths.open(pool.path)
    return Demo(pool, evaluate(hold(pool), standard_policies(pool.schedule), truths=truths), rows)


# --- the bundled pool -----------------------------------------------------------------------------

BOXED = re.compile(r"\\boxed\{\s*\\?\$?\s*(-?[\d,]*\.?\d+)[^{}]*\}")


def naive_vote(text: str) -> float | None:
    if "better to redo" in text or "boxed" not in text[-100:].lower():
        return None
    found = BOXED.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def naive_fixed(rows: list[dict[str, Any]], checkpoint: int) -> tuple[float, float]:
    """Accuracy in percent and tokens per question of a plain vote over a fixed budget."""
    right = tokens = 0
    for row in rows:
        first = row["responses"][:checkpoint]
        votes = [naive_vote(response["text"]) for response in first]
        winner = Counter(vote for vote in votes if vote is not None).most_common(1)
        truth = float(row["answer"].replace(",", ""))
        right += bool(winner) and winner[0][0] == truth
        tokens += sum(response["tokens"] for response in first)
    return 100 * right / len(rows), tokens / len(rows)


@pytest.mark.parametrize("checkpoint", list(Schedule()))
def test_fixed_budgets_on_the_demo_match_a_second_computation(demo: Demo, checkpoint: int) -> None:
    point = demo.frontier[Fixed(checkpoint)]
    assert (point.accuracy, point.tokens) == pytest.approx(naive_fixed(demo.rows, checkpoint))
    assert point.responses == checkpoint


@pytest.mark.parametrize(
    ("policy", "accuracy", "responses", "tokens", "stops"),
    [
        ("asc-0.8", 70.0, 22.0267, 7273.8533, [76, 25, 19, 10, 6, 14]),
        ("asc-0.95", 71.3333, 39.52, 12880.8, [44, 13, 31, 23, 9, 30]),
        ("esc-5", 72.0, 81.6, 26387.48, [0, 38, 12, 7, 6, 87]),
        ("lead-4", 71.3333, 26.4, 8777.6133, [44, 31, 33, 18, 10, 14]),
        ("first-valid", 60.0, 4.0, 1201.58, [150, 0, 0, 0, 0, 0]),
        ("oracle", 76.0, 6.4, 2009.9933, [126, 13, 6, 2, 3, 0]),
    ],
)
def test_the_figures_of_the_demo_stay(
    demo: Demo, policy: str, accuracy: float, responses: float, tokens: float, stops: list[int]
) -> None:
    point = demo.frontier[policy].as_json()
    assert [point[name] for name in ("accuracy", "responses", "tokens")] == pytest.approx(
        [accuracy, responses, tokens], abs=1e-3
    )
    assert list(point["stops"].values()) == stops


def test_the_re2_score_of_the_demo_rewards_stopping_on_agreement(demo: Demo) -> None:
    paper = replace(demo.pool.manifest, task=with_redo(demo.pool.task))
    truths = Truths.open(demo.pool.path)
    found = evaluate(Pool(demo.pool.path, paper), [Fixed(128), ASC(0.95)], truths=truths)
    full, asc = found["fixed-128"], found["asc-0.95"]
    assert (full.re2_mean, asc.re2_mean) == pytest.approx((52.4507, 56.3243), abs=1e-3)
    assert asc.accuracy < full.accuracy


def test_the_trajectories_of_the_demo_stay(demo: Demo) -> None:
    made = demo.frontier.trajectories
    assert list(made.shapes().values()) == [87, 36, 20, 1, 3, 3]
    assert [row["count"] for row in made.transitions()] == [213, 25, 7, 505]


# --- small pools ----------------------------------------------------------------------------------


def held(streams: list[str], schedule: Schedule) -> HeldRecords:
    records = [record_of(f"q{i}", stream) for i, stream in enumerate(streams)]
    return HeldRecords(read_votes(records, NUMERIC), NUMERIC, schedule)


def test_a_question_of_abstentions_is_wrong_and_costs() -> None:
    frontier = evaluate(
        held(["....", "1111"], Schedule((2, 4))),
        [Fixed(2), FirstValid(), Lead(1)],
        truths=Truths({"q0": "1", "q1": "1"}),
    )
    assert [point.accuracy for point in frontier.points] == [50, 50, 50, 50]
    assert frontier["first-valid"].stops == {"2": 1, "4": 1}
    assert frontier["fixed-2"].tokens == 21


def test_too_few_responses_for_the_schedule_name_the_question() -> None:
    records = held(["1111", "111"], Schedule((2, 4)))
    with pytest.raises(PoolError, match=r"q1 has 3 responses, but the schedule goes to 4"):
        evaluate(records, [Fixed(4)])


def test_a_question_without_truth_is_named() -> None:
    records = held(["11", "22"], Schedule((2,)))
    with pytest.raises(PoolError, match="no truth for question q1"):
        evaluate(records, [Fixed(2)], truths=Truths({"q0": "1"}))


def test_the_rule_changes_the_answers_but_not_the_stops() -> None:
    record = record_of("q0", ["1/2", "0.5", "3", "3", "3.0", "."])
    records = HeldRecords([record.read(NUMERIC)], NUMERIC, Schedule((4, 6)))
    truths = Truths({"q0": "0.5"})
    ours = evaluate(records, [FirstValid()], truths=truths)["first-valid"]
    theirs = evaluate(records, [FirstValid()], truths=truths, rule=re2_vote)["first-valid"]
    assert (ours.accuracy, theirs.accuracy) == (100, 0)
    assert ours.stops == theirs.stops


votes = st.builds(
    lambda answer, redo: Vote(None if redo else answer, redo, answer),
    st.sampled_from(["1", "2", None]),
    st.booleans(),
)


@given(st.lists(votes, min_size=12, max_size=12))
def test_re2_means_follow_the_written_rule(column: list[Vote]) -> None:
    expected = []
    for count in (1, 4, 12):
        first = column[:count]
        kept = [vote for vote in first if not vote.redo] or first
        expected.append(sum(vote.raw == "1" for vote in kept) / len(kept))
    record = VotedRecord(Question("q", "?"), (Response("", tokens=1),) * 12, (*column,))
    settings = ReplaySettings(NUMERIC, Schedule((1, 4, 12)), Truths({"q": "1"}))
    [means] = settings.replay([record]).trajectories.re2_mean
    assert means.tolist() == pytest.approx(expected)


def test_questions_may_come_in_any_order() -> None:
    rng, schedule = Random(0), Schedule((2, 4, 8))
    streams = ["".join(rng.choices("12.", k=8)) for _ in range(30)]
    records = held(streams, schedule)
    policies, truths = standard_policies(schedule), Truths({f"q{i}": "1" for i in range(30)})
    one = evaluate(records, policies, truths=truths)
    turned = HeldRecords(records.records[::-1], NUMERIC, schedule)
    other = evaluate(turned, policies, truths=truths)
    assert [p.as_json() for p in one.points] == [p.as_json() for p in other.points]
