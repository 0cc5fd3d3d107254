"""What the tests of the live modules share: small servers, controllers and samplers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiohttp import web
from fakes import Call, Server

from aera import ASC, Allocation, Policy, Question, Response, Schedule, get_task, solve_many
from aera.sampling.client import Endpoint, Upstream
from aera.sampling.sampler import Chat, OpenAISampler, Sampler
from aera.solving.controller import Controller

QUESTION = Question("q", "how many?")
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "how many?"}]}
Handler = Callable[[web.Request], Any]


def boxed(call: Call, place: int) -> str:
    """Everybody says seven."""
    return "so it is \\boxed{7}"


def controller_of(policy: Policy | None = None, schedule: Sequence[int] = (4, 8, 16)) -> Controller:
    return Controller(get_task("numeric"), Schedule(tuple(schedule)), policy or ASC(0.95))


def sampler_of(server: Server | str, **endpoint: Any) -> OpenAISampler:
    """A sampler for a server; what is not about the endpoint goes into the request."""
    url = server if isinstance(server, str) else server.base_url
    settings = endpoint.pop("settings", {"seed": 0})
    return OpenAISampler(Endpoint(url, **endpoint), Chat("m", get_task("numeric"), settings))


def upstream_of(server: Server | str, **endpoint: Any) -> Upstream:
    return Upstream(Endpoint(server if isinstance(server, str) else server.base_url, **endpoint))


@asynccontextmanager
async def serving(handler: Handler, **site: Any) -> AsyncIterator[str]:
    """A server of one's own; gives its base URL."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, **site).start()
    scheme = "https" if site.get("ssl_context") else "http"
    try:
        yield f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def completion(*messages: Any, **fields: Any) -> dict[str, Any]:
    """A reply whose choices hold these messages; a string is the content of one."""
    said = [{"content": m} if isinstance(m, str) else m for m in messages]
    return {"choices": [{"message": m, "finish_reason": "stop"} for m in said], **fields}


async def gathered(
    questions: Iterable[Question], sampler: Sampler, controller: Controller, **options: Any
) -> list[Allocation]:
    """All allocations of `solve_many`."""
    return [made async for made in solve_many(questions, sampler, controller, **options)]


def texts(responses: Sequence[Response]) -> list[str]:
    return [response.text for response in responses]


def seeds(server: Server) -> list[int]:
    """Every seed the calls covered, with repetitions, for a server that honours `n`."""
    return [call.body["seed"] + place for call in server.calls for place in range(call.n)]


@contextmanager
def in_background(server: Server) -> Iterator[Server]:
    """A server with a thread and an event loop of its own, for programs that block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        yield server
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
