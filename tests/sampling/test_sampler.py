import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream
from live import QUESTION, boxed, sampler_of, texts

from aera import Pool, Question, Record, Response, get_task
from aera.errors import PoolError, UsageError
from aera.pools.pool import Plan, write_pool
from aera.sampling.client import Endpoint
from aera.sampling.recorded import RecordedSampler
from aera.sampling.sampler import Chat, OpenAISampler

NUMERIC = get_task("numeric")


def bodies(server: FakeUpstream, **chat: Any) -> list[dict[str, Any]]:
    """What reaches a server for two blocks of a question."""

    async def scene() -> None:
        async with server:
            spoken = Chat("llama", NUMERIC, **chat)
            async with OpenAISampler(Endpoint(server.base_url), spoken) as sampler:
                await sampler.sample(QUESTION, 4)
                await sampler.sample(QUESTION, 4, start=4)

    asyncio.run(scene())
    return [dict(call.body) for call in server.calls]


def test_settings_reach_the_server_unchanged_and_only_the_seed_steps() -> None:
    settings = {"temperature": 0.0, "min_p": 0.1, "stop": None, "guided": {"a": [1]}, "seed": 7}
    user = {"role": "user", "content": NUMERIC.prompt(QUESTION)}
    plain = {**settings, "model": "llama", "messages": [user], "n": 4}
    sent = bodies(FakeUpstream(boxed), settings=settings)
    assert sent == [plain, {**plain, "seed": 11}]
    assert settings["seed"] == 7


def test_an_extra_body_is_spread_and_never_sent_as_such() -> None:
    settings = {"temperature": 1, "extra_body": {"top_k": 20, "temperature": 0.5}}
    for body in bodies(FakeUpstream(boxed), settings=settings):
        assert "extra_body" not in body
        assert (body["top_k"], body["temperature"]) == (20, 0.5)


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
