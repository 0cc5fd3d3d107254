"""An engine with so many places: each decodes at a pace that falls with how many are taken.

engine = Engine(64, tokens_per_second=100)
await engine.generate([300, 20])                       # two responses; more than fit wait inside

On a virtual clock (`virtual.run_on_virtual_time`) it costs none, and over HTTP it is a server.
"""

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

FALL = 1.0
"""How many times slower a full engine decodes each response than an empty one, beyond once."""


class Engine:
    """Generates responses; with `refuses`, a call that finds no free place is refused with 429."""

    def __init__(
        self, places: int, *, tokens_per_second: float = 100.0, refuses: bool = False
    ) -> None:
        self.places, self.refuses, self.speed = places, refuses, tokens_per_second
        self.calls = self.refused = self.tokens = self.most = 0
        self.begun: list[str] = []
        """The prompt of every call, in the order of coming."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._active: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers, self._said = itertools.count(), 0.0
        self._at, self._timer = 0.0, None  # type: float, asyncio.TimerHandle | None

    async def generate(self, lengths: Sequence[int]) -> None:
        """Decode responses of such lengths, as places come free."""
        loop = asyncio.get_running_loop()
        self._pass()
        ends = [loop.create_future() for _ in lengths]
        self._waiting.extend(zip(lengths, ends, strict=True))
        self._fill()
        await asyncio.gather(*ends)
        self.tokens += sum(lengths)

    def _pass(self) -> None:
        """Time has passed: everybody who decodes has said as much more."""
        now = asyncio.get_running_loop().time()
        share = len(self._active) / self.places
        self._said += (now - self._at) * self.speed / (1 + FALL * share)
        self._at = now

    def _fill(self) -> None:
        while self._active and (
            self._active[0][0] <= self._said + 1e-6 or self._active[0][2].done()
        ):
            end = heapq.heappop(self._active)[2]
            if not end.done():
                end.set_result(None)
        while self._waiting and len(self._active) < self.places:
            length, end = self._waiting.popleft()
            if not end.done():
                heapq.heappush(self._active, (self._said + length, next(self._numbers), end))
        self.most = max(self.most, len(self._active))
        if self._timer is not None:
            self._timer.cancel()
        if self._active:
            rate = self.speed / (1 + FALL * len(self._active) / self.places)
            left = max(0.0, self._active[0][0] - self._said) / rate
            self._timer = asyncio.get_running_loop().call_later(left, self._move)

    def _move(self) -> None:
        self._pass()
        self._fill()

    # --- as a model server ------------------------------------------------------------------------

    async def answer(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and reply of a call; a question is as hard as its text says at random."""
        self.calls += 1
        await asyncio.sleep(0.002)
        if self.refuses and len(self._active) + len(self._waiting) >= self.places:
            self.refused += 1
            return 429, {"error": {"message": "too many"}}
        prompt, n = body["messages"][-1]["content"], body.get("n", 1)
        self.begun.append(prompt)
        sure = random.Random(prompt).betavariate(1.2, 0.6)
        lengths, choices = [], []
        for place in range(n):
            chance = random.Random(f"{prompt}{body['seed'] + place}")
            lengths.append(min(body["max_tokens"], 1 + int(chance.lognormvariate(5.6, 0.5))))
            said = 7 if chance.random() < sure else chance.randint(1, 6)
            choices.append({"message": {"content": f"\\boxed{{{said}}}"}, "finish_reason": "stop"})
        await self.generate(lengths)
        for choice, length in zip(choices, lengths, strict=True):
            choice["usage"] = {"completion_tokens": length}
        usage = {"prompt_tokens": 50, "completion_tokens": sum(lengths)}
        return 200, {"choices": choices, "usage": usage}

    async def serve(self, port: int = 0) -> tuple[web.AppRunner, int]:
        """Behind a real port."""

        async def handle(request: web.Request) -> web.Response:
            status, reply = await self.answer(await request.json())
            return web.json_response(reply, status=status)

        async def tell(request: web.Request) -> web.Response:
            return web.json_response({"calls": self.calls, "refused": self.refused})

        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", handle), web.get("/told", tell)])
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=4_096).start()
        return runner, runner.addresses[0][1]
