import re
from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from foreign import brought
from foreign_questions import demo_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_fixtures import Bench
from made_questions import SCHEDULE, TASK, Written, made_records, made_table, table_of
from nets import network_of
from streams import NUMERIC, record_of

from aera import BestOfN, Pool, Question, Record, Response, Schedule, get_task, standard_policies
from aera.core import Vote, beta_confidence
from aera.lab import Dataset, Frontier, MostUtility, Truths, VoteLearner, evaluate
from aera.lab.calibrating.families import answer_families
from aera.lab.replay import ORDERS, ReplaySettings, confidences
from aera.lab.words import table_columns
from aera.policies.gate import FEWER_NAMES, VOTE_FEATURE_NAMES, Gate, vote_features
from aera.policies.rules import ASC, ESC, Entropy, FirstValid, Fixed, Lead, Majority, Policy
from aera.pools.pool import HeldRecords, VotedRecord, hold, read_votes
from aera.solving.run import replay
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


# --- every order at once --------------------------------------------------------------------------

EVERY = np.arange(60)
RULES: list[tuple[Policy, str, float]] = [
    (ASC(0.9), "asc", 0.9),
    (ESC(2), "esc", 2),
    (Lead(1.5), "lead", 1.5),
    (Majority(0.7), "majority", 0.7),
    (Entropy(0.5), "entropy", 0.5),
]


@pytest.fixture(scope="module")
def table() -> Dataset:
    return made_table()


def in_order(record: VotedRecord, order: list[int]) -> VotedRecord:
    responses = tuple(record.responses[i] for i in order)
    return replace(record, responses=responses, votes=tuple(record.votes[i] for i in order))


# --- the same as a Run ----------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["1", "2", "3", None]), min_size=8, max_size=8), st.integers(0, 99))
def test_every_order_is_what_a_run_makes_of_it(answers: list[str | None], seed: int) -> None:
    """Ties go to the answer seen first in that order; abstentions never win."""
    rng = np.random.default_rng(seed)
    weights = rng.choice([0.25, 0.5, 1.0], size=(1, 8)) if seed % 2 else np.ones((1, 8))
    said = [Response(f"\\boxed{{{a}}}" if a else "?", tokens=int(rng.integers(9))) for a in answers]
    record = Record(Question("q", "what?"), tuple(said))
    data = table_of(read_votes([record], TASK), {"q": "1"})
    data = replace(data, seed=seed)
    found = data.replay(np.array([0]), weights)
    assert found.tokens.shape == (1, 1 + ORDERS, 3)
    assert data.orders[0, 0].tolist() == [*range(8)]
    own = data.records[0].with_weights(weights[0])
    assert [*found.records] == [own], "weighing changes weights and nothing else"
    gates = [Gate(network_of(len(n), ()), features=n) for n in (VOTE_FEATURE_NAMES, FEWER_NAMES)]
    families = {family.name: family for family in answer_families()}
    for place, order in enumerate(data.orders[0].tolist()):
        prefixes = in_order(own, order).prefixes(SCHEDULE)
        full = prefixes[-1].tally.leaders.answer
        for column, prefix in enumerate(prefixes):
            leader = prefix.tally.leaders.answer
            assert found.known_grades[0, place, column] == float(leader == "1")
            assert found.tokens[0, place, column] == prefix.completion_tokens
            shares = {"majority_ratio": prefix.tally.majority, "entropy": prefix.tally.entropy}
            told = {name: values[0, place, column] for name, values in found.evidence.items()}
            assert told == pytest.approx(shares, abs=1e-12)
            assert found.agreement[0, place, column] == float(leader == full)
            seen = found.features[0, place, column]
            np.testing.assert_allclose(seen, vote_features(prefix), rtol=0, atol=1e-9)
        for policy, name, setting in RULES:
            stop = len(replay(prefixes, policy, task=TASK).prefix)
            values = found.values[name][0, place][None]
            assert stop == SCHEDULE.checkpoints[families[name].stops(values, setting)[0]], name
        for gate in gates:
            chances = gate.chances(found.features[0, place, :, : len(gate.features)])
            wanted = [gate.p_continue(prefix) for prefix in prefixes]
            np.testing.assert_allclose(chances, wanted, rtol=0, atol=1e-9)


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(0, 300)), min_size=1, max_size=5))
def test_confidences_are_those_of_single_pairs(pairs: list[tuple[float, float]]) -> None:
    first, second = np.array(pairs).T
    wanted = [beta_confidence(*pair) for pair in pairs]
    np.testing.assert_allclose(confidences(first, second), wanted, rtol=0, atol=1e-12)
    whole = [beta_confidence(round(one), round(other)) for one, other in pairs]
    np.testing.assert_array_equal(confidences(np.round(first), np.round(second)), whole)


def test_another_rule_returns_its_own_answers_in_the_stored_order(bench: Bench) -> None:
    data = VoteLearner(rule=re2_vote).prepare(bench.records, bench.truths)
    assert not data.exchangeable
    grades = data.replay(EVERY).stored.known_grades
    shown = evaluate(bench.records, [ASC(0.9)], truths=bench.truths, rule=re2_vote)
    np.testing.assert_array_equal(grades, shown.trajectories.known_grades)


def test_best_of_n_is_what_its_replay_makes_of_every_order() -> None:
    rng = np.random.default_rng(0)
    said = [[Response(f"{score:.1f} x", tokens=3) for score in rng.random(8)] for _ in range(5)]
    said[0][3] = Response("   ", tokens=3)
    records = [Record(Question(f"q{i}", f"what {i}?"), tuple(own)) for i, own in enumerate(said)]
    best_of_n = BestOfN(Written())
    learner = VoteLearner("scores", best_of_n=best_of_n)
    voted = read_votes(records, TASK)
    data = learner.prepare(HeldRecords(voted, TASK, SCHEDULE))
    found, alone = data.replay(np.arange(5)), ReplaySettings(TASK, SCHEDULE, weigher=best_of_n)
    for place in range(1 + ORDERS):
        turned = [in_order(each, data.orders[i, place].tolist()) for i, each in enumerate(voted)]
        shown = alone.replay(turned).trajectories
        np.testing.assert_array_equal(found.known_grades[:, place], shown.known_grades)
        np.testing.assert_array_equal(found.agreement[:, place], shown.agreement)


# --- orders ---------------------------------------------------------------------------------------


def test_orders_are_seeded_and_no_question_knows_another(table: Dataset) -> None:
    records, truths = made_records()
    other, _ = made_records(seed=9)
    turned = [
        *records[:30],
        *(replace(o, question=r.question) for o, r in zip(other[30:], records[30:], strict=True)),
    ]
    again = table_of(turned, truths)
    np.testing.assert_array_equal(again.orders, table.orders)
    assert not np.array_equal(replace(table, seed=1).orders[:, 1:], table.orders[:, 1:])
    assert (np.sort(table.orders, axis=2) == np.arange(8)).all()


@pytest.mark.parametrize("what", ["agree with the vote", "cost"])
def test_a_pool_whose_positions_differ_keeps_its_stored_order(what: str) -> None:
    records, truths = made_records(questions=200)
    if what == "cost":
        long = Response("so", tokens=90)
        records = [replace(r, responses=(long, *r.responses[1:])) for r in records]
    else:  # the first two never agree with the rest
        records = [replace(r, votes=(Vote("-1"), Vote("-2"), *r.votes[2:])) for r in records]
    data, rows = table_of(records, truths), np.arange(200)
    assert not data.exchangeable
    model = VoteLearner().fit(data, rows, seed=0)
    assert model.own.tokens.shape[1] == model.values(data, rows).tokens.shape[1] == 1
    assert made_table(questions=200).exchangeable


# --- what is known of responses -------------------------------------------------------------------


def test_a_dataset_leaves_out_what_the_schedule_does_not_reach() -> None:
    records, truths = made_records(questions=3)
    held = HeldRecords(records, TASK, SCHEDULE)
    data = VoteLearner().prepare(held, Truths(truths), schedule=Schedule((2, 4)))
    assert data.traits.shape[:2] == data.answers.shape == data.grades.shape == (3, 4)
    assert {len(record.responses) for record in data.records} == {4}


# --- best-of-n ------------------------------------------------------------------------------------

STEPS = Schedule((1, 2, 4))


def records_of(*rows: str) -> HeldRecords:
    """Responses written as score:answer."""
    made = [
        Record(
            Question(f"q{n}", f"{n}?"),
            tuple(
                Response("{} so \\boxed{{{}}}".format(*each.split(":")), tokens=10)
                for each in row.split()
            ),
        )
        for n, row in enumerate(rows)
    ]
    return HeldRecords(read_votes(made, TASK), TASK, STEPS)


RECORDS = records_of("0.2:7 0.1:8 0.9:8 0.5:9", "0.5:1 0.6:2 0.1:1 0.1:1")
BEST = ReplaySettings(TASK, STEPS, weigher=BestOfN(Written()))


def test_the_reward_is_the_best_score_so_far_and_utility_takes_the_price_off() -> None:
    done = BEST.evaluate(RECORDS, [Fixed(1), Fixed(4)])
    first, last = done.points
    assert (first.reward, last.reward) == (pytest.approx(0.35), pytest.approx(0.75))
    assert (first.accuracy, last.accuracy) == (None, None)
    assert first.as_json()["reward"] == pytest.approx(0.35)
    columns = ["policy", "reward", "responses", "tokens", "of all"]
    assert [*table_columns(done.trajectories)] == columns
    for point in done.points:
        worth = MostUtility(0.4).utility(done.trajectories)
        assert point.utility(0.4) == pytest.approx(point.pick(worth).mean())
        assert point.as_json(price=0.4)["utility"] == pytest.approx(point.utility(0.4))
    assert last.utility(0.4) == pytest.approx(0.75 - 0.4)


def test_a_pool_without_tokens_has_rewards_and_no_price_to_take_off() -> None:
    bare = [
        Record(each.question, tuple(Response(r.text) for r in each.responses)) for each in RECORDS
    ]
    held = HeldRecords(read_votes(bare, TASK), TASK, STEPS)
    done = BEST.evaluate(held, [Fixed(4)])
    assert done.points[0].utility(0.4) == pytest.approx(0.75)
    assert np.isfinite(MostUtility(0.4).utility(done.trajectories)).all()
