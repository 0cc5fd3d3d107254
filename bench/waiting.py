"""Does the model of waiting tell what is measured? Simulated and real seconds over loopback, as ratios.

    .venv/bin/python bench/waiting.py

Thirty bundled questions are solved by the bundled controller against recorded responses at an exact
pace, as they arrive at a server without and with slots. The server runs in a process of its own.
"""

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from aera import Chat, Controller, Endpoint, OpenAISampler, Pool, RecordedUpstream, get_task, solve
from aera.arrays import Floats
from aera.lab.formats.importing import import_jsonl
from aera.lab.replay.replay import ReplaySettings
from aera.lab.replay.server import Server
from aera.lab.replay.waiting import Waited, courses, simulate
from aera.policies.ahead import default_ahead
from aera.pools.record import VotedRecord

ROOT = Path(__file__).parents[1]
QUESTIONS = 30
HURRIES = (0.0, 0.5, 0.7)
IDLE = Server(200.0, load=1.0)
SINGLY = Server(100.0, load=0.5, singly=True)
"""Fewer at a time: a call for every response keeps client and server busy with themselves."""
SHARED = Server(200.0, slots=64, load=0.6)
CALLS = 1_024
"""More than ever are under way, so that the server's slots are the only limit."""


def open_demo() -> Pool:
    """The bundled responses, imported on first use."""
    out = ROOT / "out" / "pools" / "demo"
    if not out.exists():
        import_jsonl(ROOT / "aera" / "demo" / "gsm8k.jsonl.gz", out, task=get_task("gsm8k"))
    return Pool.open(out)


def serve(pipe: Connection, server: Server) -> None:
    """Recorded responses at the server's exact pace, until the other end hangs up."""

    async def run() -> None:
        pace = 1000 / server.tokens_per_second
        known: dict[str, Any] = {"honours_n": not server.singly, "slots": server.slots}
        async with RecordedUpstream(open_demo(), pace=pace, jitter=0.0, **known) as upstream:
            pipe.send(upstream.base_url)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(run())


async def measure(
    url: str, server: Server, controller: Controller, records: list[VotedRecord], hurry: float
) -> Floats:
    """The seconds that every question waited."""
    chat = Chat("recorded", controller.task, {"seed": 0}, wishes=controller.asks)
    hurried: dict[str, Any] = {"hurry": hurry} if hurry else {}
    async with OpenAISampler(Endpoint(url, concurrency=CALLS), chat) as sampler:

        async def ask(record: VotedRecord, at: float) -> float:
            await asyncio.sleep(at)
            begun = time.monotonic()
            await solve(record.question, sampler, controller, **hurried)
            return time.monotonic() - begun

        # The first question finds out whether the server takes n.
        await solve(records[0].question, sampler, controller)
        arrivals = server.arrivals(len(records)).tolist()
        pairs = zip(records, arrivals, strict=True)
        return np.array(await asyncio.gather(*(ask(*pair) for pair in pairs)))


def predict(
    server: Server, controller: Controller, records: list[VotedRecord], hurry: float
) -> Waited:
    """The same, simulated."""
    settings = ReplaySettings(controller.task, controller.schedule)
    stops = settings.replay(records, [controller.policy]).columns[:, 0]
    aheads = [controller.ahead or default_ahead()] * len(records)
    made = courses(records, stops, controller.schedule, aheads)
    return simulate(made, server, hurry=hurry)


def compare(server: Server, controller: Controller, records: list[VotedRecord]) -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(there, server))
    process.start()
    url = here.recv()
    try:
        for hurry in HURRIES:
            simulated = predict(server, controller, records, hurry).figures
            seconds = asyncio.run(measure(url, server, controller, records, hurry))
            measured = Waited(seconds, seconds).figures
            ratios = [
                f"{name} {getattr(measured, name) / getattr(simulated, name):.3f}"
                for name in ("mean", "p50", "p95")
            ]
            print(f"{server}; hurry {hurry:g}: measured / simulated   {'   '.join(ratios)}")
    finally:
        here.send("done")
        process.join()


def main() -> None:
    controller = Controller.load(ROOT / "aera" / "demo" / "controller")
    settings = ReplaySettings(controller.task, controller.schedule, weigher=controller.weigher)
    records = settings.read(list(open_demo())[:QUESTIONS])
    for server in (IDLE, SINGLY, SHARED):
        compare(server, controller, records)


if __name__ == "__main__":
    main()
