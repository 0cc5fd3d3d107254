"""Permits: how many calls may be under way, rising slowly and falling fast."""

import asyncio
from collections import deque


class Permits:
    """Additive increase, multiplicative decrease; a cancelled waiter never takes a permit along.

    async with permits:
        ...
    """

    def __init__(self, most: int, *, start: int | None = None) -> None:
        self.most = most
        self.limit = float(min(start or most, most))
        self.active = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._round = 0

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

    def widen(self) -> None:
        """A call went through: allow one more for every full round of them."""
        self.limit = min(float(self.most), self.limit + 1 / self.limit)
        self._wake()

    def halve(self, begun: int) -> None:
        """The server asked for less: halve, but once for the calls that were under way together."""
        if begun == self._round:
            self.limit = max(1.0, self.limit / 2)
            self._round += 1

    def _release(self) -> None:
        self.active -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.active < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self.active += 1
                turn.set_result(None)
