"""Rewards in the lab: what is measured, what the price does, who judges whom."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from aera import BestOfN, Question, Record, Response, Schedule, get_task
from aera.errors import PoolError
from aera.gate import Gated
from aera.lab import Gold, Point, Rewards, Truths, measure_rewards
from aera.lab.trajectory import Columns, pick

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


def records(size: int = SIZE) -> list[Record]:
    """On every other question all responses are good; on the rest a search pays."""
    rng = np.random.default_rng(0)
    made = []
    for n in range(size):
        scores = 0.8 + 0.02 * rng.random(16) if n % 2 else rng.random(16) ** 3
        said = [Response(f"{score:.6f} {n}", tokens=10) for score in scores]
        made.append(Record(Question(f"q{n}", f"what is {n}?"), tuple(said)))
    return made


@pytest.fixture(scope="module")
def rewards() -> Rewards:
    return measure_rewards(records(), BestOfN(Written()), schedule=SCHEDULE)


def mean_worth(rewards: Rewards, point: Point, price: float) -> float:
    return float(point.pick(rewards.utility(price)).mean())


# --- measuring ------------------------------------------------------------------------------------


def test_a_reward_is_the_best_score_so_far(rewards: Rewards) -> None:
    for row, record in zip(rewards.rewards, records(), strict=True):
        scores = [float(response.text.split()[0]) for response in record.responses]
        assert list(row) == [max(scores[:n]) for n in SCHEDULE]
    np.testing.assert_array_equal(rewards.scores, rewards.rewards)
    assert rewards.trajectories.tokens[0].tolist() == [20.0, 40.0, 80.0, 160.0]


def test_a_judge_sees_only_what_would_be_returned() -> None:
    class Backwards(Written):
        def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
            return [-1 - score for score in super().score(question, responses)]

    judge = Backwards()
    by_judge = measure_rewards(records(5), BestOfN(Written()), schedule=SCHEDULE, judge=judge)
    np.testing.assert_allclose(by_judge.rewards, -1 - by_judge.scores)
    assert len(judge.asked) == len(set(judge.asked)) <= 5 * len(SCHEDULE)


def test_gold_says_whether_the_returned_response_is_right() -> None:
    task = get_task("numeric")
    said = [Response(f"{score} so \\boxed{{{n}}}") for score, n in ((0.2, 7), (0.4, 8), (0.9, 9))]
    failed = Response("0.95", error="broke off")
    pool = [Record(Question("q", "?"), (failed, *said))]
    gold = Gold(task, Truths({"q": "8"}))
    made = measure_rewards(pool, BestOfN(Written()), schedule=Schedule((1, 3, 4)), judge=gold)
    assert made.rewards.tolist() == [[0.0, 1.0, 0.0]]
    assert made.scores.tolist() == [[0.0, 0.4, 0.9]]


def test_a_question_with_too_few_responses_is_refused() -> None:
    with pytest.raises(PoolError, match="goes to 32"):
        measure_rewards(records(1), BestOfN(Written()), schedule=Schedule((4, 32)))


# --- the price ------------------------------------------------------------------------------------


def test_a_higher_price_buys_fewer_responses(rewards: Rewards) -> None:
    spent = [rewards.nested(price).responses for price in PRICES]
    assert spent == sorted(spent, reverse=True)
    assert spent[0] > 1.5 * spent[1] > 2 * spent[2]


@pytest.mark.parametrize("price", PRICES[:2])
def test_the_gate_is_worth_more_than_any_fixed_budget(rewards: Rewards, price: float) -> None:
    fixed = [mean_worth(rewards, point, price) for point in rewards.fixed()]
    assert mean_worth(rewards, rewards.nested(price), price) > max(fixed)


def test_utility_is_the_reward_minus_the_priced_share_of_the_tokens(rewards: Rewards) -> None:
    shares = np.array([2, 4, 8, 16]) / 16
    np.testing.assert_allclose(rewards.utility(0.5), rewards.rewards - 0.5 * shares)
    assert [point.policy for point in rewards.fixed()] == [f"fixed-{n}" for n in SCHEDULE]
    assert [point.responses for point in rewards.fixed()] == [2, 4, 8, 16]


def test_a_bar_stops_at_the_first_score_that_reaches_it(rewards: Rewards) -> None:
    point = rewards.barred(0.2)
    reached = pick(rewards.scores, point.columns)
    early = point.columns < len(SCHEDULE) - 1
    assert early.any()
    assert reached[early].min() > rewards.scores[:, 0].min()


# --- who learns from whom -------------------------------------------------------------------------


def test_no_question_has_a_part_in_its_own_stop(rewards: Rewards) -> None:
    changed = rewards.rewards.copy()
    changed[7] = [50.0, -3.0, 9.0, 0.0]
    trajectories = replace(rewards.trajectories, grades=changed)
    other = replace(rewards, trajectories=trajectories)
    for named in ("nested", "barred"):
        one, two = (getattr(each, named)(0.2).columns for each in (rewards, other))
        assert one[7] == two[7]


def test_a_gate_is_tuned_on_its_rows_alone(rewards: Rewards) -> None:
    rows: Columns = np.arange(0, SIZE, 3)
    hidden = rewards.rewards.copy()
    hidden[np.setdiff1d(np.arange(SIZE), rows)] = np.nan
    other = replace(rewards, trajectories=replace(rewards.trajectories, grades=hidden))
    one, two = (each.tuned(0.2, rows) for each in (rewards, other))
    assert isinstance(one, Gated)
    assert (one.threshold, one.gate.identity) == (two.threshold, two.gate.identity)
