"""Health: which replicas answer, which rest, and which have kept silent longer than usual."""

import time
from collections import deque
from dataclasses import dataclass

from aera.errors import UsageError

REST = 10.0
"""Seconds for which a replica that does not work is left alone; doubled each time in a row."""
DOUBLINGS = 4
SLOWER = 4.0
"""A replica is silent after so many times the usual seconds without a reply to anybody."""
LEAST_SILENCE = 1.0
OWED = 60.0
"""Seconds for which a call that nobody waited for to the end counts as still under way."""


@dataclass(frozen=True)
class HealthChecks:
    """How replicas are asked in the background whether they answer."""

    every: float = 10.0
    """Seconds between two checks."""
    path: str = "/models"
    """Behind the base URL; a GET that costs the server little."""
    timeout: float = 2.0
    always: bool = False
    """Whether an only server is checked too; replicas always are."""

    def __post_init__(self) -> None:
        for name, value in (("seconds between", self.every), ("timeout of", self.timeout)):
            if not value > 0:
                raise UsageError(f"the {name} health checks must be above 0, but got {value}")


class Traffic:
    """The calls of one server: those under way, and whether anything has come back lately."""

    def __init__(self) -> None:
        self.usual: float | None = None
        """Seconds a reply takes, on a moving average."""
        self.heard = 0.0
        """When the latest reply came, of whatever status."""
        self._begun: dict[int, float] = {}
        self._number = 0
        self._owed: deque[float] = deque()

    def begin(self) -> int:
        """A call is made; returns its number."""
        self._number += 1
        self._begun[self._number] = time.monotonic()
        return self._number

    def answer(self, number: int, *, typical: bool = True) -> None:
        """A reply came; one that is `typical` says how long others will take."""
        self.heard = time.monotonic()
        took = self.heard - self._begun.pop(number)
        if typical:
            self.usual = took if self.usual is None else 0.9 * self.usual + 0.1 * took
        self._owed.clear()

    def drop(self, number: int) -> None:
        """A call broke off, and the server is not at work on it."""
        del self._begun[number]

    def leave(self, number: int) -> None:
        """A call has ended; without a reply, the server may still be at work on it."""
        if self._begun.pop(number, None) is not None:
            self._owed.append(time.monotonic())

    @property
    def owed(self) -> int:
        """Calls that nobody waited for to the end, with no reply to anybody since."""
        now = time.monotonic()
        while self._owed and now - self._owed[0] > OWED:
            self._owed.popleft()
        return len(self._owed)

    def is_silent(self, usual: float) -> bool:
        """Whether calls wait and nothing at all has come for longer than usual."""
        if not self._begun:
            return False
        since = max(self.heard, next(iter(self._begun.values())))
        return time.monotonic() - since > max(LEAST_SILENCE, SLOWER * usual)


class Health:
    """Whether one replica is trusted."""

    def __init__(self) -> None:
        self.answers: bool | None = None
        """What the latest check found; None before the first."""
        self.status: int | None = None
        """How the latest check was answered."""
        self.checked_at = 0.0
        self._until = 0.0
        self._failures = 0
        self._ended_by_check = False

    @property
    def resting(self) -> bool:
        """Whether it is left alone as long as there is another."""
        return self.answers is False or self._until > time.monotonic()

    def rest(self, *, unreached: bool = True) -> None:
        """It does not work; a check ends the rest of one that could only not be reached."""
        seconds = REST * 2 ** min(self._failures, DOUBLINGS)
        self._failures += 1
        self._until, self._ended_by_check = time.monotonic() + seconds, unreached

    def work(self) -> bool:
        """It has answered a call; returns whether it was at rest until now."""
        if not self._failures and self.answers is not False:
            return False
        rested = self.resting
        self._failures, self._until = 0, 0.0
        self.answers = None if self.answers is False else self.answers
        return rested

    def note_check(self, *, answers: bool, status: int | None) -> None:
        """A check was made."""
        self.answers, self.status, self.checked_at = answers, status, time.monotonic()
        if answers and self._ended_by_check:
            self._until = 0.0
