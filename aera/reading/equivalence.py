"""Whether two expressions are equal, asked of math-verify where canonical forms differ.

It hangs on some inputs and breaks off the main thread, so it runs in a few processes. Each is
killed when its deadline is over and replaced when next needed. Equal means equal both ways round.
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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import BoundedSemaphore, Lock

from aera.core import Response, Vote
from aera.errors import AeraError, RunError, UsageError
from aera.reading.canonical import canonical_number
from aera.reading.find import LONGEST
from aera.reading.task import Reader, Task

DEADLINE = 5.0
"""Seconds for one comparison, or for one expression alone."""
WORKERS = 4
"""Processes at most; each starts when all others are busy."""
STARTING = 60.0
"""Seconds for a process to load sympy."""
LEADERS = 4
"""Answers another one is compared with."""
REMEMBERED = 65_536
TRIES = 2
"""Processes that may die of one question: the first was perhaps killed by somebody else."""
_SCRIPT = Path(__file__).with_name("worker.py")
_FORMULA = re.compile(r"[\d\\+*/^=<>|(){}\[\]]|(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])")


def check_installed() -> None:
    """Refuse where math-verify is missing."""
    if find_spec("math_verify") is None:
        raise UsageError('equivalence needs math-verify: pip install "aera[math]"')


class Equivalence:
    """Compares expressions. Blocks while a process finds out; remembers what it was told.

    Threads may share it. Each new expression is tried alone before it is compared, so one that
    hangs keeps a single process busy, once, however many threads want to know about it.
    """

    def __init__(self, deadline: float = DEADLINE) -> None:
        check_installed()
        self.deadline = deadline
        self.hopeless: set[str] = set()
        """Expressions that outlived a deadline; they are not asked about again."""
        self._told: dict[tuple[str, ...], Future[bool]] = {}
        """By one expression, whether it can be compared; by two, whether they are equal."""
        self._idle: list[Worker] = []
        self._lock = Lock()
        self._places = BoundedSemaphore(WORKERS)

    def same(self, one: str, other: str) -> bool:
        """Whether two canonical expressions are equal; False where that cannot be found out."""
        if one == other:
            return True
        if not _worth_asking(one, other) or self.hopeless & {one, other}:
            return False
        _refuse_event_loop()
        one, other = sorted((one, other))
        return self._answer(one) and self._answer(other) and self._answer(one, other)

    def close(self) -> None:
        """End the processes that have nothing to do; the next question starts another."""
        with self._lock:
            for worker in self._idle:
                worker.kill()
            self._idle = []

    def _answer(self, *expressions: str) -> bool:
        """What is known; whoever comes first asks, and others wait for what that one is told."""
        mine: Future[bool] = Future()
        with self._lock:
            told = self._told.setdefault(expressions, mine)
            if len(self._told) > REMEMBERED:
                del self._told[next(iter(self._told))]
        if told is mine:
            try:
                mine.set_result(self._ask(expressions))
            except BaseException as error:  # noqa: BLE001 - it is raised below, here and in others
                self._told.pop(expressions, None)  # nothing was found out, so the next may ask
                mine.set_exception(error)
        return told.result()

    def _ask(self, expressions: tuple[str, ...]) -> bool:
        reply = None
        with self._places:
            for _ in range(TRIES):
                with suppress(EOFError):
                    reply = self._reply(expressions)
                    break
        if reply is None and len(expressions) == 1:
            self.hopeless.update(expressions)
        return reply in ("tried", "same")

    def _reply(self, expressions: tuple[str, ...]) -> str | None:
        """What a process says, None where the deadline is over before."""
        with self._lock:
            self._idle = [worker for worker in self._idle if not worker.dead]
            free = self._idle.pop() if self._idle else None
        worker, reply = free or Worker(), None
        try:
            reply = worker.ask(expressions, self.deadline)
        finally:
            if reply is None:  # also when interrupted: what is still to come answers nobody
                worker.kill()
            else:
                with self._lock:
                    self._idle.append(worker)
        return reply


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
        ready = None
        with suppress(EOFError):
            ready = self._line(time.monotonic() + STARTING)
        if ready is None:
            self.kill()
            raise AeraError(f"math-verify did not start within {STARTING:.0f} s in {_SCRIPT.name}")

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def ask(self, expressions: Sequence[str], seconds: float) -> str | None:
        """Its reply, None where it does not come in time; EOFError where the process has died."""
        until = time.monotonic() + seconds
        self.send({"expressions": expressions, "seconds": seconds})
        return self._line(until)

    def send(self, request: dict[str, object]) -> None:
        """Ask; a process that has just died is found out when nothing comes back."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")

    def _line(self, until: float) -> str | None:
        """The next line."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if not selector.select(max(0.0, until - time.monotonic())):
                    return None
                piece = os.read(self.process.stdout.fileno(), 4096)
                if not piece:
                    raise EOFError("the process has died")
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

    What a vote becomes depends on earlier responses only, so live and replayed runs agree. Where
    two answers turn out to be equal late, votes that were counted stay and the next ones join.
    """

    def __init__(self, task: Task, same: Callable[[str, str], bool]) -> None:
        self._task, self._same = task, same
        self._weights: dict[str, float] = {}
        self._joined: dict[str, str] = {}
        """By answer, the one that its votes go to."""
        self._compared: set[frozenset[str]] = set()

    def read(self, response: Response) -> Vote:
        """What a response says, under the name its answer goes by."""
        vote = self._task.read(response)
        if vote.answer is None:
            return vote
        name = self._name(vote.answer)
        self._weights[name] = self._weights.get(name, 0.0) + vote.weight
        return replace(vote, answer=name)

    def _name(self, name: str) -> str:
        while name in self._joined:
            name = self._joined[name]
        for leader in self._ahead_of(name):
            pair = frozenset((leader, name))
            if pair not in self._compared:
                self._compared.add(pair)
                if self._same(leader, name):
                    self._joined[name] = leader
                    return leader
        return name

    def _ahead_of(self, name: str) -> list[str]:
        """The leading answers with more votes than this one, or as many but earlier."""
        own = [each for each in self._weights if each not in self._joined]
        leaders = sorted(own, key=lambda each: -self._weights[each])[:LEADERS]
        return leaders[: leaders.index(name)] if name in leaders else leaders


def question_reader(task: Task) -> Reader:
    """What reads the responses to one question: the task, or a reader that merges for it."""
    return MergingReader(task, shared_equivalence().same) if task.equivalence else task


def are_same(task: Task, answers: Iterable[str], reference: str) -> list[bool]:
    """Which answers mean the same as a reference; with equivalence, math-verify is asked too."""
    wanted = task.canonical(reference)
    return [wanted is not None and _is_same(task, answer, wanted) for answer in answers]


def _is_same(task: Task, answer: str, wanted: str) -> bool:
    found = task.canonical(answer)
    if found is None or found == wanted or not task.equivalence:
        return found == wanted
    return shared_equivalence().same(found, wanted)
