"""What is remembered of a server, of which requests and for how long; which logprobs it gives."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from fakes import FakeUpstream, Fault
from live import BODY, boxed, completion, serving, upstream_of

from aera import Response
from aera.errors import UpstreamError
from aera.sampling.client import Upstream

OTHER = {**BODY, "model": "other"}


def wants(server: FakeUpstream) -> list[int]:
    """How many choices each call asked for."""
    return [call.n for call in server.calls]


def asked(server: FakeUpstream, *asks: tuple[dict[str, Any], int]) -> list[list[Response]]:
    async def scene() -> list[list[Response]]:
        async with server, upstream_of(server, tries=1) as upstream:
            return [await upstream.complete(body, n) for body, n in asks]

    return asyncio.run(scene())


# --- n --------------------------------------------------------------------------------------------


def test_one_short_reply_of_a_server_that_takes_n_is_an_accident() -> None:
    server = FakeUpstream(boxed, faults=[None, Fault.short(1)])
    blocks = asked(server, (BODY, 8), (BODY, 8), (BODY, 8))
    assert [len(block) for block in blocks] == [8, 8, 8]
    assert wants(server) == [8, 8, 7, 8]


def test_two_short_replies_in_a_row_are_a_habit() -> None:
    server = FakeUpstream(boxed, faults=[None, Fault.short(2), Fault.short(2)])
    blocks = asked(server, (BODY, 4), (BODY, 6), (BODY, 3))
    assert [len(block) for block in blocks] == [4, 6, 3]
    assert wants(server) == [4, 6, 4, 1, 1, 1, 1, 1]


def test_a_model_that_does_not_take_n_leaves_the_others_alone() -> None:
    server = FakeUpstream(boxed, faults=[Fault.short(1)])
    asked(server, (BODY, 4), (OTHER, 4), (BODY, 2))
    assert wants(server) == [4, 1, 1, 1, 4, 1, 1]


def test_a_greedy_request_that_is_refused_n_leaves_the_others_alone() -> None:
    bodies: list[dict[str, Any]] = []

    async def handle(request: web.Request) -> web.Response:
        bodies.append(body := await request.json())
        n = body.get("n", 1)
        if n > 1 and body["temperature"] < 1e-5:
            return web.json_response({"error": {"message": "n must be 1"}}, status=400)
        return web.json_response(completion(*["hello"] * n))

    async def scene() -> None:
        async with serving(handle) as url, upstream_of(url) as upstream:
            for heat in (1e-6, 0.7, 1e-6):
                assert len(await upstream.complete({**BODY, "temperature": heat}, 3)) == 3

    asyncio.run(scene())
    assert [body.get("n", 1) for body in bodies] == [3, 1, 1, 1, 3, 1, 1, 1]


def test_a_server_that_did_not_take_n_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(server: FakeUpstream) -> list[bool]:
        async with server, upstream_of(server) as upstream:
            await upstream.complete(BODY, 3)
            seen = [upstream.ignores_n]
            await asyncio.sleep(0.1)
            await upstream.complete(BODY, 3)
            return [*seen, upstream.ignores_n]

    monkeypatch.setattr("aera.sampling.client.N_REMEMBERED", 0.05)
    server = FakeUpstream(boxed, faults=[Fault.short(1)])
    assert asyncio.run(scene(server)) == [True, False]
    assert wants(server) == [3, 1, 1, 3]


# --- refusals -------------------------------------------------------------------------------------


def only(model: str | None = None, key: str | None = None) -> FakeUpstream:
    """A slow server that refuses every other model or key."""

    class Choosy(FakeUpstream):
        async def _reply(self, request: web.Request, call: Any, fault: Any) -> web.StreamResponse:
            allowed = model in (None, call.body["model"])
            allowed = allowed and key in (None, request.headers.get("Authorization"))
            if not allowed:
                await asyncio.sleep(0.05)
            return await super()._reply(
                request, call, fault if allowed else Fault.status(401, "not for you")
            )

    return Choosy(boxed, delay=lambda call: 0.1)


async def outcomes(upstream: Upstream, *asks: tuple[dict[str, Any], dict[str, str]]) -> list[str]:
    """What came of requests that are made together: a status, or "good"."""
    calls = [upstream.complete(body, 1, headers=headers) for body, headers in asks]
    got = await asyncio.gather(*calls, return_exceptions=True)
    return [str(each.status) if isinstance(each, UpstreamError) else "good" for each in got]


def test_a_model_that_is_refused_to_one_does_not_fail_those_who_wait_for_another() -> None:
    async def scene(server: FakeUpstream) -> list[str]:
        async with server:
            upstream = Upstream(upstream_of(server, concurrency=4).endpoint, shared=True)
            async with upstream:
                bodies = [*[BODY] * 16, OTHER, *[BODY] * 20]
                return await outcomes(upstream, *((body, {}) for body in bodies))

    assert asyncio.run(scene(only(model="m"))) == [*["good"] * 16, "401", *["good"] * 20]


def test_a_key_that_is_refused_does_not_fail_those_with_another() -> None:
    async def scene(server: FakeUpstream) -> list[str]:
        async with server, upstream_of(server, concurrency=1) as upstream:
            good, bad = ({"Authorization": f"Bearer {name}"} for name in ("good", "bad"))
            return await outcomes(upstream, (BODY, bad), (BODY, good), (BODY, bad), (BODY, good))

    server = only(key="Bearer good")
    assert asyncio.run(scene(server)) == ["401", "good", "401", "good"]
    assert len(server.calls) == 3, "who waits with the same key is not refused a second time"


def test_a_refusal_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(server: FakeUpstream) -> list[str]:
        async with server, upstream_of(server, concurrency=1) as upstream:
            return await outcomes(upstream, *[(OTHER, {})] * 3)

    monkeypatch.setattr("aera.sampling.client.REFUSAL_REMEMBERED", 0.0)
    server = only(model="m")
    assert asyncio.run(scene(server)) == ["401"] * 3
    assert len(server.calls) == 3
