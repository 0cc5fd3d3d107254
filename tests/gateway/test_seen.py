"""The gateway as operators see it: traces, ids, models, gauges and the health check."""

import asyncio
import json
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fakes import FakeUpstream, Fault, in_background
from gateways import (
    BODY,
    House,
    free_port,
    gateway,
    lines_of,
    numbers,
    proxied,
    served,
    values_of,
    visit,
)
from live import boxed

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
TRACED = {"traceparent": PARENT, "tracestate": "a=1,b=2", "x-request-id": "client-7"}
AT_ONCE = {**BODY, "aera": {"policy": "fixed-8"}}


def lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


# --- headers that go along ------------------------------------------------------------------------


def test_every_sample_carries_the_trace_and_the_headers_the_operator_named() -> None:
    server = FakeUpstream(boxed, honours_n=False)
    secret = {"Authorization": "Bearer mine", "Cookie": "a=b", "X-Other": "1"}
    given = {**TRACED, **secret, "X-Team": "blue", "x-aera-min-samples": "4"}
    _, headers, _ = visit(
        lambda house: house.post(BODY, headers=given), server, keep_headers=("X-Team",)
    )
    assert headers["x-request-id"] == "client-7"
    assert len(server.calls) >= 4
    for call in server.calls:
        seen = lower(call.headers)
        assert {**TRACED, "x-team": "blue"}.items() <= seen.items()
        assert not {"authorization", "cookie", "x-other", "x-aera-min-samples"} & seen.keys()


def test_without_an_id_of_the_client_samples_carry_the_replys() -> None:
    server = FakeUpstream(boxed, honours_n=False)
    _, headers, _ = visit(lambda house: house.post(BODY), server)
    assert {lower(call.headers)["x-request-id"] for call in server.calls} == {
        headers["x-request-id"]
    }
    assert "traceparent" not in lower(server.calls[0].headers)


@pytest.mark.parametrize("given", ["ü", "x" * 129, "a\tb"])
def test_an_id_that_cannot_stand_in_every_log_is_replaced(given: str) -> None:
    server = FakeUpstream(boxed)
    sent = {"x-request-id": given}
    _, headers, _ = visit(lambda house: house.post(BODY, headers=sent), server)
    assert re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])
    assert lower(server.calls[0].headers)["x-request-id"] == headers["x-request-id"]


def test_configured_headers_win_and_those_of_one_connection_stay() -> None:
    server, kept = FakeUpstream(boxed), ("x-team", "x-hop")
    given = {"X-Team": "theirs", "Connection": "keep-alive, X-Hop", "X-Hop": "1"}
    serving = {"headers": {"X-Team": "ours"}, "keep_headers": kept}
    visit(lambda house: house.post(BODY, headers=given), server, **serving)
    seen = lower(server.calls[0].headers)
    assert seen["x-team"] == "ours"
    assert "x-hop" not in seen


def test_the_second_model_gets_the_trace_and_nothing_else_of_the_client() -> None:
    second = FakeUpstream(boxed)
    given = {**TRACED, "X-Team": "blue"}
    serving = {"second": (second, "big"), "keep_headers": ("x-team",)}
    split = numbers(*map(str, range(200)))
    visit(lambda house: house.post(BODY, headers=given), split, **serving)
    assert len(split.calls) > 1
    [call] = second.calls
    assert TRACED.items() <= lower(call.headers).items()
    assert "x-team" not in lower(call.headers)


# --- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_the_log_has_id_trace_key_and_model(caplog: pytest.LogCaptureFixture, model: str) -> None:
    given = {**TRACED, "Authorization": "Bearer the-key-of-somebody"}
    body, keys = {**BODY, "model": model}, ("the-key-of-somebody",)
    with caplog.at_level(logging.INFO, "aera.gateway"):
        visit(lambda house: house.post(body, headers=given), FakeUpstream(boxed), keys=keys)
    [line] = lines_of(caplog)
    key = sha256(keys[0].encode()).hexdigest()[:8]
    assert {"id": "client-7", "trace": TRACE, "key": key, "model": "m"}.items() <= line.items()
    assert line["ms"] > 0
    if model == "aera/m":
        assert (line["samples"], line["stop-reason"]) == ("4", "lead")
    assert keys[0] not in caplog.text


def test_the_clients_id_stands_before_an_upstreams_which_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="x", headers={"x-request-id": "theirs"})

    sent = {"x-request-id": "client-7"}
    with caplog.at_level(logging.INFO, "aera.gateway"):
        (_, headers, _), _ = proxied(lambda house: house.fetch("/v1/x", headers=sent), handler)
    assert headers.getall("x-request-id") == ["client-7"]
    [line] = lines_of(caplog)
    assert (line["id"], line["upstream_id"]) == ("client-7", "theirs")


# --- metrics by model and key ---------------------------------------------------------------------


def test_models_that_answered_are_labels_and_made_up_ones_are_not() -> None:
    async def act(house: House) -> str:
        key = {"Authorization": "Bearer k"}
        for model in ("aera/big", "big", "small"):
            await house.post({**BODY, "model": model}, headers=key)
        await house.post({**BODY, "model": "made-up"}, headers=key)
        return (await house.get("/metrics"))[1]

    async def handler(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        if body["model"] == "made-up":
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        message = {"message": {"content": "\\boxed{7}"}}
        return web.json_response({"choices": [message] * body.get("n", 1)})

    seen = values_of(proxied(act, handler, keys=("k",))[0])
    assert seen["aera_requests_total", "big", "chat", "200"] == 2
    assert seen["aera_requests_total", "small", "chat", "200"] == 1
    assert seen["aera_requests_total", "other", "chat", "404"] == 1
    key = sha256(b"k").hexdigest()[:8]
    assert seen["aera_key_requests_total", key, "big"] == 2
    assert seen["aera_key_tokens_total", key, "big"] == (
        seen["aera_tokens_total", "completion", "big"] + seen["aera_tokens_total", "prompt", "big"]
    )
    assert seen["aera_stops_total", "big", "lead"] == 1


# --- gauges ---------------------------------------------------------------------------------------


def test_gauges_show_what_is_under_way_and_waits_at_each_replica() -> None:
    server, dead = FakeUpstream(boxed, honours_n=False), "http://user:word@127.0.0.1:1/v1"

    async def act(house: House) -> tuple[Any, Any]:
        await house.post(BODY)  # by which it is known that `n` is not taken, and who is dead
        server.mute = True
        asking = asyncio.create_task(house.post(AT_ONCE))
        async with asyncio.timeout(5):
            while server.active < 3:
                await asyncio.sleep(0.005)
        during = (await house.get("/metrics"))[1]
        server.mute = False
        await asking
        return during, (await house.get("/metrics"))[1]

    during, after = visit(act, dead, server, concurrency=3)
    seen = values_of(during)
    alive, gone = (server.base_url.removesuffix("/v1"), "m"), ("http://127.0.0.1:1", "m")
    assert [key[1:] for key in seen if key[0] == "aera_upstream_up"] == [gone, alive]
    assert seen["aera_upstream_inflight", *alive] == 3
    assert seen["aera_upstream_waiting", *alive] == 5
    assert seen["aera_upstream_permits", *alive] == 3
    assert (seen["aera_upstream_up", *alive], seen["aera_upstream_up", *gone]) == (1, 0)
    assert seen["aera_active_requests",] == 1
    rest = values_of(after)
    assert rest["aera_upstream_inflight", *alive] == rest["aera_upstream_waiting", *alive] == 0
    assert rest["aera_active_requests",] == 0
    assert "word" not in during


def test_a_server_that_says_too_many_is_seen_to_be_allowed_less() -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(429)])

    async def act(house: House) -> str:
        await house.post(BODY)
        return (await house.get("/metrics"))[1]

    seen = values_of(visit(act, server, concurrency=8))
    assert seen["aera_upstream_permits", server.base_url.removesuffix("/v1"), "m"] == 4


def test_the_same_address_twice_is_two_replicas() -> None:
    server = FakeUpstream(boxed)

    async def scene() -> str:
        async with server, gateway(server.base_url, server.base_url) as house:
            return (await house.get("/metrics"))[1]

    metrics = asyncio.run(scene())
    origin = server.base_url.removesuffix("/v1")
    ups = [key[1] for key in values_of(metrics) if key[0] == "aera_upstream_up"]
    assert ups == [origin, f"{origin}#2"]


# --- the name it is called by ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def process() -> Iterator[int]:
    """A gateway as it starts by default."""
    port, server = free_port(), FakeUpstream(boxed)
    with in_background(server), served(port, AERA_UPSTREAM=server.base_url):
        yield port


def talk(port: int, request: str) -> tuple[int, str]:
    """What comes back for these bytes: the status, and all of it."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(request.encode())
        content = b""
        while piece := line.recv(65_536):
            content += piece
    text = content.decode()
    return int(text.split()[1]), text


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        ("GET /v1/models HTTP/1.1\r\nHost: [::1]:8001", {200}),
        ("GET /v1/models HTTP/1.1\r\nHost: localhost.", {200}),
        ("GET /v1/models HTTP/1.1\r\nX: y", {400, 421}),
        ("GET /v1/models HTTP/1.0", {421}),
        ("GET http://localhost/v1/models HTTP/1.1\r\nHost: evil.test", {421}),
        ("GET http://evil.test/v1/models HTTP/1.1\r\nHost: evil.test", {421}),
    ],
)
def test_the_host_of_raw_requests(process: int, head: str, statuses: set[int]) -> None:
    status, text = talk(process, f"{head}\r\nConnection: close\r\n\r\n")
    assert status in statuses
    assert "127.0.0.1" not in text


# --- the container --------------------------------------------------------------------------------


def health_check() -> list[str]:
    """The command of the container's health check."""
    text = (Path(__file__).parents[2] / "Dockerfile").read_text("utf-8").replace("\\\n", "")
    [line] = re.findall(r"^HEALTHCHECK .*?CMD (python .*)$", text, re.MULTILINE)
    _, *rest = shlex.split(line)
    return [sys.executable, *rest]


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "::"])
def test_the_containers_health_check_follows_host_and_port(process: int, host: str) -> None:
    proxy = {"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    where = {**os.environ, **proxy, "AERA_HOST": host}
    checks = [
        subprocess.run(
            health_check(), env={**where, "AERA_PORT": str(port)}, capture_output=True, check=False
        )
        for port in (process, free_port())
    ]
    assert [check.returncode for check in checks] == [0, 1]


# --- what an upstream may say ---------------------------------------------------------------------


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_numbers_beyond_all_bounds_are_not_sent_as_infinity(model: str) -> None:
    server = FakeUpstream(boxed)
    fields = f'"messages": {json.dumps(BODY["messages"])}, "temperature": 1e999, "aera": {{}}'
    body = f'{{"model": "{model}", {fields}}}'.encode()
    status, _, told = visit(lambda house: house.post(body), server)
    assert (status, "Infinity" in told["error"]["message"]) == (400, True)
    assert not server.calls


@pytest.mark.parametrize("model", ["m", "aera/m"])
@pytest.mark.parametrize("count", [10**400, -5, "many", None])
def test_counts_that_cannot_be_leave_the_counters_sound(model: str, count: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        n = json.loads(await request.read()).get("n", 1)
        choices = [{"message": {"content": "\\boxed{7}"}}] * n
        usage = {"prompt_tokens": count, "completion_tokens": count}
        return web.json_response({"choices": choices, "usage": usage}, status=201)

    async def act(house: House) -> tuple[int, str]:
        return (await house.post({**BODY, "model": model}))[0], (await house.get("/metrics"))[1]

    (status, metrics), _ = proxied(act, handler)
    assert status == (201 if model == "m" else 200)
    tokens = [value for key, value in values_of(metrics).items() if key[0] == "aera_tokens_total"]
    assert all(0 <= value < 1e6 for value in tokens)


def test_an_error_in_a_reply_of_200_is_an_error_in_its_own_words() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "out of memory", "type": "server"}})

    (status, _, told), _ = proxied(lambda house: house.post(BODY), handler)
    assert status >= 400
    assert "out of memory" in told["error"]["message"]
    assert "{" not in told["error"]["message"]
