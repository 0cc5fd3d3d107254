"""Random jobs under a limit, over an in-process transport and a virtual clock."""

import asyncio
import random
import selectors
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aera import ASC, Allocation, Controller, Question, Response, Schedule, get_task
from aera.errors import UpstreamError
from aera.sampling.budget import Budget
from aera.sampling.sampler import Chat, OpenAISampler
from aera.sampling.spending import Spending
from aera.sampling.upstream import Endpoint, Upstream
from aera.solving.shared_budget import solve_shared
from aera.solving.solve import Allocator


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
    now: Any = None
    begun: list[float] = field(default_factory=list)
    responses: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    async def post(self, body: Mapping[str, Any]) -> list[Response]:
        """One call, in place of Upstream._post."""
        self.begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.chance.uniform(0.1, 3.0))
        fault = self.chance.random() < self.faults
        if fault and self.chance.random() < 0.5:
            raise UpstreamError("too many", status=429, retryable=True, unbilled=True)
        prompt = 10 + len(body["messages"][-1]["content"]) // 4
        most = body.get("max_tokens") or 10**9
        wanted = body.get("n", 1) if self.takes_n else 1
        got = [self._generate(prompt if i == 0 else 0, most) for i in range(wanted)]
        if fault:
            raise UpstreamError("the connection failed", retryable=True)
        return got

    def _generate(self, prompt: int, most: int) -> Response:
        tokens = min(most, max(1, int(self.chance.expovariate(1 / self.usual))))
        self.responses += 1
        self.prompt_tokens += prompt
        self.completion_tokens += tokens
        answer = self.chance.choice("1234")
        return Response(
            f"\\boxed{{{answer}}}", tokens=tokens, prompt_tokens=prompt, calls=int(prompt > 0)
        )


@dataclass(frozen=True)
class Job:
    """One random case."""

    kind: str
    concurrency: int
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
    """What may have been billed without coming back, in the unit of the limit."""

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
    loop = VirtualClock()
    monkeypatch.setattr("time.monotonic", loop.time)

    def post(self: Upstream, order: Any, index: int, n: int) -> Any:
        return server.post({**order.body, "n": n})

    monkeypatch.setattr(Upstream, "_post", post)
    schedule = Schedule((block, 2 * block, 4 * block, 8 * block))
    controller = Controller(get_task("numeric"), schedule, ASC(0.99))
    settings = {"max_tokens": most} if job.bounded else {"temperature": 1.0}
    endpoint = Endpoint("http://nowhere/v1", concurrency=job.concurrency, tries=3)
    sampler = OpenAISampler(endpoint, Chat("m", controller.task, settings))
    questions = [Question(str(i), "why? " * chance.randint(1, 30)) for i in range(60)]

    async def work() -> tuple[list[Allocation], Any]:
        async with sampler:
            if job.shared:
                spending = Spending(budget)
                known: Any = {"budget": spending, "concurrency": job.concurrency}
                return await solve_shared(questions, sampler, controller, **known), spending
            many = Allocator(sampler, controller, concurrency=job.concurrency, budget=budget)
            return [made async for made in many.solve(questions)], many.spending

    try:
        done, spending = loop.run_until_complete(work())
    finally:
        loop.close()
    lost = spending.lost
    risk = {
        "responses": lost.responses,
        "tokens": lost.completion_tokens,
        "money": budget.cost(lost.prompt_tokens, lost.completion_tokens),
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
