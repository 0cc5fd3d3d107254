"""Time and connections that cost nothing: a clock that waiting moves, a server as a function."""

import asyncio
import json
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, TypeVar

Done = TypeVar("Done")
Answer = Callable[[Mapping[str, Any]], Awaitable[tuple[int, Any]]]
"""Status and reply to the body of a call."""


class _Idle(selectors.SelectSelector):
    """A selector that never waits: whoever would sleep moves the clock instead."""

    def __init__(self, clock: "VirtualClock") -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        if timeout:
            self._clock.now += timeout
        return super().select(0)


class VirtualClock(asyncio.SelectorEventLoop):
    """An event loop in which time passes only by waiting for it."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Idle(self))

    def time(self) -> float:
        return self.now


def run_on_virtual_time(
    work: Coroutine[Any, Any, Done], answer: Answer, monkeypatch: Any
) -> tuple[Done, float]:
    """What comes of work whose every connection is to such a server, and the seconds it takes."""

    async def close() -> None:
        """Nothing is open."""

    async def request(method: str, url: Any, *, data: bytes, **settings: Any) -> Any:
        status, reply = await answer(json.loads(data))

        async def iter_any() -> AsyncIterator[bytes]:
            yield json.dumps(reply).encode()

        content = SimpleNamespace(iter_any=iter_any)
        return nullcontext(SimpleNamespace(status=status, headers={}, content=content))

    session, loop = SimpleNamespace(request=request, close=close, headers={}), VirtualClock()
    monkeypatch.setattr("time.monotonic", loop.time)
    monkeypatch.setattr("aera.sampling.client.open_session", lambda endpoint: session)
    try:
        return loop.run_until_complete(work), loop.now
    finally:
        loop.close()
