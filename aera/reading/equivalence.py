"""Whether two expressions are equal, asked of math-verify where canonical forms differ.

It hangs on some inputs and breaks off the main thread, so it runs in a few processes. Each is
killed when its deadline is over and replaced when next needed. Equal means equal both ways round.
"""

import asyncio
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, local
from typing import Any

from aera.errors import AeraError, RunError, UsageError
from aera.reading.canonical import LONGEST, canonical_number

DEADLINE = 5.0
"""Seconds for one comparison, or for one expression alone."""
WORKERS = 4
"""Processes at most; each starts when all others are busy."""
STARTING = 60.0
"""Seconds for a process to load sympy."""
REMEMBERED = 65_536
TRIES = 2
"""Processes that may die of one question: the first was perhaps killed by somebody else."""
_SCRIPT = Path(__file__).with_name("worker.py")
_FORMULA = re.compile(r"[\d\\+*/^=<>|(){}\[\]]|(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])")


def check_installed(who: str = "equivalence", refusal: type[AeraError] = UsageError) -> None:
    """Refuse where math-verify is missing."""
    if find_spec("math_verify") is None:
        raise refusal(f'{who} needs math-verify: pip install "aera[math]"')


class Equivalence:
    """Compares expressions. Blocks while a process finds out; remembers what it was told.

    Threads may share it. Each new expression is tried alone before it is compared, so one that
    hangs keeps a single process busy, once, however many threads want to know about it.
    """

    def __init__(self, deadline: float = DEADLINE) -> None:
        check_installed()
        self.deadline = deadline
        self._told: dict[tuple[str, ...], Future[bool]] = {}
        """By one expression, whether it can be compared at all; by two, whether they are equal."""
        self._lock = Lock()
        self._threads, self._own = ThreadPoolExecutor(WORKERS, "aera-math"), local()
        """Each with a process of its own, which starts when it is needed."""

    def same(self, one: str, other: str) -> bool:
        """Whether two canonical expressions are equal; False where that cannot be found out."""
        if one == other:
            return True
        if not _worth_asking(one, other):
            return False
        _refuse_event_loop()
        one, other = sorted((one, other))
        return self._answer(one) and self._answer(other) and self._answer(one, other)

    def _answer(self, *expressions: str) -> bool:
        """What is known; whoever comes first asks, and others wait for what that one is told."""
        with self._lock:
            told = self._told.get(expressions)
            # Of a question that raised, nothing was found out, so the next may ask.
            if told is None or (told.done() and told.exception()):
                told = self._told[expressions] = self._threads.submit(self._ask, expressions)
            if len(self._told) > REMEMBERED:
                del self._told[next(iter(self._told))]
        return told.result()

    def _ask(self, expressions: tuple[str, ...]) -> bool:
        """In one of the threads: what its process says, before the deadline is over."""
        reply = None
        for _ in range(TRIES):
            worker = getattr(self._own, "worker", None)
            if worker is None or worker.dead:
                worker = self._own.worker = Worker()
            try:
                reply = worker.ask(expressions, self.deadline)
                break
            except EOFError:
                continue
            finally:
                if reply is None:  # what is still to come answers nobody
                    worker.kill()
        return reply in ("tried", "same")


def _worth_asking(one: str, other: str) -> bool:
    """Numbers are compared exactly before; a word would be read as a product of its letters."""
    if max(len(one), len(other)) > LONGEST or not (_FORMULA.search(one) and _FORMULA.search(other)):
        return False
    return canonical_number(one) is None or canonical_number(other) is None


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RunError("comparing expressions would block the event loop; use asyncio.to_thread")


class Worker:
    """A process that runs worker.py: a fresh interpreter, which ends when this one does."""

    def __init__(self) -> None:
        self.pipe, theirs = Pipe()
        command = [sys.executable, "-P", str(_SCRIPT), str(theirs.fileno())]
        nothing, kept = subprocess.DEVNULL, [theirs.fileno()]
        self.process = subprocess.Popen(
            command, stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=kept
        )
        theirs.close()
        self.kill: Callable[[], object] = weakref.finalize(self, _end, self.process, self.pipe)
        ready = None
        with suppress(EOFError):
            ready = self._hear(STARTING)
        if ready is None:
            self.kill()
            raise AeraError(f"math-verify did not start within {STARTING:.0f} s in {_SCRIPT.name}")

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def ask(self, expressions: Sequence[str], seconds: float) -> str | None:
        """Its reply, None where it does not come in time; EOFError where the process has died."""
        with suppress(OSError):  # one that has just died is found out when nothing comes back
            self.pipe.send((expressions, seconds))
        return self._hear(seconds)

    def _hear(self, seconds: float) -> str | None:
        try:
            return str(self.pipe.recv()) if self.pipe.poll(seconds) else None
        except OSError:
            raise EOFError("the process has died") from None


def _end(process: "subprocess.Popen[bytes]", pipe: "Connection[Any, Any]") -> None:
    process.kill()
    process.wait()
    pipe.close()


@cache
def shared_equivalence() -> Equivalence:
    """The one that tasks with `equivalence` use; its process starts with the first question."""
    return Equivalence()
