"""`aera serve --processes 2` beside one process: CPU of a request, spread of clients, and counters that add up.

    .venv/bin/python bench/processes.py [--quick]

Both gateways are up at once and take turns. CPU is that of all their processes, from /proc/PID/stat. Then 10,000
requests, voted and passed on, with one process killed by SIGKILL in the middle while nothing is under way: the
counters must be exact. Last the same with the kill under load: every answered request must be counted, and beyond
them at most those that broke off.
"""

import argparse
import asyncio
import os
import re
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from serving import TICKS, Connection, Process, gateway, request, run, upstream

ASKED = {"messages": [{"role": "user", "content": "How much is 9 x 2?"}], "temperature": 0.6}
PASSED = request({"model": "m", **ASKED})
VOTED = request({"model": "aera/m", "aera": {"policy": "fixed-1"}, **ASKED})
TURNS = 7
MOST_CPU, LEAST_SHARE = 1.15, 0.35


def family(server: Process) -> list[int]:
    """A process and those that it has started."""
    number = server.process.pid
    text = Path(f"/proc/{number}/task/{number}/children").read_text()
    return [number, *map(int, text.split())]


def cpu(numbers: list[int]) -> float:
    """CPU seconds of these processes so far."""
    told = [
        Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split() for number in numbers
    ]
    return sum(int(fields[11]) + int(fields[12]) for fields in told) / TICKS


def sockets(number: int) -> int:
    """Connections that a process holds."""
    kept = 0
    for each in Path(f"/proc/{number}/fd").iterdir():
        kept += str(each.readlink()).startswith("socket:")
    return kept


def counted(server: Process, name: str) -> int:
    """A counter, as whichever process answers tells it."""
    url = server.url.removesuffix("/v1") + "/metrics"
    text = urllib.request.urlopen(url).read().decode()
    own = [line for line in text.splitlines() if line.startswith("aera_requests_total{")]
    return int(sum(float(line.split()[-1]) for line in own if name in line))


@dataclass
class Clients:
    """Connections that ask one thing after the other; those that break are opened again."""

    port: int
    answered: int = 0
    broken: int = 0
    opened: list[Connection] = field(default_factory=list)

    async def open(self, count: int) -> None:
        for _ in range(count):
            self.opened.append(await self._connect())

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, "127.0.0.1", self.port))[1]

    async def ask(self, contents: list[bytes]) -> None:
        left = iter(contents)
        await asyncio.gather(*(self._work(place, left) for place in range(len(self.opened))))

    async def _work(self, place: int, left: "iter[bytes]") -> None:  # type: ignore[valid-type]
        for content in left:
            try:
                head = await self.opened[place].ask(content)
                assert head.startswith(b"HTTP/1.1 200"), head[:200]
                self.answered += 1
            except ConnectionError:
                self.broken += 1
                self.opened[place] = await self._connect()

    def close(self) -> None:
        for each in self.opened:
            each.transport.close()


async def turn(server: Process, content: bytes, times: int) -> float:
    """Milliseconds of CPU per request."""
    clients = Clients(server.port)
    await clients.open(64)
    await clients.ask([content] * 128)
    numbers = family(server)
    before = cpu(numbers)
    await clients.ask([content] * times)
    used = cpu(numbers) - before
    clients.close()
    return 1000 * used / times


async def spread(server: Process, count: int) -> list[float]:
    """The share of connections that each process has."""
    numbers = family(server)[1:]
    before = [sockets(number) for number in numbers]
    clients = Clients(server.port)
    await clients.open(count)
    await clients.ask([PASSED] * count)
    held = [sockets(number) - old for number, old in zip(numbers, before, strict=True)]
    own = [each / sum(held) for each in held]
    clients.close()
    return own


async def add_up(server: Process, requests: int, *, loaded: bool) -> tuple[int, int, int]:
    """Answered and broken off as clients saw it, and what the counters gained meanwhile."""
    name = 'route="chat",status="200"'
    before, clients = counted(server, name), Clients(server.port)
    await clients.open(64)
    mixed = [VOTED if place % 2 else PASSED for place in range(requests)]
    victim = family(server)[1]
    if loaded:
        work = asyncio.create_task(clients.ask(mixed))
        while clients.answered < requests // 2:
            await asyncio.sleep(0.001)
        os.kill(victim, signal.SIGKILL)
        await work
    else:
        await clients.ask(mixed[: requests // 2])
        os.kill(victim, signal.SIGKILL)
        await asyncio.sleep(1.0)
        clients.broken = 0
        for place, each in enumerate(clients.opened):
            if each.transport.is_closing():
                clients.opened[place] = await clients._connect()
        await clients.ask(mixed[requests // 2 :])
    clients.close()
    return clients.answered, clients.broken, counted(server, name) - before


async def measure(one: Process, two: Process, *, quick: bool) -> bool:
    times, ratios, met = 1_000 if quick else 4_000, [], True
    for name, content in (("passed on", PASSED), ("voted", VOTED)):
        ratios, shown = [], []
        for _ in range(3 if quick else TURNS):
            single, double = await turn(one, content, times), await turn(two, content, times)
            ratios.append(double / single)
            shown.append((single, double))
        middle = statistics.median(ratios)
        met &= middle <= MOST_CPU
        single, double = (statistics.median(each) for each in zip(*shown, strict=True))
        print(
            f"{name}: CPU of a request {single:.3f} ms in one process, {double:.3f} in two; "
            f"ratio {middle:.2f} (median of {len(ratios)}, {min(ratios):.2f} to {max(ratios):.2f})"
        )
    shares = await spread(two, 200)
    met &= min(shares) >= LEAST_SHARE
    print(f"of 200 connections each has {', '.join(f'{100 * each:.0f} %' for each in shares)}")
    requests = 1_000 if quick else 10_000
    for loaded in (False, True):
        answered, broken, gained = await add_up(two, requests, loaded=loaded)
        met &= answered <= gained <= answered + broken
        met &= loaded or answered == gained == requests
        kind = "under load" if loaded else "between requests"
        print(f"killed {kind}: {answered} answered, {broken} broke off, {gained} counted")
        time.sleep(1)
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(upstream(0))
        logs = [Path(folder) / name for name in ("one", "two")]
        one = stack.enter_context(gateway(server.url, log=logs[0]))
        two = stack.enter_context(gateway(server.url, log=logs[1], AERA_PROCESSES="2"))
        time.sleep(1)
        met = []

        async def work() -> None:
            met.append(await measure(one, two, quick=quick))

        run(work())
        broken = sum(re.search("Traceback", log.read_text()) is not None for log in logs)
    sys.exit(0 if met == [True] and not broken else 1)


if __name__ == "__main__":
    main()
