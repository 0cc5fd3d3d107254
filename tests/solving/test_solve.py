import asyncio
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import Call, FakeUpstream, Fault
from live import QUESTION, boxed, controller_of, gathered, live
from streams import record_of

from aera import Allocation, Question, Response, Schedule, get_task
from aera.core import Vote
from aera.errors import RunError, UpstreamError, UsageError
from aera.policies.rules import ASC, Fixed, Policy
from aera.pools.pool import Plan, write_pool
from aera.sampling.budget import Budget, Ledger
from aera.sampling.recorded import RecordedSampler
from aera.sampling.sampler import OpenAISampler
from aera.solving.controller import Controller
from aera.solving.run import Run
from aera.solving.solve import drive, solve, solve_blocking, solve_many

QUESTIONS = [Question(f"q{i}", f"question {i}?") for i in range(40)]


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance that never makes a retry wait."""
    monkeypatch.setattr("aera.sampling.client.random.uniform", lambda low, high: 0.0)


def divided(call: Call, place: int) -> Response:
    """Half say one, half say two, for ten tokens each: nobody ever wins."""
    seed = call.body["seed"] + place
    return Response(f"\\boxed{{{seed % 2 + 1}}}", tokens=10)


def various(call: Call, place: int) -> Response:
    """An answer that depends on the question and the seed, and on nothing else."""
    chance = random.Random(f"{call.prompt}{call.body['seed'] + place}")
    return Response(f"\\boxed{{{chance.choice('1112')}}}", tokens=chance.randint(5, 50))


def solved(
    server: FakeUpstream, policy: Policy | None = None, told: Any = None, **endpoint: Any
) -> Allocation:
    controller, told = controller_of(policy), told or {}
    return live(server, lambda by: solve(QUESTION, by, controller, **told), **endpoint)


def allocated(server: FakeUpstream, **known: Any) -> dict[str, Allocation]:
    done = live(server, lambda by: gathered(QUESTIONS, by, controller_of(), **known))
    return {made.question_id: made for made in done}


# --- failing samples ------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(
    "fault",
    [Fault.status(500), *map(Fault, ("html", "null", "truncated", "reset")), Fault.hang(60)],
    ids=lambda fault: fault.kind,
)
def test_the_vote_is_over_the_samples_that_did_not_fail(fault: Fault, k: int) -> None:
    server = FakeUpstream(boxed, faults=[None, *[fault] * k], honours_n=False)
    runs: list[Run] = []
    made = solved(server, Fixed(4), {"watch": runs.append}, tries=1, timeout=0.6)
    responses = runs[-1].prefix.responses
    assert (made.answer, made.votes, made.responses) == ("7", {"7": 4 - k}, 4)
    assert len(responses) == made.calls == len(server.calls) == 4
    kept = fault.kind in ("null", "truncated")
    assert sum(response.error is not None for response in responses) == (0 if kept else k)
    assert made.error is None


# --- accounting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("honours_n", [True, False])
def test_an_allocation_counts_what_the_server_counted(honours_n: bool) -> None:
    told: list[int] = []

    def counted(call: Call, place: int) -> Response:
        response = various(call, place)
        told.append(response.tokens)
        return response

    faults = [Fault.status(408), None, Fault.status(429, retry_after="0"), None]
    server = FakeUpstream(counted, faults=faults, honours_n=honours_n)
    made = solved(server, ASC(1.0))  # never satisfied, so every block is asked for
    served = len(server.calls) - 2
    assert made.calls == len(server.calls)
    assert made.completion_tokens == sum(told)
    assert made.prompt_tokens == served * (len(server.calls[0].prompt) // 4)
    assert (served, made.seconds > 0) == (3 if honours_n else 16, True)
    got = server.calls if honours_n else {call.body["seed"] for call in server.calls}
    assert len(got) == (5 if honours_n else 16), "no two blocks share a seed"


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "answer"), [([None], "1"), ([], None)])
def test_a_limit_in_seconds_leaves_the_best_answer(before: list[None], answer: str | None) -> None:
    server = FakeUpstream(divided, faults=[*before, Fault.hang(60)])
    begun = time.monotonic()
    made = solved(server, told={"budget": Budget(seconds=0.5)})
    assert (made.reason, made.answer, made.error) == ("limit: seconds", answer, None)
    assert time.monotonic() - begun < 30


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


@pytest.mark.parametrize("shared", [False, True])
def test_a_refused_key_is_not_tried_for_every_question(shared: bool) -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(401, "who?")] * 1000)
    known: Any = {"shared": True, "budget": Budget(tokens=10**9)} if shared else {}
    made = allocated(server, **known)
    assert len(server.calls) <= 16
    assert {a.error for a in made.values()} == {"upstream 401 planned_401: who?"}
    assert len(made) == len(QUESTIONS)


def test_closing_the_stream_early_cancels_the_work_and_takes_no_more_questions() -> None:
    taken: list[Question] = []

    def lazily() -> Iterator[Question]:
        for question in QUESTIONS:
            taken.append(question)
            yield question

    async def begin(sampler: OpenAISampler) -> None:
        made = solve_many(lazily(), sampler, controller_of(), concurrency=8)
        await anext(made)
        await made.aclose()  # type: ignore[attr-defined]
        assert sampler.upstream.permits.active == 0
        for _ in range(200):
            if not server.active:
                break
            await asyncio.sleep(0.005)

    server = FakeUpstream(boxed, faults=[None, *[Fault.hang(60)] * 50])
    begun = time.monotonic()
    live(server, begin)
    assert (server.active, server.aborted) == (0, len(server.calls) - 1)
    assert len(taken) <= 10
    assert time.monotonic() - begun < 30


# --- blocking -------------------------------------------------------------------------------------


def test_solve_blocking_needs_no_loop_and_works_inside_one_as_in_a_notebook(tmp_path: Path) -> None:
    pool = write_pool(tmp_path, [record_of("q", "7777")], Plan(get_task("numeric")))
    sampler, controller = RecordedSampler(pool), controller_of()
    assert solve_blocking(QUESTION, sampler, controller).answer == "7"

    async def notebook() -> list[str | None]:
        return [solve_blocking(QUESTION, sampler, controller).answer for _ in range(2)]

    assert asyncio.run(notebook()) == ["7", "7"]


@pytest.mark.parametrize("size", [100, 100_000])
def test_long_texts_are_read_where_the_event_loop_does_not_wait(size: int) -> None:
    read_in = set()

    class Where:
        def read(self, response: Response) -> Vote:
            read_in.add(threading.current_thread() is threading.main_thread())
            return Vote("7")

    run = controller_of(Fixed(4)).start(QUESTION, reader=Where())
    server = FakeUpstream(lambda call, place: "x" * size)
    live(server, lambda sampler: drive(run, sampler, Ledger(Budget())))
    assert read_in == {size == 100}


def test_a_policy_that_was_calibrated_on_weights_refuses_a_run_without_them() -> None:
    run = Run(QUESTION, ASC(0.9, weighted=True), task=get_task("numeric"), schedule=Schedule((4,)))
    with pytest.raises(RunError, match="begin it with controller"):
        run.feed([Response("\\boxed{7}")] * 4)


# --- one limit over many questions ----------------------------------------------------------------

SHORT = Schedule((2, 4, 8))
SHARING = Controller(get_task("numeric"), SHORT, ASC(0.95))


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


def together(sampler: Scripted, tokens: int | None = None, **more: Any) -> list[Allocation]:
    """What every question got, in their order."""
    known: Any = {"budget": Budget(tokens=tokens), "shared": True, **more}
    questions = [Question(key, key) for key in sampler.answers]
    made = asyncio.run(gathered(questions, sampler, SHARING, **known))
    return sorted(made, key=lambda each: [*sampler.answers].index(each.question_id))


AGREED, SPLIT = said(*[7] * 8), said(*range(8))


@pytest.mark.parametrize(
    ("tokens", "responses", "reason"), [(100, 2, "limit: tokens"), (10_000, 8, "full budget")]
)
def test_everybody_gets_a_first_block_and_the_undecided_the_rest(
    tokens: int, responses: int, reason: str
) -> None:
    clear, open_ = together(Scripted({"clear": AGREED, "open": SPLIT}), tokens)
    assert (clear.responses, clear.reason, clear.answer) == (responses, reason, "7")
    assert open_.responses == 8


def test_the_next_block_goes_to_the_least_certain() -> None:
    sampler = Scripted({"clear": AGREED, "open": SPLIT, "half": said(1, 1, 2, 1, 1, 1, 1, 1)})
    together(sampler, 100, concurrency=1)
    assert [key for key, start, _ in sampler.asked if start == 0] == ["clear", "open", "half"]
    assert next(key for key, start, _ in sampler.asked if start) == "open"


def test_a_question_that_cannot_be_had_costs_only_itself() -> None:
    gone, kept = together(Scripted({"gone": [], "open": SPLIT}), 1_000)
    assert (gone.error, gone.reason) == ("upstream: gone for good", "upstream failed")
    assert (kept.error, kept.responses) == (None, 8)


def test_a_shared_budget_needs_a_limit() -> None:
    with pytest.raises(UsageError, match="needs a limit"):
        together(Scripted({"q": AGREED}))
