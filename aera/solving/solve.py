"""Solve questions live: one, or many at once, spending only what each is worth."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from aera.errors import UpstreamError, check_count
from aera.response import Question
from aera.sampling.budget import Budget
from aera.sampling.sampler import OpenAISampler, RecordedSampler, Sampler
from aera.sampling.spending import Spending
from aera.solving.controller import Controller
from aera.solving.feeding import BlockFailure, feed_run
from aera.solving.home import Lookout
from aera.solving.journal import Journal
from aera.solving.run import Allocation, Run

log = logging.getLogger("aera.solving")


async def solve(
    question: Question | str,
    sampler: Sampler,
    controller: Controller,
    *,
    budget: Budget | None = None,
    watch: Callable[[Run], None] | None = None,
    lookout: Lookout | None = None,
) -> Allocation:
    """Sample until the controller stops, or a limit is hit; then the best answer so far.

    An upstream that fails for good gives an Allocation with its error, never an exception. Who
    asks one question after the other shares a `lookout` between them, controller.make_lookout().
    """
    if isinstance(question, str):
        question = Question("question", question)
    if lookout is not None:
        controller = look_at(question, controller, lookout)
    run, spending = controller.start(question), Spending(budget or Budget())
    return await advance(run, sampler, controller, spending=spending, watch=watch)


def look_at(question: Question, controller: Controller, lookout: Lookout) -> Controller:
    """Who decides this question: the controller, or plain votes where it may be abroad."""
    doubt = lookout.see(question)
    warn(lookout)
    return controller.plain if doubt else controller


def warn(lookout: Lookout) -> None:
    """Say it in the log, once, when a controller goes abroad or comes home."""
    if (news := lookout.tell()) is not None:
        log.warning("%s", news)


async def advance(
    run: Run,
    sampler: Sampler,
    controller: Controller,
    *,
    spending: Spending,
    watch: Callable[[Run], None] | None = None,
) -> Allocation:
    """Feed a run from a sampler until it stops, a limit is hit, or nothing can be had.

    What went wrong is in the allocation, beside the best answer so far; nothing paid for is lost.
    """
    begun = time.monotonic()
    failure = await feed_run(run, controller, sampler, spending, watch=watch)
    return conclude(run, failure, begun)


def conclude(run: Run, failure: BlockFailure | None, begun: float) -> Allocation:
    """The allocation of a run that has ended, and why."""
    return run.make_allocation(
        seconds=time.monotonic() - begun,
        unseen=failure.unseen if failure else 0,
        error=str(failure.error) if failure else None,
    )


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
        budget: Budget | Spending | None = None,
        watch: Callable[[Run], None] | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.sampler, self.controller = sampler, controller
        self.lookout = controller.make_lookout()
        self.concurrency, self.watch, self.journal = concurrency, watch, journal
        self.spending = budget if isinstance(budget, Spending) else Spending(budget or Budget())
        self._refusal: UpstreamError | None = None
        check_count("concurrency", concurrency)
        if journal is not None:
            self.spending.book(journal.paid)

    async def solve(self, questions: Iterable[Question]) -> AsyncIterator[Allocation]:
        """Allocations as questions stop. One failing question is an Allocation with its error.

        Where all questions are there, as in a list, all are looked at before any is asked.
        """
        if isinstance(questions, Sequence):
            self.lookout.survey(questions)
        waiting = enumerate(questions)
        active: set[asyncio.Task[Allocation]] = set()
        try:
            while True:
                while len(active) < self.concurrency and (q := next(waiting, None)) is not None:
                    active.add(asyncio.create_task(self._solve_one(*q)))
                if not active:
                    return
                done, active = await asyncio.wait(active, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in active:
                task.cancel()
            await asyncio.gather(*active, return_exceptions=True)

    async def _solve_one(self, turn: int, question: Question) -> Allocation:
        controller = look_at(question, self.controller, self.lookout)
        run = controller.start(question)
        if self._refusal is not None:
            run.end("upstream failed")
            return replace(run.allocation, error=str(self._refusal))
        begun = time.monotonic()
        failure = await feed_run(
            run,
            controller,
            self.sampler,
            self.spending,
            journal=self.journal,
            watch=self.watch,
            turn=turn,
        )
        if failure and isinstance(failure.error, UpstreamError) and failure.error.final:
            self._refusal = failure.error  # nobody else need be refused
        return conclude(run, failure, begun)


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
