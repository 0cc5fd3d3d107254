"""Who may ask, and how much: keys, their shares and rates."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from gateways import BODY, CHAT, KEYS, House, bearer, posted, proxied, visit


def test_bodies_that_do_not_come_of_one_key_leave_room_for_the_other() -> None:
    async def act(house: House) -> tuple[int, int]:
        port, head = house.url.rpartition(":")[2], f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Authorization: Bearer {KEYS[0]}\r\nContent-Length: 1000\r\n\r\n{{"
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(30)]
        for writer in writers:
            writer.write(head.encode())
        await asyncio.sleep(0.1)
        other, same = [await house.post(BODY, headers=bearer(KEYS[place])) for place in (1, 0)]
        assert same[2]["error"]["code"] == "too_many_requests"
        for writer in writers:
            writer.close()
        return other[0], same[0]

    assert visit(act, keys=KEYS, max_requests=20) == (200, 429)


def test_two_authorization_headers_are_one_too_many() -> None:
    headers = [("Authorization", f"Bearer {key}") for key in KEYS]
    status, _, told = posted(sent=headers, keys=KEYS)
    assert (status, told["error"]["code"]) == (400, "invalid_header")


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_the_money_of_a_key_is_for_a_day(model: str) -> None:
    async def act(house: House) -> list[Any]:
        body = {**BODY, "model": model}
        return [await house.post(body, headers=bearer(KEYS[0])) for _ in range(40)]

    money = {"key_money_per_day": 0.0008, "prices": (1.0, 10.0)}
    told = visit(act, keys=KEYS, **money)
    assert (told[0][0], told[-1][0]) == (200, 429)
    assert "its money of the day" in told[-1][2]["error"]["message"]
    assert 0 < int(told[-1][1]["Retry-After"]) <= 86_400


@pytest.mark.parametrize("asks", [{}, {"stream_options": {"include_usage": True}}])
def test_a_stream_that_is_passed_on_looks_as_it_was_asked_for(asks: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        events = [{"choices": [{"delta": {"content": "seven"}}]}]
        if body.get("stream_options", {}).get("include_usage"):
            events.append({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 30}})
        text = "".join(f"data: {json.dumps(each)}\n\n" for each in events) + "data: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    body = {**BODY, "model": "m", "stream": True, "max_tokens": 40, **asks}
    act = lambda house: house.fetch(CHAT, "POST", json=body, headers=bearer(KEYS[0]))  # noqa: E731
    (_, _, content), _ = proxied(act, handler, keys=KEYS, key_tokens_per_minute=500)
    assert b"seven" in content
    assert content.endswith(b"[DONE]\n\n")
    assert (b'"usage"' in content) == bool(asks)


def test_what_no_reply_says_is_estimated_and_the_metrics_say_so() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": {"content": "x" * 200}}]})

    async def act(house: House) -> Any:
        plain, key = {**BODY, "model": "m"}, bearer(KEYS[0])
        statuses = [(await house.post(plain, headers=key))[0] for _ in range(2)]
        return statuses, (await house.get("/metrics"))[1]

    (statuses, metrics), _ = proxied(act, handler, keys=KEYS, key_tokens_per_minute=600)
    assert statuses == [200, 429]
    assert "aera_key_tokens_estimated_total{" in metrics
