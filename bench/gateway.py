"""`aera serve` as it starts by default beside a bare aiohttp proxy, with upstreams of 0, 50 and 500 ms.

    .venv/bin/python bench/gateway.py [--quick]

Every server is a process of its own, on uvloop where that is installed; log lines are written. The servers take
turns, and ratios are medians over the turns: what else runs on the machine then hits all of them. CPU per request
is what the server's own process used, from /proc/PID/stat.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from serving import ROOT, Connection, Process, gateway, proxy, request, run, upstream

ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "How much is 9 x 2?"}],
    "temperature": 0.6,
}
PASSED = request({"model": "m", **ASKED})
ONE = request({"model": "aera/m", "aera": {"policy": "fixed-1"}, **ASKED})
FOUR = request({"model": "aera/m", **ASKED})
SIXTEEN = request({"model": "aera/m", "aera": {"policy": "fixed-16"}, **ASKED})
LED = request({"model": "aera/m", "aera": {"policy": "weighted-16"}, **ASKED})
CONFIG = """[[upstream]]
name = "upstream"
url = "URL"
[[model]]
name = "m"
controller = "CONTROLLER"
trust = true
"""
TURNS = 5


@dataclass(frozen=True)
class Way:
    """One way to ask: a server, and what it is asked."""

    name: str
    server: Process
    content: bytes


@dataclass(frozen=True)
class Load:
    """What was measured in one turn."""

    p50: float
    p99: float
    rate: float
    cpu: float
    """Milliseconds of CPU per request."""


async def measure(way: Way, *, connections: int, times: int) -> Load:
    """Ask so often, over so many connections at once."""
    loop = asyncio.get_running_loop()
    place = ("127.0.0.1", way.server.port)
    opened = [(await loop.create_connection(Connection, *place))[1] for _ in range(connections)]
    await asyncio.gather(*(connection.ask(way.content) for connection in opened))  # all are let in
    left, took = iter(range(times)), []

    async def work(connection: Connection) -> None:
        for _ in left:
            begun = time.perf_counter()
            head = await connection.ask(way.content)
            took.append(1000 * (time.perf_counter() - begun))
            assert head.startswith(b"HTTP/1.1 200"), head

    cpu, begun = way.server.cpu, time.perf_counter()
    await asyncio.gather(*map(work, opened))
    seconds, spent = time.perf_counter() - begun, way.server.cpu - cpu
    for connection in opened:
        connection.transport.close()
    took.sort()
    at = took[min(len(took) - 1, int(0.99 * len(took)))]
    return Load(statistics.median(took), at, times / seconds, 1000 * spent / times)


def ratio(own: list[Load], bare: list[Load], field: str) -> str:
    """The median ratio of the turns; none where a turn was too short for the clock of the kernel."""
    pairs = [(getattr(a, field), getattr(b, field)) for a, b in zip(own, bare, strict=True)]
    if not all(below for _, below in pairs):
        return "too short"
    return f"{statistics.median(above / below for above, below in pairs):4.2f} x"


async def compare(ways: list[Way], *, connections: int, times: int, turns: int) -> None:
    """One line for each way: medians over the turns, and its ratio to the first one."""
    loads: dict[str, list[Load]] = {way.name: [] for way in ways}
    for way in ways:  # nobody pays for the first request
        await measure(way, connections=connections, times=2 * connections)
    for _ in range(turns):
        for way in ways:
            loads[way.name].append(await measure(way, connections=connections, times=times))
    bare = loads[ways[0].name]
    print(f"  {connections} connections")
    for way in ways:
        own = loads[way.name]
        ratios = [ratio(own, bare, field) for field in ("p50", "p99", "cpu")]
        p50, p99, rate, cpu = (
            statistics.median(getattr(load, field) for load in own)
            for field in ("p50", "p99", "rate", "cpu")
        )
        print(
            f"    {way.name:24} p50 {p50:8.2f} ms ({ratios[0]})   p99 {p99:8.2f} ms ({ratios[1]})   "
            f"{rate:7.0f} req/s   CPU {cpu:5.2f} ms ({ratios[2]})",
            flush=True,
        )


def ways_to(stack: ExitStack, url: str, log: Path) -> list[Way]:
    """The servers in front of one upstream."""
    bare = stack.enter_context(proxy(url))
    ours = stack.enter_context(gateway(url, log=log))
    config = log.with_name("config.toml")
    told = CONFIG.replace("URL", url)
    config.write_text(told.replace("CONTROLLER", str(ROOT / "aera" / "demo" / "controller")))
    led = stack.enter_context(gateway(log=log.with_name("led.log"), AERA_CONFIG=str(config)))
    return [
        Way("bare aiohttp proxy", bare, PASSED),
        Way("aera, passed through", ours, PASSED),
        Way("aera, a vote of 1", ours, ONE),
        Way("aera, a vote of 4", ours, FOUR),
        Way("aera, a vote of 16", ours, SIXTEEN),
        Way("the same, by a controller", led, LED),
    ]


async def bench(folder: Path, *, quick: bool) -> None:
    part = 4 if quick else 1
    for delay in (0, 50, 500):
        with ExitStack() as stack:
            server = stack.enter_context(upstream(delay))
            ways = ways_to(stack, server.url, folder / "log")
            print(f"upstream of {delay} ms", flush=True)
            turns = 3 if quick or delay == 500 else TURNS
            single = {0: 1_000, 50: 100, 500: 10}[delay] // part or 2
            await compare(ways, connections=1, times=single, turns=turns)
            for connections in (50, 200):
                times = {0: 4_000, 50: 2_000, 500: 4 * connections}[delay] // part
                await compare(
                    ways, connections=connections, times=max(times, connections), turns=turns
                )
    with ExitStack() as stack:
        server = stack.enter_context(upstream(1_000))
        ways = ways_to(stack, server.url, folder / "log")
        print("200 at once, upstream of 1 s", flush=True)
        await compare(ways, connections=200, times=200, turns=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the requests")
    quick = parser.parse_args().quick
    fast = {name: find_spec(name) is not None for name in ("uvloop", "httptools")}
    print(
        ", ".join(f"{name} {'is' if here else 'is not'} installed" for name, here in fast.items())
    )
    if find_spec("its_hub") is None:
        print("its-hub is not installed, so it is not measured")
    with tempfile.TemporaryDirectory() as folder:
        run(bench(Path(folder), quick=quick))


if __name__ == "__main__":
    main()
