"""What clients wait with audits and without: two gateways, asked by turns in one run.

.venv/bin/python bench/audit_latency.py [SHARE]     a share of 0.01 unless told; half a minute
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles

import aiohttp

from aera import ASC, Controller, Schedule, get_task
from aera.gateway.app import GatewayServer, bind
from aera.gateway.config import Config, ModelConfig, UpstreamConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fakes import FakeUpstream

ROUNDS, REQUESTS, AT_ONCE = 10, 200, 8
SECONDS = 0.02
"""What a call to the model server takes."""


async def start(url: str, share: float) -> tuple[str, GatewayServer, "asyncio.Task[None]"]:
    """A gateway that audits this share, and where it is."""
    controller = Controller(get_task("numeric"), Schedule((4, 8, 16, 32, 64, 128)), ASC(0.95))
    model = ModelConfig("m", controller=controller, audit_share=share)
    config = Config(upstream=(UpstreamConfig("one", (url,)),), model=(model,))
    server, listening = GatewayServer(config), bind("127.0.0.1", 0)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    place = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/chat/completions"
    return place, server, task


async def ask(http: aiohttp.ClientSession, url: str, mark: str) -> list[float]:
    """Seconds of each of a round's requests, a few at a time."""
    seconds: list[float] = []

    async def client(first: int) -> None:
        for number in range(first, REQUESTS, AT_ONCE):
            message = {"role": "user", "content": f"{mark}, {number}: how many?"}
            begun = time.perf_counter()
            async with http.post(url, json={"model": "aera/m", "messages": [message]}) as reply:
                assert reply.status == 200
                await reply.read()
            seconds.append(time.perf_counter() - begun)

    await asyncio.gather(*(client(first) for first in range(AT_ONCE)))
    return seconds


async def main(share: float) -> None:
    async with AsyncExitStack() as stack:
        said = FakeUpstream(lambda call, place: "so \\boxed{7}", delay=lambda call: SECONDS)
        upstream = await stack.enter_async_context(said)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        houses = {each: await start(upstream.base_url, each) for each in (0.0, share)}
        taken: dict[float, list[float]] = {each: [] for each in houses}
        for each, (url, *_) in houses.items():
            await ask(http, url, f"warm {each}")
        for turn in range(ROUNDS):
            for each, (url, *_) in houses.items():
                taken[each] += await ask(http, url, f"round {turn}")
                await asyncio.sleep(0.5)  # its audits end in its own time
        auditor = houses[share][1].gateway.models["m"].auditor
        for each, seconds in taken.items():
            late = quantiles(seconds, n=100)[98]
            print(f"share {each:g}: p50 {1000 * median(seconds):.2f} ms, p99 {1000 * late:.2f} ms")
        print(f"p50 {median(taken[share]) / median(taken[0.0]):.3f} x, {auditor.seen} audits")
        for _, server, task in houses.values():
            server.should_exit = True
            await task


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.01))
