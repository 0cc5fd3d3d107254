"""One limit over many questions: who gets the next block, and what becomes of the limit."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera import Allocation, Question, Response, Schedule, UpstreamError, get_task
from aera.errors import UsageError
from aera.policies.baselines import ASC
from aera.sampling.budget import Budget
from aera.sampling.reservation import Reservation
from aera.sampling.spending import Spending
from aera.solving.controller import Controller
from aera.solving.shared_budget import SharedBudget, solve_shared, urgency

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
    work = solve_shared(
        questions, Scripted(answers), CONTROLLER, budget=Budget(tokens=tokens), **more
    )
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
    assert {each.reason for each in done} == {"fixed budget"}


def test_the_next_block_goes_to_the_least_certain() -> None:
    sampler = Scripted({"clear": AGREED, "open": SPLIT, "half": said(1, 1, 2, 1, 1, 1, 1, 1)})
    questions = [Question(key, key) for key in sampler.answers]
    asyncio.run(
        solve_shared(questions, sampler, CONTROLLER, budget=Budget(tokens=100), concurrency=1)
    )
    assert [key for key, start, _ in sampler.asked if start == 0] == ["clear", "open", "half"]
    assert next(key for key, start, _ in sampler.asked if start) == "open"


def test_a_question_that_cannot_be_had_costs_only_itself() -> None:
    questions = [Question("gone", "gone"), Question("open", "open")]
    sampler = Scripted({"open": SPLIT})
    gone, kept = asyncio.run(
        solve_shared(questions, sampler, CONTROLLER, budget=Budget(tokens=1_000))
    )
    assert (gone.error, gone.reason) == ("upstream: gone for good", "upstream failed")
    assert (kept.error, kept.responses) == (None, 8)


def test_a_limit_below_the_first_blocks_leaves_somebody_without() -> None:
    done = solved({f"q{i}": AGREED for i in range(5)}, tokens=50, concurrency=1)
    assert sum(each.completion_tokens for each in done) <= 50
    assert any(each.responses == 0 for each in done)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError):
        solved({"q": AGREED}, tokens=0)


lists = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), min_size=8, max_size=8),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)
@given(lists, st.integers(1, 2_000), st.integers(1, 4))
def test_the_limit_is_exceeded_by_the_blocks_under_way_at_most(
    told: list[list[tuple[int, int]]], tokens: int, concurrency: int
) -> None:
    answers = {
        f"q{i}": [Response(f"\\boxed{{{a}}}", tokens=t) for a, t in rows]
        for i, rows in enumerate(told)
    }
    done = solved(answers, tokens, concurrency=concurrency)
    spent = sum(each.completion_tokens for each in done)
    # This sampler cannot say what a response takes, so it is judged by the longest so far.
    assert spent <= tokens + 50 * 4 * concurrency
    assert [each.question_id for each in done] == list(answers)


def test_what_is_taken_must_come_back_before_it_is_taken_again() -> None:
    spending = Spending(Budget(tokens=1_000))
    spending.book(said(0))  # so that nobody waits to learn how long responses are
    shared = SharedBudget([Question("a", ""), Question("b", "")], CONTROLLER, spending)
    shared.begin()

    def give(place: int, reservation: Reservation, *answers: int) -> None:
        assert reservation.begin(len(answers))
        reservation.receive(0, said(*answers))
        reservation.close()
        shared.runs[place].feed(said(*answers))
        shared.put(place)

    first, second = shared.take(), shared.take()
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == (0, 1)
    assert shared.take() is None
    give(*first, 1, 2)
    assert shared.take() is None  # the other one may come back more urgent
    give(*second, 1, 1)
    third = shared.take()
    assert third is not None
    assert third[0] == 0
    assert shared.take() is None


def test_urgency_falls_as_a_leader_grows() -> None:
    run = CONTROLLER.start(Question("q", "q"))
    assert urgency(run.prefix, CONTROLLER) == float("inf")
    run.feed(said(7, 7))
    early = urgency(run.prefix, CONTROLLER)
    run.feed(said(7, 7))
    assert urgency(run.prefix, CONTROLLER) < early < 0.5
