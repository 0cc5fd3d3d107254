import asyncio
import random

import pytest

from aera.sampling.client import ModelPermits, Permits


async def hold(permits: Permits, seconds: float = 0.0) -> None:
    async with permits:
        await asyncio.sleep(seconds)


def test_waiters_go_in_the_order_they_came() -> None:
    async def scene() -> None:
        permits, order = Permits(1), []

        async def work(number: int) -> None:
            async with permits:
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(number) for number in range(20)))
        assert order == list(range(20))

    asyncio.run(scene())


def test_soon_after_a_refusal_a_full_round_of_successes_allows_one_more() -> None:
    permits = Permits(64, start=16)
    permits.halve(0)
    for _ in range(8):
        permits.widen()
    assert permits.limit == pytest.approx(9, abs=0.1)
    for _ in range(10_000):
        permits.widen()
    assert permits.limit == 64


def test_a_server_that_takes_some_of_a_round_is_given_as_many_next_time() -> None:
    async def scene() -> float:
        permits = Permits(256)
        turns = [await permits.__aenter__() for _ in range(200)]
        for turn in turns[:190]:
            permits.halve(turn)
            await permits.__aexit__(None, None, None)
        return permits.limit

    assert asyncio.run(scene()) == 10


def test_a_refusal_of_one_model_leaves_the_others_alone() -> None:
    models = ModelPermits(64)
    models.of("busy").halve(0)
    assert (models.of("busy").limit, models.of("other").limit) == (32, 64)


async def rounds(permits: Permits, count: int) -> list[float]:
    """Rounds of eight calls under way together, all refused."""
    limits = []
    for _ in range(count):
        turns = [await permits.__aenter__() for _ in range(int(permits.limit))]
        for turn in turns:
            permits.halve(turn)
            await permits.__aexit__(None, None, None)
        limits.append(permits.limit)
    return limits


def test_a_refused_round_halves_once_and_the_next_halves_again() -> None:
    assert asyncio.run(rounds(Permits(64, start=8), 5)) == [4, 2, 1, 1, 1]


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
        permits = Permits(1)
        await permits.__aenter__()
        cancelled, patient = (asyncio.create_task(hold(permits)) for _ in range(2))
        await asyncio.sleep(0)
        await permits.__aexit__(None, None, None)  # the permit goes to the first ...
        cancelled.cancel()  # ... which is cancelled before it can run
        await asyncio.wait_for(patient, 5)
        assert permits.active == 0

    asyncio.run(scene())
