"""Whether two expressions are equal, asked of math-verify where canonical forms differ.

It hangs on some inputs and breaks off the main thread, so it runs in a process that is killed when
its deadline is over and replaced when next needed. Equal means equal both ways round.
"""

import asyncio
import json
import os
import re
import selectors
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

from aera.answer import LONGEST
from aera.canonical import canonical_number
from aera.errors import AeraError, RunError, UsageError
from aera.response import Response
from aera.run import Reader
from aera.tally import Vote
from aera.task import Task

DEADLINE = 5.0
"""Seconds for one comparison."""
STARTING = 60.0
"""Seconds for a process to load sympy."""
LEADERS = 4
"""Answers a new one is compared with."""
REMEMBERED = 65_536
_SCRIPT = Path(__file__).with_name("verifier.py")
_FORMULA = re.compile(r"[\d\\+*/^=<>|(){}\[\]]|(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])")


class Equivalence:
    """Compares expressions. Blocks for at most the deadline; remembers what it was told."""

    def __init__(self, deadline: float = DEADLINE) -> None:
        if find_spec("math_verify") is None:
            raise UsageError('equivalence needs math-verify: pip install "aera[math]"')
        self.deadline = deadline
        self.hopeless: set[str] = set()
        """Expressions that outlived a deadline; they are not asked about again."""
        self._worker: Worker | None = None
        self._lock = Lock()
        self._asked = lru_cache(maxsize=REMEMBERED)(self._ask)

    def same(self, one: str, other: str) -> bool:
        """Whether two canonical expressions are equal; False where that cannot be found out."""
        if one == other:
            return True
        if not _worth_asking(one, other):
            return False
        _refuse_event_loop()
        with self._lock:
            return not self.hopeless & {one, other} and self._asked(*sorted((one, other)))

    def close(self) -> None:
        """End the process; the next question starts another."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _ask(self, one: str, other: str) -> bool:
        if self._worker is None or self._worker.dead:
            self.close()
            self._worker = Worker()
        replies: list[str] = []
        try:
            until = time.monotonic() + self.deadline
            self._worker.send({"one": one, "other": other, "seconds": self.deadline})
            for expression in (one, other, None):
                reply = self._worker.line(until)
                if reply is None:
                    self.hopeless |= {expression} if expression else set()
                    break
                replies.append(reply)
        finally:
            if len(replies) < 3:  # also when interrupted: what is still to come answers nobody
                self.close()
        return replies[-1:] == ["same"]


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
    """A process that runs verifier.py: a fresh interpreter, which ends when this one does."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.kill: Callable[[], object] = weakref.finalize(self, _end, self.process)
        self._read = b""
        if self.line(time.monotonic() + STARTING) != "ready":
            self.kill()
            raise AeraError(f"math-verify did not start within {STARTING:.0f} s in {_SCRIPT.name}")

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def send(self, request: dict[str, object]) -> None:
        """Ask; a process that has just died is found out when nothing comes back."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            self.process.wait()

    def line(self, until: float) -> str | None:
        """The next line, None where it does not come in time or the process has died."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if not selector.select(max(0.0, until - time.monotonic())):
                    return None
                piece = os.read(self.process.stdout.fileno(), 4096)
                if not piece:
                    return None
                self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@cache
def shared_equivalence() -> Equivalence:
    """The one that tasks with `equivalence` use; its process starts with the first question."""
    return Equivalence()


class MergingReader:
    """Reads the votes of one question, in order; an answer equal to a leading one joins it.

    What a vote becomes depends on earlier responses only, so live and replayed runs agree.
    """

    def __init__(self, task: Task, same: Callable[[str, str], bool]) -> None:
        self._task, self._same = task, same
        self._names: dict[str, str] = {}
        self._weights: dict[str, float] = {}

    def read(self, response: Response) -> Vote:
        """What a response says, under the name its answer was first given."""
        vote = self._task.read(response)
        if vote.answer is None:
            return vote
        if vote.answer not in self._names:
            self._names[vote.answer] = self._leader_like(vote.answer)
        name = self._names[vote.answer]
        self._weights[name] = self._weights.get(name, 0.0) + vote.weight
        return replace(vote, answer=name)

    def _leader_like(self, answer: str) -> str:
        leaders = sorted(self._weights, key=lambda name: -self._weights[name])[:LEADERS]
        return next((name for name in leaders if self._same(name, answer)), answer)


def question_reader(task: Task) -> Reader:
    """What reads the responses to one question: the task, or a reader that merges for it."""
    return MergingReader(task, shared_equivalence().same) if task.equivalence else task
