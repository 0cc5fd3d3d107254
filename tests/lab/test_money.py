"""Money: which tokens are billed how often, and what is said where a pool does not know them."""

import pytest

from aera import Budget, Question, Record, Response, Schedule, get_task
from aera.errors import UsageError
from aera.lab import Frontier, evaluate
from aera.lab.frontier import Point, Prices, write_money
from aera.lab.words import tell_money
from aera.policies.rules import parse_policy
from aera.pools.pool import HeldRecords, read_votes

TASK = get_task("numeric")
PRICES = Prices(1000.0, 1_000_000.0)  # a prompt token costs 0.001, a completion token 1


def frontier_of(*labels: str, prompts: tuple[int, ...] = (50, 0, 20, 0)) -> Frontier:
    """Two questions, one agreed and one torn, with these prompt tokens beside the responses."""
    rows = {"agreed": "1111", "torn": "1212"}
    records = [
        Record(
            Question(name, f"{name}?"),
            tuple(
                Response(f"\\boxed{{{said}}}", tokens=10, prompt_tokens=prompt)
                for said, prompt in zip(answers, prompts, strict=True)
            ),
        )
        for name, answers in rows.items()
    ]
    held = HeldRecords(read_votes(records, TASK), TASK, Schedule((1, 2, 4)))
    return evaluate(held, [parse_policy(label) for label in labels])


def test_every_block_bills_the_longest_prompt_that_was_recorded() -> None:
    [point] = frontier_of("majority-1+min2").points
    assert point.counts.tolist() == [2, 4]
    assert point.blocks.tolist() == [2, 3]
    assert point.money(PRICES) == pytest.approx(1000 * (60 + 5 * 0.05) / 2)


def test_a_fixed_budget_is_one_block_and_within_limits_decides_on_its_way() -> None:
    plain, limited = frontier_of("fixed-4", "fixed-4+min2").points
    assert plain.blocks.tolist() == [1, 1]
    assert plain.money(PRICES) == pytest.approx(40_050)
    assert limited.blocks.tolist() == [3, 3]


def saving(point: Point) -> str:
    [line] = [line for line in tell_money(point, PRICES) if " costs " in line]
    return line


def test_what_is_saved_or_lost_is_said_against_the_full_budget() -> None:
    [point] = frontier_of("majority-1+min2").points
    assert saving(point) == (
        "majority-1+min2 costs 30,125.00 for 1,000 questions, 75 % of what fixed-4 costs, 40,050.00"
    )
    [dear] = frontier_of("fixed-4+min4", prompts=(50_000, 0, 0, 0)).points
    assert "questions, 211 % of what fixed-4 costs" in saving(dear)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_a_price_that_is_none_is_refused(wrong: float) -> None:
    for one, other in ((wrong, 1.0), (1.0, wrong)):
        with pytest.raises(UsageError, match="0 or more"):
            Prices(one, other)
        with pytest.raises(UsageError, match="0 or more"):
            Budget(money=1.0, prompt_price=one, completion_price=other)


@pytest.mark.parametrize(
    ("amount", "text"), [(1234.5, "1,234.50"), (0.012345, "0.01235"), (0.0, "0")]
)
def test_small_amounts_keep_their_digits(amount: float, text: str) -> None:
    assert write_money(amount) == text
