"""What clients wait with audits and without: two gateways, asked by turns in one run.

.venv/bin/python bench/audit_latency.py [SHARE]     a share of 0.01 unless told; half a minute
"""

import asyncio
import re
import sys
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median, quantiles

import aiohttp
from serving import Process, gateway, upstream

ROUNDS, REQUESTS, AT_ONCE = 10, 200, 8
MILLISECONDS = 20.0
"""What a call to the model server takes."""


def start(url: str, share: float, folder: str) -> AbstractContextManager[Process]:
    """A gateway that audits this share."""
    log = Path(folder) / f"{share}.log"
    return gateway(url, log=log, AERA_TASK="numeric", AERA_AUDIT_SHARE=str(share))


async def count_audits(http: aiohttp.ClientSession, house: Process) -> int:
    async with http.get(f"{house.url.removesuffix('/v1')}/metrics") as reply:
        found = re.search(r"^aera_audit_seen{.*} ([0-9.]+)$", await reply.text(), re.MULTILINE)
    return int(float(found[1])) if found else 0


async def ask(http: aiohttp.ClientSession, house: Process, mark: str) -> list[float]:
    """Seconds of each of a round's requests, a few at a time."""
    seconds: list[float] = []
    url = f"{house.url}/chat/completions"

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
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        model = stack.enter_context(upstream(MILLISECONDS))
        houses = {
            each: stack.enter_context(start(model.url, each, folder)) for each in (0.0, share)
        }
        taken: dict[float, list[float]] = {each: [] for each in houses}
        async with aiohttp.ClientSession() as http:
            for each, house in houses.items():
                await ask(http, house, f"warm {each}")
            for turn in range(ROUNDS):
                for each, house in houses.items():
                    taken[each] += await ask(http, house, f"round {turn}")
                    await asyncio.sleep(0.5)  # its audits end in its own time
            audits = await count_audits(http, houses[share])
        for each, seconds in taken.items():
            late = quantiles(seconds, n=100)[98]
            print(f"share {each:g}: p50 {1000 * median(seconds):.2f} ms, p99 {1000 * late:.2f} ms")
        print(f"p50 {median(taken[share]) / median(taken[0.0]):.3f} x, {audits} audits")


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.01))
