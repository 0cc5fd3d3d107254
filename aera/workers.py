"""Workers: who does work that falls into parts: this process, several of them, or a Ray cluster.

Whoever does it, the results are the same and come in the order of the parts. A part whose worker
died is worked on again, so work must be repeatable: it returns a value, or finds on disk what it
has done already. Work and parts travel, so they are values and functions of modules.
"""

import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from aera.errors import RunError, UsageError, check_count

TRIES = 3
"""How often in a row workers may die before the work is given up."""
PATIENCE = 10.0
"""Seconds within which a cluster must take a connection."""
AHEAD = 3
"""Parts under way for every worker, so that none waits and no more than these are in memory."""

Part = TypeVar("Part")
Done = TypeVar("Done")
Handle = TypeVar("Handle")


@dataclass(frozen=True)
class Workers:
    """Whoever works on parts: this process, one part after the other; others do it elsewhere."""

    shown: bool = field(default=False, kw_only=True)
    """Whether `map_named` shows progress by a bar on the terminal."""

    def map(self, work: Callable[[Part], Done], parts: Iterable[Part]) -> Iterator[Done]:
        """What the work makes of every part, in their order."""
        return map(work, parts)


SERIAL = Workers()


@dataclass(frozen=True)
class Processes(Workers):
    """Several processes on this machine; a script needs its `if __name__ == "__main__"`."""

    count: int = 2

    def __post_init__(self) -> None:
        check_count("processes", self.count)

    def map(self, work: Callable[[Part], Done], parts: Iterable[Part]) -> Iterator[Done]:
        """What the work makes of every part, in their order."""
        left, tries = list(parts), 0
        while left:
            pool = _start_pool(self.count)
            submit: Callable[..., Future[Done]] = pool.submit
            found = run_in_order(partial(submit, work), Future.result, [*left], AHEAD * self.count)
            try:
                for done in found:
                    left.pop(0)
                    tries = 0
                    yield done
            except BaseException as error:  # also when nobody wants the rest
                _start_pool.cache_clear()
                pool.shutdown(wait=False, cancel_futures=True)
                if not isinstance(error, BrokenProcessPool):
                    raise
                tries += 1
                if tries == TRIES:
                    raise RunError(
                        f"processes died {TRIES} times in a row on one part; a script that starts "
                        'them needs its if __name__ == "__main__"'
                    ) from None


@dataclass(frozen=True)
class RayWorkers(Workers):
    """A Ray cluster, every machine of which has aera installed and sees the same files.

    Without an address it is the one `RAY_ADDRESS` names, else one started on this machine. Each
    part is a task.
    """

    address: str | None = None

    def map(self, work: Callable[[Part], Done], parts: Iterable[Part]) -> Iterator[Done]:
        """What the work makes of every part, in their order."""
        try:
            ray: Any = import_module("ray")
        except ImportError:
            raise UsageError('a Ray cluster needs Ray: pip install "aera[ray]"') from None
        if not ray.is_initialized():
            self._join(ray)
        shared = ray.put(work)
        # A task that raises has failed; one whose worker or machine died is tried again.
        task = ray.remote(num_cpus=1, max_retries=TRIES, retry_exceptions=False)(_apply)

        def finish(handle: Any) -> Done:
            try:
                done: Done = ray.get(handle)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError:
                raise RunError(f"workers died {1 + TRIES} times on one part") from None
            return done

        workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        yield from run_in_order(partial(task.remote, shared), finish, parts, AHEAD * workers)

    def _join(self, ray: Any) -> None:
        """Connect to the cluster; one that is not there is refused at once."""
        os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # the first error is told of
        address = self.address or os.environ.get("RAY_ADDRESS")
        host, _, port = (address or "").rpartition(":")
        try:
            if port.isdecimal() and "/" not in host:  # Ray would wait for minutes
                socket.create_connection((host, int(port)), PATIENCE).close()
            ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
        except (OSError, ValueError, OverflowError, ConnectionError) as error:
            said = str(error).partition("\n")[0]
            raise UsageError(f'there is no Ray cluster at "{address}": {said}') from None


@lru_cache(maxsize=1)
def _start_pool(count: int) -> ProcessPoolExecutor:
    """Processes that stay for the next work: starting one takes seconds."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as Ray does: a worker is one core's worth
    return ProcessPoolExecutor(count, get_context("spawn"), _end_with_parent)


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for its next part for ever."""
    parent = parent_process()
    assert parent is not None
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))  # the parent says it

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _apply(work: Callable[[Part], Done], part: Part) -> Done:
    return work(part)


def run_in_order(
    begin: Callable[[Part], Handle],
    finish: Callable[[Handle], Done],
    parts: Iterable[Part],
    ahead: int,
) -> Iterator[Done]:
    """Keep at most `ahead` parts in flight; results come in the order of the parts."""
    under_way: deque[Handle] = deque()
    for part in parts:
        under_way.append(begin(part))
        if len(under_way) == ahead:
            yield finish(under_way.popleft())
    while under_way:
        yield finish(under_way.popleft())


def parse_workers(text: str) -> Workers:
    """Workers by name: a number of processes (1 is this one), `ray`, or `ray:ADDRESS`."""
    if text == "1":
        return SERIAL
    if text.isdecimal():
        return Processes(int(text))
    name, _, address = text.partition(":")
    if name == "ray":
        return RayWorkers(address or None)
    raise UsageError(f'workers are a number of processes, "ray" or "ray:ADDRESS", but got "{text}"')


def map_named(
    workers: Workers, work: Callable[[Part], Done], parts: Sequence[Part], name: str
) -> list[Done]:
    """What the work makes of every part; progress is shown under this name where it is."""
    console = Console(stderr=True)
    hidden = not (workers.shown and console.is_terminal)
    done = workers.map(work, parts)
    return [*track(done, name, len(parts), console=console, transient=True, disable=hidden)]
