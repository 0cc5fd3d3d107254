"""Replicas that hang, die and come back: who is asked meanwhile."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fakes import FakeUpstream, Fault
from live import BODY, boxed, texts

from aera.errors import UsageError
from aera.sampling.health import Health, HealthChecks, Traffic
from aera.sampling.replicas import ProxiedRequest, Replicas
from aera.sampling.upstream import Endpoint

Seen = TypeVar("Seen")
CHAT = ProxiedRequest("POST", "/chat/completions", {}, json.dumps(BODY).encode())
FAST = HealthChecks(every=0.05, timeout=0.2)


def among(
    act: Callable[[Replicas], Awaitable[Seen]],
    *servers: FakeUpstream,
    checks: HealthChecks | None = None,
    **endpoint: Any,
) -> Seen:
    """What comes of acting on replicas at these servers."""

    async def scene() -> Seen:
        async with AsyncExitStack() as stack:
            for server in servers:
                await stack.enter_async_context(server)
            endpoints = [Endpoint(server.base_url, None, **endpoint) for server in servers]
            made = Replicas(endpoints, checks=checks)
            return await act(await stack.enter_async_context(made))

    return asyncio.run(scene())


def hung() -> FakeUpstream:
    """A server that lists its models and never completes anything."""
    return FakeUpstream(boxed, delay=lambda call: 60.0)


async def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come about in time"
        await asyncio.sleep(0.01)


def test_a_hung_replica_loses_one_impatient_client_and_no_more() -> None:
    async def act(replicas: Replicas) -> list[bool]:
        good = []
        for _ in range(6):
            try:
                async with asyncio.timeout(0.3):
                    [response] = await replicas.complete(BODY, 1)
                good.append(response.error is None)
            except TimeoutError:
                good.append(False)
        return good

    assert among(act, hung(), FakeUpstream(boxed)) == [False, *[True] * 5]


def test_a_deadline_that_passes_in_silence_counts_against_a_replica() -> None:
    async def act(replicas: Replicas) -> list[bool]:
        good = []
        for _ in range(4):
            got = await replicas.complete(BODY, 2, deadline=time.monotonic() + 0.2)
            good.append(all(response.error is None for response in got))
        return good

    assert among(act, hung(), FakeUpstream(boxed)) == [False, True, True, True]


def test_a_request_passed_on_avoids_the_hung_replica_too() -> None:
    async def act(replicas: Replicas) -> list[int]:
        places = []
        for _ in range(4):
            try:
                async with asyncio.timeout(0.3):
                    reply, place = await replicas.send(CHAT)
                reply.close()
                replicas.release(place)
                places.append(place)
            except TimeoutError:
                places.append(-1)
        return places

    assert among(act, hung(), FakeUpstream(boxed)) == [-1, 1, 1, 1]


def test_a_try_that_takes_too_long_goes_to_the_next_replica() -> None:
    async def act(replicas: Replicas) -> tuple[list[str], int, list[bool]]:
        got = await replicas.complete(BODY, 2)
        return texts(got), got[0].calls, replicas.healthy

    silent, good = hung(), FakeUpstream(boxed)
    said, calls, healthy = among(act, silent, good, attempt_timeout=0.2)
    assert (said, calls, healthy) == (["so it is \\boxed{7}"] * 2, 2, [False, True])
    assert (silent.aborted, len(good.calls)) == (1, 1)


def test_a_request_passed_on_that_takes_too_long_goes_to_the_next_replica() -> None:
    async def act(replicas: Replicas) -> tuple[int, list[int]]:
        reply, place = await replicas.send(CHAT)
        reply.close()
        replicas.release(place)
        return place, replicas.busy

    assert among(act, hung(), FakeUpstream(boxed), attempt_timeout=0.2) == (1, [0, 0])


def test_what_might_be_done_twice_is_sent_to_one_replica_only() -> None:
    assert not ProxiedRequest("POST", "/files", {}, b"").repeatable
    assert ProxiedRequest("POST", "/completions?x=1", {}, b"").repeatable
    assert ProxiedRequest("GET", "/files/1", {}, None).repeatable


def test_a_replica_that_is_silent_longer_than_usual_is_asked_last() -> None:
    async def act(replicas: Replicas) -> tuple[list[int], list[int]]:
        stuck = [asyncio.create_task(replicas.upstreams[0].complete(BODY, 1))]
        await replicas.upstreams[1].complete(BODY, 1)
        many = [asyncio.create_task(replicas.upstreams[1].complete(BODY, 1)) for _ in range(4)]
        await asyncio.sleep(0.05)
        before = replicas.order()
        await asyncio.sleep(1.1)
        more = [asyncio.create_task(replicas.upstreams[1].complete(BODY, 1)) for _ in range(4)]
        await asyncio.sleep(0.02)
        after = replicas.order()
        for task in (*stuck, *many, *more):
            task.cancel()
        await asyncio.gather(*stuck, *many, *more, return_exceptions=True)
        return before, after

    working = FakeUpstream(boxed, delay=lambda call: 0.1)
    assert among(act, hung(), working) == ([0, 1], [1, 0])


def test_only_the_samples_that_failed_are_asked_of_the_next_replica() -> None:
    faults = [None, Fault.status(503), None, Fault.reset()]
    one = FakeUpstream(boxed, honours_n=False, faults=faults)
    other = FakeUpstream(boxed)
    got = among(lambda replicas: replicas.complete({**BODY, "seed": 5}, 4), one, other, tries=1)
    assert [(response.error, response.seed) for response in got] == [
        (None, 5 + i) for i in range(4)
    ]
    assert (len(one.calls), len(other.calls)) == (4, 2)
    assert sum(response.calls for response in got) == 6


def test_a_refusal_by_the_next_replica_does_not_lose_what_has_come() -> None:
    one = FakeUpstream(boxed, honours_n=False, faults=[None, Fault.status(503)])
    other = FakeUpstream(boxed, faults=[Fault.status(401)])
    got = among(lambda replicas: replicas.complete(BODY, 3), one, other, tries=1)
    assert sorted(response.error is None for response in got) == [False, True, True]


# --- checks ---------------------------------------------------------------------------------------


def test_a_replica_that_answers_no_check_rests_and_returns_when_it_does() -> None:
    async def act(replicas: Replicas) -> None:
        await until(lambda: replicas.healthy == [True, True])
        mute.mute = True
        await until(lambda: replicas.healthy == [False, True])
        assert replicas.order() == [1, 0]
        mute.mute = False
        await until(lambda: replicas.healthy == [True, True])

    mute = FakeUpstream(boxed)
    among(act, mute, FakeUpstream(boxed), checks=FAST)


def test_a_replica_that_only_completes_nothing_does_not_return_by_a_check() -> None:
    async def act(replicas: Replicas) -> list[bool]:
        await replicas.complete(BODY, 1)
        await asyncio.sleep(0.3)
        return replicas.healthy

    servers = hung(), FakeUpstream(boxed)
    assert among(act, *servers, checks=FAST, attempt_timeout=0.1) == [False, True]


@pytest.mark.parametrize(("always", "checked"), [(False, 0), (True, 1)])
def test_an_only_server_is_checked_when_told_to(always: bool, checked: int) -> None:
    paths: list[str] = []

    async def scene() -> list[dict[str, Any]]:
        async def answer(request: web.Request) -> web.Response:
            paths.append(request.path)
            return web.json_response({}, status=401)

        app = web.Application()
        app.router.add_get("/v1/health", answer)
        async with TestServer(app) as server:
            url = str(server.make_url("/v1"))
            checks = HealthChecks(every=60.0, path="/health", always=always)
            async with Replicas([Endpoint(url, None)], checks=checks) as replicas:
                await asyncio.sleep(0.1)
                assert len(paths) == checked
                for _ in range(3):
                    rows = await replicas.check()
                return rows

    [row] = asyncio.run(scene())
    assert (row["answers"], row["refused"], row["status"]) == (True, True, 401)
    assert paths == ["/v1/health"], "one check serves all who ask soon after"


def test_the_log_and_nobody_else_is_told_which_replica_rests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(replicas: Replicas) -> None:
        await replicas.complete(BODY, 1)

    among(act, hung(), FakeUpstream(boxed), attempt_timeout=0.1)
    [line] = [json.loads(each.message) for each in caplog.records if "rests" in each.message]
    assert line["event"] == "replica rests"
    assert line["replica"].startswith("http://127.0.0.1:")
    assert line["why"] == "no reply within 0.1 s"


@pytest.mark.parametrize("wrong", [{"every": 0.0}, {"timeout": -1.0}, {"every": float("nan")}])
def test_impossible_checks_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="health checks"):
        HealthChecks(**wrong)  # type: ignore[arg-type]


def test_a_server_that_works_again_returns_and_what_it_said_stays_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(replicas: Replicas) -> list[bool]:
        await replicas.complete(BODY, 1)
        rested = replicas.healthy
        await replicas.complete(BODY, 1)
        return [*rested, *replicas.healthy]

    server = FakeUpstream(boxed, faults=[Fault.status(503, "how many?")])
    assert among(act, server, tries=1) == [False, True]
    lines = [json.loads(record.message) for record in caplog.records]
    assert [(line["event"], line["why"]) for line in lines] == [
        ("replica rests", "status 503"),
        ("replica returns", "it answered a call"),
    ]


def test_rests_in_a_row_become_longer_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("aera.sampling.health.time.monotonic", lambda: now)
    health, lengths = Health(), []
    for _ in range(2_000):
        health.rest()
        lengths.append(health._until)
    assert (lengths[:6], max(lengths)) == ([10, 20, 40, 80, 160, 160], 160)
    health.work()
    health.rest()
    assert health._until == 10


def test_a_call_that_was_left_counts_until_anything_comes() -> None:
    traffic = Traffic()
    left, answered = traffic.begin(), traffic.begin()
    traffic.leave(left)
    assert traffic.owed == 1
    traffic.answer(answered)
    traffic.leave(answered)
    assert traffic.owed == 0
    broken = traffic.begin()
    traffic.drop(broken)
    traffic.leave(broken)
    assert traffic.owed == 0


# --- a client's own key ---------------------------------------------------------------------------


def test_a_clients_own_key_is_sent_instead_of_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_KEY", "ours")

    async def scene(server: FakeUpstream) -> None:
        endpoint = Endpoint(server.base_url, "OWN_KEY", headers={"X-Team": "votes"})
        async with Replicas([endpoint]) as replicas:
            theirs = replicas.with_headers({"Authorization": "Bearer theirs"})
            for each in (replicas, theirs):
                await each.complete(BODY, 1)
                reply, place = await each.send(CHAT)
                await reply.read()
                each.release(place)
            assert replicas.busy == theirs.busy == [0]

    async def both(server: FakeUpstream) -> None:
        async with server:
            await scene(server)

    server = FakeUpstream(boxed)
    asyncio.run(both(server))
    shown = [call.headers["Authorization"] for call in server.calls]
    assert shown == ["Bearer ours"] * 2 + ["Bearer theirs"] * 2
    assert {call.headers["X-Team"] for call in server.calls} == {"votes"}


def test_a_header_that_cannot_be_sent_is_refused() -> None:
    async def act(replicas: Replicas) -> None:
        await replicas.with_headers({"Authorization": "Bearer a\r\nX: y"}).complete(BODY, 1)

    with pytest.raises(UsageError, match="cannot be passed on"):
        among(act, FakeUpstream(boxed))
