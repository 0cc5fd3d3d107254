"""Spending: limits hold, because what a call can cost is reserved before it is made.

spending = Spending(Budget(tokens=50_000))
reservation = await spending.reserve(4, Bound(completion_tokens=1_024))   # None: the limit is hit
...                                                    # ask for reservation.responses responses
reservation.receive(0, responses)                      # what came back is booked
reservation.close()                                    # and the rest is free for others

A call that failed and may have been billed all the same stays reserved for good.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from aera.response import Response
from aera.sampling.budget import UNKNOWN, Bound, Budget
from aera.sampling.reservation import Reservation

TEMPLATE = 200
"""Tokens that a server's chat template may add to a prompt."""
ROOMY = 4
"""Where the full length no longer fits, a response may be so many times the longest one so far."""
LAST = 0.05
"""The share of a limit that may be left over for want of room for one more response."""


@dataclass
class _Count:
    """Responses and tokens that were reserved."""

    responses: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, reservation: Reservation, n: int) -> None:
        """So many more responses of a reservation, or fewer."""
        self.responses += n
        self.prompt_tokens += n * reservation.prompt
        self.completion_tokens += n * reservation.each


@dataclass(order=True)
class _Waiting:
    """Somebody who wants responses for which there is no room yet; earlier questions first."""

    turn: int
    number: int
    want: int = field(compare=False)
    bound: Bound = field(compare=False)
    answer: "asyncio.Future[Reservation | None]" = field(compare=False)


class Spending:
    """What has been reserved and spent against a budget, by however many questions share it."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.responses = self.prompt_tokens = self.completion_tokens = 0
        """What came back."""
        self.lost = _Count()
        """What never came and may have been billed, as what it can have cost."""
        self.begun = time.monotonic()
        self._held = _Count()
        self._open: set[Reservation] = set()
        self._longest = self._longest_prompt = 0
        self._prompt_rate = 0.0
        """The most tokens that a byte of a prompt has taken."""
        self._waiting: list[_Waiting] = []
        self._numbers = itertools.count()
        self.refused = False
        """Whether somebody was told that a limit leaves no room."""

    @property
    def money(self) -> float:
        """What the tokens so far cost."""
        return self.budget.cost(self.prompt_tokens, self.completion_tokens)

    @property
    def deadline(self) -> float | None:
        """When the seconds are over, as time.monotonic() reads."""
        return None if self.budget.seconds is None else self.begun + self.budget.seconds

    @property
    def late(self) -> bool:
        """Whether the seconds are over."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def usual(self) -> float | None:
        """Tokens that a response has taken on average; None before the first."""
        return self.completion_tokens / self.responses if self.responses else None

    @property
    def limit(self) -> str:
        """The limit that is nearest to being spent, or the seconds when they are over."""
        most = self.budget
        left = {
            "responses": self._room_in_responses() / (most.responses or 1),
            "tokens": self._room_in_tokens() / (most.tokens or 1),
            "money": self._room_in_money() / (most.money or 1),
        }
        return "seconds" if self.late else min(left, key=lambda name: left[name])

    # --- reserving --------------------------------------------------------------------------------

    def take(self, want: int, bound: Bound) -> Reservation | None:
        """Reserve what fits of the wanted responses right now, None where not even one does."""
        if self.late:
            return None
        if not self.budget.limited:
            return self._begin(want, bound, each=0, prompt=0)
        want = int(min(want, self._room_in_responses()))
        prompt, known = self._prompt_of(bound), bound.completion_tokens
        if known is None and not self.responses:
            # Nobody knows what a response takes: one block finds out, and the others wait for it.
            alone = not self._open and self._fit(want, 1, prompt) > 0
            return self._begin(want if alone else 0, bound, each=0, prompt=prompt)
        each = self._longest if known is None else known
        fits = self._fit(want, each, prompt)
        if fits > 0:
            return self._begin(fits, bound, each=each, prompt=prompt)
        if want < 1 or self._fit(1, each, prompt, held=False):
            return None  # it does fit once those under way have come back
        return self._take_shorter(want, bound, each=each, prompt=prompt)

    def _take_shorter(
        self, want: int, bound: Bound, *, each: int, prompt: int
    ) -> Reservation | None:
        """At the end of a limit: what still fits of it, if a usual response does."""
        room = self._length_that_fits(prompt)
        each = min(each, room, ROOMY * self._longest if self.responses else room)
        if each < self._least_worth_asking():
            return None
        made = self._begin(self._fit(want, each, prompt), bound, each=each, prompt=prompt)
        if made is not None and bound.completion_tokens is not None:
            made.max_tokens = each
        return made

    def _least_worth_asking(self) -> float:
        """Below this length a response would hardly be whole, unless that wastes the limit."""
        if self.usual is None:
            return 1
        tokens = inf if self.budget.tokens is None else self.budget.tokens
        if self.budget.money is not None and self.budget.completion_price:
            tokens = min(tokens, 1e6 * self.budget.money / self.budget.completion_price)
        return max(1, min(self._longest, max(2 * self.usual, LAST * tokens)))

    async def reserve(self, want: int, bound: Bound, *, turn: int = 0) -> Reservation | None:
        """Reserve what fits of the wanted responses, waiting for those under way; None: the limit.

        Of those who wait, the earliest `turn` is first.
        """
        got = None if self._waiting else self.take(want, bound)
        if got is not None or not self._open or self.late:
            self.refused |= got is None
            return got
        answer: asyncio.Future[Reservation | None] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(turn, next(self._numbers), want, bound, answer)
        heapq.heappush(self._waiting, waiting)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and (given := answer.result()):
                given.close()
            raise

    def widen(self, reservation: Reservation, more: int) -> bool:
        """Reserve `more` responses for one of which some were lost; whether there is room."""
        fits = self._fit(more, max(1, reservation.each), reservation.prompt)
        if self.late or self._room_in_responses() < more or fits < more:
            return False
        self._held.add(reservation, more)
        return True

    def _begin(self, n: int, bound: Bound, *, each: int, prompt: int) -> Reservation | None:
        if n < 1:
            return None
        made = Reservation(self, n, bound=bound, each=each, prompt=prompt)
        self._held.add(made, n)
        self._open.add(made)
        return made

    def release(self, reservation: Reservation, n: int) -> None:
        """So many of its responses need no longer be reserved."""
        self._held.add(reservation, -n)
        self._answer_waiting()

    def leave(self, reservation: Reservation) -> None:
        """A reservation is over."""
        self._open.discard(reservation)
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        """Give room to those who wait for it, in their order; with nobody under way, say no."""
        while self._waiting:
            first = self._waiting[0]
            if first.answer.done():  # it was cancelled
                heapq.heappop(self._waiting)
                continue
            got = self.take(first.want, first.bound)
            if got is None and self._open and not self.late:
                return
            heapq.heappop(self._waiting)
            self.refused |= got is None
            first.answer.set_result(got)

    # --- room -------------------------------------------------------------------------------------

    def _fit(self, want: int, each: int, prompt: int, *, held: bool = True) -> int:
        """How many responses of such a length fit, beside those under way or if there were none."""
        fits: float = want
        if each:
            fits = min(fits, self._room_in_tokens(held=held) / each)
        cost = self.budget.cost(prompt, each)
        if cost:
            fits = min(fits, self._room_in_money(held=held) / cost)
        return max(0, int(fits + 1e-9))

    def _room_in_responses(self) -> float:
        most = self.budget.responses
        taken = self.responses + self.lost.responses + self._held.responses
        return inf if most is None else most - taken

    def _room_in_tokens(self, *, held: bool = True) -> float:
        most = self.budget.tokens
        taken = self.completion_tokens + self.lost.completion_tokens
        return inf if most is None else most - taken - held * self._held.completion_tokens

    def _room_in_money(self, *, held: bool = True) -> float:
        most = self.budget.money
        if most is None:
            return inf
        counts = [self.lost, self._held] if held else [self.lost]
        costs = [self.budget.cost(each.prompt_tokens, each.completion_tokens) for each in counts]
        return most - self.money - sum(costs)

    def _length_that_fits(self, prompt: int) -> int:
        """How long one more response can be; 0 where its length makes no difference."""
        room, price = self._room_in_tokens(), self.budget.completion_price
        if price:
            left = self._room_in_money() - self.budget.cost(prompt, 0)
            room = min(room, 1e6 * left / price)
        return max(0, int(room)) if room < inf else 0

    def _prompt_of(self, bound: Bound) -> int:
        """Prompt tokens to reserve: a byte is at most one token, and mostly far less."""
        if not self.budget.prompt_price:
            return 0
        if bound.prompt_bytes is None:
            return self._longest_prompt
        if self._prompt_rate:
            return int(bound.prompt_bytes * self._prompt_rate) + 1
        return bound.prompt_bytes + TEMPLATE

    def leaves_room_for(self, responses: int) -> bool:
        """Whether so many more fit beside those under way, if they are as long as usual."""
        each, prompt = round(self.usual or 0), self._longest_prompt
        return min(self._room_in_responses(), self._fit(responses, each, prompt)) >= responses

    # --- booking ----------------------------------------------------------------------------------

    def book(self, responses: Sequence[Response], bound: Bound = UNKNOWN) -> None:
        """Count what came back, and learn from it what others may take."""
        for response in responses:
            self.responses += 1
            self.prompt_tokens += response.prompt_tokens
            self.completion_tokens += response.tokens
            self._longest = max(self._longest, response.tokens)
            self._longest_prompt = max(self._longest_prompt, response.prompt_tokens)
            if bound.prompt_bytes:
                rate = response.prompt_tokens / bound.prompt_bytes
                self._prompt_rate = max(self._prompt_rate, rate)

    def book_lost(self, reservation: Reservation, n: int) -> None:
        """Count what never came and may have been billed."""
        self.lost.add(reservation, n)
        self.release(reservation, n)
