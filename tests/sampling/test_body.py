"""Requests on the wire: made once, exact, and never in the way of others."""

import asyncio
import json
import threading
from typing import Any

import pytest
from fakes import FakeUpstream
from live import BODY, boxed, upstream_of

from aera.errors import UsageError
from aera.sampling.client import LARGE, STRICT, Endpoint, RequestBody
from aera.sampling.replicas import ProxiedRequest, Replicas

BIG = {**BODY, "messages": [{"role": "user", "content": "x" * 2_000_000}]}


class Counting:
    """Remembers what was serialised, and where."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.models = 0

    def encode(self, value: Any) -> str:
        self.threads.append(threading.get_ident())
        self.models += isinstance(value, str | dict) and "model" in value
        return STRICT.encode(value)


def sent(body: Any, *blocks: int, **server: Any) -> list[Any]:
    """The requests a server sees for blocks of one question."""

    async def scene() -> list[Any]:
        fake, start = FakeUpstream(boxed, **server), 0
        async with fake, upstream_of(fake) as upstream:
            for n in blocks:
                await upstream.complete(body, n, start=start)
                start += n
        return [dict(call.body) for call in fake.calls]

    return asyncio.run(scene())


@pytest.mark.parametrize("body", [BODY, BIG], ids=["small", "large"])
@pytest.mark.parametrize("seed", [{}, {"seed": 7}, {"seed": None}, {"seed": "odd"}])
def test_the_samples_of_a_request_are_serialised_once(
    body: dict[str, Any], seed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting()
    monkeypatch.setattr("aera.sampling.client.STRICT", counting)
    asked = {**body, **seed, "n": 3}
    seen = sent(RequestBody(asked), 3, 2, honours_n=False)
    assert counting.models == 1
    plain = {**body, **seed}
    stepped = [{"seed": 7 + i} if seed == {"seed": 7} else {} for i in range(5)]
    assert seen == [{**plain, "n": 3}, *({**plain, **step} for step in stepped[1:])]


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("size", [None, LARGE + 1])
def test_a_number_that_json_lacks_is_refused_and_never_sent(
    number: float, size: int | None
) -> None:
    with pytest.raises(UsageError, match="Infinity or NaN"):
        sent(RequestBody({**BODY, "top_p": number}, size=size), 2)


@pytest.mark.parametrize(("body", "outside"), [(BODY, False), (BIG, True)])
def test_a_large_request_is_serialised_outside_the_event_loop(
    body: dict[str, Any], outside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting()
    monkeypatch.setattr("aera.sampling.client.STRICT", counting)
    sent(body, 1)
    assert {thread != threading.get_ident() for thread in counting.threads} == {outside}


def test_a_large_request_is_passed_on_whole() -> None:
    content = json.dumps(BIG).encode()

    async def scene() -> Any:
        fake = FakeUpstream(boxed)
        async with fake, Replicas([Endpoint(fake.base_url, None)]) as replicas:
            headers = {"Content-Type": "application/json"}
            request = ProxiedRequest("POST", "/chat/completions", headers, content)
            reply, place = await replicas.send(request)
            await reply.read()
            replicas.release(place)
        return fake.calls[0].body

    assert asyncio.run(scene()) == BIG
