"""Drive a run until it stops, or many at once under one ledger. Every path ends here."""

import asyncio
import heapq
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from math import inf
from typing import Any, TypeVar

from aera.errors import AeraError, UpstreamError, UsageError, check_count
from aera.response import Prefix, Question, Response
from aera.sampling.budget import Budget
from aera.sampling.ledger import NO_ROOM, Bound, Held, Ledger
from aera.sampling.sampler import OpenAISampler, RecordedSampler, Sampler
from aera.solving.controller import Controller
from aera.solving.home import Lookout
from aera.solving.run import Allocation, Run
from aera.tally import beta_confidence

log = logging.getLogger("aera.solving")
LARGE = 64 * 1024
"""Characters of a block that are read and weighed where the event loop does not wait for it."""
COMPARING = 256
"""Decisions that may wait for a comparison at once; a waiting thread costs next to nothing."""
AT_ONCE = 8
"""Under a shared budget one in so many questions may be under way, beyond the first blocks."""
Done = TypeVar("Done")


async def drive(
    run: Run,
    sampler: Sampler,
    ledger: Ledger,
    *,
    kept: "Kept | None" = None,
    watch: Callable[[Run], None] | None = None,
    turn: int = 0,
) -> Allocation:
    """Feed a run from a sampler until it stops, a limit is hit, or nothing can be had.

    What went wrong is in the allocation, beside the best answer so far; nothing paid for is lost.
    Where a limit leaves too little for all, runs with an earlier `turn` go first.
    """
    begun, bound = time.monotonic(), bound_of(sampler, run.question, ledger)
    while want := await recall(run, kept):
        held = await ledger.reserve(want, bound, turn=turn)
        if held is None:
            await off_loop(run, partial(run.end, f"limit: {ledger.limit}"))
            break
        await step(run, sampler, held, kept)
        if watch is not None:
            watch(run)
    return run.make_allocation(seconds=time.monotonic() - begun)
