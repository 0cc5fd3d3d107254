"""Who may ask, and how much: keys, their shares and rates."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from fakes import FakeUpstream
from gateways import BODY, House, anything, config_of, gateway, housed, visit
from live import boxed
from prometheus_client.parser import text_string_to_metric_families

from aera.gateway.config import KeyConfig

KEYS = ("the-first-key-of-two", "the-second-key-of-two")
CHAT = "/v1/chat/completions"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@asynccontextmanager
async def slow_bodies(house: House, key: str, count: int) -> AsyncIterator[None]:
    """So many requests with one byte of each body."""
    port = house.url.rpartition(":")[2]
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in opened:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        writer.write(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
    await asyncio.sleep(0.1)
    yield
    for _, writer in opened:
        writer.close()


def test_one_byte_bodies_of_one_key_leave_room_for_the_other() -> None:
    async def act(house: House) -> tuple[int, int]:
        async with slow_bodies(house, KEYS[0], 30):
            other = (await house.post(BODY, headers=bearer(KEYS[1])))[0]
            same, _, told = await house.post(BODY, headers=bearer(KEYS[0]))
        assert told["error"]["code"] == "too_many_requests"
        return other, same

    assert visit(act, FakeUpstream(boxed), keys=KEYS, max_requests=20) == (200, 429)


def test_the_requests_of_a_key_are_counted_by_the_minute() -> None:
    async def act(house: House) -> list[Any]:
        told = []
        for key in (KEYS[0], KEYS[0], KEYS[0], KEYS[1]):
            status, headers, _ = await house.post(BODY, headers=bearer(key))
            told.append((status, headers.get("Retry-After")))
        return told

    told = visit(act, FakeUpstream(boxed), keys=KEYS, key_requests_per_minute=2)
    assert [status for status, _ in told] == [200, 200, 429, 200]
    assert 25 <= int(told[2][1]) <= 30


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_the_tokens_of_a_key_are_counted_by_the_minute(model: str) -> None:
    async def act(house: House) -> list[int]:
        body = {**BODY, "model": model}
        return [(await house.post(body, headers=bearer(KEYS[0])))[0] for _ in range(3)]

    told = visit(act, FakeUpstream(boxed), keys=KEYS, key_tokens_per_minute=5)
    assert told[0] == 200
    assert told[-1] == 429


def test_keys_are_told_apart_by_their_hash_only(caplog: pytest.LogCaptureFixture) -> None:
    async def act(house: House) -> str:
        await house.post(BODY, headers=bearer(KEYS[0]))
        await house.post(BODY, headers=bearer("unknown-to-anybody"))
        return (await house.get("/metrics"))[1]

    with caplog.at_level(logging.INFO, "aera.gateway"):
        metrics = visit(act, FakeUpstream(boxed), keys=KEYS)
    families = text_string_to_metric_families(metrics)
    values = {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}
    name = sha256(KEYS[0].encode()).hexdigest()[:8]
    assert values["aera_key_requests_total", name, "m"] == 1
    assert values["aera_key_tokens_total", name, "m"] > 0
    lines = [json.loads(r.message) for r in caplog.records if r.name == "aera.gateway"]
    assert [line.get("key") for line in lines] == [name, None]
    assert KEYS[0] not in metrics + caplog.text


def test_two_authorization_headers_are_one_too_many() -> None:
    async def act(house: House) -> Any:
        headers = [("Authorization", f"Bearer {KEYS[0]}"), ("Authorization", f"Bearer {KEYS[1]}")]
        return await house.post(BODY, headers=headers)

    status, _, told = visit(act, FakeUpstream(boxed), keys=KEYS)
    assert (status, told["error"]["code"]) == (400, "invalid_header")


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_the_money_of_a_key_is_for_a_day(model: str) -> None:
    async def act(house: House) -> list[Any]:
        body = {**BODY, "model": model}
        return [await house.post(body, headers=bearer(KEYS[0])) for _ in range(4)]

    money = {"key_money_per_day": 0.0001, "prices": (1.0, 10.0)}
    told = visit(act, FakeUpstream(boxed), keys=KEYS, **money)
    assert (told[0][0], told[-1][0]) == (200, 429)
    assert "its money of the day" in told[-1][2]["error"]["message"]
    assert 0 < int(told[-1][1]["Retry-After"]) <= 86_400


STREAM = {**BODY, "model": "m", "stream": True, "max_tokens": 40}


@pytest.mark.parametrize("asks", [False, True])
def test_a_stream_that_is_passed_on_is_charged_and_looks_as_it_was_asked_for(asks: bool) -> None:
    async def act(house: House) -> tuple[list[int], str]:
        body = {**STREAM, **({"stream_options": {"include_usage": True}} if asks else {})}
        statuses, text = [], ""
        for _ in range(3):
            async with house.http.post(
                house.url + CHAT, json=body, headers=bearer(KEYS[0])
            ) as reply:
                statuses.append(reply.status)
                text = text or await reply.text()
        return statuses, text

    async def handler(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        events = [{"choices": [{"delta": {"content": "seven"}}]}]
        if body.get("stream_options", {}).get("include_usage"):
            events.append({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 30}})
        text = "".join(f"data: {json.dumps(each)}\n\n" for each in events) + "data: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    async def scene() -> tuple[list[int], str]:
        limits: Any = {"keys": KEYS, "key_tokens_per_minute": 30}
        async with anything(handler) as url, gateway(url, **limits) as house:
            return await act(house)

    statuses, text = asyncio.run(scene())
    assert (statuses[0], statuses[-1]) == (200, 429)
    assert "seven" in text
    assert "[DONE]" in text
    assert ('"usage"' in text) == asks


def test_what_no_reply_says_is_estimated_and_the_metrics_say_so() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": {"content": "x" * 200}}]})

    async def scene() -> tuple[list[int], str]:
        limits: Any = {"keys": KEYS, "key_tokens_per_minute": 100}
        async with anything(handler) as url, gateway(url, **limits) as house:
            plain, key = {**BODY, "model": "m"}, bearer(KEYS[0])
            statuses = [(await house.post(plain, headers=key))[0] for _ in range(2)]
            return statuses, (await house.get("/metrics"))[1]

    statuses, metrics = asyncio.run(scene())
    assert statuses == [200, 429]
    assert "aera_key_tokens_estimated_total{" in metrics


def test_a_client_that_leaves_is_charged_for_what_was_under_way() -> None:
    server = FakeUpstream(boxed, delay=lambda call: 5.0)

    async def act(house: House) -> int:
        for _ in range(3):
            body = {**BODY, "max_tokens": 50}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await house.post(body, headers=bearer(KEYS[0]))
            await asyncio.sleep(0.1)
        return (await house.post({**BODY, "model": "m"}, headers=bearer(KEYS[0])))[0]

    assert visit(act, server, keys=KEYS, key_tokens_per_minute=100) == 429


def test_a_key_sees_its_own_models_only_and_asks_for_no_other() -> None:
    server = FakeUpstream(boxed)

    async def scene() -> Any:
        async with server:
            config = config_of([server.base_url])
            [model] = config.model
            own = tuple(
                KeyConfig(name, models=(name,), secret=key)
                for name, key in zip(("a", "b"), KEYS, strict=True)
            )
            models = tuple(replace(model, name=name, other_names=False) for name in ("a", "b"))
            async with housed(replace(config, model=models, key=own)) as house:
                one, two = (bearer(key) for key in KEYS)
                await house.post({**BODY, "model": "aera/a"}, headers=one)
                states = [(await house.get("/state", headers=key))[1] for key in (one, two)]
                calls = len(server.calls)
                form = aiohttp.FormData({"model": "b"}, default_to_multipart=True)
                url = f"{house.url}/v1/audio/transcriptions"
                async with house.http.post(url, data=form, headers=one) as reply:
                    formed = reply.status
                twice = b'{"model": "b", "messages": [], "model": "a"}'
                doubled = (await house.post(twice, headers=one))[0]
                return states, formed, doubled, len(server.calls) - calls

    states, formed, doubled, calls = asyncio.run(scene())
    assert '"a"' in states[0]
    assert '"a"' not in states[1]
    assert (formed, doubled, calls) == (403, 400, 0)
