"""Is `--concurrency auto` as fast as the best number? Measured on engines of known size, over HTTP.

    python bench/pace.py [--places 8 64 512] [--speed 600] [--concurrency 8 64 512 auto] [--refuses]

Each engine (tests/pace.py) is a process of its own with so many places, whose pace falls with how many are
taken; more calls wait inside, or with --refuses are refused. Questions are asked by solve_many, 20 + as
many as there are places.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pace import Engine

from aera import (
    ASC,
    Chat,
    Controller,
    Endpoint,
    OpenAISampler,
    Question,
    Schedule,
    get_task,
    solve_many,
)


async def serve(places: int, speed: float, refuses: bool) -> None:
    """The engine, until somebody ends it."""
    _, port = await Engine(places, tokens_per_second=speed, refuses=refuses).serve()
    print(port, flush=True)
    await asyncio.Event().wait()


async def solve(url: str, questions: int, concurrency: int | None) -> tuple[float, int, int]:
    """Seconds, tokens and errors of so many questions."""
    controller = Controller(get_task("numeric"), Schedule(), ASC(0.95))
    chat = Chat("m", controller.task, {"max_tokens": 1_024, "seed": 0})
    begun = time.monotonic()
    async with OpenAISampler(Endpoint(url, concurrency=concurrency), chat) as sampler:
        asked = [Question(str(place), f"question {place}?") for place in range(questions)]
        done = [made async for made in solve_many(asked, sampler, controller)]
    took, failed = time.monotonic() - begun, sum(made.error is not None for made in done)
    return took, sum(made.completion_tokens for made in done), failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--concurrency", nargs="+", default=["8", "64", "512", "auto"])
    parser.add_argument("--speed", type=float, default=600.0)
    parser.add_argument("--refuses", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.serve:
        asyncio.run(serve(told.places[0], told.speed, told.refuses))
        return
    for places in told.places:
        for each in told.concurrency:
            options = ["--serve", "--places", str(places), "--speed", str(told.speed)]
            options += ["--refuses"] * told.refuses
            engine = subprocess.Popen(
                [sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True
            )
            try:
                assert engine.stdout is not None
                at = f"http://127.0.0.1:{int(engine.stdout.readline())}"
                calls = None if each == "auto" else int(each)
                took, tokens, failed = asyncio.run(solve(f"{at}/v1", 20 + places, calls))
                with urlopen(f"{at}/told") as reply:
                    seen = json.loads(reply.read())
            finally:
                engine.kill()
                engine.wait()
            rate = f"{tokens / took:9,.0f} tokens/s"
            print(
                f"{places:4} places, concurrency {each:>4}: {took:7.1f} s {rate}, {seen}, {failed} failed",
                flush=True,
            )


if __name__ == "__main__":
    main()
