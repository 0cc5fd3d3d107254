"""Best-of-n replayed: what is returned, what it is worth, and what tables call that."""

import numpy as np
import pytest
from made_questions import Written

from aera import BestOfN, Fixed, Question, Record, Response, Schedule, get_task
from aera.lab import MostUtility
from aera.lab.replay import ReplaySettings
from aera.lab.words import table_columns
from aera.pools.pool import HeldRecords, read_votes

TASK = get_task("numeric")
SCHEDULE = Schedule((1, 2, 4))


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
    return HeldRecords(read_votes(made, TASK), TASK, SCHEDULE)


RECORDS = records_of("0.2:7 0.1:8 0.9:8 0.5:9", "0.5:1 0.6:2 0.1:1 0.1:1")
BEST = ReplaySettings(TASK, SCHEDULE, weigher=BestOfN(Written()))


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
    held = HeldRecords(read_votes(bare, TASK), TASK, SCHEDULE)
    done = BEST.evaluate(held, [Fixed(4)])
    assert done.points[0].utility(0.4) == pytest.approx(0.75)
    assert np.isfinite(MostUtility(0.4).utility(done.trajectories)).all()
