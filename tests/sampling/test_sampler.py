import asyncio

import pytest
from fakes import FakeUpstream
from live import QUESTION, boxed, live, sampler_of

from aera import get_task
from aera.errors import UsageError
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


def test_a_sampler_can_be_entered_again_after_it_was_left() -> None:
    async def scene() -> None:
        async with FakeUpstream(boxed) as server:
            sampler = sampler_of(server)
            for _ in range(2):
                async with sampler:
                    assert len(await sampler.sample(QUESTION, 2)) == 2

    asyncio.run(scene())
