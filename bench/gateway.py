"""The gateway beside a 20-line pass-through of the same stack, and under five minutes of mixed load.

    .venv/bin/python bench/gateway.py [--minutes 5]

Upstream, pass-through and gateway run in processes of their own; only ratios within this run count.
"""

import argparse
import asyncio
import multiprocessing
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aera import ASC, Controller, Endpoint, FakeUpstream, Fault, Schedule, get_task
from aera.gateway.server import Serving, create_app

BODY = {"messages": [{"role": "user", "content": "How much is 9 x 2?"}], "temperature": 0.6}
ANSWER = "Nine times two is eighteen: \\boxed{18}."


def upstream(pipe: Connection, faults: bool) -> None:
    """A fake model server, with one fault in ten calls if wanted."""
    chance = random.Random(0)
    kinds = [Fault.status(500), Fault.html(), Fault.null(), Fault.reset(), Fault.hang(0.3)]

    def planned() -> Any:
        while True:
            yield chance.choice(kinds) if faults and chance.random() < 0.1 else None

    async def run() -> None:
        async with FakeUpstream(lambda call, place: ANSWER, faults=planned()) as server:
            pipe.send(server.base_url)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(run())


def passing(pipe: Connection, base_url: str) -> None:
    """The least a proxy of this stack can do."""

    async def chat(request: Request) -> Response:
        content = await request.body()
        async with request.app.state.session.post(url, data=content, headers=JSON) as reply:
            return Response(await reply.read(), reply.status, media_type="application/json")

    url = f"{base_url}/chat/completions"
    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    app.router.on_startup = []
    serve(pipe, app, needs_session=True)


JSON = {"Content-Type": "application/json"}


def gateway(pipe: Connection, base_url: str) -> None:
    """Ours: fixed-1 and fixed-32 by wish, ASC otherwise."""
    controller = Controller(get_task("numeric"), Schedule((1, 2, 4, 8, 16, 32)), ASC(0.95))
    endpoint = Endpoint(base_url, concurrency=1_000)
    serve(pipe, create_app(Serving((endpoint,), "m", controller, most_requests=4_096)))


def serve(pipe: Connection, app: Starlette, *, needs_session: bool = False) -> None:
    async def run() -> None:
        config = uvicorn.Config(app, port=0, log_level="error", access_log=False)
        server = uvicorn.Server(config)
        if needs_session:
            app.state.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.02)
        pipe.send(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1")
        await asyncio.to_thread(pipe.recv)
        server.should_exit = True
        await task

    asyncio.run(run())


def started(target: Callable[..., None], *given: Any) -> tuple[str, Connection, Any]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=target, args=(there, *given), daemon=True)
    process.start()
    return here.recv(), here, process


Ask = Callable[[], Awaitable[None]]


async def latency(ask: Ask, times: int) -> float:
    """Median milliseconds of single requests, one after the other."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        await ask()
        took.append(1000 * (time.perf_counter() - begun))
    return statistics.median(took)


async def throughput(ask: Ask, *, concurrency: int, times: int) -> float:
    """Requests per second with so many under way."""
    left = iter(range(times))

    async def worker() -> None:
        for _ in left:
            await ask()

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return times / (time.perf_counter() - begun)


def resident(pid: int) -> float:
    """Megabytes a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(x for x in text.splitlines() if x.startswith("VmRSS")).split()[1]) / 1024


def sockets(pid: int) -> int:
    return sum(
        "socket" in str(x.readlink()) for x in Path(f"/proc/{pid}/fd").iterdir() if x.is_symlink()
    )


async def measure(base: str, plain: str, ours: str, pid: int) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        def asking(url: str, **fields: Any) -> Ask:
            body = {**BODY, "model": "m", **fields}

            async def ask() -> None:
                async with session.post(f"{url}/chat/completions", json=body) as reply:
                    assert reply.status == 200, await reply.text()
                    await reply.read()

            return ask

        one = {"model": "aera/m", "aera": {"policy": "fixed-1"}}
        many = {"model": "aera/m", "aera": {"policy": "fixed-32"}}
        through, voted = asking(plain), asking(ours, **one)

        async def fan_out() -> None:
            single = asking(base)
            await asyncio.gather(*(single() for _ in range(32)))

        await latency(voted, 50), await latency(through, 50)
        a, b = await latency(through, 400), await latency(voted, 400)
        print(
            f"p50 at one sample: pass-through {a:.2f} ms, gateway {b:.2f} ms, {b / a:.2f} x (limit 1.5 x)"
        )
        a = await throughput(through, concurrency=200, times=3_000)
        b = await throughput(voted, concurrency=200, times=3_000)
        print(
            f"throughput at 200: pass-through {a:.0f}/s, gateway {b:.0f}/s, {b / a:.2f} x (limit 0.8 x)"
        )
        a, b = await latency(fan_out, 60), await latency(asking(ours, **many), 60)
        print(
            f"32 samples: bare fan-out {a:.1f} ms, gateway {b:.1f} ms, {b / a:.2f} x (limit 1.5 x)"
        )
        print(f"resident memory of the gateway: {resident(pid):.0f} MB (limit 150)")


async def soak(ours: str, pid: int, seconds: float) -> None:
    """Mixed load against a faulty upstream: every request is answered, nothing piles up."""
    chance = random.Random(1)
    answered: dict[int, int] = {}
    left = 0
    end = time.monotonic() + seconds
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def worker() -> None:
            nonlocal left
            while time.monotonic() < end:
                kind = chance.choice(["m", "aera/m", "aera/m"])
                body = {**BODY, "model": kind, "stream": kind != "m" and chance.random() < 0.3}
                patience = 0.02 if chance.random() < 0.05 else 60
                limit = aiohttp.ClientTimeout(total=patience)
                try:
                    url = f"{ours}/chat/completions"
                    async with session.post(url, json=body, timeout=limit) as reply:
                        await reply.read()
                        answered[reply.status] = answered.get(reply.status, 0) + 1
                except TimeoutError:
                    left += 1

        workers = [asyncio.create_task(worker()) for _ in range(32)]
        memory = []
        while time.monotonic() < end:
            await asyncio.sleep(min(10.0, seconds / 6))
            memory.append(resident(pid))
        await asyncio.gather(*workers)
    await asyncio.sleep(2)
    print(f"soak: answered {answered}, left by the client {left}")
    print(f"memory {memory[0]:.0f} MB -> {memory[-1]:.0f} MB, sockets at the end {sockets(pid)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    minutes = parser.parse_args().minutes
    base, *calm = started(upstream, False)
    plain, *pass_through = started(passing, base)
    ours, *process = started(gateway, base)
    asyncio.run(measure(base, plain, ours, process[1].pid))
    faulty, *broken = started(upstream, True)
    shaken, *second = started(gateway, faulty)
    asyncio.run(soak(shaken, second[1].pid, 60 * minutes))
    for pipe, worker in (calm, pass_through, process, broken, second):
        pipe.send("done")
        worker.join(5)


if __name__ == "__main__":
    main()
