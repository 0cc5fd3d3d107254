"""`aera serve` under minutes of mixed load: one fault in ten calls, clients that leave, a replica that hangs.

    .venv/bin/python bench/soak.py [--minutes 10]

Three replicas: one that fails one call in ten in five ways, one that is well, one that takes calls and never answers.
Every request has a number in its prompt, and the replicas remember the numbers that they answered: a client that got
an error although a replica had answered its request has lost something that was paid for. There must be none. At the
end no request, connection or memory may be left over.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web
from serving import Process, gateway, run, running

NUMBER = re.compile(r"number (\d+)")
WORKERS = 32
LEAVE = 0.05
"""Share of clients that do not wait for their answer."""
ERRORS = (500, 503, 429, 400)


class Replica:
    """A model server of some kind, with the numbers of the requests that it has answered."""

    def __init__(self, kind: str) -> None:
        self.kind, self.chance, self.paid = kind, random.Random(1), set()  # type: str, random.Random, set[int]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.kind == "hangs":
            await asyncio.sleep(3_600)
        await asyncio.sleep(self.chance.uniform(0.005, 0.05))
        fault = (
            self.chance.randrange(6)
            if self.kind == "fails" and self.chance.random() < 0.1
            else None
        )
        if fault is not None and fault < len(ERRORS):
            error = {"message": "planned", "type": "planned", "code": None}
            return web.json_response(
                {"error": error}, status=ERRORS[fault], headers={"Retry-After": "1"}
            )
        if fault is not None and request.transport is not None:
            request.transport.abort()
            return web.Response()
        reply = web.json_response(self.completion(body))
        number = NUMBER.search(str(body["messages"][-1]["content"]))
        await reply.prepare(request)
        await reply.write_eof()
        if number:
            self.paid.add(int(number[1]))
        return reply

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        said = [f"so \\boxed{{{self.chance.choice('7778')}}}" for _ in range(body.get("n") or 1)]
        choices = [
            {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for i, text in enumerate(said)
        ]
        usage = {
            "prompt_tokens": 5,
            "completion_tokens": 4 * len(said),
            "total_tokens": 5 + 4 * len(said),
        }
        return {"id": "x", "model": "m", "choices": choices, "usage": usage}

    async def models(self, request: web.Request) -> web.Response:
        if self.kind == "hangs":
            await asyncio.sleep(3_600)
        return web.json_response({"object": "list", "data": [{"id": "m"}]})

    async def tell(self, request: web.Request) -> web.Response:
        return web.json_response(sorted(self.paid))

    async def serve(self, port: int) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/paid", self.tell)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
        await asyncio.Event().wait()


class Soak:
    """What the clients saw."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url, self.end = f"{url}/chat/completions", time.monotonic() + seconds
        self.answered: Counter[str] = Counter()
        self.failed: dict[int, str] = {}
        self.numbers = iter(range(10**9))
        self.chance = random.Random(0)
        self.took: list[float] = []

    async def work(self, session: ClientSession) -> None:
        while time.monotonic() < self.end:
            await self.ask(session, next(self.numbers))

    async def ask(self, session: ClientSession, number: int) -> None:
        votes = self.chance.random() < 0.7
        body: dict[str, Any] = {
            "model": "aera/m" if votes else "m",
            "messages": [{"role": "user", "content": f"number {number}"}],
        }
        if votes:
            body["stream"] = self.chance.random() < 0.3
            body["aera"] = {
                "policy": self.chance.choice(["asc-0.95", "fixed-1", "fixed-16", "esc-3"])
            }
        leaves = self.chance.random() < LEAVE
        patience = ClientTimeout(total=self.chance.uniform(0.001, 0.1) if leaves else 120)
        begun = time.monotonic()
        try:
            async with session.post(self.url, json=body, timeout=patience) as reply:
                content = await reply.read()
            self.took.append(time.monotonic() - begun)
            error = reply.status != 200 or b'data: {"error"' in content
            self.answered[
                f"{'vote' if votes else 'passed'} {reply.status}{' error' if error else ''}"
            ] += 1
            if error and votes:
                self.failed[number] = f"{reply.status} {content[:120]!r}"
        except TimeoutError:
            self.answered["left"] += 1
        except ClientError as error:
            self.answered[f"broke off {type(error).__name__}"] += 1
            if votes:
                self.failed[number] = type(error).__name__


async def soak(server: Process, replicas: list[Process], minutes: float) -> int:
    await asyncio.sleep(2)  # all of its sockets are open
    seen = Soak(server.url, 60 * minutes)
    memory, before = [server.memory], server.sockets
    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        workers = [asyncio.create_task(seen.work(session)) for _ in range(WORKERS)]
        while time.monotonic() < seen.end:
            await asyncio.sleep(min(10.0, 6 * minutes))
            memory.append(server.memory)
        await asyncio.gather(*workers)
    await asyncio.sleep(25)  # calls to the replica that hangs are over by then
    paid: set[int] = set()
    async with ClientSession() as session:
        for replica in replicas[:2]:
            async with session.get(replica.url.removesuffix("/v1") + "/paid") as reply:
                paid |= set(await reply.json())
        async with session.get(server.url.removesuffix("/v1") + "/state") as reply:
            active = (await reply.json())["active"]
    lost = {number: why for number, why in seen.failed.items() if number in paid}
    took = sorted(seen.took)
    print(f"answered {json.dumps(dict(seen.answered))}")
    print(
        f"p50 {1000 * took[len(took) // 2]:.0f} ms, p99 {1000 * took[int(0.99 * len(took))]:.0f} ms"
    )
    print(
        f"votes that failed {len(seen.failed)}, of which something was paid for {len(lost)}: {list(lost.items())[:3]}"
    )
    half = memory[len(memory) // 2]
    print(
        f"memory {memory[1]:.0f} MB after 10 s, {half:.0f} MB at half time, {memory[-1]:.0f} MB at the end"
    )
    print(f"sockets {before} before, {server.sockets} after; requests under way {active}")
    return len(lost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        kinds = ("fails", "works", "hangs")
        replicas = [
            stack.enter_context(running(__file__, "replica", "PORT", kind)) for kind in kinds
        ]
        urls = [replica.url for replica in replicas]
        log = Path(folder) / "log"
        server = stack.enter_context(gateway(*urls, log=log, AERA_TIMEOUT="20"))
        lost = asyncio.run(soak(server, replicas, minutes))
        broken = [line for line in log.read_text().splitlines() if line.startswith("Traceback")]
        print(f"tracebacks in the log {len(broken)}")
    sys.exit(1 if lost or broken else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["replica"]:
        run(Replica(sys.argv[3]).serve(int(sys.argv[2])))
    main()
