"""Many models behind one gateway: whom a name goes to, who may ask, and what is told of each."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web
from fakes import FakeUpstream, serving
from gateways import BODY, housed
from live import boxed, controller_of

from aera import Fixed
from aera.gateway.config import Config, ModelConfig, UpstreamConfig


def team(one: str, two: str) -> Config:
    """A small model under another name, and a large one on another server."""
    small = ModelConfig("small", "one", "qwen-7b")
    large = ModelConfig("large", "two", controller=controller_of(Fixed(8)))
    servers = (UpstreamConfig("one", (one,)), UpstreamConfig("two", (two,)))
    return Config(upstream=servers, model=(small, large))


def test_a_name_goes_to_its_server_in_that_servers_words() -> None:
    servers = one, two = FakeUpstream(boxed), FakeUpstream(boxed)

    async def scene() -> list[Any]:
        names = ("small", "aera/small", "large", "aera/large")
        async with one, two, housed(team(one.base_url, two.base_url)) as house:
            return [(await house.post({**BODY, "model": name}))[2] for name in names]

    told = asyncio.run(scene())
    seen = [[call.body["model"] for call in server.calls] for server in servers]
    assert seen == [["qwen-7b", "qwen-7b"], ["large", "large"]]
    assert [reply["model"] for reply in told[1::2]] == ["aera/small", "aera/large"]
    assert [reply["aera"]["samples"] for reply in told[1::2]] == [4, 8]


def test_other_routes_go_by_the_name_in_the_body_or_to_the_default() -> None:
    seen = []

    def named(name: str) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.Response:
            seen.append((name, request.path, await request.read()))
            return web.json_response({})

        return handle

    async def scene() -> list[int]:
        async with (
            serving(named("one")) as one,
            serving(named("two")) as two,
            housed(team(one, two)) as house,
        ):
            replies = [
                await house.fetch("/v1/embeddings", "POST", json={"model": name, "input": "x"})
                for name in ("large", "small", "other")
            ]
            replies += [await house.fetch("/v1/audio", "POST", data=b"\xff\x00")]
            replies += [await house.fetch("/v1/files")]
            return [reply[0] for reply in replies]

    assert asyncio.run(scene()) == [200, 200, 404, 200, 200]
    assert [(name, path) for name, path, _ in seen] == [
        ("two", "/v1/embeddings"), ("one", "/v1/embeddings"), ("one", "/v1/audio"),
        ("one", "/v1/files"),
    ]  # fmt: skip
    assert json.loads(seen[1][2]) == {"model": "qwen-7b", "input": "x"}
    assert seen[2][2] == b"\xff\x00"
