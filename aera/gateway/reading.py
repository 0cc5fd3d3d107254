"""Reading under a deadline: what was read in time counts as it was read, the rest plainly."""

import time
from collections.abc import Sequence

from aera.reading.chat import ChatReader
from aera.response import Response
from aera.tally import Vote


class DeadlineReader:
    """Reads replies for one vote and remembers what they said, for another thread to find.

    A reader that merges equal answers asks another process, which may take its time. Once the
    deadline is over, replies are read as they stand.
    """

    def __init__(self, reader: ChatReader, plain: ChatReader, deadline: float) -> None:
        self._reader, self._plain, self._deadline = reader, plain, deadline
        self._votes: dict[int, Vote] = {}
        """By the identity of the reply, which the run holds on to."""

    def read(self, response: Response) -> Vote:
        """The vote of one reply."""
        late = time.monotonic() >= self._deadline
        vote = (self._plain if late else self._reader).read(response)
        self._votes[id(response)] = vote
        return vote

    def recall(self, responses: Sequence[Response]) -> list[Vote]:
        """What these replies said, where nobody waits for a comparison any more."""
        known = dict(self._votes)  # whoever still reads may add to it
        return [known.get(id(each)) or self._plain.read(each) for each in responses]
