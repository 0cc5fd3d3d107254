"""The gateway beside a 20-line pass-through of the same stack, and under five minutes of mixed load.

    .venv/bin/python bench/gateway.py [--minutes 5]

Upstream, pass-through and gateway run in processes of their own; only ratios within this run count.
The two take turns, a few seconds each, and the ratio is the median over the turns: what else runs on
the machine then hits both. The CPU time of a request is what a process of its own spends on it, and
says most where load generator and upstream have to share the cores with what they measure.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from aera import ASC, Controller, Endpoint, FakeUpstream, Fault, Schedule, get_task
from aera.gateway.server import GatewaySettings, collect_seldom, create_app

BODY = {"messages": [{"role": "user", "content": "How much is 9 x 2?"}], "temperature": 0.6}
TURNS = 5
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
        async with request.state.session.post(url, data=content, headers=JSON) as reply:
            return Response(await reply.read(), reply.status, media_type="application/json")

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield {"session": session}

    url = f"{base_url}/chat/completions"
    routes = [Route("/v1/chat/completions", chat, methods=["POST"])]
    serve(pipe, Starlette(routes=routes, lifespan=lifespan))


JSON = {"Content-Type": "application/json"}


def gateway(pipe: Connection, base_url: str) -> None:
    """Ours, as `aera serve` runs it: fixed-1 and fixed-32 by request, ASC otherwise."""
    controller = Controller(get_task("numeric"), Schedule((1, 2, 4, 8, 16, 32)), ASC(0.95))
    endpoint = Endpoint(base_url, concurrency=1_000)
    app = create_app(GatewaySettings((endpoint,), "m", controller, most_requests=4_096))
    collect_seldom()
    serve(pipe, app)


def serve(pipe: Connection, app: ASGIApp) -> None:
    async def run() -> None:
        # Connections must outlast the other side's turn, or a reused one is closed under way.
        config = uvicorn.Config(
            app, port=0, log_level="error", access_log=False, timeout_keep_alive=120
        )
        server = uvicorn.Server(config)
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


def spent(pid: int) -> float:
    """Seconds of CPU time a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


Turn = Callable[[Ask], Awaitable[float]]


async def by_turns(turn: Turn, plain: Ask, ours: Ask, turns: int = TURNS) -> str:
    """A figure of both, and their ratio: the median over alternating turns."""
    pairs = [(await turn(plain), await turn(ours)) for _ in range(turns)]
    a, b = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(b / a for a, b in pairs)
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return f"{a:.2f}, gateway {b:.2f}, {statistics.median(ratios):.2f} x ({spread};"


def asker(session: aiohttp.ClientSession, url: str, **fields: Any) -> Ask:
    """Asks for one chat completion."""
    body = {**BODY, "model": "m", **fields}

    async def ask() -> None:
        async with session.post(f"{url}/chat/completions", json=body) as reply:
            assert reply.status == 200, await reply.text()
            await reply.read()

    return ask


async def measure(base: str, plain: str, ours: str, pids: tuple[int, int]) -> None:
    """The gateway beside the pass-through, and a vote beside the bare calls it is made of."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        voted, single = {"model": "aera/m"}, asker(session, base)
        through = asker(session, plain)
        one = asker(session, ours, **voted, aera={"policy": "fixed-1"})
        many = asker(session, ours, **voted, aera={"policy": "fixed-32"})

        async def fan_out() -> None:
            await asyncio.gather(*(single() for _ in range(32)))

        async def loaded(ask: Ask) -> float:
            return await throughput(ask, concurrency=200, times=1_500)

        async def paid(ask: Ask) -> float:
            pid, times = pids[ask is one], 1_000
            before = spent(pid)
            await throughput(ask, concurrency=200, times=times)
            return 1000 * (spent(pid) - before) / times

        await loaded(one), await loaded(through)
        told = await by_turns(lambda ask: latency(ask, 200), through, one)
        print(f"p50 at one sample, ms: pass-through {told} limit 1.5 x)")
        told = await by_turns(loaded, through, one)
        print(f"throughput at 200, requests/s: pass-through {told} limit 0.8 x)")
        told = await by_turns(paid, through, one)
        print(f"CPU of a request at 200, ms: pass-through {told} no limit)")
        told = await by_turns(lambda ask: latency(ask, 30), fan_out, many)
        print(f"32 samples, ms: bare fan-out {told} limit 1.5 x)")
        print(f"resident memory of the gateway: {resident(pids[1]):.0f} MB (limit 150)")


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
    asyncio.run(measure(base, plain, ours, (pass_through[1].pid, process[1].pid)))
    faulty, *broken = started(upstream, True)
    shaken, *second = started(gateway, faulty)
    asyncio.run(soak(shaken, second[1].pid, 60 * minutes))
    for pipe, worker in (calm, pass_through, process, broken, second):
        pipe.send("done")
        worker.join(5)


if __name__ == "__main__":
    main()
