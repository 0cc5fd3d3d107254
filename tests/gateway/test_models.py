"""Many models behind one gateway: whom a name goes to, who may ask, and what is told of each."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from fakes import FakeUpstream
from gateways import BODY, House, anything, housed
from live import boxed, controller_of

from aera import Fixed
from aera.errors import UsageError
from aera.gateway.config import Config, KeyConfig, ModelConfig, UpstreamConfig

KEYS = ("the-first-key-of-two", "the-second-key-of-two")


def team(one: str, two: str, **settings: Any) -> Config:
    """A small model under another name, and a large one on another server."""
    small = ModelConfig("small", "one", "qwen-7b")
    large = ModelConfig("large", "two", controller=controller_of(Fixed(8)))
    servers = (UpstreamConfig("one", (one,)), UpstreamConfig("two", (two,)))
    return Config(upstream=servers, model=(small, large), **settings)


def visit_team(
    act: Callable[[House], Awaitable[Any]], change: Any = lambda settings: settings, **settings: Any
) -> tuple[Any, list[str], list[str]]:
    """What somebody sees, and which models the two servers were asked for."""
    one, two = FakeUpstream(boxed), FakeUpstream(boxed)

    async def scene() -> Any:
        async with one, two:
            made = change(team(one.base_url, two.base_url, **settings))
            async with housed(made) as house:
                return await act(house)

    seen = asyncio.run(scene())
    return seen, *([call.body["model"] for call in each.calls] for each in (one, two))  # type: ignore[return-value]


async def ask_for(house: House, model: str | None, **request: Any) -> tuple[int, Any]:
    named = {} if model is None else {"model": model}
    body = {"messages": BODY["messages"], **named}
    status, _, told = await house.post(body, **request)
    return status, told


def test_a_name_goes_to_its_server_in_that_servers_words() -> None:
    async def act(house: House) -> list[Any]:
        names = ("small", "aera/small", "large", "aera/large")
        return [await ask_for(house, name) for name in names]

    told, one, two = visit_team(act)
    assert [status for status, _ in told] == [200] * 4
    assert (one, two) == (["qwen-7b", "qwen-7b"], ["large", "large"])
    assert [reply["model"] for _, reply in told[1::2]] == ["aera/small", "aera/large"]
    assert [reply["aera"]["samples"] for _, reply in told[1::2]] == [4, 8]


def test_a_request_without_a_name_gets_the_default_model() -> None:
    async def act(house: House) -> int:
        return (await ask_for(house, None))[0]

    assert visit_team(act) == (200, ["qwen-7b"], [])
    assert visit_team(act, default="large") == (200, [], ["large"])


@pytest.mark.parametrize("name", ["other", "aera/other", "qwen-7b"])
def test_a_name_that_nobody_has_is_refused_with_those_that_there_are(name: str) -> None:
    (status, told), one, two = visit_team(lambda house: ask_for(house, name))
    assert (status, told["error"]["code"], one, two) == (404, "model_not_found", [], [])
    assert told["error"]["message"].endswith("here; there are small, large")


def takes_others(settings: Config) -> Config:
    small, large = settings.model
    return replace(settings, model=(small, replace(large, other_names=True)))


def test_a_model_may_take_every_other_name_as_it_is() -> None:
    told, one, two = visit_team(lambda house: ask_for(house, "aera/other"), takes_others)
    assert (told[0], told[1]["aera"]["samples"], one, two) == (200, 8, [], ["other"])


def test_other_routes_go_by_the_name_in_the_body_or_to_the_default() -> None:
    seen = []

    def named(name: str) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.Response:
            seen.append((name, request.path, await request.read()))
            return web.json_response({})

        return handle

    async def scene() -> list[int]:
        async with (
            anything(named("one")) as one,
            anything(named("two")) as two,
            housed(team(one, two)) as house,
        ):
            url, statuses = f"{house.url}/v1", []
            for path, given in (
                ("embeddings", {"json": {"model": "large", "input": "x"}}),
                ("embeddings", {"json": {"model": "small", "input": "x"}}),
                ("embeddings", {"json": {"model": "other", "input": "x"}}),
                ("audio", {"data": b"\xff\x00"}),
            ):
                async with house.http.post(f"{url}/{path}", **given) as reply:  # type: ignore[arg-type]
                    statuses.append(reply.status)
            async with house.http.get(f"{url}/files") as reply:
                return [*statuses, reply.status]

    assert asyncio.run(scene()) == [200, 200, 404, 200, 200]
    assert [(name, path) for name, path, _ in seen] == [
        ("two", "/v1/embeddings"), ("one", "/v1/embeddings"), ("one", "/v1/audio"),
        ("one", "/v1/files"),
    ]  # fmt: skip
    assert json.loads(seen[1][2]) == {"model": "qwen-7b", "input": "x"}
    assert seen[2][2] == b"\xff\x00"


def test_the_list_has_every_model_under_both_names() -> None:
    async def act(house: House) -> list[str]:
        return [model.id async for model in house.client.models.list()]

    names, _, _ = visit_team(act)
    assert names == ["small", "large", "aera/small", "aera/large"]
    names, _, _ = visit_team(act, takes_others)
    plain = ["small", "large", "recorded"]
    assert names == [*plain, *(f"aera/{name}" for name in plain)]


def test_a_key_may_be_for_some_models_and_have_a_name(caplog: pytest.LogCaptureFixture) -> None:
    keys = (KeyConfig(secret=KEYS[0]), KeyConfig("blue", models=("large",), secret=KEYS[1]))

    async def act(house: House) -> Any:
        own = {"headers": {"Authorization": f"Bearer {KEYS[1]}"}}
        asked = [await ask_for(house, name, **own) for name in ("large", "aera/small", None)]
        listed = json.loads((await house.get("/v1/models", **own))[1])["data"]
        return asked, [model["id"] for model in listed]

    with caplog.at_level(logging.INFO, "aera.gateway"):
        (asked, listed), one, two = visit_team(act, key=keys)
    assert [status for status, _ in asked] == [200, 403, 403]
    assert asked[1][1]["error"]["code"] == "model_not_allowed"
    assert (listed, one, two) == (["large", "aera/large"], [], ["large"])
    assert '"key": "blue"' in caplog.text


def test_each_model_is_told_of() -> None:
    async def act(house: House) -> tuple[Any, Any]:
        return json.loads((await house.get("/ready"))[1]), json.loads(
            (await house.get("/state"))[1]
        )

    (ready, state), _, _ = visit_team(act)
    assert [row["models"] for row in ready["replicas"]] == [["small"], ["large"]]
    assert [(model["name"], model["policy"]) for model in state["models"]] == [
        ("small", "asc-0.95"), ("large", "fixed-8"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"default": "other"}, 'the default model "other" is none of m'),
        ({"model": ()}, "there are no models"),
        ({"key": (KeyConfig(models=("x",)),)}, 'names the model "x"'),
    ],
)
def test_settings_that_contradict_themselves_are_refused(change: Any, said: str) -> None:
    model, server = ModelConfig("m"), (UpstreamConfig("one", ("http://127.0.0.1:1/v1",)),)
    with pytest.raises(UsageError, match=said):
        Config(**{"upstream": server, "model": (model,), **change})
    with pytest.raises(UsageError, match='two models are called "m"'):
        Config(upstream=server, model=(model, model))
