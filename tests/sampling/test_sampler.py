import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FakeUpstream
from live import QUESTION, boxed, live, sampler_of, texts

from aera import Pool, Question, Record, Response, get_task
from aera.errors import PoolError, UsageError
from aera.pools.pool import Plan, write_pool
from aera.sampling.recorded import RecordedSampler
from aera.sampling.sampler import Chat, OpenAISampler

NUMERIC = get_task("numeric")


def test_settings_reach_the_server_unchanged_and_only_the_seed_steps() -> None:
    """An extra body is spread, wins over what stands beside it and is never sent as such."""
    settings = {"temperature": 0.0, "min_p": 0.1, "stop": None, "guided": {"a": [1]}, "seed": 7}
    user = {"role": "user", "content": NUMERIC.prompt(QUESTION)}
    plain = {**settings, "model": "m", "messages": [user], "n": 4, "top_k": 20, "min_p": 0.5}
    settings["extra_body"] = {"top_k": 20, "min_p": 0.5}
    server = FakeUpstream(boxed)

    async def ask(sampler: OpenAISampler) -> None:
        for start in (0, 4):
            await sampler.sample(QUESTION, 4, start=start)

    live(server, ask, settings=settings)
    assert [dict(call.body) for call in server.calls] == [plain, {**plain, "seed": 11}]
    assert settings["seed"] == 7


def test_a_seed_that_cannot_be_stepped_is_refused() -> None:
    with pytest.raises(UsageError, match="seed"):
        Chat("m", NUMERIC, {"seed": "lucky"})
    assert "seed" not in Chat("m", NUMERIC, {}).body(QUESTION)


@pytest.fixture
def pool(tmp_path: Path, record_of: Callable[..., Record]) -> Pool:
    records = [record_of("a", "1234"), record_of("b", "5678")]
    return write_pool(tmp_path, records, Plan(NUMERIC))


def test_a_recorded_sampler_gives_what_was_recorded_in_order(pool: Pool) -> None:
    async def scene() -> tuple[list[Response], list[Response]]:
        async with RecordedSampler(pool) as sampler:
            with pytest.raises(PoolError, match="question stranger is not in"):
                await sampler.sample(Question("stranger", "?"), 1)
            question = pool.questions["b"]
            return await sampler.sample(question, 3), await sampler.sample(question, 4, start=3)

    first, rest = asyncio.run(scene())
    assert texts(first) == [f"so it is \\boxed{{{answer}}}" for answer in "567"]
    assert texts(rest) == ["so it is \\boxed{8}"]


def test_a_sampler_can_be_entered_again_after_it_was_left() -> None:
    async def scene() -> None:
        async with FakeUpstream(boxed) as server:
            sampler = sampler_of(server)
            for _ in range(2):
                async with sampler:
                    assert len(await sampler.sample(QUESTION, 2)) == 2

    asyncio.run(scene())
