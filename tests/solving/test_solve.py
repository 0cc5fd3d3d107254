import asyncio
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import Call, FakeUpstream, Fault
from live import QUESTION, boxed, controller_of, sampler_of, seeds

from aera import ASC, Allocation, Fixed, Policy, Question, Record, Response, Schedule, get_task
from aera.errors import UsageError
from aera.policies.policy import UNREADABLE
from aera.pools.pool import write_pool
from aera.sampling.budget import Budget
from aera.sampling.recorded import RecordedSampler
from aera.sampling.spending import Spending
from aera.solving.feeding import feed_run
from aera.solving.run import Run
from aera.solving.solve import Allocator, solve, solve_blocking
from aera.tally import Vote

QUESTIONS = [Question(f"q{i}", f"question {i}?") for i in range(40)]


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance that never makes a retry wait."""
    monkeypatch.setattr("aera.sampling.upstream.random.uniform", lambda low, high: 0.0)


def divided(call: Call, place: int) -> Response:
    """Half say one, half say two, for ten tokens each: nobody ever wins."""
    seed = call.body["seed"] + place
    return Response(f"\\boxed{{{seed % 2 + 1}}}", tokens=10)


def various(call: Call, place: int) -> Response:
    """An answer that depends on the question and the seed, and on nothing else."""
    chance = random.Random(f"{call.prompt}{call.body['seed'] + place}")
    return Response(f"\\boxed{{{chance.choice('1112')}}}", tokens=chance.randint(5, 50))


def solved(
    server: FakeUpstream,
    policy: Policy | None = None,
    *,
    budget: Budget | None = None,
    watch: Callable[[Run], None] | None = None,
    **endpoint: Any,
) -> Allocation:
    async def scene() -> Allocation:
        async with server, sampler_of(server, **endpoint) as sampler:
            controller = controller_of(policy)
            return await solve(QUESTION, sampler, controller, budget=budget, watch=watch)

    return asyncio.run(scene())


def allocated(
    server: FakeUpstream,
    questions: list[Question] = QUESTIONS,
    *,
    concurrency: int = 64,
    budget: Budget | None = None,
    **endpoint: Any,
) -> dict[str, Allocation]:
    async def scene() -> dict[str, Allocation]:
        async with server, sampler_of(server, **endpoint) as sampler:
            many = Allocator(sampler, controller_of(), concurrency=concurrency, budget=budget)
            return {made.question_id: made async for made in many.solve(questions)}

    return asyncio.run(scene())


# --- failing samples ------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(
    "fault",
    [
        Fault.status(500),
        Fault.html(),
        Fault.null(),
        Fault.truncated(),
        Fault.hang(60),
        Fault.reset(),
    ],
    ids=lambda fault: fault.kind,
)
def test_the_vote_is_over_the_samples_that_did_not_fail(fault: Fault, k: int) -> None:
    server = FakeUpstream(boxed, faults=[None, *[fault] * k], honours_n=False)
    runs: list[Run] = []
    made = solved(server, Fixed(4), watch=runs.append, tries=1, timeout=0.6)
    responses = runs[-1].prefix.responses
    assert (made.answer, made.votes, made.responses) == ("7", {"7": 4 - k}, 4)
    assert len(responses) == made.calls == len(server.calls) == 4
    kept = fault.kind in ("null", "truncated")
    assert sum(response.error is not None for response in responses) == (0 if kept else k)
    assert made.error is None


def test_unreadable_responses_never_agree() -> None:
    made = solved(FakeUpstream(lambda call, place: "no idea"))
    assert (made.answer, made.responses, made.reason) == (None, 4, UNREADABLE)
    assert (made.readability.read, made.readability.unread) == (0, 4)
    assert made.readability.examples[0].endswith("no idea")
    assert made.error is None


def test_a_first_block_that_was_cut_off_does_not_end_a_question() -> None:
    cut = FakeUpstream(lambda call, place: Response("and so on", 9, finish_reason="length"))
    made = solved(cut)
    assert (made.answer, made.responses, made.reason) == (None, 16, "full budget")
    assert [step.decision.stop for step in made.steps] == [False, False, True]
    assert (made.readability.read, made.readability.truncated) == (0, 16)


def test_nothing_at_all_is_an_allocation_with_the_error() -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(500, "on fire")] * 9)
    made = solved(server, tries=2)
    assert (made.answer, made.reason) == (None, "upstream failed")
    assert made.error == "upstream 500 planned_500: on fire"
    assert made.calls == len(server.calls) == 2


def test_a_later_block_that_fails_leaves_the_answer() -> None:
    made = solved(FakeUpstream(boxed, faults=[None, *[Fault.html()] * 9]), ASC(1.0), tries=1)
    assert (made.answer, made.votes, made.responses) == ("7", {"7": 4}, 8)
    assert made.reason == "upstream failed"
    assert "not JSON" in str(made.error)


def test_a_refusal_is_an_allocation_after_one_call() -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(401, "who are you?")] * 50)
    made = solved(server)
    assert made.error == "upstream 401 planned_401: who are you?"
    assert made.calls == len(server.calls) == 1


def test_reasoning_never_votes() -> None:
    made = solved(FakeUpstream(lambda call, place: "<think>\\boxed{3}</think>\\boxed{7}"))
    assert made.votes == {"7": 4}


@pytest.mark.parametrize("honours_n", [True, False])
def test_no_two_blocks_of_a_question_share_a_seed(honours_n: bool) -> None:
    server = FakeUpstream(divided, honours_n=honours_n)
    assert solved(server).responses == 16
    sent = seeds(server) if honours_n else [call.body["seed"] for call in server.calls]
    assert sorted(sent) == list(range(16))


# --- accounting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("honours_n", [True, False])
def test_an_allocation_counts_what_the_server_counted(honours_n: bool) -> None:
    told: list[int] = []

    def counted(call: Call, place: int) -> Response:
        response = various(call, place)
        told.append(response.tokens)
        return response

    faults = [Fault.status(500), None, Fault.status(429, retry_after="0"), None]
    server = FakeUpstream(counted, faults=faults, honours_n=honours_n)
    made = solved(server, ASC(1.0))  # never satisfied, so every block is asked for
    served = len(server.calls) - 2
    assert made.calls == len(server.calls)
    assert made.completion_tokens == sum(told)
    assert made.prompt_tokens == served * (len(server.calls[0].prompt) // 4)
    assert (served, made.seconds > 0) == (3 if honours_n else 16, True)


def test_missing_usage_is_estimated() -> None:
    made = solved(FakeUpstream(lambda call, place: f"{'x' * 391}\\boxed{{7}}", usage=False))
    assert made.completion_tokens == 400


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "limit", "responses"),
    [
        (Budget(responses=6), "responses", 6),
        (Budget(tokens=80), "tokens", 8),
        (Budget(money=0.0008, completion_price=10), "money", 8),
    ],
)
def test_a_limit_ends_with_the_best_answer_so_far(
    budget: Budget, limit: str, responses: int
) -> None:
    made = solved(FakeUpstream(divided), budget=budget)
    assert (made.reason, made.responses) == (f"limit: {limit}", responses)
    assert (made.answer, made.error) == ("1", None)


def test_a_limit_in_seconds_ends_with_the_best_answer_so_far() -> None:
    server = FakeUpstream(divided, faults=[None, Fault.hang(60)])
    begun = time.monotonic()
    made = solved(server, budget=Budget(seconds=0.5))
    assert (made.reason, made.answer, made.error) == ("limit: seconds", "1", None)
    assert time.monotonic() - begun < 3


def test_seconds_that_end_before_the_first_response_are_a_limit_too() -> None:
    made = solved(FakeUpstream(boxed, faults=[Fault.hang(60)]), budget=Budget(seconds=0.3))
    assert (made.reason, made.answer, made.error) == ("limit: seconds", None, None)


def test_a_limit_that_is_not_hit_changes_nothing() -> None:
    generous = Budget(responses=1000, tokens=10**6, seconds=60, money=5, completion_price=1)
    assert solved(FakeUpstream(various), budget=generous) == solved(FakeUpstream(various))


def test_money_needs_a_price() -> None:
    with pytest.raises(UsageError, match="price"):
        Budget(money=1.0)


def test_spending_is_in_the_currency_of_the_prices() -> None:
    spending = Spending(Budget(prompt_price=2.0, completion_price=8.0))
    spending.book([Response("", tokens=500_000, prompt_tokens=250_000)])
    assert spending.money == 4.5


@pytest.mark.parametrize("limit", [1, 37, 100])
def test_a_shared_budget_is_never_exceeded(limit: int) -> None:
    server = FakeUpstream(divided, delay=lambda call: random.random() / 100)
    made = allocated(server, budget=Budget(responses=limit))
    assert sum(call.n for call in server.calls) == limit
    assert sum(allocation.responses for allocation in made.values()) == limit
    assert {allocation.reason for allocation in made.values()} == {"limit: responses"}


# --- many questions -------------------------------------------------------------------------------


@pytest.mark.parametrize("honours_n", [True, False])
def test_the_order_of_completion_changes_no_decision(honours_n: bool) -> None:
    chance = random.Random(1)
    shaken = FakeUpstream(various, honours_n=honours_n, delay=lambda call: chance.random() * 0.02)
    calm = allocated(FakeUpstream(various, honours_n=honours_n), concurrency=1)
    mixed = allocated(shaken)
    assert list(mixed) != list(calm)
    for key, allocation in calm.items():
        assert (mixed[key].steps, mixed[key].votes) == (allocation.steps, allocation.votes)
        assert mixed[key].completion_tokens == allocation.completion_tokens
    assert len({allocation.checkpoint for allocation in calm.values()}) > 1


@pytest.mark.parametrize("code", [400, 403])
def test_one_failing_question_leaves_the_others_alone(code: int) -> None:
    server = FakeUpstream(boxed)
    honest = server._reply

    async def picky(request: Any, call: Call, fault: Fault | None) -> Any:
        bad = "question 5?" in call.prompt
        return await honest(request, call, Fault.status(code, "not this one") if bad else fault)

    server._reply = picky  # type: ignore[method-assign]
    made = allocated(server, concurrency=2)
    failed = {key: a.error for key, a in made.items() if a.error is not None}
    assert failed == {"q5": f"upstream {code} planned_{code}: not this one"}
    assert len(made) == len(QUESTIONS)
    assert {a.answer for key, a in made.items() if key != "q5"} == {"7"}


def test_a_sampler_that_does_not_know_a_question_fails_that_one_only(
    tmp_path: Path, record_of: Callable[..., Record]
) -> None:
    records = [record_of("a", "1111"), record_of("b", "2222")]
    pool = write_pool(tmp_path, records, task=get_task("numeric"), sampler={})

    async def scene() -> dict[str, Allocation]:
        many = Allocator(RecordedSampler(pool), controller_of(schedule=(4,)))
        asked = [Question("stranger", "?"), *pool.questions.values()]
        return {made.question_id: made async for made in many.solve(asked)}

    made = asyncio.run(scene())
    assert (made["a"].answer, made["b"].answer) == ("1", "2")
    assert "stranger" in str(made["stranger"].error)


def test_a_refused_key_is_not_tried_for_every_question() -> None:
    questions = [Question(f"q{i}", f"{i}?") for i in range(100)]
    server = FakeUpstream(boxed, faults=[Fault.status(401, "who?")] * 1000)
    made = allocated(server, questions)
    assert len(server.calls) <= 16
    assert {a.error for a in made.values()} == {"upstream 401 planned_401: who?"}
    assert len(made) == 100


def test_no_more_questions_than_allowed_are_under_way() -> None:
    server = FakeUpstream(boxed, delay=lambda call: 0.005)
    allocated(server, concurrency=3)
    assert server.most_active == 3


def test_questions_are_taken_only_as_they_are_needed() -> None:
    taken: list[str] = []

    def lazily() -> Any:
        for question in QUESTIONS:
            taken.append(question.id)
            yield question

    async def scene() -> None:
        async with FakeUpstream(boxed) as server, sampler_of(server) as sampler:
            made = Allocator(sampler, controller_of(), concurrency=2).solve(lazily())
            await anext(made)
            await made.aclose()  # type: ignore[attr-defined]

    asyncio.run(scene())
    assert len(taken) <= 4


def test_closing_the_stream_early_cancels_the_work() -> None:
    async def scene(server: FakeUpstream) -> None:
        async with server, sampler_of(server) as sampler:
            made = Allocator(sampler, controller_of(), concurrency=8).solve(QUESTIONS)
            await anext(made)
            await made.aclose()  # type: ignore[attr-defined]
            assert sampler.upstream.permits.active == 0
            for _ in range(200):
                if not server.active:
                    break
                await asyncio.sleep(0.005)

    server = FakeUpstream(boxed, faults=[None, *[Fault.hang(60)] * 50])
    begun = time.monotonic()
    asyncio.run(scene(server))
    assert (server.active, server.aborted) == (0, len(server.calls) - 1)
    assert time.monotonic() - begun < 3


def test_a_thousand_questions_with_random_cancellations_leave_every_permit() -> None:
    async def scene(server: FakeUpstream) -> None:
        chance = random.Random(0)
        async with server, sampler_of(server, concurrency=8) as sampler:
            controller, permits = controller_of(), sampler.upstream.permits
            work = [asyncio.create_task(solve(QUESTION, sampler, controller)) for _ in range(1000)]
            for task in chance.sample(work, 900):
                if chance.random() < 0.3:
                    await asyncio.sleep(chance.random() / 500)
                task.cancel()
            done = await asyncio.gather(*work, return_exceptions=True)
            assert sum(isinstance(made, Allocation) for made in done) >= 100
            assert (permits.active, len(permits._waiting)) == (0, 0)
            assert (await solve(QUESTION, sampler, controller)).answer == "7"

    server = FakeUpstream(boxed, delay=lambda call: random.random() / 500)
    asyncio.run(asyncio.wait_for(scene(server), 60))
    assert server.most_active <= 8


def test_no_concurrency_is_refused() -> None:
    with pytest.raises(UsageError, match="concurrency"):
        Allocator(sampler_of("http://localhost/v1"), controller_of(), concurrency=0)


def test_a_question_may_be_plain_text_and_is_watched() -> None:
    async def scene() -> tuple[Allocation, list[int]]:
        seen: list[int] = []
        async with FakeUpstream(divided) as server, sampler_of(server) as sampler:
            made = await solve(
                "how many?", sampler, controller_of(), watch=lambda run: seen.append(run.delivered)
            )
        return made, seen

    made, seen = asyncio.run(scene())
    assert (made.question_id, seen) == ("question", [4, 8, 16])


# --- blocking -------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path, record_of: Callable[..., Record]) -> RecordedSampler:
    pool = write_pool(tmp_path, [record_of("q", "7777")], task=get_task("numeric"), sampler={})
    return RecordedSampler(pool)


def test_solve_blocking_needs_no_loop(recorded: RecordedSampler) -> None:
    assert solve_blocking(QUESTION, recorded, controller_of()).answer == "7"


def test_solve_blocking_works_inside_a_running_loop_as_in_a_notebook() -> None:
    async def notebook() -> list[str | None]:
        async with FakeUpstream(boxed) as server:
            sampler, controller = sampler_of(server), controller_of()

            def cell() -> str | None:
                return solve_blocking(QUESTION, sampler, controller).answer

            return [await asyncio.to_thread(cell) for _ in range(2)]

    assert asyncio.run(notebook()) == ["7", "7"]


def test_solve_blocking_may_block_the_running_loop(recorded: RecordedSampler) -> None:
    async def cell() -> Allocation:
        return solve_blocking(QUESTION, recorded, controller_of(), budget=Budget(responses=4))

    assert asyncio.run(cell()).answer == "7"


def test_a_heavy_run_is_read_where_the_event_loop_does_not_wait() -> None:
    read_in = set()

    class Where:
        def read(self, response: Response) -> Vote:
            read_in.add(threading.current_thread())
            return Vote("7")

    async def feed(*, heavy: bool) -> None:
        schedule = Schedule((4,))
        run = Run(QUESTION, Fixed(4), task=Where(), schedule=schedule)
        run.heavy = heavy
        async with FakeUpstream(boxed) as upstream, sampler_of(upstream) as sampler:
            await feed_run(run, controller_of(), sampler, Spending(Budget()))

    asyncio.run(feed(heavy=False))
    assert read_in == {threading.main_thread()}
    read_in.clear()
    asyncio.run(feed(heavy=True))
    assert read_in.isdisjoint({threading.main_thread()})
