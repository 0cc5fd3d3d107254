"""What the tests of the live modules share: small servers, controllers and samplers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from aiohttp import web
from fakes import Call, FakeUpstream, Server, serving

from aera import ASC, Allocation, Policy, Question, Response, Schedule, get_task, solve_many
from aera.sampling.client import Endpoint, Upstream, unless_refused
from aera.sampling.sampler import Chat, OpenAISampler, Sampler
from aera.solving.controller import Controller

QUESTION = Question("q", "how many?")
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "how many?"}]}
SEEDED = {**BODY, "seed": 100}
Made = TypeVar("Made")
Handler = Callable[[web.Request], Any]


def boxed(call: Call, place: int) -> str:
    """Everybody says seven."""
    return "so it is \\boxed{7}"


def controller_of(policy: Policy | None = None, schedule: Sequence[int] = (4, 8, 16)) -> Controller:
    return Controller(get_task("numeric"), Schedule(tuple(schedule)), policy or ASC(0.95))


def sampler_of(server: Server, **endpoint: Any) -> OpenAISampler:
    """A sampler for a server; `settings` go into the request."""
    chat = Chat("m", get_task("numeric"), endpoint.pop("settings", {"seed": 0}))
    return OpenAISampler(Endpoint(server.base_url, **endpoint), chat)


async def started(stack: AsyncExitStack, *servers: Any) -> list[str]:
    """Where these servers are, those that are ours started."""
    up = [s if isinstance(s, str) else await stack.enter_async_context(s) for s in servers]
    return [each if isinstance(each, str) else each.base_url for each in up]


def completion(*messages: Any, **fields: Any) -> dict[str, Any]:
    """A reply whose choices hold these messages; a string is the content of one."""
    said = [{"content": m} if isinstance(m, str) else m for m in messages]
    return {"choices": [{"message": m, "finish_reason": "stop"} for m in said], **fields}


async def gathered(
    questions: Iterable[Question], sampler: Sampler, controller: Controller, **options: Any
) -> list[Allocation]:
    """All allocations of `solve_many`."""
    return [made async for made in solve_many(questions, sampler, controller, **options)]


def live(server: Server, work: Callable[[OpenAISampler], Awaitable[Made]], **endpoint: Any) -> Made:
    """What comes out of work with a sampler for a server."""

    async def scene() -> Made:
        async with server, sampler_of(server, **endpoint) as sampler:
            return await work(sampler)

    return asyncio.run(scene())


def texts(responses: Sequence[Response]) -> list[str]:
    return [response.text for response in responses]


def seeds(server: Server) -> list[int]:
    """Every seed the calls covered, with repetitions, for a server that honours `n`."""
    return [call.body["seed"] + place for call in server.calls for place in range(call.n)]


def using(
    server: FakeUpstream | Handler | str,
    act: Callable[[Upstream], Awaitable[Made]],
    *,
    shared: bool = False,
    site: Any = None,
    **endpoint: Any,
) -> Made:
    """What comes of acting on a server: a fake, one of a handler, or whoever is at an address."""

    async def scene() -> Made:
        async with AsyncExitStack() as stack:
            own = serving(server, **site or {}) if callable(server) else server
            [url] = await started(stack, own)
            upstream = Upstream(Endpoint(url, **endpoint), shared=shared)
            return await act(await stack.enter_async_context(upstream))

    return asyncio.run(scene())


def asked(
    server: FakeUpstream | Handler | str, *blocks: int, body: Any = SEEDED, **options: Any
) -> list[list[Response]]:
    """What it gives for these blocks of one question, asked for one after the other."""

    async def act(upstream: Upstream) -> list[list[Response]]:
        made: list[list[Response]] = []
        for n in blocks:
            got = await upstream.complete(body, n, start=sum(map(len, made)))
            made.append(unless_refused(got))
        return made

    return using(server, act, **options)
