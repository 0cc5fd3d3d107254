"""What is begun ahead and not wanted: does the server see it broken off, and is anything left?

    python bench/ahead.py [--blocks 1000]

Questions that stop at their first block, over real sockets, at a hurry of 1: all later blocks are
under way by then. How soon the server saw each connection close, and what is left of connections,
tasks, permits and reservations.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from tables import print_table

from aera import ASC, Question, Response, Schedule, get_task
from aera.sampling.budget import Budget
from aera.sampling.sampler import Chat, OpenAISampler
from aera.sampling.spending import Spending
from aera.sampling.upstream import Endpoint
from aera.solving.controller import Controller
from aera.solving.solve import Allocator

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fakes import Call, FakeUpstream


class Watched(FakeUpstream):
    """Remembers when each connection closed before its reply."""

    def __init__(self) -> None:
        self.closed: list[tuple[str, float]] = []
        super().__init__(self.say, delay=lambda call: 60.0 if call.body["seed"] else 0.05)

    @staticmethod
    def say(call: Call, place: int) -> Response:
        return Response("\\boxed{7}", tokens=10)

    async def _reply(self, request, call, fault):  # type: ignore[no-untyped-def]
        try:
            return await super()._reply(request, call, fault)
        except asyncio.CancelledError:
            self.closed.append((call.prompt, time.monotonic()))
            raise


async def run(blocks: int) -> None:
    controller = Controller(get_task("numeric"), Schedule((4, 8, 16, 32, 64)), ASC(0.8))
    questions = [Question(f"q{i}", f"question {i}?") for i in range(blocks // 2)]
    ended: dict[str, float] = {}
    async with Watched() as server:
        chat = Chat("m", controller.task, {"seed": 0})
        endpoint = Endpoint(server.base_url, concurrency=512)
        async with OpenAISampler(endpoint, chat) as sampler:
            spending = Spending(Budget())
            many = Allocator(sampler, controller, budget=spending, concurrency=10, hurry=1.0)
            unused = 0
            async for done in many.solve(questions):
                ended[chat.task.prompt(Question("", questions[int(done.question_id[1:])].text))] = (
                    time.monotonic()
                )
                unused += done.unused.broken_off
            await asyncio.sleep(0.2)
            late = sorted(closed - ended[prompt] for prompt, closed in server.closed)
            connector = sampler.upstream.session.connector
            assert connector is not None
            left = {
                "blocks begun ahead": len(server.calls) - len(questions),
                "broken off at the server": len(server.closed),
                "responses told as broken off": unused,
                "latest close after the answer, ms": f"{1000 * late[-1]:.1f}",
                "calls under way at the server": server.active,
                "connections acquired": len(connector._acquired),
                "permits in use": sampler.upstream.permits.active,
                "calls that wait for one": sampler.upstream.waiting,
                "open reservations": len(spending._open),
                "tasks": sum("RequestHandler" not in str(t) for t in asyncio.all_tasks()) - 1,
            }
    print_table(["what", "count"], [[name, str(count)] for name, count in left.items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=1_000)
    asyncio.run(run(parser.parse_args().blocks))


if __name__ == "__main__":
    main()
