"""What a sampler asks of a server, and recorded responses in the place of one."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fakes import FakeUpstream
from live import QUESTION, boxed, live, sampler_of
from streams import NUMERIC, record_of

from aera import Pool, Question
from aera.errors import PoolError, UsageError
from aera.pools.pool import Plan, write_pool
from aera.sampling.recorded import RecordedSampler, RecordedUpstream
from aera.sampling.sampler import Chat, OpenAISampler


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


async def test_a_sampler_can_be_entered_again_after_it_was_left() -> None:
    async with FakeUpstream(boxed) as server:
        sampler = sampler_of(server)
        for _ in range(2):
            async with sampler:
                assert len(await sampler.sample(QUESTION, 2)) == 2


# --- recorded -------------------------------------------------------------------------------------


Reply = tuple[int, Any]


def posted(server: RecordedUpstream, *bodies: dict[str, Any]) -> list[Reply]:
    """Status and content of calls made one after the other."""

    async def scene() -> list[Reply]:
        async with server, aiohttp.ClientSession() as session:
            made = []
            for body in bodies:
                async with session.post(f"{server.base_url}/chat/completions", json=body) as reply:
                    made.append((reply.status, await reply.json()))
            return made

    return asyncio.run(scene())


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    records = [record_of("a", "12345678"), record_of("b", "abcd")]
    return write_pool(tmp_path, records, Plan(NUMERIC))


def request_of(pool: Pool, name: str, **fields: Any) -> dict[str, Any]:
    prompt = NUMERIC.prompt(pool.questions[name])
    return {"model": "m", "messages": [{"role": "user", "content": prompt}], **fields}


def said(replies: list[Reply]) -> str:
    choices = [choice for _, reply in replies for choice in reply["choices"]]
    return "".join(choice["message"]["content"][-2] for choice in choices)


def test_a_recorded_upstream_serves_by_seed_or_in_order(pool: Pool) -> None:
    asked = [request_of(pool, "a", seed=6, n=2), request_of(pool, "a", seed=0, n=3)]
    assert said(posted(RecordedUpstream(pool), *asked)) == "78123"
    asked = [request_of(pool, name, n=n) for name, n in (("a", 3), ("b", 2), ("a", 2))]
    assert said(posted(RecordedUpstream(pool), *asked)) == "123ab45"


def test_it_reports_the_recorded_tokens_and_cuts_a_reply_at_its_limit(pool: Pool) -> None:
    asked = [request_of(pool, "a", seed=2, n=n, max_tokens=most) for n, most in ((3, 99), (1, 6))]
    [(_, whole), (_, cut)] = posted(RecordedUpstream(pool), *asked)
    assert [c["usage"]["completion_tokens"] for c in whole["choices"]] == [12, 13, 14]
    assert whole["usage"]["completion_tokens"] == 39
    [choice] = cut["choices"]
    assert (choice["finish_reason"], choice["usage"]) == ("length", {"completion_tokens": 6})


def test_a_question_that_was_not_recorded_is_not_found(pool: Pool) -> None:
    server = RecordedUpstream(pool)
    asked = {"model": "m", "messages": [{"role": "user", "content": "something else?"}]}
    [(status, reply)] = posted(server, asked)
    assert (status, reply["error"]["message"]) == (404, "no such question was recorded")
    assert [call.prompt for call in server.calls] == ["something else?"]


async def test_a_recorded_sampler_knows_no_other_question(pool: Pool) -> None:
    async with RecordedSampler(pool) as sampler:
        with pytest.raises(PoolError, match="question stranger is not in"):
            await sampler.sample(Question("stranger", "?"), 1)
