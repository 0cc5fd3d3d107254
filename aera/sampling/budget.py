"""Budget: limits on what is spent. Ledger: they hold, for what a call can cost is reserved first.

ledger = Ledger(Budget(tokens=50_000))
held = await ledger.reserve(4, Bound(max_tokens=1_024))    # None: there is no room
...                                                        # ask for held.responses responses
held.receive(0, responses)                                 # what was billed is booked
held.close()                                               # and the rest is free for others

Booked is what the server says that it billed, at most what was reserved; where it says nothing,
what was reserved. A call that failed and may have been billed all the same is booked as lost.
"""

import asyncio
import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from operator import add, sub
from typing import NamedTuple

from aera.core import Response
from aera.errors import UpstreamError, UsageError

ROOMY = 4
"""Where the full length no longer fits, a response may be so many times the longest one so far."""
MOST_TOKENS = 2**53
"""Beyond it a number of tokens is none."""
LAST = 0.05
"""The share of a limit that may be left over for want of room for one more response."""
MOST_STRETCH = 8.0
"""How many times as much as it should a server is expected to bill, at most."""
ASSUMED = 1_024
"""Tokens of a response that never came, for a key, where neither request nor reply says more."""
NO_ROOM = "no_room"
"""The code of an error that a limit caused, not a server."""
LIMITS = ("responses", "tokens", "money")
Ration = Callable[[float, int], int]
"""By the turn and by how many are wanted."""


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
    with_prompts: bool = False
    """Whether prompt tokens count against `tokens` too, as for a key."""

    def __post_init__(self) -> None:
        for name in (*LIMITS, "seconds"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise UsageError(f"a limit in {name} must be above 0, but got {limit:g}")
        if not all(0 <= price < inf for price in (self.prompt_price, self.completion_price)):
            raise UsageError("a price per million tokens is 0 or more")
        if self.money is not None and not self.priced:
            raise UsageError("a limit in money needs a price per million tokens")

    @property
    def priced(self) -> bool:
        """Whether tokens cost anything."""
        return bool(self.prompt_price or self.completion_price)

    @property
    def limited(self) -> bool:
        """Whether anything that is paid for is limited."""
        return min(self.limits) < inf

    @property
    def limits(self) -> tuple[float, ...]:
        """Responses, tokens and money; infinite where there is no limit."""
        told = (getattr(self, name) for name in LIMITS)
        return tuple(inf if limit is None else limit for limit in told)

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Their price."""
        prompt = prompt_tokens * self.prompt_price
        return (prompt + completion_tokens * self.completion_price) / 1e6

    def costs(
        self, responses: float, prompt_tokens: float, completion_tokens: float
    ) -> tuple[float, ...]:
        """What counts against those limits."""
        tokens = completion_tokens + (prompt_tokens if self.with_prompts else 0)
        return responses, tokens, self.cost(prompt_tokens, completion_tokens)

    def tokens_for(self, tokens: float, money: float) -> float:
        """Completion tokens that so many tokens and so much money allow."""
        return min(tokens, 1e6 * money / self.completion_price if self.completion_price else inf)


@dataclass(eq=False)
class Bound:
    """What one response to a request can take at most."""

    max_tokens: int | None = None
    """By the request; None where it does not say."""
    prompt_tokens: int | None = None
    """Of the prompt, by its length; None where nobody knows."""
    named: int | None = None
    """Of the prompt, by the server: the most that it has named, which is reserved from then on."""


@dataclass(frozen=True)
class Usage:
    """What a server says that a call took; None where it does not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    choices: int = 0
    """Responses that it gave, which may be more than were asked for."""


class Counts(NamedTuple):
    """Responses and tokens, summed up."""

    responses: float = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def plus(self, *more: float) -> "Counts":
        """So many more."""
        return Counts(*map(add, self, more))


class Held:
    """Responses that may be asked for, and what they can cost, until they have come back."""

    def __init__(self, ledger: "Ledger", responses: int, bound: Bound, each: Counts) -> None:
        self.ledger, self.responses, self.bound, self.each = ledger, responses, bound, each
        """`each` is what is reserved for one: choices that a server may give, and tokens."""
        self.max_tokens: int | None = None
        """The length that a response is cut to, so that it fits; None leaves the request's own."""
        self.turn = 0.0
        """Of those that wait for the same server, the lowest turn goes first."""
        self.begun: float | None = None
        """When the first call was made."""
        self.heard: Callable[[int, Sequence[Response]], None] | None = None
        """Told of what each call brought, and of the place of the first of it."""
        self._free, self._out = responses, 0
        """Those that no call has been made for, and those that calls are under way for."""
        ledger.hold(self, responses)

    @property
    def longest(self) -> int | None:
        """The most tokens of a response that is asked for; None where nobody says."""
        return self.bound.max_tokens if self.max_tokens is None else self.max_tokens

    def begin(self, n: int) -> bool:
        """Before a call for `n` responses: whether it may be made, as its retry may not be."""
        more = max(0, n - self._free)
        if more:
            _, prompt, tokens = self.each
            each = Counts(self.ledger.times, prompt, max(1, tokens))
            if self.ledger.late or self.ledger.fit(more, each) < more:
                return False
            self.ledger.hold(self, more)
        self._free += more - n
        self._out += n
        self.begun = self.begun or time.monotonic()
        return True

    def give_back(self, n: int) -> None:
        """A call came to nothing and cost nothing."""
        self._out -= n
        self._free += n

    def lose(self, n: int, why: str = "broken off") -> None:
        """A call came to nothing and may have been billed: it counts as what it can have cost."""
        self._out -= n
        self.ledger.lose(self, n, why)

    def receive(
        self, start: int, responses: Sequence[Response], usage: Usage | None = None
    ) -> None:
        """What came back of one call, of which `start` is the first, and what the server says."""
        self._out -= len(responses)
        self.ledger.settle(self, responses, usage)
        if self.heard is not None:
            self.heard(start, responses)

    def close(self) -> None:
        """Whatever is left of it is free for others; a call that never returned counts as lost."""
        if self._out:
            self.lose(self._out)
        free, self._free = self._free, 0
        self.ledger.release(self, free, over=True)


class Ledger:
    """What is reserved and spent against a budget, by however many questions share it.

    With a `period`, what was spent is forgotten evenly over so many seconds, as for a key with
    tokens per minute. What is held and booked here is held and booked at all `above`.
    """

    def __init__(
        self, budget: Budget, *, period: float | None = None, above: Sequence["Ledger"] = ()
    ) -> None:
        self.budget, self.period = budget, period
        self.spent, self.lost = Counts(), Counts()
        """What was billed, and what never came and may have been billed."""
        self.lost_to = Counter[str]()
        """Why they never came."""
        self.unsaid = 0
        """Responses of which the server does not say how long they are."""
        self.begun = time.monotonic()
        self.exhausted = False
        """Whether somebody was told that a limit leaves no room."""
        self.refusal: UpstreamError | None = None
        """What every other question would be refused for alike."""
        self.above, self._chain = tuple(above), (self, *above)
        self._limits = budget.limits
        self.limited = any(min(each._limits) < inf for each in self._chain)
        """Whether anything that is paid for is limited, here or above."""
        self._reserved, self.open = Counts(), set[Held]()
        self._forgotten: tuple[float, ...] = (0.0, 0.0, 0.0)
        self._filled = self.begun
        self._longest = self._longest_prompt = 0
        self._stretch = 1.0
        """How many times as much as it should the server has billed."""
        self._waiting: list[tuple[float, int, int, Bound, asyncio.Future[Held | None]]] = []
        """Those for whom there is no room yet: turn, number, and what they want."""
        self._numbers = itertools.count()
        self.ration: Ration | None = None
        """Where many share a limit: how many of those that one wants it may have now."""
        self._below = set[Ledger]()
        """Those that somebody waits in for room here."""

    @property
    def money(self) -> float:
        """What the tokens so far cost."""
        return self.budget.cost(self.spent.prompt_tokens, self.spent.completion_tokens)

    @property
    def deadline(self) -> float | None:
        """When the seconds are over, as time.monotonic() reads."""
        return None if self.budget.seconds is None else self.begun + self.budget.seconds

    @property
    def late(self) -> bool:
        """Whether the seconds are over."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def over(self) -> bool:
        """Whether nobody need ask for anything more."""
        return self.late or self.refusal is not None

    @property
    def usual(self) -> float | None:
        """Tokens that a response has taken on average; None before the first."""
        done = self.spent
        return done.completion_tokens / done.responses if done.responses else None

    @property
    def limit(self) -> str:
        """The limit that is nearest to being spent, or the seconds when they are over."""
        if self.late:
            return "seconds"
        own, *others = (one._shares() for one in self._chain)
        least = min(own)
        nearer = least < inf and least <= min(map(min, others), default=inf)
        return LIMITS[own.index(least)] if nearer else "key"

    @property
    def doubt(self) -> str | None:
        """What is to be said where the server does not say how long responses are."""
        if not self.unsaid:
            return None
        what = f"{self.unsaid:,} response{'s' * (self.unsaid != 1)}"
        most = "; the limit counts the most it can be" if self.limited else ""
        return (
            f"the server does not say how many tokens {what} took: they are estimated from the "
            f"text{most}"
        )

    def wait(self, bound: Bound | None = None) -> float:
        """Seconds until a ledger with a period has any room again, or room for one response.

        0 where it has, infinite where it never will: the response alone takes more than there is.
        """
        assert self.period is not None
        needs: Sequence[float] = (0, 0, 0)
        if bound is not None:
            prompt = self._prompt(bound)
            whole = self._length_that_fits(prompt, self._limits)
            length = bound.max_tokens or self._longest or ASSUMED
            each = int(whole / 2) if length > whole else length
            needs = self.budget.costs(1, prompt, each) if each else (inf, inf, inf)
        rows = zip(self._rooms(held=False), needs, self._limits, strict=True)
        waits = [(need - room) / limit * self.period for room, need, limit in rows if limit < inf]
        return max([0.0, *waits])

    @property
    def saved(self) -> list[float]:
        """What of each limit is spent, may be, or is under way, for a file that outlives us."""
        pairs = zip(self._limits, self._rooms(), strict=True)
        return [limit - room if limit < inf else 0.0 for limit, room in pairs]

    def restore(self, saved: Sequence[float], seconds: float) -> None:
        """Begin with what was saved so many seconds ago."""
        assert self.period is not None
        pairs = zip(saved, self._limits, strict=True)
        share = seconds / self.period
        self._forgotten = tuple(
            min(0.0, share * limit - used) if limit < inf else 0.0 for used, limit in pairs
        )

    # --- reserving --------------------------------------------------------------------------------

    def take(self, want: int, bound: Bound) -> Held | None:
        """Reserve what fits of the wanted responses right now, None where not even one does."""
        if self.over:
            return None
        if not self.limited:
            return Held(self, want, bound, Counts(self.times)) if want else None
        keys = [one for one in self._chain if one.period is not None]
        longest = max(one._longest for one in self._chain) or (ASSUMED if keys else 0)
        length = bound.max_tokens or longest
        each = Counts(self.times, self._prompt(bound), ceil(self.times * length))
        if not length:
            # Nobody can say what a response takes before there is one: one block finds it out,
            # and the others wait for it.
            fits = 0 if self.open else self.fit(want, each._replace(completion_tokens=1))
            return Held(self, fits, bound, each) if fits else None
        whole, prompt = each.completion_tokens, each.prompt_tokens
        period = min((one._length_that_fits(prompt, one._limits) for one in keys), default=inf)
        if whole > period:  # not even into an empty period: half of one is as long as it gets
            each = each._replace(completion_tokens=max(1, int(period / 2)))
        fits = self.fit(want, each)
        if not fits and want and not keys and not self.fit(1, each, held=False):
            # It will not fit either once those under way have come back, nor as time goes by.
            each = each._replace(completion_tokens=self._shorten(whole, prompt))
            fits = self.fit(want, each) if each.completion_tokens else 0
        if not fits:
            return None
        made = Held(self, fits, bound, each)
        if bound.max_tokens is not None and each.completion_tokens < whole:
            made.max_tokens = max(1, int(each.completion_tokens / self.times))
        return made

    def _shorten(self, whole: int, prompt: int) -> int:
        """At the end of a limit: the length that still fits, 0 where it would hardly be whole."""
        room = min(one._length_that_fits(prompt, one._rooms()) for one in self._chain)
        if self.usual is None:
            return int(min(whole, room))
        each = int(min(whole, room, ROOMY * self._longest))
        wasted = LAST * self.budget.tokens_for(*self._limits[1:])
        return each if each >= max(1, min(self._longest, max(2 * self.usual, wasted))) else 0

    async def reserve(self, want: int, bound: Bound, *, turn: float = 0) -> Held | None:
        """Reserve what fits of the wanted responses, waiting for those under way; None: no room.

        Of those who wait, here and then for the server, the lowest `turn` is first.
        """
        free = not self._waiting and self.ration is None
        got = (self.take(want, bound) if free else None) or await self._wait(want, bound, turn)
        self.exhausted |= got is None
        if got is not None:
            got.turn = turn
        return got

    async def _wait(self, want: int, bound: Bound, turn: float) -> Held | None:
        answer: asyncio.Future[Held | None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (turn, next(self._numbers), want, bound, answer))
        for one in self._chain:
            one._below.add(self)
        self._wake()
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and (given := answer.result()):
                given.close()
            self._wake()  # those behind it need not wait for it any more
            raise

    @property
    def times(self) -> float:
        """How many times as much as asked for is reserved, as servers here have given or billed."""
        return max(each._stretch for each in self._chain)

    def hold(self, held: Held, n: int) -> None:
        """Reserve so many, or as many fewer."""
        more = [n * cost for cost in held.each]
        for one in self._chain:
            one.open.add(held)
            one._reserved = one._reserved.plus(*more)

    def release(self, held: Held, n: int, *, over: bool = False) -> None:
        """So much is no longer reserved, and those who wait for room may have it."""
        self.hold(held, -n)
        for one in self._chain if over else ():
            one.open.discard(held)
        for below in {each for one in self._chain for each in one._below}:
            below._wake()

    def _wake(self) -> None:
        """Look who may have room, once all that came back together have asked for more."""
        asyncio.get_running_loop().call_soon(self._answer_waiting)

    def _answer_waiting(self) -> None:
        """Give room to those who wait for it, in their order; with nobody under way, say no."""
        while self._waiting:
            turn, _, want, bound, answer = self._waiting[0]
            if not answer.done():  # it is, if it was cancelled
                got = self.take(self.ration(turn, want) if self.ration else want, bound)
                if got is None and any(one.open for one in self._chain) and not self.over:
                    return
                answer.set_result(got)
            heapq.heappop(self._waiting)
        for one in self._chain:
            one._below.discard(self)

    # --- room -------------------------------------------------------------------------------------

    def fit(self, want: int, each: Counts, *, held: bool = True) -> int:
        """How many responses of such a cost fit, beside those under way or if there were none."""
        fits = (
            room / cost
            for one in self._chain
            for room, cost in zip(one._rooms(held=held), one.budget.costs(*each), strict=True)
            if cost
        )
        return max(0, int(min([want, *fits]) + 1e-9))

    def _rooms(self, *, held: bool = True) -> list[float]:
        """What is left of responses, tokens and money."""
        under_way = self.budget.costs(*self._reserved) if held else (0.0, 0.0, 0.0)
        rows = zip(self._limits, self._used(), under_way, strict=True)
        return [limit - taken - more for limit, taken, more in rows]

    def _shares(self) -> list[float]:
        """The same as shares of the limits; infinite where there is none."""
        pairs = zip(self._rooms(), self._limits, strict=True)
        return [room / limit if limit < inf else inf for room, limit in pairs]

    def _used(self) -> tuple[float, ...]:
        """What is spent or may be, less what was forgotten since."""
        total = self.budget.costs(*self.spent.plus(*self.lost))
        if self.period is None:
            return total
        now = time.monotonic()
        share, self._filled = (now - self._filled) / self.period, now
        rows = zip(self._limits, total, self._forgotten, strict=True)
        self._forgotten = tuple(
            min(taken, gone + share * limit) if limit < inf else taken
            for limit, taken, gone in rows
        )
        return tuple(map(sub, total, self._forgotten))

    def _prompt(self, bound: Bound) -> int:
        """Tokens of a prompt to reckon with: as the server names them, else its length."""
        told = (bound.named, bound.prompt_tokens, self._longest_prompt)
        return next(tokens for tokens in told if tokens is not None)

    def _length_that_fits(self, prompt: int, rooms: Sequence[float]) -> float:
        """How long one more response can be; without end where its length makes no difference."""
        _, tokens, money = rooms
        tokens -= prompt if self.budget.with_prompts else 0
        return max(0.0, self.budget.tokens_for(tokens, money - self.budget.cost(prompt, 0)))

    def leaves_room_for(self, responses: int) -> bool:
        """Whether so many more fit beside those under way, if they are as long as usual."""
        each = Counts(self.times, self._longest_prompt, round(self.usual or 0))
        return self.fit(responses, each) >= responses

    # --- booking ----------------------------------------------------------------------------------

    def book(self, responses: Sequence[Response]) -> None:
        """Count what was paid for before."""
        for each in responses:
            self._book([each], 1, each.prompt_tokens, each.tokens)

    def _book(self, responses: Sequence[Response], count: int, prompt: int, tokens: int) -> None:
        for one in self._chain:
            one._used()  # the time before it forgets nothing of it
            one.spent = one.spent.plus(count, prompt, tokens)
            for each in responses:
                one._longest = max(one._longest, each.tokens)
                one._longest_prompt = max(one._longest_prompt, each.prompt_tokens)

    def settle(self, held: Held, responses: Sequence[Response], usage: Usage | None) -> None:
        """Book what a call was billed: as the server says, within what it can have taken."""
        count, prompt = len(responses), sum(each.prompt_tokens for each in responses)
        tokens = sum(each.tokens for each in responses)
        if usage is not None:
            count = max(count, usage.choices)
            prompt = self._settle_prompt(held.bound, len(responses), prompt, usage.prompt_tokens)
            tokens = self._settle_tokens(held, responses, count, usage.completion_tokens)
            self.unsaid += count if usage.completion_tokens is None else 0
        self._book(responses, count, prompt, tokens)
        self.release(held, len(responses))

    def _settle_tokens(
        self, held: Held, responses: Sequence[Response], got: int, told: int | None
    ) -> int:
        """The completion tokens to book; a server that gives or bills more is reserved more."""
        asked, said = len(responses), sum(each.tokens for each in responses)
        bound = held.longest
        allowed = None if bound is None else max(got * bound, asked * held.each.completion_tokens)
        if told is not None:
            said = told
        elif self.limited:
            # Nobody says what was billed; at a length without bounds a byte is a token.
            worst = sum(len(each.text.encode("utf-8", "replace")) for each in responses)
            said = max(said, worst if allowed is None else allowed)
        most = self._bearable(got) if allowed is None else allowed
        if got > asked:
            self._expect(got / asked)
        if bound and most < said <= MOST_STRETCH * most:  # else it is no number of tokens at all
            self._expect(said / (asked * bound))
        return min(said, most)

    def _settle_prompt(self, bound: Bound, asked: int, counted: int, said: int | None) -> int:
        """The prompt tokens to book; the most that the server has named is reserved next.

        A call for many responses may have had a prompt for each.
        """
        most = bound.prompt_tokens
        if said is None:
            known = bound.named if most is None else most
            return counted if known is None or not self.limited else known
        bound.named = max(bound.named or 0, said if most is None else min(said, most))
        return said if most is None else min(said, asked * most)

    def _bearable(self, responses: int) -> int:
        """Tokens that such a call costs at most where the request does not bound them.

        Of each response a key bears what it has in a whole period, so that none locks it longer.
        """
        keys = [one for one in self._chain if one.period is not None]
        most = min((one.budget.tokens_for(*one._limits[1:]) for one in keys), default=inf)
        return MOST_TOKENS if most == inf else int(responses * most)

    def _expect(self, times: float) -> None:
        # In sixty-fourths, so that what was reserved is given back to the last bit.
        told = ceil(64 * min(times, MOST_STRETCH)) / 64
        for one in self._chain:
            one._stretch = max(one._stretch, told)

    def lose(self, held: Held, n: int, why: str) -> None:
        """Count what never came and may have been billed."""
        _, prompt, tokens = held.each
        for one in self._chain:
            one.lost_to[why] += n
            guess = 0 if one.period is None else max(one._longest, ASSUMED)
            one._used()
            one.lost = one.lost.plus(n, n * prompt, n * (tokens or held.bound.max_tokens or guess))
        self.release(held, n)
