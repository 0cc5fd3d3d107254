"""Board: the numbers of several processes in files that all can read; a killed one loses none.

Each process has a place of its own: `N.names` has a line for each number, `N.values` the numbers
as they are in memory, `N.rows` the latest votes. Whoever takes the place after it counts on.
"""

import json
import mmap
import os
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from math import isnan, nan
from pathlib import Path
from typing import Any

from aera.gateway.telemetry import KEPT, Histogram, Telemetry

Key = tuple[str, ...]
ACTIVE: Key = ("active",)
GAUGE = "gauge"
GAUGES = frozenset({"active", GAUGE})
"""Numbers that are about a process while it lives: whoever comes after it begins anew."""
YES_OR_NO = frozenset({"upstream_up", "audit_alarm"})
GONE = nan
"""The gauge of a replica that is asked no more."""
HISTOGRAM, SUM = "histogram", "sum"
SLOTS = 1_024
"""Numbers for which a file has room at first."""
WIDTH = 8


class SharedCounts(defaultdict[Key, float]):
    """Counts that are written to a file in memory as they change."""

    def __init__(self, folder: Path, place: str) -> None:
        super().__init__(float, read_counts(folder, place))
        self._slots = {key: slot for slot, key in enumerate(self)}
        self._names = os.open(folder / f"{place}.names", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._values = os.open(folder / f"{place}.values", os.O_RDWR | os.O_CREAT)
        self._map(max(SLOTS, len(self)))

    def _map(self, slots: int) -> None:
        os.ftruncate(self._values, slots * WIDTH)
        self._view = memoryview(mmap.mmap(self._values, slots * WIDTH)).cast("d")

    def __setitem__(self, key: Key, value: float) -> None:
        super().__setitem__(key, value)
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = len(self._slots)
            if slot >= len(self._view):
                self._map(2 * len(self._view))
            os.write(self._names, json.dumps(key).encode() + b"\n")
        self._view[slot] = value  # eight bytes at once: readers see the old or the new number


class SharedHistogram(Histogram):
    """A histogram that is kept among the counts too."""

    def __init__(self, name: str, plain: Histogram, counts: SharedCounts) -> None:
        super().__init__(plain.text, plain.bounds)
        self._store = counts
        self._keys: list[Key] = [(HISTOGRAM, name, str(i)) for i in range(len(self.counts))]
        self._sum: Key = (HISTOGRAM, name, SUM)
        fill(self, name, counts)

    def observe(self, size: float) -> None:
        """Count one."""
        super().observe(size)
        place = bisect_left(self.bounds, size)
        self._store[self._keys[place]] = self.counts[place]
        self._store[self._sum] = self.sum


class SharedTelemetry(Telemetry):
    """The numbers of one process among several."""

    def __init__(self, folder: Path, place: str) -> None:
        shared = SharedCounts(folder, place)
        for key in [key for key in shared if key[0] in GAUGES]:
            shared[key] = GONE if key[0] == GAUGE else 0
        self._active = 0
        self._shared = shared
        super().__init__()
        self._folder, self.counts = folder, shared
        for name, plain in histograms(self):
            setattr(self, name, SharedHistogram(name, plain, shared))
        self._rows = folder / f"{place}.rows"
        self.latest.extend(read_rows(self._rows))
        self._newest: Any = None

    def publish(self) -> None:
        """Let the others see the latest votes; called now and then, as each takes its time."""
        now = {(GAUGE, *key): value for key, value in self.gauges().items()}
        gone = {key: GONE for key in self._shared if key[0] == GAUGE and key not in now}
        for key, value in {**gone, **now}.items():
            self._shared[key] = value
        newest = self.latest[-1] if self.latest else None
        if newest is not self._newest:
            self._newest, fresh = newest, self._rows.with_suffix(".fresh")
            fresh.write_text("".join(json.dumps(row) + "\n" for row in self.latest), "utf-8")
            fresh.replace(self._rows)

    @property
    def active(self) -> int:
        """Requests under way in this process; others see it too."""
        return self._active

    @active.setter
    def active(self, count: int) -> None:
        self._active = self._shared[ACTIVE] = count

    def merged(self) -> Telemetry:
        """The numbers of all processes, also of those that are no more."""
        self.publish()
        total, rows = MergedTelemetry(), list[dict[str, Any]]()
        for names in sorted(self._folder.glob("*.names")):
            for key, value in read_counts(self._folder, names.stem).items():
                if not isnan(value):
                    total.counts[key] += value
            rows += read_rows(names.with_suffix(".rows"))
        for name, plain in histograms(total):
            fill(plain, name, total.counts)
        total.active = int(total.counts[ACTIVE])
        total.latest.extend(sorted(rows, key=lambda row: row["time"])[-KEPT:])
        total.begun = self.begun
        return total


class MergedTelemetry(Telemetry):
    """The numbers of several processes together."""

    def gauges(self) -> dict[Key, float]:
        """Calls and permits add up; a replica is up, or an alarm on, where any process says so."""
        seen = {key[1:]: value for key, value in self.counts.items() if key[0] == GAUGE}
        return {key: min(1.0, v) if key[0] in YES_OR_NO else v for key, v in seen.items()}


def histograms(telemetry: Telemetry) -> list[tuple[str, Histogram]]:
    """The histograms by the names that they have there."""
    return [(name, each) for name, each in vars(telemetry).items() if isinstance(each, Histogram)]


def fill(histogram: Histogram, name: str, counts: dict[Key, float]) -> None:
    """Give a histogram the numbers that are among the counts."""
    places = range(len(histogram.counts))
    histogram.counts = [int(counts.get((HISTOGRAM, name, str(i)), 0)) for i in places]
    histogram.sum = counts.get((HISTOGRAM, name, SUM), 0.0)


def read_counts(folder: Path, place: str) -> dict[Key, float]:
    """The numbers that were counted at a place; a name without a value is counted later."""
    names, values = folder / f"{place}.names", folder / f"{place}.values"
    if not names.exists() or not values.exists():
        return {}
    keys = list(_whole_lines(names))
    numbers = array("d")
    content = values.read_bytes()
    numbers.frombytes(content[: len(content) // WIDTH * WIDTH])
    numbers.extend([0.0] * (len(keys) - len(numbers)))
    return {tuple(key): number for key, number in zip(keys, numbers, strict=False)}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The latest votes of a place."""
    return list(_whole_lines(path))[-KEPT:] if path.exists() else []


def _whole_lines(path: Path) -> Iterator[Any]:
    """The lines of a file that somebody may be writing to."""
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield json.loads(line)
