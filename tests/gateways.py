"""What the tests of the gateway share: a gateway on a real port, its clients, its upstreams."""

import asyncio
import http.client
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from aiohttp import web
from commands import command
from fakes import FakeUpstream, Server, serving
from live import boxed, started
from openai import AsyncOpenAI
from prometheus_client.parser import text_string_to_metric_families

from aera import Controller
from aera.gateway.app import GatewayServer, bind
from aera.gateway.config import (
    Config,
    KeyConfig,
    LimitsConfig,
    ModelConfig,
    ServerConfig,
    UpstreamConfig,
)

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "how many?"}]
BODY = {"model": "aera/m", "messages": USER}
SPLIT = [str(place) for place in range(200)]
"""Answers of which no two agree."""
KEYS = ("the-first-key-of-two", "the-second-key-of-two")
CONTROLLER = Path(__file__).parents[1] / "aera" / "demo" / "controller"
NOBODY = "http://127.0.0.1:1/v1"
Seen = TypeVar("Seen")


@dataclass
class House:
    """A gateway that is up, and two ways to talk to it."""

    url: str
    http: aiohttp.ClientSession
    server: GatewayServer

    @cached_property
    def client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="client-key", max_retries=0)

    async def ask(self, model: str = "aera/m", **fields: Any) -> Any:
        """One chat request through the official client."""
        body = {"model": model, "messages": USER, **fields}
        return await self.client.chat.completions.create(**body)

    async def post(self, body: Any = BODY, **request: Any) -> tuple[int, Any, Any]:
        """One chat request in plain HTTP: status, headers and content."""
        given = {"data": body} if isinstance(body, bytes) else {"json": body}
        status, headers, content = await self.fetch(CHAT, "POST", **given, **request)
        return status, headers, json.loads(content)

    async def get(self, path: str, **request: Any) -> tuple[int, str]:
        status, _, content = await self.fetch(path, **request)
        return status, content.decode()

    async def state(self) -> Any:
        return json.loads((await self.get("/state"))[1])

    async def metrics(self) -> dict[tuple[str, ...], float]:
        """Every value by its name and its labels, which stand in alphabetical order."""
        families = text_string_to_metric_families((await self.get("/metrics"))[1])
        return {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}

    async def fetch(self, path: str, method: str = "GET", **request: Any) -> tuple[int, Any, bytes]:
        """Status, headers and content of any request; the path is sent as it is written."""
        url = aiohttp.client.URL(self.url + path, encoded=True)
        async with self.http.request(method, url, **request) as reply:
            return reply.status, reply.headers, await reply.read()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines of the gateway's log."""
    return [json.loads(r.message) for r in caplog.records if r.name == "aera.gateway"]


def config_of(urls: Iterable[str], **settings: Any) -> Config:
    """One model "m" that takes every other name too; each setting goes to the table that has it.

    Keys are strings here, and `second` is where undecided questions go: an address and a model.
    """

    def own(kind: Any, **usual: Any) -> Any:
        names = {each.name for each in fields(kind)} & settings.keys()
        return kind(**usual | {name: settings.pop(name) for name in names})

    keys = tuple(KeyConfig(secret=key) for key in settings.pop("keys", ()))
    usual: dict[str, Any] = {"tries": 1, "api_key_env": ("NO_KEY",)}
    limits, server = own(LimitsConfig), own(ServerConfig)
    upstreams = [own(UpstreamConfig, name="first", urls=tuple(urls), **usual)]
    if (second := settings.pop("second", None)) is not None:
        upstreams.append(UpstreamConfig("second", (second[0],), tries=1))
        settings["escalate"] = {"upstream": "second", "model": second[1]}
    model = ModelConfig("m", "first", **{"other_names": True, **settings})
    return Config(upstream=tuple(upstreams), model=(model,), key=keys, limits=limits, server=server)


@asynccontextmanager
async def housed(config: Config, **controllers: Controller) -> AsyncIterator[House]:
    """A gateway that serves this, by the controllers of its models."""
    server = GatewayServer(config, controllers)
    listening = bind("127.0.0.1", 0)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.005)
    async with aiohttp.ClientSession() as http:
        house = House(f"http://127.0.0.1:{listening.getsockname()[1]}", http, server)
        try:
            yield house
        finally:
            if "client" in house.__dict__:
                await house.client.close()
            server.should_exit = True
            await task


def visit(act: Callable[[House], Awaitable[Seen]], *servers: Server | str, **settings: Any) -> Seen:
    """What somebody sees who visits a gateway in front of these servers; else all say seven."""

    deciding = {"m": settings.pop("controller")} if "controller" in settings else {}

    async def scene() -> Seen:
        async with AsyncExitStack() as stack:
            urls = await started(stack, *(servers or [FakeUpstream(boxed)]))
            if "second" in settings:
                other, model = settings["second"]
                settings["second"] = ((await started(stack, other))[0], model)
            house = await stack.enter_async_context(housed(config_of(urls, **settings), **deciding))
            return await act(house)

    return asyncio.run(scene())


def posted(body: Any = BODY, *servers: Any, sent: Any = None, **settings: Any) -> Any:
    """Status, headers and content of one chat request to such a gateway."""
    return visit(lambda house: house.post(body, headers=sent), *servers, **settings)


def asked(server: FakeUpstream | None = None, /, *, serving: Any = None, **fields: Any) -> Any:
    """The official client's reply to one voted request; everybody says seven by default."""
    return visit(lambda house: house.ask(**fields), server or FakeUpstream(boxed), **serving or {})


def account(reply: Any) -> dict[str, Any]:
    """The `aera` object of a reply."""
    return dict(reply.model_extra["aera"])


def found(server: FakeUpstream | None = None, options: Any = None, **fields: Any) -> dict[str, Any]:
    """The account of one voted reply to a request with these options."""
    return account(asked(server, extra_body={"aera": options or {}}, **fields))


def saying(*texts: str, **kind: Any) -> FakeUpstream:
    """An upstream whose samples say these, one after the other, the last for ever."""
    left = list(texts)
    return FakeUpstream(lambda call, place: left.pop(0) if len(left) > 1 else left[0], **kind)


def numbers(*answers: str | None, **kind: Any) -> FakeUpstream:
    """An upstream whose samples box these; None says nothing."""
    texts = ["no idea" if a is None else f"so \\boxed{{{a}}}" for a in answers]
    return saying(*texts, **kind)


def proxied(
    act: Callable[[House], Awaitable[Any]], handler: Callable[[web.Request], Any], **settings: Any
) -> tuple[Any, list[tuple[web.Request, bytes]]]:
    """What comes of acting on a gateway in front of a handler, and what the handler saw."""
    seen: list[tuple[web.Request, bytes]] = []

    async def noting(request: web.Request) -> Any:
        seen.append((request, await request.read()))
        return await handler(request)

    return visit(act, serving(noting), **settings), seen  # type: ignore[arg-type]


# --- the command as a process ---------------------------------------------------------------------


def wait_for(true: Any, seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < until:
        time.sleep(0.05)
    return bool(found)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def exchange(
    port: int,
    path: str,
    body: Any = None,
    key: str | None = None,
    timeout: float = 60,
    leave: Callable[[], bool] | None = None,
    **headers: str,
) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and content of one request; a body that is bytes is sent as it is.

    With `leave` the client hangs up as soon as that is true, if no reply came before: 0.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    sent = {} if body is None else {"Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    sent |= bearer(key) if key else {}
    content = body if body is None or isinstance(body, bytes) else json.dumps(body)
    try:
        connection.request("GET" if body is None else "POST", path, content, sent)
        while leave is not None and not select.select([connection.sock], [], [], 0.02)[0]:
            if leave():
                return 0, {}, b""
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    finally:
        connection.close()


def ask(port: int, path: str, body: Any = None, **request: Any) -> tuple[int, Any]:
    """The status and the JSON of one request."""
    status, _, content = exchange(port, path, body, **request)
    return status, json.loads(content)


@contextmanager
def served(
    port: int,
    *options: str,
    folder: Path | None = None,
    stderr: int = subprocess.PIPE,
    **variables: str,
) -> Iterator["subprocess.Popen[str]"]:
    """The command as a process, once it answers or has ended: it refuses to serve."""
    told: Any = {"env": {**os.environ, "AERA_PORT": str(port), **variables}, "cwd": folder}
    process = subprocess.Popen(command("serve", *options), stderr=stderr, text=True, **told)
    try:
        for _ in range(1200):
            try:
                ask(port, "/health")
                break
            except OSError:
                if process.poll() is not None:
                    break
                time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()
