"""Who may ask, and how much: keys, their shares and rates."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fakes import FakeUpstream
from gateways import BODY, House, visit
from live import boxed
from prometheus_client.parser import text_string_to_metric_families

from aera.errors import UsageError
from aera.gateway.clients import Bucket, Clients, hash_key
from aera.gateway.settings import ClientKey, KeyLimits

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

    assert visit(act, FakeUpstream(boxed), keys=KEYS, most_requests=20) == (200, 429)


def test_the_requests_of_a_key_are_counted_by_the_minute() -> None:
    async def act(house: House) -> list[Any]:
        told = []
        for key in (KEYS[0], KEYS[0], KEYS[0], KEYS[1]):
            status, headers, _ = await house.post(BODY, headers=bearer(key))
            told.append((status, headers.get("Retry-After")))
        return told

    limits = KeyLimits(requests_per_minute=2)
    told = visit(act, FakeUpstream(boxed), keys=KEYS, key_limits=limits)
    assert [status for status, _ in told] == [200, 200, 429, 200]
    assert 25 <= int(told[2][1]) <= 30


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_the_tokens_of_a_key_are_counted_by_the_minute(model: str) -> None:
    async def act(house: House) -> list[int]:
        body = {**BODY, "model": model}
        return [(await house.post(body, headers=bearer(KEYS[0])))[0] for _ in range(3)]

    limits = KeyLimits(tokens_per_minute=5)
    told = visit(act, FakeUpstream(boxed), keys=KEYS, key_limits=limits)
    assert told[0] == 200
    assert told[-1] == 429


def test_a_bucket_fills_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("aera.gateway.clients.time.monotonic", lambda: now[0])
    bucket = Bucket(60)
    bucket.take(90)
    assert bucket.wait(1) == pytest.approx(31)
    now[0] = 31
    assert bucket.wait(1) == 0
    now[0] = 9_999
    bucket.take(60)
    assert bucket.wait(1) == pytest.approx(1)


def test_keys_are_told_apart_by_their_hash_only(caplog: pytest.LogCaptureFixture) -> None:
    async def act(house: House) -> str:
        await house.post(BODY, headers=bearer(KEYS[0]))
        await house.post(BODY, headers=bearer("unknown-to-anybody"))
        return (await house.get("/metrics"))[1]

    with caplog.at_level(logging.INFO, "aera.gateway"):
        metrics = visit(act, FakeUpstream(boxed), keys=KEYS)
    families = text_string_to_metric_families(metrics)
    values = {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}
    name = hash_key(KEYS[0])
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


def test_the_money_of_a_key_is_for_a_day_and_counts_both_kinds_of_tokens() -> None:
    limits = KeyLimits(money_per_day=0.001, prices=(1.0, 10.0))
    client = Clients([ClientKey("k" * 16, limits)], most=4).find(
        [(b"authorization", b"Bearer " + b"k" * 16)]
    )
    client.spend(100, 80)
    assert client.refusal() is None
    client.spend(200, 0)
    refused = client.refusal()
    assert refused is not None
    assert "its money of the day" in str(refused)
    assert 0 < (refused.retry_after or 0) < 86_400
    with pytest.raises(UsageError, match="give --prices"):
        KeyLimits(money_per_day=1.0)
