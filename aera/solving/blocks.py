"""Blocks: what a run has under way, some of it begun before it is known that it is wanted.

Whatever is begun ahead, a run is fed in the order in which responses were asked for. By order of
arrival short responses would vote first.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from functools import partial

from aera.policies.ahead import default_ahead, ease, is_begun
from aera.response import Prefix, Response
from aera.sampling.reservation import Heard, Reservation
from aera.sampling.sampler import Sampler, bound_of, load_of, sample_reserved
from aera.sampling.spending import Spending
from aera.sampling.upstream import cancel_all
from aera.solving.controller import Controller
from aera.solving.journal import Journal
from aera.solving.run import Run, Unused


@dataclass(eq=False)
class Block:
    """Responses that have been asked for."""

    start: int
    """Place of the first in the order asked."""
    reservation: Reservation
    asking: Awaitable[list[Response]]
    begun: float = field(default_factory=time.monotonic)
    came: dict[int, Response] = field(default_factory=dict)
    """What calls have brought so far, by place; kept of those begun in a hurry."""

    @property
    def end(self) -> int:
        """Place behind the last."""
        return self.start + self.reservation.responses

    @property
    def failed(self) -> bool:
        """Whether it has ended without one usable response."""
        asking = self.asking
        return isinstance(asking, asyncio.Task) and asking.done() and not self.usable

    @property
    def usable(self) -> list[Response]:
        """What has come and is no failure, in the order asked."""
        return [self.came[place] for place in sorted(self.came) if not self.came[place].error]


def ask_block(
    run: Run, sampler: Sampler, reservation: Reservation, *, start: int, journal: Journal | None
) -> Block:
    """Ask for what was reserved; the journal keeps what every call brings."""
    if journal is not None:
        reservation.heard = partial(journal.add, run.question)
    asking = sample_reserved(sampler, run.question, reservation, start=start)
    return Block(start, reservation, asking)


class Blocks:
    """The blocks of one run, one after the other.

    With a hurry, later ones begin as soon as the chance that they will be wanted is high enough;
    those that turn out not to be are broken off when the run has ended.
    """

    def __init__(
        self,
        run: Run,
        sampler: Sampler,
        controller: Controller,
        spending: Spending,
        *,
        journal: Journal | None = None,
        hurry: float = 0.0,
    ) -> None:
        self.spending, self.journal = spending, journal
        self._run, self._sampler, self._hurry = run, sampler, hurry
        self._ahead = (controller.ahead or default_ahead()) if hurry else None
        self._bound = bound_of(sampler, run.question, spending.budget)
        self._patient = run.heavy or controller.threaded
        """Whether a block is looked at only once it is whole, for reading takes long."""
        self._current: Block | None = None
        self._begun: deque[Block] = deque()

    async def next(self, want: int, *, turn: int = 0) -> Block | None:
        """The block that the run waits for, asked for now unless it has begun; None: the limit."""
        while self._begun and self._begun[0].failed:
            await self._abandon([self._begun.popleft()])  # it is asked for again when it is wanted
        start = self._run.delivered
        if self._begun and self._begun[0].start == start:
            self._current = self._begun.popleft()
        else:
            if self.spending.budget.limited:
                await self.close()  # what was begun ahead holds what this one may need
            reservation = await self.spending.reserve(want, self._bound, turn=turn)
            if reservation is None:
                return None
            self._current = self._ask(start, reservation)
        self._look()
        return self._current

    def _ask(self, start: int, reservation: Reservation) -> Block:
        run, sampler, journal = self._run, self._sampler, self.journal
        block = ask_block(run, sampler, reservation, start=start, journal=journal)
        if self._hurry:
            block.asking = asyncio.ensure_future(block.asking)
            reservation.heard = partial(self._hear, block, reservation.heard)
        return block

    def _hear(
        self, block: Block, others: Heard | None, place: int, got: Sequence[Response]
    ) -> None:
        """A call has come back."""
        if others is not None:
            others(place, got)
        block.came.update(enumerate(got, start=place))
        self._look()

    def _look(self) -> None:
        """Begin what is likely to be wanted, any number of blocks deep."""
        run, ahead, last = self._run, self._ahead, self._begun[-1] if self._begun else self._current
        if ahead is None or last is None or run.stopped:
            return
        end, seen = last.end, None
        while end < run.most and (after := run.prefix.schedule.after(end)) is not None:
            seen = seen or self._see()
            busy, slowness = load_of(self._sampler)
            hurry = ease(self._hurry, busy=busy, slowness=slowness)
            if not is_begun(ahead.chance(seen, end), hurry) or self._is_paid(end, after):
                return
            reservation = self.spending.take_whole(after - end, self._bound)
            if reservation is None:
                return
            self._begun.append(self._ask(end, reservation))
            end = after

    def _see(self) -> Prefix:
        """All that has come, in the order asked."""
        blocks = [*([self._current] if self._current else []), *self._begun]
        came = [response for block in blocks for response in block.usable]
        return self._run.preview(came) if came and not self._patient else self._run.prefix

    def _is_paid(self, start: int, end: int) -> bool:
        """Whether some of these responses are there from an earlier time."""
        journal, question = self.journal, self._run.question
        return journal is not None and journal.gap(question, start, end - start) < end - start

    async def close(self) -> None:
        """Break off what nobody wants any more; the run is told what it has cost."""
        if self._begun:
            await self._abandon([*self._begun])
            self._begun.clear()

    async def _abandon(self, blocks: Sequence[Block]) -> None:
        await cancel_all([b.asking for b in blocks if isinstance(b.asking, asyncio.Task)])
        for block in blocks:
            broken_off = self._estimate(block)
            came = [*block.came.values()]
            prompts, tokens = sum(r.prompt_tokens for r in came), sum(r.tokens for r in came)
            self._run.unused += Unused(len(came), 0, prompts, tokens) + broken_off
            block.reservation.abandon(broken_off.prompt_tokens, broken_off.completion_tokens)

    def _estimate(self, block: Block) -> Unused:
        """What calls took that were broken off: what they had time for, at the pace of this run."""
        known, count = self._run.prefix.responses, block.reservation.out
        paces = [each.tokens / each.latency_ms for each in known if each.latency_ms]
        had = 1000 * (time.monotonic() - block.begun) * max(paces, default=0.0)
        share = count / max(1, len(known))
        tokens = share * sum(min(each.tokens, had) for each in known)
        return Unused(0, count, round(share * self._run.prefix.prompt_tokens), round(tokens))
