import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from live import BODY, boxed

from aera import Pool, Record, get_task
from aera.pools.pool import write_pool
from aera.sampling.fake import FakeUpstream, Fault, RecordedUpstream

NUMERIC = get_task("numeric")
Reply = tuple[int, Any]


def posted(server: FakeUpstream, *bodies: dict[str, Any]) -> list[Reply]:
    """Status and content of calls made one after the other."""

    async def scene() -> list[Reply]:
        async with server, aiohttp.ClientSession() as session:
            made = []
            for body in bodies:
                async with session.post(f"{server.base_url}/chat/completions", json=body) as reply:
                    page = reply.content_type != "application/json"
                    made.append((reply.status, await (reply.text() if page else reply.json())))
            return made

    return asyncio.run(scene())


def test_it_answers_as_told_with_usage_and_remembers_the_call() -> None:
    server = FakeUpstream(lambda call, place: f"{call.prompt} {place}")
    [(status, reply)] = posted(server, {**BODY, "n": 2})
    assert status == 200
    assert [c["message"]["content"] for c in reply["choices"]] == ["how many? 0", "how many? 1"]
    assert reply["usage"] == {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6}
    assert [(call.number, call.n, call.prompt) for call in server.calls] == [(0, 2, "how many?")]


def test_it_may_ignore_n_and_leave_out_usage() -> None:
    [(_, reply)] = posted(FakeUpstream(boxed, honours_n=False, usage=False), {**BODY, "n": 4})
    assert len(reply["choices"]) == 1
    assert "usage" not in reply


def test_faults_come_in_the_order_of_the_calls_and_then_no_more() -> None:
    faults = [Fault.status(503, "tired", retry_after="7"), None, Fault.html(), Fault.null()]
    replies = posted(FakeUpstream(boxed, faults=faults), *[BODY] * 5)
    assert [status for status, _ in replies] == [503, 200, 200, 200, 200]
    assert replies[0][1]["error"]["message"] == "tired"
    assert replies[2][1].startswith("<html>")
    contents = [replies[i][1]["choices"][0]["message"]["content"] for i in (1, 3, 4)]
    assert contents == ["so it is \\boxed{7}", None, "so it is \\boxed{7}"]


def test_a_truncated_reply_says_so() -> None:
    [(_, reply)] = posted(FakeUpstream(boxed, faults=[Fault.truncated()]), BODY)
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["choices"][0]["message"]["content"] == "so it is "


@pytest.mark.parametrize("fault", [Fault.hang(0.2), Fault.drip(0.2)])
def test_slow_faults_take_their_time_and_then_answer(fault: Fault) -> None:
    begun = time.monotonic()
    [(status, reply)] = posted(FakeUpstream(boxed, faults=[fault]), BODY)
    assert time.monotonic() - begun >= 0.2
    assert (status, len(reply["choices"])) == (200, 1)


def test_a_reset_breaks_the_connection_and_the_server_lives_on() -> None:
    server = FakeUpstream(boxed, faults=[Fault.reset()])

    async def scene() -> int:
        async with server, aiohttp.ClientSession() as session:
            url = f"{server.base_url}/chat/completions"
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.post(url, json=BODY)
            async with session.post(url, json=BODY) as reply:
                return reply.status

    assert asyncio.run(scene()) == 200
    assert (server.active, server.aborted) == (0, 0)


def test_calls_under_way_and_calls_broken_off_are_counted() -> None:
    async def scene(server: FakeUpstream) -> tuple[int, int, int]:
        async with server, aiohttp.ClientSession() as session:
            url = f"{server.base_url}/chat/completions"
            calls = [asyncio.ensure_future(session.post(url, json=BODY)) for _ in range(3)]
            while server.active < 3:
                await asyncio.sleep(0.005)
            for call in calls:
                call.cancel()
            while server.active:
                await asyncio.sleep(0.005)
            return server.active, server.most_active, server.aborted

    assert asyncio.run(scene(FakeUpstream(boxed, delay=lambda call: 60))) == (0, 3, 3)


def test_it_ends_soon_although_somebody_still_waits_for_it() -> None:
    async def scene() -> float:
        async with aiohttp.ClientSession() as session:
            async with FakeUpstream(boxed, faults=[Fault.hang(60)]) as server:
                url = f"{server.base_url}/chat/completions"
                waiting = asyncio.ensure_future(session.post(url, json=BODY))
                while not server.active:
                    await asyncio.sleep(0.005)
                begun = time.monotonic()
            took = time.monotonic() - begun
            await asyncio.gather(waiting, return_exceptions=True)
            return took

    assert asyncio.run(scene()) < 5


def test_it_lists_a_model() -> None:
    async def scene() -> Any:
        async with (
            FakeUpstream(boxed) as server,
            aiohttp.ClientSession() as session,
            session.get(f"{server.base_url}/models") as reply,
        ):
            return await reply.json()

    assert asyncio.run(scene())["object"] == "list"


@pytest.fixture
def pool(tmp_path: Path, record_of: Callable[..., Record]) -> Pool:
    records = [record_of("a", "12345678"), record_of("b", "abcd")]
    return write_pool(tmp_path, records, task=NUMERIC, sampler={})


def request_of(pool: Pool, name: str, **fields: Any) -> dict[str, Any]:
    prompt = NUMERIC.prompt(pool.questions[name])
    return {"model": "m", "messages": [{"role": "user", "content": prompt}], **fields}


def said(replies: list[Reply]) -> str:
    choices = [choice for _, reply in replies for choice in reply["choices"]]
    return "".join(choice["message"]["content"][-2] for choice in choices)


def test_a_recorded_upstream_serves_by_seed(pool: Pool) -> None:
    asked = [request_of(pool, "a", seed=6, n=2), request_of(pool, "a", seed=0, n=3)]
    assert said(posted(RecordedUpstream(pool), *asked)) == "78123"


def test_without_a_seed_it_serves_each_question_in_order(pool: Pool) -> None:
    asked = [request_of(pool, name, n=n) for name, n in (("a", 3), ("b", 2), ("a", 2))]
    assert said(posted(RecordedUpstream(pool), *asked)) == "123ab45"


def test_it_reports_the_recorded_tokens(pool: Pool) -> None:
    [(_, reply)] = posted(RecordedUpstream(pool), request_of(pool, "a", seed=2, n=3))
    assert [c["usage"]["completion_tokens"] for c in reply["choices"]] == [12, 13, 14]
    assert reply["usage"]["completion_tokens"] == 39


def test_the_pace_is_of_the_longest_response(pool: Pool) -> None:
    begun = time.monotonic()
    posted(RecordedUpstream(pool, pace=10.0), request_of(pool, "a", seed=0, n=8))
    assert 10 * 17 / 1000 * 0.8 <= time.monotonic() - begun < 2


def test_without_jitter_the_pace_is_exact_and_slots_are_shared_out_in_order(pool: Pool) -> None:
    async def scene(slots: int | None) -> float:
        server = RecordedUpstream(pool, pace=10.0, jitter=0.0, slots=slots)
        async with server, aiohttp.ClientSession() as session:
            begun = time.monotonic()
            body = request_of(pool, "a", seed=0, n=4)
            async with session.post(f"{server.base_url}/chat/completions", json=body) as reply:
                await reply.read()
            return time.monotonic() - begun

    # 10, 11, 12 and 13 tokens: at once, or the third after the first and the fourth after the next
    assert 0.130 <= asyncio.run(scene(None)) < 0.22
    assert 0.240 <= asyncio.run(scene(2)) < 0.40
