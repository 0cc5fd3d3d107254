"""What asking costs: our client beside a bare aiohttp loop, and memory over 100,000 responses.

    .venv/bin/python bench/live.py

The server runs in a process of its own, so that only the client's CPU time is counted.
"""

import asyncio
import multiprocessing
import resource
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp

from aera import Chat, Endpoint, OpenAISampler, Question, get_task

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fakes import FakeUpstream

CALLS = 2_000
IN_FLIGHT = 64
TEXT = "Nine times two is eighteen, so the answer is \\boxed{18}. " * 20


def serve(pipe: Connection) -> None:
    """A fake upstream until the other end hangs up."""

    async def run() -> None:
        async with FakeUpstream(lambda call, place: TEXT) as upstream:
            pipe.send(upstream.base_url)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(run())


async def bare(base_url: str, calls: int) -> None:
    """The least a client can do."""
    body = {"model": "m", "messages": [{"role": "user", "content": "How much is 9 x 2?"}]}
    left = iter(range(calls))

    async def worker(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.post(f"{base_url}/chat/completions", json=body) as reply:
                await reply.json()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(worker(session) for _ in range(IN_FLIGHT)))


async def ours(base_url: str, calls: int, *, n: int = 1) -> int:
    """The same through the sampler: retries, permits, parsing."""
    question = Question("q", "How much is 9 x 2?")
    left = iter(range(calls))
    tokens = 0

    async def worker(sampler: OpenAISampler) -> None:
        nonlocal tokens
        for _ in left:
            got = await sampler.sample(question, n)
            tokens += sum(response.tokens for response in got)

    chat = Chat("m", get_task("numeric"), {})
    async with OpenAISampler(Endpoint(base_url, concurrency=IN_FLIGHT), chat) as sampler:
        await asyncio.gather(*(worker(sampler) for _ in range(IN_FLIGHT)))
    return tokens


def cpu(coroutine: "asyncio.Future[object]") -> float:
    start = time.process_time()
    asyncio.run(coroutine)  # type: ignore[arg-type]
    return time.process_time() - start


def main() -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(there,))
    server.start()
    base_url = here.recv()
    cpu(bare(base_url, 200))  # type: ignore[arg-type]
    pairs = [
        (cpu(bare(base_url, CALLS)), cpu(ours(base_url, CALLS)))  # type: ignore[arg-type]
        for _ in range(3)
    ]
    plain, client = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    print(f"bare aiohttp   {1000 * plain / CALLS:.3f} ms CPU per response")
    print(f"our client     {1000 * client / CALLS:.3f} ms, {client / plain:.2f} x   (limit 1.5 x)")
    for done in (20_000, 100_000):
        asyncio.run(ours(base_url, done // 8, n=8))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"peak memory after {done:7,} more responses   {peak:.0f} MB")
    here.send("done")
    server.join()


if __name__ == "__main__":
    main()
