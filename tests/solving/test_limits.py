"""Limits hold and are used: random jobs on a virtual clock."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from live import controller_of, gathered
from virtual import run_on_virtual_time

from aera import ASC, Chat, Endpoint, OpenAISampler, Question
from aera.sampling.budget import Budget, Ledger

SLACK = 1e-9
BLOCK = 4


@dataclass
class Server:
    """What a model server generates, bills and loses; it keeps to max_tokens."""

    chance: random.Random
    usual: int
    faults: float
    takes_n: bool
    says_usage: bool = True
    begun: list[float] = field(default_factory=list)
    responses: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    async def answer(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        """One call."""
        self.begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.chance.uniform(0.1, 3.0))
        fault = self.chance.random() < self.faults
        if fault and self.chance.random() < 0.5:
            return 429, {"error": {"message": "too many"}}
        most = body.get("max_tokens") or 10**9
        wanted = body.get("n", 1) if self.takes_n else 1
        tokens = [self._draw(most) for _ in range(wanted)]
        prompt = 10 + sum(body["messages"][-1]["content"].encode()) % 250  # always the same of it
        self.responses += wanted
        self.prompt_tokens += prompt
        self.completion_tokens += sum(tokens)
        if fault:
            raise aiohttp.ServerDisconnectedError
        said = [f"\\boxed{{{self.chance.choice('1234')}}}" for _ in tokens]
        usage = {"prompt_tokens": prompt, "completion_tokens": sum(tokens)}
        choices = [{"message": {"content": text}} for text in said]
        return 200, {"choices": choices, "usage": usage if self.says_usage else None}

    def _draw(self, most: int) -> int:
        return min(most, max(1, int(self.chance.expovariate(1 / self.usual))))


def budget_of(kind: str, chance: random.Random, usual: int) -> Budget:
    """A random limit of at least twenty blocks."""
    blocks = chance.randint(20, 200)
    if kind == "responses":
        return Budget(responses=blocks * BLOCK)
    if kind == "tokens":
        return Budget(tokens=blocks * BLOCK * usual)
    if kind == "seconds":
        return Budget(seconds=chance.uniform(5, 60))
    prices = (chance.choice((0.0, 1.0)), chance.choice((2.0, 8.0)))
    limit = Budget(None, None, None, None, *prices).cost(blocks * 40, blocks * BLOCK * usual)
    return Budget(None, None, None, limit, *prices)


def check(kind: str, concurrency: int | None, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve random questions: never beyond the limit, 90 % of it while anybody wanted more."""
    chance = random.Random(f"{kind} {concurrency} {seed}")
    bounded = seed % 4 != 3  # whether requests say max_tokens
    usual = chance.choice((20, 100, 400))
    most = usual * chance.choice((2, 4, 10, 40))
    budget = budget_of(kind, chance, usual)
    server = Server(chance, usual, chance.choice((0.0, 0.0, 0.1)), chance.random() < 0.7)
    server.says_usage = not bounded or chance.random() < 0.7
    controller = controller_of(ASC(0.99), [BLOCK, 2 * BLOCK, 4 * BLOCK, 8 * BLOCK])
    settings = {"max_tokens": most} if bounded else {"temperature": 1.0}
    endpoint = Endpoint("http://nowhere/v1", concurrency=concurrency, tries=3)
    questions = [Question(str(i), "why? " * chance.randint(1, 30)) for i in range(60)]
    ledgers: list[Ledger] = []

    async def work() -> list[Any]:
        ledgers.append(Ledger(budget))
        known: Any = {"concurrency": concurrency, "shared": seed % 3 == 0 and kind != "seconds"}
        async with OpenAISampler(endpoint, Chat("m", controller.task, settings)) as sampler:
            return await gathered(questions, sampler, controller, budget=ledgers[0], **known)

    done, ended = run_on_virtual_time(work(), server.answer, monkeypatch)
    hungry = any(each.reason.startswith("limit") for each in done)
    if budget.seconds is not None:
        assert all(begun <= budget.seconds for begun in server.begun)
        assert ended <= budget.seconds + 0.1 or not hungry
        return
    place = ("responses", "tokens", "money").index(kind)
    told = budget.costs(server.responses, server.prompt_tokens, server.completion_tokens)
    [ledger] = ledgers
    booked = budget.costs(*ledger.spent.plus(*ledger.lost))
    if bounded or kind == "responses":
        assert told[place] <= budget.limits[place] + SLACK
    if hungry:  # what may have been billed is held back
        assert booked[place] >= 0.9 * budget.limits[place]


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 24), marks=pytest.mark.nightly)], ids=str
)
@pytest.mark.parametrize("concurrency", [1, 16, 256, None])
@pytest.mark.parametrize("kind", ["responses", "tokens", "money", "seconds"])
def test_a_limit_is_never_passed_and_is_used(
    kind: str, concurrency: int | None, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        with monkeypatch.context() as patch:
            check(kind, concurrency, seed, patch)
