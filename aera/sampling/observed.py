"""What was seen of a model server, each model and kind of request for itself, and not for ever."""

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from aera.errors import UpstreamError

N_REMEMBERED = 300.0
"""Seconds for which a server that did not take `n` is asked singly; then `n` is tried again."""
REFUSAL_REMEMBERED = 10.0
"""Seconds for which those who waited during a refusal are refused alike."""
GREEDY = 0.01
"""Temperatures below this are greedy decoding to many servers, which then refuse `n`."""
MOST_KEPT = 1_024
"""Models and kinds that are remembered; names come from clients, who can make up any number."""


class Kind(NamedTuple):
    """Requests that a server may treat alike."""

    model: str
    greedy: bool
    tools: bool
    formatted: bool

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Kind":
        """The kind of a request."""
        heat = body.get("temperature")
        greedy = isinstance(heat, int | float) and heat < GREEDY
        tools = bool(body.get("tools") or body.get("functions"))
        return cls(model_of(body), greedy, tools, bool(body.get("response_format")))


def model_of(body: Mapping[str, Any]) -> str:
    """The name of the model that a request is for."""
    return str(body.get("model"))


@dataclass(frozen=True)
class _Habit:
    """How a server treats `n` in one kind of request."""

    honoured: bool = False
    """Whether it has given all that were asked for."""
    short: int = 0
    """Replies in a row that held fewer."""
    singly_until: float = 0.0


class TakesN:
    """Whether a server takes `n`.

    A server that never did is believed at its first reply of a single choice. One that did, or
    gave some of them, must fall short twice in a row: a single short reply says little.
    """

    def __init__(self) -> None:
        self._habits: dict[Kind, _Habit] = {}

    def __contains__(self, kind: Kind) -> bool:
        habit = self._habits.get(kind)
        return habit is None or habit.singly_until <= time.monotonic()

    @property
    def refused(self) -> bool:
        """Whether any kind of request is asked singly at present."""
        now = time.monotonic()
        return any(habit.singly_until > now for habit in self._habits.values())

    def note(self, kind: Kind, *, wanted: int, got: int) -> None:
        """A reply came with so many of the choices that were wanted."""
        habit = self._habits.get(kind, _Habit())
        if got >= wanted:
            self._keep(kind, _Habit(honoured=True))
        elif habit.short or (got == 1 and not habit.honoured):
            self.refuse(kind)
        else:
            self._keep(kind, _Habit(habit.honoured, habit.short + 1))

    def refuse(self, kind: Kind) -> None:
        """The server does not take `n` in such requests."""
        self._keep(kind, _Habit(singly_until=time.monotonic() + N_REMEMBERED))

    def _keep(self, kind: Kind, habit: _Habit) -> None:
        if habit == self._habits.get(kind):
            return
        self._habits[kind] = habit
        if len(self._habits) > MOST_KEPT:
            self._habits.pop(next(iter(self._habits)))


class Refusals:
    """The latest refusal of each model and key, for those who began to wait before it came."""

    def __init__(self) -> None:
        self._latest: dict[Hashable, tuple[float, UpstreamError]] = {}

    def add(self, who: Hashable, error: UpstreamError) -> None:
        """A model was refused to the holder of a key."""
        self._latest.pop(who, None)
        self._latest[who] = (time.monotonic(), error)
        if len(self._latest) > MOST_KEPT:
            self._latest.pop(next(iter(self._latest)))

    def find(self, who: Hashable, begun: float) -> UpstreamError | None:
        """The refusal that came after somebody began to wait, and not long ago."""
        if not self._latest or (known := self._latest.get(who)) is None:
            return None
        when, error = known
        if time.monotonic() - when > REFUSAL_REMEMBERED:
            del self._latest[who]
            return None
        return error if when > begun else None
