"""Several upstreams of one model: who is asked, who rests."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from fakes import FakeUpstream, Fault
from gateways import started
from live import BODY, boxed, texts

from aera.errors import UpstreamError
from aera.sampling.replicas import ProxiedRequest, Replicas
from aera.sampling.upstream import Endpoint

Seen = TypeVar("Seen")
LIST = ProxiedRequest("GET", "/models?limit=1", {}, None)


def dead() -> str:
    """The address of nobody."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def among(
    act: Callable[[Replicas], Awaitable[Seen]], *servers: FakeUpstream | str, **endpoint: Any
) -> Seen:
    """What comes of acting on replicas at these servers."""

    async def scene() -> Seen:
        async with AsyncExitStack() as stack:
            urls = await started(stack, *servers)
            endpoints = [Endpoint(url, "NO_KEY", **endpoint) for url in urls]
            return await act(await stack.enter_async_context(Replicas(endpoints)))

    return asyncio.run(scene())


def test_the_least_busy_replica_is_asked() -> None:
    async def act(replicas: Replicas) -> None:
        slow = asyncio.create_task(replicas.complete(BODY, 4))
        await asyncio.sleep(0.05)
        await replicas.complete(BODY, 4)
        await slow

    one, other = (FakeUpstream(boxed, delay=lambda call: 0.1) for _ in range(2))
    among(act, one, other)
    assert (len(one.calls), len(other.calls)) == (1, 1)


def test_a_dead_replica_is_left_at_once_and_rests() -> None:
    async def act(replicas: Replicas) -> tuple[float, list[bool]]:
        begun = time.monotonic()
        for _ in range(3):
            assert texts(await replicas.complete(BODY, 2)) == [boxed(None, 0)] * 2  # type: ignore[arg-type]
        return time.monotonic() - begun, replicas.healthy

    took, healthy = among(act, dead(), FakeUpstream(boxed))
    assert healthy == [False, True]
    assert took < 0.2  # no retries against a closed port when there is somebody else


def test_a_broken_replica_is_left_after_its_retries() -> None:
    broken, good = FakeUpstream(boxed, faults=[Fault.status(503)] * 9), FakeUpstream(boxed)
    got = among(lambda replicas: replicas.complete(BODY, 2), broken, good, tries=1)
    assert all(response.error is None for response in got)
    assert len(good.calls) == 1


def test_nobody_there_is_an_error_without_a_status() -> None:
    got = among(lambda replicas: replicas.complete(BODY, 2), dead(), dead())
    sources = [response.source for response in got]
    assert all(isinstance(source, UpstreamError) for source in sources)
    assert [getattr(source, "status", 0) for source in sources] == [None, None]
    assert got[0].error == "upstream: the connection failed: connection refused"
    assert [response.calls for response in got] == [2, 0]


def test_a_refusal_is_not_taken_to_the_next_replica() -> None:
    other = FakeUpstream(boxed)
    refusing = FakeUpstream(boxed, faults=[Fault.status(401)] * 9)
    with pytest.raises(UpstreamError, match="401"):
        among(lambda replicas: replicas.complete(BODY, 2), refusing, other)
    assert not other.calls


def test_an_impatient_client_does_not_put_a_replica_to_rest() -> None:
    async def act(replicas: Replicas) -> list[bool]:
        got = await replicas.complete(BODY, 2, deadline=time.monotonic() + 0.05)
        assert all(response.error for response in got)
        return replicas.healthy

    slow = [FakeUpstream(boxed, delay=lambda call: 0.5) for _ in range(2)]
    assert among(act, *slow) == [True, True]
    assert sum(len(server.calls) for server in slow) == 1


def test_a_rest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(replicas: Replicas) -> list[bool]:
        replicas.rest(0)
        return replicas.healthy

    monkeypatch.setattr("aera.sampling.health.REST", 0.0)
    assert among(act, dead()) == [True]


def test_a_request_is_passed_to_a_replica_that_lives() -> None:
    async def act(replicas: Replicas) -> tuple[int, list[int], list[int]]:
        reply, place = await replicas.send(LIST)
        busy = replicas.busy
        reply.close()
        replicas.release(place)
        return place, busy, replicas.busy

    assert among(act, dead(), FakeUpstream(boxed)) == (1, [0, 1], [0, 0])


def test_a_request_that_nobody_takes_is_a_bad_gateway() -> None:
    with pytest.raises(UpstreamError, match="cannot be reached") as caught:
        among(lambda replicas: replicas.send(LIST), dead(), dead())
    assert caught.value.status == 502


def test_a_check_tells_of_every_replica() -> None:
    checked = among(lambda replicas: replicas.check(), FakeUpstream(boxed), dead())
    well = {"answers": True, "refused": False, "status": 200, "resting": False, "active": 0}
    ill = {"answers": False, "refused": False, "status": None, "resting": True, "active": 0}
    assert checked == [well, ill]


def test_one_clients_unknown_model_is_not_held_against_the_others() -> None:
    async def act(replicas: Replicas) -> Any:
        wrong = asyncio.create_task(replicas.complete({**BODY, "model": "wrong"}, 1))
        await asyncio.sleep(0.02)
        right = asyncio.create_task(replicas.complete(BODY, 1))  # waits for the only permit
        return await asyncio.gather(wrong, right, return_exceptions=True)

    server = FakeUpstream(boxed, faults=[Fault.status(404)], delay=lambda call: 0.1)
    wrong, right = among(act, server, concurrency=1)
    assert isinstance(wrong, UpstreamError)
    assert right[0].error is None
