import asyncio
import shutil
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fakes import FakeUpstream, Fault
from live import BODY, boxed, completion, seeds, serving, texts, upstream_of

from aera import Response
from aera.errors import UpstreamError, UsageError
from aera.sampling.client import Endpoint, Upstream

SEEDED = {**BODY, "seed": 100}


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance that never makes a retry wait."""
    monkeypatch.setattr("aera.sampling.client.random.uniform", lambda low, high: 0.0)


def asked(
    server: FakeUpstream, *blocks: int, body: dict[str, Any] = SEEDED, **endpoint: Any
) -> list[list[Response]]:
    """What a server gives for these blocks of one question, asked for one after the other."""

    async def scene() -> list[list[Response]]:
        start, made = 0, []
        async with server, upstream_of(server, **endpoint) as upstream:
            for n in blocks:
                made.append(await upstream.complete(body, n, start=start))
                start += n
        return made

    return asyncio.run(scene())


def shared(url: str, **endpoint: Any) -> Upstream:
    """An upstream as a gateway's clients share it."""
    return Upstream(Endpoint(url, **endpoint), shared=True)


def refused(server: FakeUpstream, n: int = 4, **endpoint: Any) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        asked(server, n, **endpoint)
    return caught.value


# --- n and seeds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("honours_n", [True, False])
def test_no_two_requests_cover_the_same_seed(honours_n: bool) -> None:
    server = FakeUpstream(boxed, honours_n=honours_n)
    blocks = asked(server, 4, 4, 8, 1)
    if not honours_n:
        assert [c.body.get("n") for c in server.calls] == [4, *[None] * 16]
    sent = seeds(server) if honours_n else [call.body["seed"] for call in server.calls]
    assert sorted(sent) == list(range(100, 117))
    assert [r.seed for block in blocks for r in block] == list(range(100, 117))


def test_a_server_that_refuses_n_is_asked_singly_from_then_on() -> None:
    bodies: list[dict[str, Any]] = []

    async def handle(request: web.Request) -> web.Response:
        bodies.append(body := await request.json())
        if "n" in body:
            return web.json_response({"error": {"message": "n must be 1"}}, status=400)
        return web.json_response(completion(f"sample {body['seed']}"))

    async def scene() -> list[Response]:
        async with serving(handle) as url, upstream_of(url) as upstream:
            first = await upstream.complete(SEEDED, 4)
            return [*first, *await upstream.complete(SEEDED, 4, start=4)]

    made = asyncio.run(scene())
    assert texts(made) == [f"sample {seed}" for seed in range(100, 108)]
    assert ["n" in body for body in bodies] == [True, *[False] * 8]
    assert sum(response.calls for response in made) == len(bodies)


def test_a_bad_request_is_not_taken_for_a_refusal_of_n() -> None:
    async def scene(server: FakeUpstream) -> int:
        async with server, upstream_of(server) as upstream:
            with pytest.raises(UpstreamError, match="too long"):
                await upstream.complete(SEEDED, 4)
            before = len(server.calls)
            assert len(await upstream.complete(SEEDED, 4)) == 4
            assert server.calls[-1].n == 4
            return before

    too_long = Fault.status(400, "too long")
    assert asyncio.run(scene(FakeUpstream(boxed, faults=[too_long, too_long]))) == 2


# --- what is sent ---------------------------------------------------------------------------------


def test_every_field_passes_through_unchanged() -> None:
    body = {
        **SEEDED,
        "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": [{"x": 1}]}],
        "temperature": 0.0,
        "stop": ["\n"],
        "tools": [{"type": "function"}],
        "logprobs": True,
        "chat_template_kwargs": {"enable_thinking": False},
        "ünknown": None,
    }
    server = FakeUpstream(boxed, honours_n=False)
    asked(server, 2, body=body)
    assert [dict(call.body) for call in server.calls] == [{**body, "n": 2}, {**body, "seed": 101}]


def test_the_key_of_the_environment_and_extra_headers_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", " secret\n")
    server = FakeUpstream(boxed)
    asked(server, 1, api_key_env="MY_KEY", headers={"X-Team": "votes"})
    assert server.calls[0].headers["Authorization"] == "Bearer secret"
    assert server.calls[0].headers["X-Team"] == "votes"


def test_no_variable_is_no_key_and_a_header_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    server = FakeUpstream(boxed)
    asked(server, 1, api_key_env=None)
    asked(server, 1, headers={"authorization": "Basic own"})
    shown = [
        call.headers.get("Authorization") or call.headers.get("authorization")
        for call in server.calls
    ]
    assert shown == [None, "Basic own"]
    assert "own" not in repr(
        Endpoint("http://localhost/v1", headers={"authorization": "Basic own"})
    )


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(completion(f"for {request.host}"))

    async def scene() -> list[Response]:
        async with serving(handle) as url:
            monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("NO_PROXY", raising=False)
            async with upstream_of("http://model.invalid/v1", tries=1) as upstream:
                return await upstream.complete(BODY, 1)

    assert texts(asyncio.run(scene())) == ["for model.invalid"]


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-made certificate for 127.0.0.1, and its key."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("there is no openssl here")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = [*f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test".split()]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    return cert, key


@pytest.mark.parametrize("trusted", [True, False])
def test_a_self_made_certificate_is_accepted_through_the_ca_file_only(
    certificate: tuple[Path, Path], trusted: bool
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    ca_file = str(certificate[0]) if trusted else None

    async def handle(request: web.Request) -> web.Response:
        return web.json_response(completion("hello"))

    async def scene() -> Response:
        async with (
            serving(handle, ssl_context=context) as url,
            upstream_of(url, ca_file=ca_file, tries=1) as upstream,
        ):
            return (await upstream.complete(BODY, 1))[0]

    made = asyncio.run(scene())
    assert (made.text == "hello") is trusted
    assert (made.error is None) is trusted


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault.status(500), "upstream 500 planned_500: planned"),
        (Fault.html(), "not JSON"),
        (Fault.hang(60), "no reply within"),
        (Fault.reset(), "the connection failed: the server closed it"),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_some_failing_samples_are_records_with_an_error(fault: Fault, told: str) -> None:
    server = FakeUpstream(boxed, faults=[None, fault, None, fault], honours_n=False)
    [block] = asked(server, 6, tries=1, timeout=1.0)
    failed = [response for response in block if response.error is not None]
    assert len(block) == 6
    assert [told in str(response.error) for response in failed] == [True, True]
    assert {r.text for r in block if r.error is None} == {"so it is \\boxed{7}"}
    assert sum(response.calls for response in block) == len(server.calls) == 6


@pytest.mark.parametrize("code", [500, 502, 503, 504, 408, 429])
def test_a_passing_failure_is_tried_again(code: int) -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(code)] * 2)
    [block] = asked(server, 4, tries=3)
    assert [response.error for response in block] == [None] * 4
    assert (len(server.calls), block[0].calls) == (3, 3)


def test_a_server_that_is_not_there_is_an_error_after_its_tries() -> None:
    async def scene() -> list[Response]:
        async with upstream_of("http://127.0.0.1:9/v1", tries=2) as upstream:
            return await upstream.complete(BODY, 2)

    made = asyncio.run(scene())
    told = "upstream: the connection failed: connection refused"
    assert [(r.error, r.calls) for r in made] == [(told, 2), (told, 0)]
    assert isinstance(made[0].source, UpstreamError)
    assert "127.0.0.1:9" in str(made[0].source.detail), "for the log only"


@pytest.mark.parametrize("code", [401, 403, 404])
def test_a_refusal_is_one_call_and_keeps_what_was_said(code: int) -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(code, "no such luck")] * 50)
    error = refused(server)
    assert len(server.calls) == error.calls == 1
    assert (error.status, error.kind, error.code) == (code, f"planned_{code}", code)
    assert error.message == "no such luck"
    assert str(error) == f"upstream {code} planned_{code}: no such luck"
    body: Any = error.body
    assert body["error"]["param"] is None


def test_a_refusal_does_not_lose_what_has_come_before() -> None:
    faults = [None, None, Fault.hang(60), Fault.status(401, "revoked")]
    server = FakeUpstream(boxed, honours_n=False, faults=faults)
    [block] = asked(server, 4)
    assert sorted(response.error or "" for response in block) == [
        *[""] * 2,
        *["upstream 401 planned_401: revoked"] * 2,
    ]
    failed = [response for response in block if response.error]
    assert all(isinstance(response.source, UpstreamError) for response in failed)
    assert server.aborted == 1


def test_a_refusal_of_the_rest_does_not_lose_a_reply_that_fell_short() -> None:
    server = FakeUpstream(boxed, faults=[None, Fault.short(2), Fault.status(401, "revoked")])
    _, block = asked(server, 4, 4)
    assert [response.error is None for response in block] == [True, True, False, False]
    assert [response.calls for response in block] == [1, 0, 1, 0]


# --- time -----------------------------------------------------------------------------------------


def retried_after(header: str | None, **endpoint: Any) -> tuple[list[float], Response, float]:
    """When a server was called that refuses the first call so, what came of it, and how long."""
    arrivals: list[float] = []

    async def handle(request: web.Request) -> web.Response:
        arrivals.append(time.time())
        if len(arrivals) > 1:
            return web.json_response(completion("hello"))
        headers = {"Retry-After": header} if header else {}
        body = {"error": {"message": "slow down", "type": "rate"}}
        return web.json_response(body, status=429, headers=headers)

    async def scene() -> tuple[list[float], Response, float]:
        async with serving(handle) as url, upstream_of(url, **endpoint) as upstream:
            begun = time.monotonic()
            [made] = await upstream.complete(BODY, 1)
            return arrivals, made, time.monotonic() - begun

    return asyncio.run(scene())


def test_retry_after_in_seconds_is_honoured() -> None:
    arrivals, made, _ = retried_after("0.7")
    assert (made.text, made.calls) == ("hello", 2)
    assert 0.7 <= arrivals[1] - arrivals[0] < 2


def test_a_deadline_of_the_caller_cuts_the_timeout_short() -> None:
    async def scene(server: FakeUpstream) -> list[Response]:
        async with server, upstream_of(server) as upstream:
            return await upstream.complete(BODY, 2, deadline=time.monotonic() + 0.3)

    begun = time.monotonic()
    made = asyncio.run(scene(FakeUpstream(boxed, faults=[Fault.hang(60)])))
    assert ["no reply within 0.3 s" in str(response.error) for response in made] == [True, True]
    assert time.monotonic() - begun < 3


def test_nothing_is_asked_after_the_deadline() -> None:
    async def scene(server: FakeUpstream) -> list[Response]:
        async with server, upstream_of(server) as upstream:
            return await upstream.complete(BODY, 2, deadline=time.monotonic() - 1)

    server = FakeUpstream(boxed)
    assert [(r.error is None, r.calls) for r in asyncio.run(scene(server))] == [(False, 0)] * 2
    assert server.calls == []


def test_waiting_for_a_permit_ends_at_the_deadline() -> None:
    async def scene(server: FakeUpstream) -> tuple[Response, int]:
        async with server, upstream_of(server, concurrency=1) as upstream:
            slow = asyncio.create_task(upstream.complete(BODY, 1))
            await asyncio.sleep(0.1)
            [made] = await upstream.complete(BODY, 1, deadline=time.monotonic() + 0.2)
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            return made, upstream.permits.active

    begun = time.monotonic()
    made, active = asyncio.run(scene(FakeUpstream(boxed, faults=[Fault.hang(60)])))
    assert (made.error is None, made.calls, active) == (False, 0, 0)
    assert time.monotonic() - begun < 3


# --- concurrency ----------------------------------------------------------------------------------


def test_a_model_that_is_refused_for_overload_does_not_slow_down_the_others() -> None:
    now = most = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal now, most
        if (await request.json())["model"] == "busy":
            return web.json_response(Fault.status(429).body, status=429)
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.2)
        now -= 1
        return web.json_response(completion("hello"))

    async def scene() -> list[list[Response]]:
        async with serving(handle) as url, shared(url, tries=3) as upstream:
            busy = {**BODY, "model": "busy"}
            await asyncio.gather(*(upstream.complete(busy, 1) for _ in range(20)))
            return await asyncio.gather(*(upstream.complete(BODY, 1) for _ in range(60)))

    assert not any(response.error for [response] in asyncio.run(scene()))
    assert most == 60


@pytest.mark.parametrize("honours_n", [True, False])
def test_cancelled_work_closes_its_connections_promptly(honours_n: bool) -> None:
    faults = [None, *[Fault.hang(60)] * 8][honours_n:]
    server = FakeUpstream(boxed, honours_n=honours_n, faults=faults)
    assert asyncio.run(cancelled_after(server, active=1 if honours_n else 7)) < 1


async def cancelled_after(server: FakeUpstream, active: int) -> float:
    """Seconds until the server has seen the last of so many calls break off."""
    async with server, upstream_of(server) as upstream:
        work = asyncio.create_task(upstream.complete(SEEDED, 8))
        while server.active < active:
            await asyncio.sleep(0.002)
        work.cancel()
        cancelled = time.monotonic()
        while server.aborted < active and time.monotonic() - cancelled < 5:
            await asyncio.sleep(0.002)
        assert upstream.permits.active == 0
        return time.monotonic() - cancelled


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "localhost"},
        {"concurrency": 0},
        {"tries": 0},
        {"attempt_timeout": 0.0},
        {"largest_reply": 0},
    ],
)
def test_an_impossible_endpoint_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Endpoint(**{"base_url": "http://localhost/v1", **wrong})
