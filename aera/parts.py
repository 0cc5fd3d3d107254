"""Parts: recorded responses cut into whole questions, each part small enough to hold in memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aera.pool import Pool, Record, batches

Item = TypeVar("Item")


@dataclass(frozen=True)
class Segment:
    """A sealed segment of a pool: it travels as a name, and is read where it is worked on."""

    pool: Pool
    path: Path

    def __iter__(self) -> Iterator[Record]:
        return self.pool.read([self.path])


def cut(
    source: Pool | Iterable[Item], size: Callable[[Item | Record], int]
) -> list[Segment | list[Item | Record]]:
    """The segments of a pool, or lists of about as many responses as one of them holds.

    The cut depends on the responses alone, never on who works on the parts.
    """
    if isinstance(source, Pool) and source.sealed:
        there = Pool(source.path.absolute(), source.manifest)  # who works on it may be elsewhere
        return [Segment(there, path) for path in there.segments]
    items: Iterable[Item | Record] = source
    return [*batches(items, size)]
