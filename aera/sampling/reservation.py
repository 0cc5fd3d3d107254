"""Reservation: responses that may be asked for, and what they can cost, until they are there."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aera.errors import UpstreamError
from aera.response import Response
from aera.sampling.budget import Bound

if TYPE_CHECKING:
    from aera.sampling.spending import Spending

Heard = Callable[[int, Sequence[Response]], None]
"""Told of what a call brought, and the place of the first of it."""
NO_ROOM = "no_room"
"""The code of an error that a limit caused, not a server."""


def no_room() -> UpstreamError:
    """What becomes of a call for which a limit leaves no room."""
    return UpstreamError("the limit leaves no room for another try", code=NO_ROOM, retryable=False)


class Reservation:
    """Responses that may be asked for, and what they can cost, until they have come back."""

    def __init__(
        self, spending: "Spending", responses: int, *, bound: Bound, each: int, prompt: int
    ) -> None:
        self.responses, self.bound = responses, bound
        self.each, self.prompt = each, prompt
        """Completion and prompt tokens reserved for each response."""
        self.max_tokens: int | None = None
        """The length that a response is cut to, so that it fits; None leaves the request's own."""
        self.heard: Heard | None = None
        """Told of every call that came back."""
        self._spending = spending
        self._free = responses
        """Those no call has been made for."""
        self._out = 0
        """Those that calls are under way for."""

    @property
    def deadline(self) -> float | None:
        """When the seconds are over."""
        return self._spending.deadline

    @property
    def late(self) -> bool:
        """Whether they are."""
        return self._spending.late

    @property
    def limit(self) -> str:
        """The limit that is nearest to being spent."""
        return self._spending.limit

    def begin(self, n: int) -> bool:
        """Before a call for `n` responses: whether it may be made, as its retry may not be."""
        more = max(0, n - self._free)
        if more and not self._spending.widen(self, more):
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
        self._spending.book_lost(self, n)

    def receive(self, start: int, responses: Sequence[Response]) -> None:
        """What came back, of which `start` is the first."""
        self._out -= len(responses)
        self._spending.book(responses, self.bound)
        self._spending.release(self, len(responses))
        if self.heard is not None:
            self.heard(start, responses)

    def close(self) -> None:
        """Whatever is left of it is free for others; a call that never returned counts as lost."""
        if self._out:
            self.lose(self._out)
        self._spending.release(self, self._free)
        self._free = 0
        self._spending.leave(self)


class Unreserved:
    """A reservation where nothing is limited and nobody listens."""

    def begin(self, n: int) -> bool:
        return True

    def give_back(self, n: int) -> None: ...

    def lose(self, n: int) -> None: ...

    def receive(self, start: int, responses: Sequence[Response]) -> None: ...


UNRESERVED = Unreserved()
