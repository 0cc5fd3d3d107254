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
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

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
Heard = Callable[[int, Sequence[Response]], None]
"""Told of what a call brought, and the place of the first of it."""


def no_room() -> UpstreamError:
    """What becomes of a call for which a limit leaves no room."""
    return UpstreamError("the limit leaves no room for another try", code=NO_ROOM, retryable=False)


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
        limits = {
            "responses": self.responses,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "money": self.money,
        }
        for name, limit in limits.items():
            if limit is not None and not limit > 0:
                raise UsageError(f"a limit in {name} must be above 0, but got {limit:g}")
        if min(self.prompt_price, self.completion_price) < 0:
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
        return not (self.responses is None and self.tokens is None and self.money is None)

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Their price."""
        prompt = prompt_tokens * self.prompt_price
        return (prompt + completion_tokens * self.completion_price) / 1e6

    @property
    def limits(self) -> tuple[float, float, float]:
        """Responses, tokens and money; infinite where there is no limit."""
        told = (self.responses, self.tokens, self.money)
        responses, tokens, money = (inf if limit is None else limit for limit in told)
        return responses, tokens, money

    def costs(
        self, responses: float, prompt_tokens: float, completion_tokens: float
    ) -> tuple[float, float, float]:
        """What counts against those limits."""
        tokens = completion_tokens + (prompt_tokens if self.with_prompts else 0)
        return responses, tokens, self.cost(prompt_tokens, completion_tokens)


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
    """What a server says that a call took."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """None where it does not say."""
    choices: int = 0
    """Responses that it gave, which may be more than were asked for."""


@dataclass
class Counts:
    """Responses and tokens, summed up."""

    responses: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, responses: int, prompt_tokens: int, completion_tokens: int) -> None:
        """So many more, or fewer."""
        self.responses += responses
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens


@dataclass
class _Reserved:
    """What calls under way can take together."""

    choices: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, choices: float, prompt_tokens: int, completion_tokens: int) -> None:
        self.choices += choices
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens


class Held:
    """Responses that may be asked for, and what they can cost, until they have come back."""

    def __init__(
        self,
        ledger: "Ledger",
        responses: int,
        bound: Bound,
        *,
        each: int,
        prompt: int,
        choices: float,
    ) -> None:
        self.ledger, self.responses, self.bound = ledger, responses, bound
        self.each, self.prompt, self.choices = each, prompt, choices
        """Completion and prompt tokens, and choices that a server may give, for each response."""
        self.max_tokens: int | None = None
        """The length that a response is cut to, so that it fits; None leaves the request's own."""
        self.heard: Heard | None = None
        """Told of every call that came back."""
        self._free, self._out = responses, 0
        """Those that no call has been made for, and those that calls are under way for."""

    @property
    def deadline(self) -> float | None:
        """When the seconds are over."""
        return self.ledger.deadline

    def begin(self, n: int) -> bool:
        """Before a call for `n` responses: whether it may be made, as its retry may not be."""
        more = max(0, n - self._free)
        if more and not self.ledger.widen(self, more):
            return False
        self._free += more - n
        self._out += n
        return True

    def give_back(self, n: int) -> None:
        """A call came to nothing and cost nothing."""
        self._out -= n
        self._free += n

    def lose(self, n: int) -> None:
        """A call came to nothing and may have been billed: it counts as what it can have cost."""
        self._out -= n
        self.ledger.lose(self, n)

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
        self.ledger.leave(self, free)


@dataclass(order=True)
class _Waiting:
    """Somebody who wants responses for which there is no room yet; earlier questions first."""

    turn: int
    number: int
    want: int = field(compare=False)
    bound: Bound = field(compare=False)
    answer: "asyncio.Future[Held | None]" = field(compare=False)


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
        self.unsaid = self.overbilled = 0
        """Tokens booked because nobody said how many, and tokens billed beyond all bounds."""
        self.begun = time.monotonic()
        self.refused = False
        """Whether somebody was told that a limit leaves no room."""
        self._chain = (self, *above)
        self._limits = budget.limits
        self._reserved, self._open = _Reserved(), set[Held]()
        self._forgotten, self._filled = [0.0, 0.0, 0.0], self.begun
        self._longest = self._longest_prompt = 0
        self._stretch = 1.0
        """How many times as much as it should the server has billed."""
        self._waiting: list[_Waiting] = []
        self._numbers = itertools.count()
        self._below = weakref.WeakSet[Ledger]()
        for each in above:
            each._below.add(self)

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
    def usual(self) -> float | None:
        """Tokens that a response has taken on average; None before the first."""
        done = self.spent
        return done.completion_tokens / done.responses if done.responses else None

    @property
    def limited(self) -> bool:
        """Whether anything that is paid for is limited, here or above."""
        return any(each.budget.limited for each in self._chain)

    @property
    def limit(self) -> str:
        """The limit that is nearest to being spent, or the seconds when they are over."""
        if self.late:
            return "seconds"
        shares = [
            room / limit
            for room, limit in zip(self._rooms(), self._limits, strict=True)
            if limit < inf
        ]
        names = [
            name
            for name, limit in zip(("responses", "tokens", "money"), self._limits, strict=True)
            if limit < inf
        ]
        above = min((share for one in self._chain[1:] for share in one._shares()), default=inf)
        if not shares or above < min(shares):
            return "key"
        return names[shares.index(min(shares))]

    def wait(self) -> float:
        """Seconds until a ledger with a period has any room again, 0 where it has."""
        assert self.period is not None
        pairs = zip(self._rooms(held=False), self._limits, strict=True)
        waits = [-room / limit * self.period for room, limit in pairs if limit < inf]
        return max([0.0, *waits])

    def wait_above(self) -> float:
        """Seconds until all ledgers above have room again, at least one."""
        return max([1.0, *(one.wait() for one in self._chain[1:])])

    # --- reserving --------------------------------------------------------------------------------

    def take(self, want: int, bound: Bound) -> Held | None:
        """Reserve what fits of the wanted responses right now, None where not even one does."""
        if self.late:
            return None
        if not self.limited:
            return self._begin(want, bound, each=0, prompt=0)
        told = (bound.named, bound.prompt_tokens, self._longest_prompt)
        prompt = next(tokens for tokens in told if tokens is not None)
        known = bound.max_tokens
        if known is None and not self._longest:
            # Nobody can say what a response takes before there is one: one block finds it out,
            # and the others wait for it.
            fits = 0 if self._open else self._fit(want, 1, prompt)
            return self._begin(fits, bound, each=0, prompt=prompt)
        each = ceil(self._times * (self._longest if known is None else known))
        fits = self._fit(want, each, prompt)
        if fits > 0:
            return self._begin(fits, bound, each=each, prompt=prompt)
        if want < 1 or self._fit(1, each, prompt, held=False):
            return None  # it does fit once those under way have come back
        return self._take_shorter(want, bound, each=each, prompt=prompt)

    def _take_shorter(self, want: int, bound: Bound, *, each: int, prompt: int) -> Held | None:
        """At the end of a limit: what still fits of it, if a usual response does."""
        room = min(one._length_that_fits(prompt) for one in self._chain)
        each = int(min(each, room, ROOMY * self._longest if self.spent.responses else room))
        if each < self._least_worth_asking():
            return None
        made = self._begin(self._fit(want, each, prompt), bound, each=each, prompt=prompt)
        if made is not None and bound.max_tokens is not None:
            made.max_tokens = max(1, int(each / self._times))
        return made

    def _least_worth_asking(self) -> float:
        """Below this length a response would hardly be whole, unless that wastes the limit."""
        if self.usual is None:
            return 1
        tokens = self._limits[1]
        if self.budget.money is not None and self.budget.completion_price:
            tokens = min(tokens, 1e6 * self.budget.money / self.budget.completion_price)
        return max(1, min(self._longest, max(2 * self.usual, LAST * tokens)))

    async def reserve(self, want: int, bound: Bound, *, turn: int = 0) -> Held | None:
        """Reserve what fits of the wanted responses, waiting for those under way; None: no room.

        Of those who wait, the earliest `turn` is first.
        """
        got = None if self._waiting else self.take(want, bound)
        if got is not None or not self._under_way or self.late:
            self.refused |= got is None
            return got
        answer: asyncio.Future[Held | None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, _Waiting(turn, next(self._numbers), want, bound, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and (given := answer.result()):
                given.close()
            self._answer_waiting()  # those behind it need not wait for it any more
            raise

    @property
    def _times(self) -> float:
        """How many times as much as asked for is reserved, as servers here have given or billed."""
        return max(each._stretch for each in self._chain)

    @property
    def _under_way(self) -> bool:
        return any(each._open for each in self._chain)

    def _begin(self, n: int, bound: Bound, *, each: int, prompt: int) -> Held | None:
        if n < 1:
            return None
        made = Held(self, n, bound, each=each, prompt=prompt, choices=self._times)
        for one in self._chain:
            one._open.add(made)
        self._hold(made, n)
        return made

    def _hold(self, held: Held, n: int) -> None:
        for one in self._chain:
            one._reserved.add(n * held.choices, n * held.prompt, n * held.each)

    def widen(self, held: Held, more: int) -> bool:
        """Reserve `more` responses for one of which some were lost; whether there is room."""
        if self.late or self._fit(more, max(1, held.each), held.prompt) < more:
            return False
        self._hold(held, more)
        return True

    def leave(self, held: Held, free: int) -> None:
        """A reservation is over, and so many of its responses were never asked for."""
        self._hold(held, -free)
        for one in self._chain:
            one._open.discard(held)
        self._wake()

    def _wake(self) -> None:
        """There is more room than before, here and above."""
        for one in self._chain:
            for below in [one, *one._below]:
                below._answer_waiting()

    def _answer_waiting(self) -> None:
        """Give room to those who wait for it, in their order; with nobody under way, say no."""
        while self._waiting:
            first = self._waiting[0]
            if first.answer.done():  # it was cancelled
                heapq.heappop(self._waiting)
                continue
            got = self.take(first.want, first.bound)
            if got is None and self._under_way and not self.late:
                return
            heapq.heappop(self._waiting)
            self.refused |= got is None
            first.answer.set_result(got)

    # --- room -------------------------------------------------------------------------------------

    def _fit(self, want: int, each: int, prompt: int, *, held: bool = True) -> int:
        """How many responses of such a length fit, beside those under way or if there were none."""
        costs = self._times, prompt, each
        return min(one._fit_here(want, costs, held=held) for one in self._chain)

    def _fit_here(self, want: int, each: tuple[float, int, int], *, held: bool) -> int:
        rooms = self._rooms(held=held)
        if self.period is not None and not (held and self._open) and min(rooms) > 0:
            return want  # one at a time may take more than there is: the next one waits for it
        costs = self.budget.costs(*each)
        fits = [room / cost for room, cost in zip(rooms, costs, strict=True) if cost]
        return max(0, int(min([want, *fits]) + 1e-9))

    def _rooms(self, *, held: bool = True) -> list[float]:
        """What is left of responses, tokens and money."""
        used = self._used()
        if held:
            own = self._reserved
            costs = self.budget.costs(own.choices, own.prompt_tokens, own.completion_tokens)
            used = [one + two for one, two in zip(used, costs, strict=True)]
        return [limit - taken for limit, taken in zip(self._limits, used, strict=True)]

    def _shares(self) -> list[float]:
        pairs = zip(self._rooms(), self._limits, strict=True)
        return [room / limit for room, limit in pairs if limit < inf]

    def _used(self) -> list[float]:
        """What is spent or may be, less what was forgotten since."""
        done, lost = self.spent, self.lost
        total = self.budget.costs(
            done.responses + lost.responses,
            done.prompt_tokens + lost.prompt_tokens,
            done.completion_tokens + lost.completion_tokens,
        )
        if self.period is None:
            return [*total]
        now = time.monotonic()
        share, self._filled = (now - self._filled) / self.period, now
        for place, (limit, taken) in enumerate(zip(self._limits, total, strict=True)):
            grown = self._forgotten[place] + (share * limit if limit < inf else inf)
            self._forgotten[place] = min(taken, grown)
        return [taken - gone for taken, gone in zip(total, self._forgotten, strict=True)]

    def _length_that_fits(self, prompt: int) -> float:
        """How long one more response can be; without end where its length makes no difference."""
        _, tokens, money = self._rooms()
        tokens -= prompt if self.budget.with_prompts else 0
        if self.budget.completion_price:
            left = money - self.budget.cost(prompt, 0)
            tokens = min(tokens, 1e6 * left / self.budget.completion_price)
        return max(0.0, tokens)

    def leaves_room_for(self, responses: int) -> bool:
        """Whether so many more fit beside those under way, if they are as long as usual."""
        return self._fit(responses, round(self.usual or 0), self._longest_prompt) >= responses

    # --- booking ----------------------------------------------------------------------------------

    def book(self, responses: Sequence[Response]) -> None:
        """Count what was paid for before."""
        for each in responses:
            self._book(1, each.prompt_tokens, each.tokens)
            self._longest = max(self._longest, each.tokens)
            self._longest_prompt = max(self._longest_prompt, each.prompt_tokens)

    def _book(self, responses: int, prompt_tokens: int, completion_tokens: int) -> None:
        for one in self._chain:
            one._used()  # the time before it forgets nothing of it
            one.spent.add(responses, prompt_tokens, completion_tokens)

    def settle(self, held: Held, responses: Sequence[Response], usage: Usage | None) -> None:
        """Book what a call was billed: as the server says, within what it can have taken."""
        asked = len(responses)
        got = max(asked, usage.choices if usage else 0)
        prompt = sum(each.prompt_tokens for each in responses)
        said = sum(each.tokens for each in responses)
        bound = held.bound.max_tokens if held.max_tokens is None else held.max_tokens
        if usage is not None:
            prompt = self._settle_prompt(held, prompt, usage)
            allowed = None if bound is None else max(got * bound, asked * held.each)
            if usage.completion_tokens is None and self.limited:
                # Nobody says what was billed; at a length without bounds a byte is a token.
                worst = sum(len(each.text.encode("utf-8", "replace")) for each in responses)
                booked = max(said, worst if allowed is None else allowed)
                self.unsaid += booked - said
                said = booked
            elif usage.completion_tokens is not None:
                said = usage.completion_tokens
            most = self._bearable(got) if allowed is None else allowed
            if said > most:
                self.overbilled += said - most
                if bound and said <= MOST_STRETCH * most:  # else it is no number of tokens at all
                    self._expect(said / (asked * bound))
                said = most
            if got > asked:
                self._expect(got / asked)
        self._book(got, prompt, said)
        for one in self._chain:
            one._longest = max([one._longest, *(each.tokens for each in responses)])
        self._longest_prompt = max([self._longest_prompt, *(e.prompt_tokens for e in responses)])
        self._hold(held, -asked)
        self._wake()

    def _settle_prompt(self, held: Held, prompt: int, usage: Usage) -> int:
        """The prompt tokens to book; the most that the server has named is reserved next."""
        bound, said = held.bound, usage.prompt_tokens
        most = bound.prompt_tokens
        if said is None and not self.limited:
            return prompt
        if said is None:
            known = bound.named if most is None else most
            known = prompt if known is None else known
            self.unsaid += max(0, known - prompt)
            return known
        if most is not None and said > most:
            self.overbilled += said - most
            said = most
        bound.named = max(bound.named or 0, said)
        return said

    def _bearable(self, responses: int) -> int:
        """Tokens that such a call costs at most where the request does not bound them.

        Of each response a key bears what it has in a whole period, so that none locks it longer.
        """
        periods = [one for one in self._chain if one.period is not None]
        tokens = [one._limits[1] for one in periods]
        for one in periods:
            if one.budget.money is not None and one.budget.completion_price:
                tokens.append(1e6 * one.budget.money / one.budget.completion_price)
        most = min(tokens, default=inf)
        return MOST_TOKENS if most == inf else int(responses * most)

    def _expect(self, times: float) -> None:
        # In sixty-fourths, so that what was reserved is given back to the last bit.
        told = ceil(64 * min(times, MOST_STRETCH)) / 64
        for one in self._chain:
            one._stretch = max(one._stretch, told)

    def lose(self, held: Held, n: int) -> None:
        """Count what never came and may have been billed."""
        each = held.each or held.bound.max_tokens or 0
        for one in self._chain:
            guess = 0 if one.period is None else max(one._longest, ASSUMED)
            one._used()
            one.lost.add(n, n * held.prompt, n * (each or guess))
        self._hold(held, -n)
        self._wake()

    def charge(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Book what a reply took that was passed on as it was."""
        self._book(1, prompt_tokens, completion_tokens)
