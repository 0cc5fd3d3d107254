import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest
from live import controller_of, gathered
from pace import Engine
from virtual import run_on_virtual_time

from aera import Allocation, Chat, Endpoint, OpenAISampler, Question, Schedule
from aera.sampling.client import Permits

Patch = pytest.MonkeyPatch


async def hold(permits: Permits) -> None:
    async with permits.hold():
        await asyncio.sleep(0)


@pytest.mark.parametrize(("turns", "order"), [("0000", "0123"), ("3120", "0312"), ("1010", "0132")])
async def test_the_lowest_turn_goes_first_then_who_came_first(turns: str, order: str) -> None:
    permits, done = Permits(1), []

    async def work(name: int, turn: str) -> None:
        async with permits.hold(1, float(turn)):
            done.append(str(name))
            await asyncio.sleep(0)

    await asyncio.gather(*(work(name, turn) for name, turn in enumerate(turns)))
    assert "".join(done) == order


@pytest.mark.parametrize("seed", range(5))
async def test_a_thousand_random_cancellations_lose_no_permit(seed: int) -> None:
    """Also where the permit arrives with the cancellation, and is passed on."""

    chance, permits = random.Random(seed), Permits(4)
    workers = [asyncio.create_task(hold(permits)) for _ in range(1000)]
    for worker in chance.sample(workers, 1000):
        if chance.random() < 0.2:
            await asyncio.sleep(0)
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    await asyncio.wait_for(asyncio.gather(*(hold(permits) for _ in range(20))), 60)
    assert permits.active == 0


# --- as many as the server takes ------------------------------------------------------------------


def solved(
    engine: Engine, questions: int, concurrency: int | None, monkeypatch: Patch
) -> tuple[float, list[Allocation]]:
    """Seconds on a virtual clock in which an engine serves so many questions, and the answers."""
    controller = controller_of(schedule=Schedule())
    chat = Chat("m", controller.task, {"max_tokens": 1_024, "seed": 0})
    asked = [Question(str(i), f"question {i}?") for i in range(questions)]

    async def work() -> list[Allocation]:
        endpoint = Endpoint("http://localhost/v1", concurrency=concurrency)
        async with OpenAISampler(endpoint, chat) as sampler:
            return await gathered(asked, sampler, controller)

    done, seconds = run_on_virtual_time(work(), engine.answer, monkeypatch)
    return seconds, done


SIZES = pytest.mark.parametrize(("places", "questions"), [(8, 80), (64, 150), (512, 400)])


@SIZES
def test_a_server_of_any_size_is_kept_as_busy_as_by_the_best_number(
    places: int, questions: int, monkeypatch: Patch
) -> None:
    told, _ = solved(Engine(places), questions, places, monkeypatch)
    found, done = solved(Engine(places), questions, None, monkeypatch)
    assert found <= 1.1 * told
    assert all(made.error is None for made in done)


@SIZES
def test_a_server_that_refuses_what_is_too_much_refuses_a_handful(
    places: int, questions: int, monkeypatch: Patch
) -> None:
    engine = Engine(places, refuses=True)
    _, done = solved(engine, questions, None, monkeypatch)
    assert all(made.error is None for made in done)
    assert engine.refused <= 20
    assert engine.most >= places


def test_a_small_server_is_soon_given_what_it_has_places_for(monkeypatch: Patch) -> None:
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


def test_first_blocks_come_before_all_others(monkeypatch: Patch) -> None:
    engine = Engine(64)
    solved(engine, 100, None, monkeypatch)
    assert len(set(engine.begun[:105])) == 100


async def test_a_refusal_of_all_leaves_room_whatever_their_fractions_add_up_to() -> None:
    permits = Permits(None)
    async with AsyncExitStack() as stack:
        turns = [await stack.enter_async_context(permits.hold(n)) for n in (1, 1, 3)]
        for turn in turns:  # what is left of the sum of their weights is 4e-16
            permits.refused(turn)
        assert permits.limit >= 1
