"""Rewards in the lab: what is measured, what the price does, who judges whom."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aera import BestOfN, Pool, Question, Record, Response, Schedule, get_task
from aera.arrays import Columns
from aera.errors import PoolError, UsageError
from aera.lab import MostUtility, Point, RewardLearner, Truths, TruthScorer, build, nested
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.learning.rewards import RewardTable
from aera.lab.replay.frontier import fixed_points
from aera.lab.replay.trajectory import pick
from aera.policies.gate import Gated
from aera.pools.pool import HeldRecords, read_votes, write_pool

TASK = get_task("numeric")
SCHEDULE = Schedule((2, 4, 8, 16))
SIZE = 80
PRICES = (0.02, 0.2, 2.0)


class Written:
    """A response says its score itself."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        self.asked += [response.text for response in responses]
        return [float(response.text.split()[0]) for response in responses]


LEARNER = RewardLearner(BestOfN(Written()))


def made(size: int = SIZE) -> list[Record]:
    """On every other question all responses are good; on the rest a search pays."""
    rng = np.random.default_rng(0)
    made = []
    for n in range(size):
        scores = 0.8 + 0.02 * rng.random(16) if n % 2 else rng.random(16) ** 3
        said = [Response(f"{score:.6f} {n}", tokens=10) for score in scores]
        made.append(Record(Question(f"q{n}", f"what is {n}?"), tuple(said)))
    return made


def held(records: list[Record], schedule: Schedule = SCHEDULE) -> HeldRecords:
    return HeldRecords(read_votes(records, TASK), TASK, schedule)


@pytest.fixture(scope="module")
def table() -> RewardTable:
    return LEARNER.prepare(held(made()))


def judged(table: RewardTable, price: float, family: str = "aera") -> Point:
    """Every question as a gate or a bar of other questions would stop it, at this price."""
    [done] = nested(replace(LEARNER, price=price), table, [MostUtility(price)])
    return done.point(family)


def mean_worth(table: RewardTable, point: Point, price: float) -> float:
    return float(point.pick(MostUtility(price).utility(table.trajectories)).mean())


# --- measuring ------------------------------------------------------------------------------------


def test_a_reward_is_the_best_score_so_far(table: RewardTable) -> None:
    for row, record in zip(table.rewards, made(), strict=True):
        scores = [float(response.text.split()[0]) for response in record.responses]
        assert list(row) == [max(scores[:n]) for n in SCHEDULE]
    np.testing.assert_array_equal(table.scores, table.rewards)
    assert table.trajectories.tokens[0].tolist() == [20.0, 40.0, 80.0, 160.0]


def test_a_judge_sees_only_what_would_be_returned() -> None:
    class Backwards(Written):
        def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
            return [-1 - score for score in super().score(question, responses)]

    judge = Backwards()
    by_judge = replace(LEARNER, judge=judge).prepare(held(made(5)))
    np.testing.assert_allclose(by_judge.rewards, -1 - by_judge.scores)
    assert len(judge.asked) == len(set(judge.asked)) <= 5 * len(SCHEDULE)


def test_the_truth_says_whether_the_returned_response_is_right() -> None:
    said = [Response(f"{score} so \\boxed{{{n}}}") for score, n in ((0.2, 7), (0.4, 8), (0.9, 9))]
    failed = Response("0.95", error="broke off")
    records = held([Record(Question("q", "?"), (failed, *said))], Schedule((1, 3, 4)))
    judge = TruthScorer(TASK, Truths({"q": "8"}))
    found = replace(LEARNER, judge=judge).prepare(records)
    assert found.rewards.tolist() == [[0.0, 1.0, 0.0]]
    assert found.scores.tolist() == [[0.0, 0.4, 0.9]]


def test_a_question_with_too_few_responses_is_refused() -> None:
    with pytest.raises(PoolError, match="goes to 32"):
        LEARNER.prepare(held(made(1)), schedule=Schedule((4, 32)))


@pytest.mark.parametrize("change", ["lost", "twice"])
def test_a_pool_that_is_not_whole_is_refused(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 160)
    pool = write_pool(tmp_path, made(30), task=TASK, sampler={})
    first, second, _ = pool.segments
    if change == "lost":
        second.unlink()
    else:
        second.write_bytes(first.read_bytes())
    with pytest.raises(PoolError, match="split question" if change == "twice" else "10 of 30"):
        LEARNER.prepare(Pool.open(tmp_path), schedule=SCHEDULE)


# --- the price ------------------------------------------------------------------------------------


def test_a_higher_price_buys_fewer_responses(table: RewardTable) -> None:
    spent = [judged(table, price).responses for price in PRICES]
    assert spent == sorted(spent, reverse=True)
    assert spent[0] > 1.5 * spent[1] > 2 * spent[2]


@pytest.mark.parametrize("price", PRICES[:2])
def test_the_gate_is_worth_more_than_any_fixed_budget(table: RewardTable, price: float) -> None:
    fixed = [mean_worth(table, point, price) for point in fixed_points(table.trajectories)]
    assert mean_worth(table, judged(table, price), price) > max(fixed)


def test_utility_is_the_reward_minus_the_priced_share_of_the_tokens(table: RewardTable) -> None:
    shares = np.array([2, 4, 8, 16]) / 16
    utility = MostUtility(0.5).utility(table.trajectories)
    np.testing.assert_allclose(utility, table.rewards - 0.5 * shares)
    fixed = fixed_points(table.trajectories)
    assert [point.policy for point in fixed] == [f"fixed-{n}" for n in SCHEDULE]
    assert [point.responses for point in fixed] == [2, 4, 8, 16]


def test_a_bar_stops_at_the_first_score_that_reaches_it(table: RewardTable) -> None:
    point = judged(table, 0.2, "score")
    reached = pick(table.scores, point.columns)
    early = point.columns < len(SCHEDULE) - 1
    assert early.any()
    assert reached[early].min() > table.scores[:, 0].min()


# --- who learns from whom -------------------------------------------------------------------------


def test_no_question_has_a_part_in_its_own_stop(table: RewardTable) -> None:
    changed = table.rewards.copy()
    changed[7] = [50.0, -3.0, 9.0, 0.0]
    other = replace(table, trajectories=replace(table.trajectories, grades=changed))
    for family in ("aera", "score"):
        one, two = (judged(each, 0.2, family).columns for each in (table, other))
        assert one[7] == two[7]


def test_a_gate_is_tuned_on_its_rows_alone(table: RewardTable) -> None:
    rows: Columns = np.arange(0, SIZE, 3)
    hidden = table.rewards.copy()
    hidden[np.setdiff1d(np.arange(SIZE), rows)] = np.nan
    other = replace(table, trajectories=replace(table.trajectories, grades=hidden))

    def tuned(table: RewardTable) -> Gated:
        model = LEARNER.fit(table, rows, seed=0)
        setting = model.own.choose(GATE_FAMILY, MostUtility(0.2), seed=0).setting
        assert setting is not None
        return model.policy(setting)

    one, two = tuned(table), tuned(other)
    assert isinstance(one, Gated)
    assert (one.threshold, one.gate.identity) == (two.threshold, two.gate.identity)


# --- a controller ---------------------------------------------------------------------------------


def test_a_controller_of_rewards_decides_with_the_gate(table: RewardTable) -> None:
    built = build(LEARNER, table, MostUtility(0.2))
    policy = built.controller.policy
    assert isinstance(policy, Gated)
    assert policy.gate is built.controller.gate
    assert policy.threshold == built.choice.setting
    assert built.controller.weigher is LEARNER.best_of_n


def test_a_bar_on_the_score_is_no_policy_of_a_controller(table: RewardTable) -> None:
    """Its setting is a score, which a gate would take for a chance."""
    model = LEARNER.fit(table, np.arange(SIZE), seed=0)
    with pytest.raises(UsageError, match="only shown beside the gate") as refusal:
        model.policy(0.8, model.families["score"])
    assert "\n" not in str(refusal.value)
