"""Several servers of one model: who is asked, who cools down, who comes back."""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from fakes import FakeUpstream, Fault
from live import BODY, boxed, started, texts

from aera.errors import UpstreamError
from aera.sampling.client import Endpoint
from aera.sampling.replicas import ProxiedRequest, Replicas

Seen = TypeVar("Seen")
SAID = "so it is \\boxed{7}"
LIST = ProxiedRequest("GET", "/models?limit=1", {}, None)
CHAT = ProxiedRequest("POST", "/chat/completions", {}, json.dumps(BODY).encode())


def dead() -> str:
    """The address of nobody."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def among(act: Callable[[Replicas], Awaitable[Seen]], *servers: Any, **endpoint: Any) -> Seen:
    """What comes of acting on replicas at these servers; a string is an address."""

    async def scene() -> Seen:
        async with AsyncExitStack() as stack:
            urls = await started(stack, *servers)
            endpoints = [Endpoint(url, "NO_KEY", **endpoint) for url in urls]
            return await act(await stack.enter_async_context(Replicas(endpoints)))

    return asyncio.run(scene())


def healthy(replicas: Replicas) -> list[bool]:
    return [server.healthy for server in replicas.servers]


async def place_of(replicas: Replicas, request: ProxiedRequest) -> int:
    """Which server a request is passed on to; it is busy until the reply is closed."""
    async with replicas.send(request) as reply:
        await reply.read()
        busy = [server.busy for server in replicas.servers]
    assert not any(server.busy for server in replicas.servers)
    return busy.index(1)


def hung() -> FakeUpstream:
    """A server that lists its models and never completes anything."""
    return FakeUpstream(boxed, delay=lambda call: 60.0)


def test_the_least_busy_replica_is_asked() -> None:
    async def act(replicas: Replicas) -> None:
        slow = asyncio.create_task(replicas.complete(BODY, 4))
        await asyncio.sleep(0.05)
        await replicas.complete(BODY, 4)
        await slow

    one, other = (FakeUpstream(boxed, delay=lambda call: 0.1) for _ in range(2))
    among(act, one, other)
    assert (len(one.calls), len(other.calls)) == (1, 1)


def test_a_dead_replica_is_left_at_once_and_cools_down() -> None:
    async def act(replicas: Replicas) -> tuple[list[int], list[bool]]:
        made = [await replicas.complete(BODY, 2) for _ in range(3)]
        assert [texts(responses) for responses in made] == [[SAID] * 2] * 3
        return [sum(each.calls for each in responses) for responses in made], healthy(replicas)

    calls, well = among(act, dead(), FakeUpstream(boxed))
    assert well == [False, True]
    assert calls == [2, 1, 1]  # no retries against a closed port when there is somebody else


def test_a_refusal_is_not_taken_to_the_next_replica() -> None:
    other = FakeUpstream(boxed)
    refusing = FakeUpstream(boxed, faults=[Fault.status(401)] * 9)
    with pytest.raises(UpstreamError, match="401"):
        among(lambda replicas: replicas.complete(BODY, 2), refusing, other)
    assert not other.calls


def test_an_impatient_client_does_not_cool_a_replica_down() -> None:
    async def act(replicas: Replicas) -> list[bool]:
        got = await replicas.complete(BODY, 2, deadline=time.monotonic() + 0.3)
        assert all(response.error for response in got)
        return healthy(replicas)

    slow = [FakeUpstream(boxed, delay=lambda call: 5.0) for _ in range(2)]
    assert among(act, *slow) == [True, True]
    assert sum(len(server.calls) for server in slow) == 1


@pytest.mark.parametrize(("request_", "first"), [(LIST, dead), (CHAT, hung)])
def test_a_request_is_passed_to_a_replica_that_answers(request_: Any, first: Any) -> None:
    act = lambda replicas: place_of(replicas, request_)  # noqa: E731
    assert among(act, first(), FakeUpstream(boxed), timeout=0.4) == 1


def test_a_large_request_is_passed_on_whole() -> None:
    big = {**BODY, "messages": [{"role": "user", "content": "x" * 2_000_000}]}
    headers, content = {"Content-Type": "application/json"}, json.dumps(big).encode()
    request = ProxiedRequest("POST", "/chat/completions", headers, content)
    server = FakeUpstream(boxed)
    among(lambda replicas: place_of(replicas, request), server)
    assert server.calls[0].body == big


def test_a_try_that_takes_too_long_goes_to_the_next_replica() -> None:
    async def act(replicas: Replicas) -> tuple[list[str], int, list[bool]]:
        got = await replicas.complete(BODY, 2)
        return texts(got), got[0].calls, healthy(replicas)

    silent, good = hung(), FakeUpstream(boxed)
    assert among(act, silent, good, timeout=0.4) == ([SAID] * 2, 2, [False, True])
    assert (silent.aborted, len(good.calls)) == (1, 1)


def test_what_might_be_done_twice_is_sent_to_one_replica_only() -> None:
    assert not ProxiedRequest("POST", "/files", {}, b"").repeatable
    assert ProxiedRequest("POST", "/completions?x=1", {}, b"").repeatable
    assert ProxiedRequest("GET", "/files/1", {}, None).repeatable


def test_only_the_samples_that_failed_are_asked_of_the_next_replica() -> None:
    faults = [None, Fault.status(503), None, Fault("reset")]
    one = FakeUpstream(boxed, honours_n=False, faults=faults)
    other = FakeUpstream(boxed)
    got = among(lambda replicas: replicas.complete({**BODY, "seed": 5}, 4), one, other, tries=1)
    assert [(each.error, each.seed) for each in got] == [(None, 5 + i) for i in range(4)]
    assert (len(one.calls), len(other.calls)) == (4, 2)
    assert sum(response.calls for response in got) == 6


def test_a_refusal_by_the_next_replica_does_not_lose_what_has_come() -> None:
    one = FakeUpstream(boxed, honours_n=False, faults=[None, Fault.status(503)])
    other = FakeUpstream(boxed, faults=[Fault.status(401)])
    got = among(lambda replicas: replicas.complete(BODY, 3), one, other, tries=1)
    assert sorted(response.error is None for response in got) == [False, True, True]


def test_a_mute_server_is_left_by_an_only_client_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aera.sampling.replicas.UNHEARD", 0.5)
    monkeypatch.setattr("aera.sampling.replicas.CHECK_SECONDS", 0.2)
    dead_one, busy = FakeUpstream(boxed), FakeUpstream(boxed, delay=lambda call: 2.5)
    dead_one.mute = True
    got = among(lambda replicas: replicas.complete(BODY, 1), dead_one, FakeUpstream(boxed))
    assert got[0].error is None
    among(lambda replicas: replicas.complete(BODY, 1), busy, FakeUpstream(boxed))
    assert busy.aborted == 0, "one that only takes long answers a check"


def test_a_cool_down_is_doubled_ends_and_is_told_to_the_log_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(replicas: Replicas) -> list[list[int]]:
        orders, begun = [], time.monotonic()
        for later in (0.0, 11.0, 22.0, 35.0):
            monkeypatch.setattr("aera.sampling.replicas.time.monotonic", lambda: begun + later)  # noqa: B023
            orders.append([*map(replicas.servers.index, replicas.order())])
            await replicas.complete(BODY, 1)
        return orders

    faults = [Fault.status(503, "how many?")] * 2
    broken, good = FakeUpstream(boxed, faults=faults), FakeUpstream(boxed)
    assert among(act, broken, good, tries=1) == [[0, 1], [0, 1], [1, 0], [0, 1]]
    lines = [json.loads(record.message) for record in caplog.records]
    assert [(line["event"], line["why"]) for line in lines] == [
        ("replica cools down", "status 503"),
        ("replica cools down", "status 503"),
        ("replica returns", "it answered a call"),
    ]
    assert lines[0]["replica"].startswith("http://127.0.0.1:")
