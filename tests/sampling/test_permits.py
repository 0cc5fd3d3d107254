import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest
from limits import VirtualClock
from pace import Engine

from aera import ASC, Allocation, Controller, Question, Schedule, get_task, solve_many
from aera.sampling.client import Endpoint, Permits, Turn
from aera.sampling.sampler import Chat, OpenAISampler


async def hold(permits: Permits, seconds: float = 0.0) -> None:
    async with permits.hold():
        await asyncio.sleep(seconds)


@pytest.mark.parametrize(("turns", "order"), [("0000", "0123"), ("3120", "0312"), ("1010", "0132")])
def test_the_lowest_turn_goes_first_then_who_came_first(turns: str, order: str) -> None:
    async def scene() -> str:
        permits, done = Permits(1), []

        async def work(name: int, turn: str) -> None:
            async with permits.hold(1, float(turn)):
                done.append(str(name))
                await asyncio.sleep(0)

        await asyncio.gather(*(work(name, turn) for name, turn in enumerate(turns)))
        return "".join(done)

    assert asyncio.run(scene()) == order


async def refused(permits: Permits, count: int, under_way: int) -> float:
    """The limit after `count` of so many calls under way together were refused."""
    turns, left = list[Turn](), asyncio.Event()

    async def call(number: int) -> None:
        async with permits.hold() as turn:
            turns.append(turn)
            await left.wait()
            if number < count:
                permits.refused(turn)

    calls = [asyncio.create_task(call(number)) for number in range(under_way)]
    while len(turns) < under_way:
        await asyncio.sleep(0)
    left.set()
    await asyncio.gather(*calls)
    return permits.limit


def test_a_server_that_takes_some_of_a_round_is_given_as_many_next_time() -> None:
    assert asyncio.run(refused(Permits(256), 190, 200)) == 10


def test_a_refused_round_halves_once_and_the_next_halves_again() -> None:
    async def scene() -> list[float]:
        permits = Permits(8)
        return [await refused(permits, int(permits.limit), int(permits.limit)) for _ in range(5)]

    assert asyncio.run(scene()) == [4, 2, 1, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_random_cancellations_lose_no_permit(seed: int) -> None:
    async def scene() -> None:
        chance, permits = random.Random(seed), Permits(4)
        workers = [asyncio.create_task(hold(permits, 0.0)) for _ in range(1000)]
        for worker in chance.sample(workers, 1000):
            if chance.random() < 0.2:
                await asyncio.sleep(0)
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert permits.active == 0
        await asyncio.wait_for(asyncio.gather(*(hold(permits) for _ in range(20))), 5)
        assert permits.active == 0

    asyncio.run(scene())


def test_a_permit_that_arrives_with_the_cancellation_is_passed_on() -> None:
    async def scene() -> None:
        permits, left = Permits(1), asyncio.Event()

        async def first() -> None:
            async with permits.hold():
                await left.wait()

        holder = asyncio.create_task(first())
        await asyncio.sleep(0)
        cancelled, patient = (asyncio.create_task(hold(permits)) for _ in range(2))
        await asyncio.sleep(0)
        left.set()
        await holder  # the permit goes to the first who waits ...
        cancelled.cancel()  # ... who is cancelled before it can run
        await asyncio.wait_for(patient, 5)
        assert permits.active == 0

    asyncio.run(scene())


# --- as many as the server takes ------------------------------------------------------------------


def solved(
    engine: Engine, questions: int, concurrency: int | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[float, list[Allocation]]:
    """Seconds on a virtual clock in which an engine serves so many questions, and the answers."""
    loop = VirtualClock()
    monkeypatch.setattr("time.monotonic", loop.time)
    monkeypatch.setattr("aera.sampling.client.open_session", engine.open_session)
    controller = Controller(get_task("numeric"), Schedule(), ASC(0.95))
    settings = {"max_tokens": 1_024, "seed": 0}
    endpoint = Endpoint("http://localhost/v1", concurrency=concurrency)

    async def work() -> list[Allocation]:
        asked = [Question(str(i), f"question {i}?") for i in range(questions)]
        async with OpenAISampler(endpoint, Chat("m", controller.task, settings)) as sampler:
            return [made async for made in solve_many(asked, sampler, controller)]

    try:
        done = loop.run_until_complete(work())
        return loop.now, done
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("places", "best", "questions"), [(8, 8, 80), (64, 64, 150), (512, 512, 400)]
)
def test_a_server_of_any_size_is_kept_as_busy_as_by_the_best_number(
    places: int, best: int, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, _ = solved(Engine(places), questions, best, monkeypatch)
    found, done = solved(Engine(places), questions, None, monkeypatch)
    assert found <= 1.1 * told
    assert all(made.error is None for made in done)


@pytest.mark.parametrize(("places", "questions"), [(8, 60), (64, 150), (512, 400)])
def test_a_server_that_refuses_what_is_too_much_refuses_a_handful(
    places: int, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(places, refuses=True)
    _, done = solved(engine, questions, None, monkeypatch)
    assert all(made.error is None for made in done)
    assert engine.refused <= 20
    assert engine.most >= places


def test_a_small_server_is_soon_given_no_more_than_it_has_places_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits at the server could be billed, and nobody can put it into a better order."""

    def waiting(concurrency: int | None) -> float:
        engine, seen = Engine(8), list[int]()
        generate: Any = engine.generate

        async def watched(lengths: list[int]) -> None:
            seen.append(len(engine._waiting))
            await generate(lengths)

        monkeypatch.setattr(engine, "generate", watched)
        solved(engine, 150, concurrency, monkeypatch)
        return sum(seen) / len(seen)

    assert waiting(None) < 0.3 * waiting(512)


def test_first_blocks_come_before_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(64)
    solved(engine, 100, None, monkeypatch)
    assert len(set(engine.begun[:105])) == 100


def test_a_refusal_of_all_leaves_room_whatever_their_fractions_add_up_to() -> None:
    async def scene() -> float:
        permits = Permits(None)
        async with AsyncExitStack() as stack:
            turns = [await stack.enter_async_context(permits.hold(n)) for n in (1, 1, 3)]
            for turn in turns:  # what is left of the sum of their weights is 4e-16
                permits.refused(turn)
            return permits.limit

    assert asyncio.run(scene()) >= 1
