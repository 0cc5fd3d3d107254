"""What the worker processes of a bench have used; they stay, so nobody has added them up yet."""

import os
from multiprocessing import active_children
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_by_process() -> dict[int, float]:
    """CPU seconds of every worker so far, by its process number."""
    found = {}
    for number in (child.pid for child in active_children() if child.pid):
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        found[number] = (int(fields[11]) + int(fields[12])) / TICKS
    return found


def cpu_since(before: dict[int, float]) -> float:
    """CPU seconds that the workers of now have used since then."""
    return sum(used - before.get(number, 0.0) for number, used in cpu_by_process().items())


def largest_kb() -> int:
    """The most memory that any of the workers ever held."""
    told = [Path(f"/proc/{child.pid}/status").read_text() for child in active_children()]
    return max((int(each.partition("VmHWM:")[2].split()[0]) for each in told), default=0)
