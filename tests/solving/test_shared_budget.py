"""One limit over many questions: who gets the next block, and what becomes of the limit."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from live import gathered

from aera import Allocation, Question, Response, Schedule, UpstreamError, get_task
from aera.errors import UsageError
from aera.policies.rules import ASC
from aera.sampling.budget import Budget
from aera.solving.controller import Controller

SCHEDULE = Schedule((2, 4, 8))
CONTROLLER = Controller(get_task("numeric"), SCHEDULE, ASC(0.95))


def said(*answers: object, tokens: int = 10) -> list[Response]:
    return [Response(f"\\boxed{{{answer}}}", tokens=tokens) for answer in answers]


class Scripted:
    """Answers each question from its own list; remembers who was asked for what."""

    def __init__(self, answers: Mapping[str, Sequence[Response]]) -> None:
        self.answers, self.asked = answers, list[tuple[str, int, int]]()

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        self.asked.append((question.id, start, n))
        await asyncio.sleep(0)
        if not self.answers[question.id]:
            raise UpstreamError("gone for good")
        return list(self.answers[question.id][start : start + n])


def solved(sampler: Scripted, tokens: int | None = None, **more: Any) -> list[Allocation]:
    """What every question got, in their order."""
    known: Any = {"budget": Budget(tokens=tokens), "shared": True, **more}
    questions = [Question(key, key) for key in sampler.answers]
    made = asyncio.run(gathered(questions, sampler, CONTROLLER, **known))
    return sorted(made, key=lambda each: [*sampler.answers].index(each.question_id))


AGREED, SPLIT = said(*[7] * 8), said(*range(8))


def test_everybody_gets_a_first_block_and_the_undecided_the_rest() -> None:
    clear, open_ = solved(Scripted({"clear": AGREED, "open": SPLIT}), 100)
    assert (clear.responses, open_.responses) == (2, 8)
    assert clear.reason == "limit: tokens"
    assert clear.answer == "7"


def test_enough_for_all_gives_everybody_the_full_budget() -> None:
    done = solved(Scripted({"clear": AGREED, "open": SPLIT}), 10_000)
    assert [each.responses for each in done] == [8, 8]
    assert {each.reason for each in done} == {"full budget"}


def test_the_next_block_goes_to_the_least_certain() -> None:
    sampler = Scripted({"clear": AGREED, "open": SPLIT, "half": said(1, 1, 2, 1, 1, 1, 1, 1)})
    solved(sampler, 100, concurrency=1)
    assert [key for key, start, _ in sampler.asked if start == 0] == ["clear", "open", "half"]
    assert next(key for key, start, _ in sampler.asked if start) == "open"


def test_a_question_that_cannot_be_had_costs_only_itself() -> None:
    gone, kept = solved(Scripted({"gone": [], "open": SPLIT}), 1_000)
    assert (gone.error, gone.reason) == ("upstream: gone for good", "upstream failed")
    assert (kept.error, kept.responses) == (None, 8)


def test_a_shared_budget_needs_a_limit() -> None:
    with pytest.raises(UsageError, match="needs a limit"):
        solved(Scripted({"q": AGREED}))
