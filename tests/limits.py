"""Random jobs under a limit, over an in-process transport and a virtual clock."""

import asyncio
import json
import random
import selectors
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import aiohttp

from aera import ASC, Allocation, Controller, Question, Schedule, get_task, solve_many
from aera.sampling.budget import Budget, Ledger
from aera.sampling.client import Endpoint
from aera.sampling.sampler import Chat, OpenAISampler


class _Idle(selectors.SelectSelector):
    """A selector that never waits: whoever would sleep moves the clock instead."""

    def __init__(self, clock: "VirtualClock") -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        if timeout:
            self._clock.now += timeout
        return super().select(0)


class VirtualClock(asyncio.SelectorEventLoop):
    """An event loop in which time passes only by waiting for it."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Idle(self))

    def time(self) -> float:
        return self.now


@dataclass
class Server:
    """What a model server generates, bills and loses; it keeps to max_tokens."""

    chance: random.Random
    usual: int
    faults: float = 0.0
    takes_n: bool = True
    says_usage: bool = True
    begun: list[float] = field(default_factory=list)
    responses: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def open_session(self, base_url: str, **settings: Any) -> Any:
        """In the place of connections."""

        async def close() -> None:
            """Nothing is open."""

        return SimpleNamespace(post=self.post, close=close, headers={})

    @asynccontextmanager
    async def post(self, url: Any, *, data: bytes, **settings: Any) -> AsyncIterator[Any]:
        """One call."""
        body = json.loads(data)
        self.begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.chance.uniform(0.1, 3.0))
        fault = self.chance.random() < self.faults
        if fault and self.chance.random() < 0.5:
            yield _reply(429, {"error": {"message": "too many"}})
            return
        most = body.get("max_tokens") or 10**9
        wanted = body.get("n", 1) if self.takes_n else 1
        tokens = [self._draw(most) for _ in range(wanted)]
        prompt = 10 + len(body["messages"][-1]["content"]) // self.chance.choice((1, 4))
        self.responses += wanted
        self.prompt_tokens += prompt
        self.completion_tokens += sum(tokens)
        if fault:
            raise aiohttp.ServerDisconnectedError
        said = [
            {"message": {"content": f"\\boxed{{{self.chance.choice('1234')}}}"}} for _ in tokens
        ]
        usage = {"prompt_tokens": prompt, "completion_tokens": sum(tokens)}
        yield _reply(200, {"choices": said, "usage": usage if self.says_usage else None})

    def _draw(self, most: int) -> int:
        return min(most, max(1, int(self.chance.expovariate(1 / self.usual))))


def _reply(status: int, body: Any) -> Any:
    async def readany() -> bytes:
        return json.dumps(body).encode()

    content = SimpleNamespace(readany=readany, at_eof=lambda: True)
    return SimpleNamespace(status=status, headers={}, content=content)


@dataclass(frozen=True)
class Job:
    """One random case."""

    kind: str
    concurrency: int | None
    seed: int

    @property
    def shared(self) -> bool:
        return self.seed % 3 == 0 and self.kind != "seconds"

    @property
    def bounded(self) -> bool:
        """Whether requests say max_tokens."""
        return self.seed % 4 != 3

    @property
    def chance(self) -> random.Random:
        return random.Random(f"{self.kind} {self.concurrency} {self.seed}")


@dataclass
class Outcome:
    """What a job spent, and whether it was still hungry."""

    budget: Budget
    server: Server
    done: list[Allocation]
    ended: float
    most_per_response: int
    at_risk: float
    """What was booked beyond that, as it may have been billed, in the unit of the limit."""

    @property
    def spent(self) -> float:
        """In the unit of the limit."""
        server, budget = self.server, self.budget
        if budget.responses is not None:
            return server.responses
        if budget.tokens is not None:
            return server.completion_tokens
        return budget.cost(server.prompt_tokens, server.completion_tokens)

    @property
    def limit(self) -> float:
        budget = self.budget
        found = budget.responses or budget.tokens or budget.money
        assert found is not None
        return found

    @property
    def hungry(self) -> bool:
        """Whether a question wanted more than the limit gave."""
        return any(each.reason.startswith("limit") for each in self.done)


def run_job(job: Job, monkeypatch: Any) -> Outcome:
    """Solve random questions under a random limit of at least twenty blocks."""
    chance = job.chance
    usual = chance.choice((20, 100, 400))
    most = usual * chance.choice((2, 4, 10, 40))
    block = 4
    budget = _budget(job.kind, chance, usual=usual, most=most, block=block)
    server = Server(chance, usual, chance.choice((0.0, 0.0, 0.1)), chance.random() < 0.7)
    server.says_usage = not job.bounded or chance.random() < 0.7
    loop = VirtualClock()
    monkeypatch.setattr("time.monotonic", loop.time)

    monkeypatch.setattr("aera.sampling.client.open_session", server.open_session)
    schedule = Schedule((block, 2 * block, 4 * block, 8 * block))
    controller = Controller(get_task("numeric"), schedule, ASC(0.99))
    settings = {"max_tokens": most} if job.bounded else {"temperature": 1.0}
    endpoint = Endpoint("http://nowhere/v1", concurrency=job.concurrency, tries=3)
    sampler = OpenAISampler(endpoint, Chat("m", controller.task, settings))
    questions = [Question(str(i), "why? " * chance.randint(1, 30)) for i in range(60)]

    ledger = Ledger(budget)

    async def work() -> list[Allocation]:
        known: Any = {"concurrency": job.concurrency, "shared": job.shared}
        async with sampler:
            many = solve_many(questions, sampler, controller, budget=ledger, **known)
            return [made async for made in many]

    try:
        done = loop.run_until_complete(work())
    finally:
        loop.close()
    booked, lost = ledger.spent, ledger.lost
    risk = {
        "responses": booked.responses + lost.responses - server.responses,
        "tokens": booked.completion_tokens + lost.completion_tokens - server.completion_tokens,
        "money": ledger.money
        + budget.cost(lost.prompt_tokens, lost.completion_tokens)
        - budget.cost(server.prompt_tokens, server.completion_tokens),
        "seconds": 0.0,
    }
    return Outcome(budget, server, done, loop.now, most, risk[job.kind])


def _budget(kind: str, chance: random.Random, *, usual: int, most: int, block: int) -> Budget:
    blocks = chance.randint(20, 200)
    if kind == "responses":
        return Budget(responses=blocks * block)
    if kind == "tokens":
        return Budget(tokens=blocks * block * usual)
    if kind == "seconds":
        return Budget(seconds=chance.uniform(5, 60))
    prices = (chance.choice((0.0, 1.0)), chance.choice((2.0, 8.0)))
    limit = Budget(None, None, None, None, *prices).cost(blocks * 40, blocks * block * usual)
    return Budget(None, None, None, limit, *prices)
