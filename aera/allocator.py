"""Solve questions live: one, or many at once, spending only what each is worth."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from aera.controller import Controller
from aera.errors import AeraError, UpstreamError, UsageError
from aera.policy import check_count
from aera.response import Question, Response
from aera.run import Allocation, Run
from aera.sampler import OpenAISampler, RecordedSampler, Sampler


@dataclass(frozen=True)
class Budget:
    """Limits; None is no limit. Prices are per million tokens, in the currency of `money`."""

    responses: int | None = None
    tokens: int | None = None
    """Completion tokens."""
    seconds: float | None = None
    money: float | None = None
    prompt_price: float = 0.0
    completion_price: float = 0.0

    def __post_init__(self) -> None:
        if self.money is not None and not (self.prompt_price or self.completion_price):
            raise UsageError("a limit in money needs a price per million tokens")


class Spending:
    """What has been spent against a budget, by however many questions share it."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.responses = self.prompt_tokens = self.completion_tokens = 0
        self._granted = 0
        self.begun = time.monotonic()

    @property
    def money(self) -> float:
        """What the tokens so far cost."""
        prompt = self.prompt_tokens * self.budget.prompt_price
        return (prompt + self.completion_tokens * self.budget.completion_price) / 1e6

    @property
    def deadline(self) -> float | None:
        """When the seconds are over, as time.monotonic() reads."""
        return None if self.budget.seconds is None else self.begun + self.budget.seconds

    @property
    def exhausted(self) -> str | None:
        """The limit that has been hit, if any."""
        limits = {
            "responses": (self.responses, self.budget.responses),
            "tokens": (self.completion_tokens, self.budget.tokens),
            "money": (self.money, self.budget.money),
            "seconds": (time.monotonic() - self.begun, self.budget.seconds),
        }
        hit = [name for name, (spent, most) in limits.items() if most is not None and spent >= most]
        return hit[0] if hit else None

    def grant(self, want: int) -> int:
        """How many of the wanted responses may still be asked for."""
        if self.budget.responses is None:
            return want
        granted = max(0, min(want, self.budget.responses - self.responses - self._granted))
        self._granted += granted
        return granted

    def book(self, responses: Iterable[Response], *, granted: int) -> None:
        """Count what came back."""
        if self.budget.responses is not None:
            self._granted -= granted
        for response in responses:
            self.responses += 1
            self.prompt_tokens += response.prompt_tokens
            self.completion_tokens += response.tokens


async def solve(
    question: Question | str,
    sampler: Sampler,
    controller: Controller,
    *,
    budget: Budget | None = None,
    spending: Spending | None = None,
    watch: Callable[[Run], None] | None = None,
) -> Allocation:
    """Sample until the controller stops, or a limit is hit; then the best answer so far.

    An upstream that fails for good gives an Allocation with its error, never an exception.
    """
    if isinstance(question, str):
        question = Question("question", question)
    spending = spending or Spending(budget or Budget())
    return await advance(controller.start(question), sampler, spending=spending, watch=watch)


async def advance(
    run: Run,
    sampler: Sampler,
    *,
    spending: Spending,
    watch: Callable[[Run], None] | None = None,
) -> Allocation:
    """Feed a run from a sampler until it stops, a limit is hit, or nothing can be had."""
    begun = time.monotonic()
    error, calls = None, 0
    while run.want and error is None:
        granted = 0 if spending.exhausted else spending.grant(run.want)
        if not granted:
            run.end(f"limit: {spending.exhausted or 'responses'}")
            break
        got, error, unseen = await _block(run, sampler, granted, deadline=spending.deadline)
        calls += unseen
        spending.book(got, granted=granted)
        # Embedding takes milliseconds, for which the event loop must not wait.
        await asyncio.to_thread(run.feed, got)
        if watch is not None:
            watch(run)
    if error is not None:
        run.end("upstream failed")
    seconds = time.monotonic() - begun
    found = run.allocation
    return replace(found, seconds=seconds, error=error, calls=found.calls + calls)


async def _block(
    run: Run, sampler: Sampler, n: int, *, deadline: float | None
) -> tuple[list[Response], str | None, int]:
    """Responses for the current block; the error when nothing could be had, and its calls."""
    try:
        got = await sampler.sample(run.question, n, start=run.delivered, deadline=deadline)
    except UpstreamError as error:
        return [], str(error), error.calls
    if not got:
        return [], "the sampler returned nothing", 0
    failures = [response.error for response in got if response.error]
    all_failed = len(failures) == len(got) and not run.prefix.tally.weights
    late = deadline is not None and time.monotonic() >= deadline  # a limit, not a failure
    return got, failures[0] if all_failed and not late else None, 0


class Allocator:
    """Many questions under one budget; stopped ones leave, active ones advance.

    async for allocation in Allocator(sampler, controller).solve(questions):
        print(allocation.question_id, allocation.answer)
    """

    def __init__(
        self,
        sampler: Sampler,
        controller: Controller,
        *,
        concurrency: int = 64,
        budget: Budget | None = None,
        watch: Callable[[Run], None] | None = None,
    ) -> None:
        self.sampler, self.controller = sampler, controller
        self.concurrency, self.watch = concurrency, watch
        self.spending = Spending(budget or Budget())
        self._refusal: str | None = None
        check_count("concurrency", concurrency)

    async def solve(self, questions: Iterable[Question]) -> AsyncIterator[Allocation]:
        """Allocations as questions stop. One failing question is an Allocation with its error."""
        waiting = iter(questions)
        active: set[asyncio.Task[Allocation]] = set()
        try:
            while True:
                while len(active) < self.concurrency and (q := next(waiting, None)) is not None:
                    active.add(asyncio.create_task(self._one(q)))
                if not active:
                    return
                done, active = await asyncio.wait(active, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in active:
                task.cancel()
            await asyncio.gather(*active, return_exceptions=True)

    async def _one(self, question: Question) -> Allocation:
        if self._refusal is not None:
            return self._failed(question, self._refusal)
        try:
            return await solve(
                question, self, self.controller, spending=self.spending, watch=self.watch
            )
        except AeraError as error:
            return self._failed(question, str(error))

    def _failed(self, question: Question, error: str) -> Allocation:
        run = self.controller.start(question)
        run.end("failed")
        return replace(run.allocation, error=error)

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        """Pass on to the sampler, and remember a refused key: nobody else need be refused."""
        try:
            return await self.sampler.sample(question, n, start=start, deadline=deadline)
        except UpstreamError as error:
            if error.status == 401:
                self._refusal = str(error)
            raise


def solve_blocking(
    question: Question | str,
    sampler: OpenAISampler | RecordedSampler,
    controller: Controller,
    *,
    budget: Budget | None = None,
) -> Allocation:
    """`solve` for code without an event loop, and for notebooks, which have one already.

    The sampler must not have been entered: its connections live and die with this call.
    """

    async def work() -> Allocation:
        async with sampler:
            return await solve(question, sampler, controller, budget=budget)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work()).result()
