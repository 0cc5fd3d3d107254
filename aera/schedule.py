"""Schedule: the prefix lengths at which a decision may be taken."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from aera.errors import UsageError


@dataclass(frozen=True)
class Schedule:
    """Strictly increasing checkpoints. `Schedule()` is the paper's 4, 8, 16, 32, 64, 128."""

    checkpoints: tuple[int, ...] = (4, 8, 16, 32, 64, 128)

    def __post_init__(self) -> None:
        points = self.checkpoints
        rising = all(a < b for a, b in pairwise(points))
        if not points or points[0] < 1 or not rising:
            raise UsageError(
                f"a schedule needs strictly increasing checkpoints from 1 up, but got {points}"
            )

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Read "4,8,16" or "1-128", which means every response."""
        try:
            if "-" in text:
                low, high = map(int, text.split("-"))
                return cls(tuple(range(low, high + 1)))
            return cls(tuple(int(part) for part in text.split(",")))
        except ValueError:
            raise UsageError(
                f'a schedule is written "4,8,16" or "1-128", but got "{text}"'
            ) from None

    @classmethod
    def doubling(cls, responses: int) -> "Schedule":
        """The usual checkpoints of so many responses: 4, then twice as many each time."""
        points = [4]
        while points[-1] < responses:
            points.append(2 * points[-1])
        return cls(tuple(points)).upto(responses)

    @property
    def first(self) -> int:
        """The first checkpoint."""
        return self.checkpoints[0]

    @property
    def last(self) -> int:
        """The last checkpoint: the full budget."""
        return self.checkpoints[-1]

    def after(self, count: int) -> int | None:
        """The next checkpoint beyond `count` responses, None at the end."""
        place = bisect_right(self.checkpoints, count)
        return self.checkpoints[place] if place < len(self.checkpoints) else None

    def upto(self, responses: int) -> "Schedule":
        """This schedule cut to a pool that holds only so many responses per question."""
        if responses < 1:
            raise UsageError("a schedule cannot be cut to fewer than one response")
        last = min(responses, self.last)
        return Schedule((*(c for c in self.checkpoints if c < last), last))

    def __iter__(self) -> Iterator[int]:
        return iter(self.checkpoints)

    def __len__(self) -> int:
        return len(self.checkpoints)

    def __str__(self) -> str:
        return ", ".join(map(str, self.checkpoints))
