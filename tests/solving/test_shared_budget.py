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
        if question.id not in self.answers:
            raise UpstreamError("gone for good")
        return list(self.answers[question.id][start : start + n])


def solved(answers: Mapping[str, Sequence[Response]], tokens: int, **more: int) -> list[Allocation]:
    questions = [Question(key, key) for key in answers]
    limit = Budget(tokens=tokens)
    work = gathered(questions, Scripted(answers), CONTROLLER, budget=limit, shared=True, **more)
    return asyncio.run(work)


AGREED, SPLIT = said(*[7] * 8), said(*range(8))


def test_everybody_gets_a_first_block_and_the_undecided_the_rest() -> None:
    clear, open_ = solved({"clear": AGREED, "open": SPLIT}, tokens=100)
    assert (clear.responses, open_.responses) == (2, 8)
    assert clear.reason == "limit: tokens"
    assert clear.answer == "7"


def test_enough_for_all_gives_everybody_the_full_budget() -> None:
    done = solved({"clear": AGREED, "open": SPLIT}, tokens=10_000)
    assert [each.responses for each in done] == [8, 8]
    assert {each.reason for each in done} == {"full budget"}


def test_the_next_block_goes_to_the_least_certain() -> None:
    sampler = Scripted({"clear": AGREED, "open": SPLIT, "half": said(1, 1, 2, 1, 1, 1, 1, 1)})
    questions = [Question(key, key) for key in sampler.answers]
    known: Any = {"budget": Budget(tokens=100), "concurrency": 1, "shared": True}
    asyncio.run(gathered(questions, sampler, CONTROLLER, **known))
    assert [key for key, start, _ in sampler.asked if start == 0] == ["clear", "open", "half"]
    assert next(key for key, start, _ in sampler.asked if start) == "open"


def test_a_question_that_cannot_be_had_costs_only_itself() -> None:
    questions = [Question("gone", "gone"), Question("open", "open")]
    sampler = Scripted({"open": SPLIT})
    gone, kept = asyncio.run(
        gathered(questions, sampler, CONTROLLER, budget=Budget(tokens=1_000), shared=True)
    )
    assert (gone.error, gone.reason) == ("upstream: gone for good", "upstream failed")
    assert (kept.error, kept.responses) == (None, 8)


def test_a_key_that_is_refused_is_not_tried_for_every_question() -> None:
    class Refusing(Scripted):
        async def sample(self, question: Question, n: int, **more: Any) -> list[Response]:
            self.asked.append((question.id, 0, n))
            raise UpstreamError("who?", status=401)

    sampler, questions = Refusing({}), [Question(f"q{i}", "?") for i in range(30)]
    known: Any = {"budget": Budget(tokens=1_000), "shared": True}
    done = asyncio.run(gathered(questions, sampler, CONTROLLER, **known))
    assert {each.error for each in done} == {"upstream 401: who?"}
    assert len(sampler.asked) <= 3


def test_shared_or_not_a_limit_is_needed() -> None:
    with pytest.raises(UsageError, match="needs a limit"):
        asyncio.run(gathered([Question("q", "q")], Scripted({}), CONTROLLER, shared=True))
