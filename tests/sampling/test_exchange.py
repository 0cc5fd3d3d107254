"""Exchanges with servers that misbehave: redirects, endless replies, errors in disguise."""

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from live import BODY, Handler, completion, serving, texts, upstream_of

from aera import Response
from aera.errors import UpstreamError
from aera.sampling.client import Endpoint
from aera.sampling.replicas import Replicas


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance that never makes a retry wait."""
    monkeypatch.setattr("aera.sampling.client.random.uniform", lambda low, high: 0.0)


def asked(handle: Handler, n: int = 1, **endpoint: Any) -> list[Response]:
    """What comes of asking a server of one's own."""

    async def scene() -> list[Response]:
        async with serving(handle) as url, upstream_of(url, **endpoint) as upstream:
            return await upstream.complete(BODY, n)

    return asyncio.run(scene())


def counted(make: Callable[[], web.Response]) -> tuple[Handler, list[int]]:
    """A handler that always answers so, and the calls it has seen."""
    calls: list[int] = []

    async def handle(request: web.Request) -> web.Response:
        calls.append(len(calls))
        return make()

    return handle, calls


# --- redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_and_names_where_to_without_secrets(status: int) -> None:
    seen: list[web.Request] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append(request)
        return web.json_response(completion("stolen"))

    async def scene() -> None:
        async with serving(elsewhere) as other:
            named = other.replace("http://", "http://user:secret@")
            secret = f"{named}/chat/completions?token=secret"
            headers = {"Location": secret}

            async def handle(request: web.Request) -> web.Response:
                return web.Response(status=status, headers=headers)

            async with serving(handle) as url, upstream_of(url) as upstream:
                with pytest.raises(UpstreamError) as caught:
                    await upstream.complete(BODY, 2)
            text = str(caught.value)
            assert f"redirects to {other.removesuffix('/v1')}, which is not followed" in text
            assert "secret" not in text + str(caught.value.detail)
            assert (caught.value.status, caught.value.calls) == (status, 1)

    asyncio.run(scene())
    assert not seen


def test_clients_of_a_shared_server_are_not_told_where_it_redirects_to() -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "https://inside.example:9/v1"})

    async def scene() -> UpstreamError:
        async with serving(handle) as url, Replicas([Endpoint(url, None)]) as replicas:
            with pytest.raises(UpstreamError) as caught:
                await replicas.complete(BODY, 1)
            return caught.value

    error = asyncio.run(scene())
    assert "inside.example" not in f"{error} {error.message}"
    assert error.detail == "redirected to https://inside.example:9"


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("squeezed", [False, True])
def test_a_reply_that_is_too_large_is_one_call_and_one_sentence(squeezed: bool) -> None:
    content = b'{"choices": [' + b" " * 3_000_000 + b"]}"
    headers = {"Content-Encoding": "gzip"} if squeezed else {}
    body = gzip.compress(content) if squeezed else content
    handle, calls = counted(lambda: web.Response(body=body, headers=headers))
    with pytest.raises(UpstreamError, match="the reply is larger than 1000000 bytes") as caught:
        asked(handle, largest_reply=1_000_000)
    assert (len(calls), caught.value.retryable) == (1, False)


def test_a_reply_without_end_is_not_read_to_the_end() -> None:
    sent = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        reply = web.StreamResponse()
        await reply.prepare(request)
        while True:
            await reply.write(b" " * 2**16)
            sent += 2**16

    with pytest.raises(UpstreamError, match="larger than"):
        asked(handle, largest_reply=2**20)
    assert sent < 32 * 2**20


def test_a_refusal_with_a_large_page_is_still_that_refusal() -> None:
    page = b"<html>maintenance" + b" " * 3_000_000
    handle, calls = counted(lambda: web.Response(body=page, status=503))
    [response] = asked(handle, tries=2, largest_reply=1_000_000)
    assert "upstream 503: <html>maintenance" in str(response.error)
    assert len(calls) == 2


def test_a_large_reply_within_the_limit_is_read_whole() -> None:
    text = "x" * 3_000_000
    handle, _ = counted(lambda: web.json_response(completion(text)))
    assert texts(asked(handle)) == [text]


# --- statuses -------------------------------------------------------------------------------------


def test_any_good_status_is_a_success() -> None:
    handle, calls = counted(lambda: web.json_response(completion("made"), status=201))
    assert (texts(asked(handle)), len(calls)) == (["made"], 1)


@pytest.mark.parametrize(
    ("said", "status", "told"),
    [
        ({"message": "no credit", "code": 402}, 402, "no credit"),
        ({"message": "no credit", "code": "403", "type": "billing"}, 403, "no credit"),
        ({"message": "busy", "code": "overloaded"}, 502, "busy"),
        ("flat", 502, "flat"),
        ({"message": {"a": 1}, "code": True, "type": ["x"]}, 502, "no message"),
    ],
)
def test_an_error_with_a_good_status_is_the_servers_own_error(
    said: Any, status: int, told: str
) -> None:
    handle, calls = counted(lambda: web.json_response({"error": said}))
    if status < 500:
        with pytest.raises(UpstreamError) as caught:
            asked(handle, tries=2)
        error: Any = caught.value
    else:
        [response] = asked(handle, tries=2)
        error = response.source
    assert (error.status, error.message, error.body) == (status, told, {"error": said})
    assert len(calls) == (1 if status < 500 else 2)


def test_no_message_names_host_or_port() -> None:
    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def scene() -> list[str]:
        told = []
        async with serving(handle) as url:
            port = url.split(":")[2].removesuffix("/v1")
            for place in (url, "http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"):
                async with upstream_of(place, tries=1) as upstream:
                    told += [str(r.error) for r in await upstream.complete(BODY, 1)]
            assert not any(port in each for each in told)
        return told

    told = asyncio.run(scene())
    assert told[1:] == [
        "upstream: the connection failed: connection refused",
        "upstream: the connection failed: its name could not be resolved",
    ]
    assert "127.0.0.1" not in told[0]


def test_what_a_server_stores_is_not_sent_back() -> None:
    cookies: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        cookies.append(dict(request.cookies))
        reply = web.json_response(completion("hello"))
        reply.set_cookie("session", "first-client")
        return reply

    async def scene() -> None:
        async with serving(handle) as url:
            named = url.replace("127.0.0.1", "localhost")  # aiohttp stores none for addresses
            async with upstream_of(named) as upstream:
                await upstream.complete(BODY, 1)
                await upstream.complete(BODY, 1)

    asyncio.run(scene())
    assert cookies == [{}, {}]
