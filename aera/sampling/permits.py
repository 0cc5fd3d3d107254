"""Permits: how many calls may be under way; fewer once the server asks for less."""

import asyncio
import time
from collections import deque
from collections.abc import Hashable

CALM = 10.0
"""Seconds without a refusal after which the limit rises fast again."""
MOST_KEPT = 1_024
"""Models whose limits are remembered; names come from clients, who can make up any number."""


class Permits:
    """Multiplicative decrease, additive increase; a cancelled waiter never takes a permit along.

    async with permits:
        ...
    """

    def __init__(self, most: int, *, start: int | None = None) -> None:
        self.most = most
        self.limit = float(min(start or most, most))
        self.active = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._round = 0
        self._refusals = _RefusedRound(self.limit, 0)
        self._refused_at = -CALM

    async def __aenter__(self) -> int:
        """Wait for a permit; returns the round it belongs to, which `halve` asks for."""
        if self.active < int(self.limit) and not self._waiting:
            self.active += 1
            return self._round
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the permit arrived together with the cancellation
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise
        return self._round

    async def __aexit__(self, *error: object) -> None:
        self._release()

    @property
    def waiting(self) -> int:
        """How many wait for a permit."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nobody has a permit or waits for one."""
        return not self.active and not self._waiting

    def widen(self) -> None:
        """A call went through: one more, or one for every full round soon after a refusal."""
        if self.limit >= self.most:
            return
        calm = time.monotonic() - self._refused_at >= CALM
        self.limit = min(float(self.most), self.limit + (1 if calm else 1 / self.limit))
        self._wake()

    def halve(self, begun: int) -> None:
        """The server refused a call: halve, but once for the calls that were under way together.

        Where it took some of them, the limit is what it took, if that is less.
        """
        if begun == self._round:
            self.limit = max(1.0, self.limit / 2)
            self._refusals = _RefusedRound(self.limit, self.active)
            self._round += 1
        elif begun != self._round - 1:
            return
        self._refused_at = time.monotonic()
        self.limit = self._refusals.lower(self.limit)

    def _release(self) -> None:
        self.active -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.active < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self.active += 1
                turn.set_result(None)


class _RefusedRound:
    """Calls that were under way together when the first of them was refused."""

    def __init__(self, half: float, together: int) -> None:
        self._half, self._together, self._refused = half, together, 0

    def lower(self, limit: float) -> float:
        """One more was refused; returns how many are worth trying."""
        self._refused += 1
        taken = self._together - self._refused
        # Where none was taken, that says nothing about how many would be.
        return min(limit, taken) if taken > 0 else max(limit, self._half)


class ModelPermits:
    """Permits of each model and key: refusals of one do not slow down the others."""

    def __init__(self, most: int, *, start: int | None = None) -> None:
        self.most, self.start = most, start
        self._permits: dict[Hashable, Permits] = {}

    def of(self, who: Hashable) -> Permits:
        """The permits of a model and key."""
        known = self._permits.get(who)
        if known is None:
            if len(self._permits) >= MOST_KEPT:
                self._forget()
            known = self._permits[who] = Permits(self.most, start=self.start)
        return known

    @property
    def waiting(self) -> int:
        """How many wait for a permit of any model."""
        return sum(each.waiting for each in self._permits.values())

    @property
    def least(self) -> int:
        """What the model may have under way that was refused most."""
        return int(min((each.limit for each in self._permits.values()), default=self.most))

    def _forget(self) -> None:
        """Make room: those that nobody uses go."""
        self._permits = {who: each for who, each in self._permits.items() if not each.idle}
