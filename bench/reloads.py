"""`aera serve` under load while its configuration is read again 1,000 times: nothing may be dropped.

    .venv/bin/python bench/reloads.py [--reloads 1000] [--processes 1]

Voted and passed requests on many connections, half of them new for every request. The file changes its policies, its
upstreams and its keys' limits from one reload to the next; every tenth file is broken and must be refused, and after
every twentieth somebody goes back. Every request must be answered with 200.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, TCPConnector
from serving import Process, run, running, upstream

FILE = """
[[upstream]]
name = "gpu"
url = "{url}"
concurrency = {calls}

[[model]]
name = "small"
policy = "{policy}"

[[model]]
name = "large"
model = "m"
policy = "fixed-{samples}"

[limits]
max_requests = {most}
"""


def written(number: int, url: str) -> str:
    """The file as it is at some reload."""
    if number % 10 == 9:
        return "[[model]]\nname = 7\n"
    policy = ("asc-0.95", "esc-3", "fixed-1")[number % 3]
    calls, most = 200 + number % 4, 500 + number % 5
    return FILE.format(url=url, calls=calls, policy=policy, samples=1 + number % 4, most=most)


class Load:
    """Clients that ask until they are told to stop, and what they saw."""

    def __init__(self, url: str) -> None:
        self.url, self.over = url, False
        self.seen: Counter[str] = Counter()

    async def work(self, number: int) -> None:
        connector = TCPConnector(force_close=number % 2 == 0)
        async with ClientSession(connector=connector) as session:
            turn = number
            while not self.over:
                turn += 1
                model = ("aera/small", "small", "aera/large", "large")[turn % 4]
                message = {"role": "user", "content": "How much is 9 x 2?"}
                body = {"model": model, "messages": [message], "stream": turn % 8 == 0}
                try:
                    async with session.post(f"{self.url}/chat/completions", json=body) as reply:
                        content = await reply.read()
                        error = b'"error"' in content[:200]
                    self.seen[f"{reply.status}{' error' if error else ''}"] += 1
                except ClientError as broken:
                    self.seen[type(broken).__name__] += 1


def ask(server: Process, path: str) -> str:
    return str(urllib.request.urlopen(server.url.removesuffix("/v1") + path).read().decode())


def reloads(server: Process) -> dict[str, int]:
    """How many reloads ended how."""
    rows = [
        line
        for line in ask(server, "/metrics").splitlines()
        if line.startswith("aera_reloads_total")
    ]
    return {row.split('"')[1]: int(float(row.split()[-1])) for row in rows}


async def until(server: Process, count: int) -> None:
    """Wait until so many reloads are over."""
    end = time.monotonic() + 30
    while sum((await asyncio.to_thread(reloads, server)).values()) < count:
        assert time.monotonic() < end, "a reload did not come to its end"
        await asyncio.sleep(0.005)


async def measure(server: Process, file: Path, url: str, times: int) -> bool:
    load, done, told = Load(server.url), 0, Counter[str]()
    workers = [asyncio.create_task(load.work(number)) for number in range(24)]
    begun, memory, sockets = time.monotonic(), server.memory, 0
    for number in range(1, times + 1):
        file.write_text(written(number, url), "utf-8")
        server.process.send_signal(signal.SIGHUP)
        told["refused" if number % 10 == 9 else "taken"] += 1
        done += 1
        await until(server, done)
        if number % 20 == 0:
            server.process.send_signal(signal.SIGUSR1)
            told["back"] += 1
            done += 1
            await until(server, done)
        sockets = max(sockets, server.sockets)
    took = time.monotonic() - begun
    load.over = True
    await asyncio.gather(*workers)
    state: dict[str, Any] = json.loads(ask(server, "/state"))
    print(f"requests {dict(load.seen)}")
    print(f"reloads {reloads(server)} in {took:.0f} s, configuration {state['generation']}")
    print(
        f"memory {memory:.0f} MB before, {server.memory:.0f} after; sockets at most {sockets}, at the end {server.sockets}"
    )
    return load.seen.keys() == {"200"} and reloads(server) == told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reloads", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, file = stack.enter_context(upstream(20)), Path(folder) / "gateway.toml"
        file.write_text(written(0, model.url), "utf-8")
        log, line = Path(folder) / "log", ("-m", "aera", "serve", "--port", "PORT")
        more = {"AERA_CONFIG": str(file), "AERA_PROCESSES": str(given.processes)}
        server = stack.enter_context(running(*line, log=log, **more))
        time.sleep(1)
        met = []

        async def work() -> None:
            met.append(await measure(server, file, model.url, given.reloads))

        run(work())
        traces = log.read_text().count("Traceback")
        print(f"tracebacks in the log {traces}")
    sys.exit(0 if met == [True] and not traces else 1)


if __name__ == "__main__":
    main()
