"""Supervisor: several processes on one port, with one set of numbers, started again when killed."""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from aera.errors import AeraError, UsageError
from aera.gateway.board import SharedTelemetry, read_counts
from aera.gateway.configuration import BACK, GENERATION, REFUSED, TAKEN, Configuration
from aera.gateway.process import bind, make_server, run_server
from aera.gateway.server import tell_reload
from aera.gateway.serving import prepare

log = logging.getLogger("aera.gateway")
HANDLED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD}
URGENT = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
FOLLOWING = 5.0
"""Seconds in which the processes should have read the configuration too."""
MEMORY = Path("/dev/shm")
"""Where files are in memory."""
PREFIX = "aera-numbers-"
"""How the folders begin in which processes count."""
FRESH = 60.0
"""Seconds in which a folder may not be locked yet."""
SETTLED = 10.0
"""Seconds after which a process counts as well."""
LONGEST_PAUSE = 5.0


@dataclass
class Place:
    """Where one process listens and counts; one that was killed has a successor here."""

    number: int
    listening: socket.socket
    """Held here too: who waits to be let in waits for the successor."""
    process: int | None = None
    begun: float = 0.0
    failures: int = 0
    """Of processes that did not live long, in a row."""
    rests_until: float = 0.0


class Supervisor:
    """Starts processes, passes signals on to them, and leaves when all have left."""

    def __init__(
        self, configuration: Configuration, sockets: list[socket.socket], *, drain: float
    ) -> None:
        self.configuration, self.drain = configuration, drain
        self.places = [Place(number, listening) for number, listening in enumerate(sockets)]
        self.stopping, self.failed = False, False

    def run(self) -> int:
        """Until all processes have ended; 1 where one of them cut requests off, else 0."""
        prepare(self.configuration.current)  # once, and held in memory by all of them
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        sweep(Path(_fast_folder() or tempfile.gettempdir()))
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=_fast_folder()) as folder:
            self.folder = Path(folder)
            _lock(self.folder, fcntl.LOCK_SH)  # all processes inherit it
            self.telemetry = SharedTelemetry(self.folder, "supervisor")
            while True:
                self._start_missing()
                if self.stopping and not any(place.process for place in self.places):
                    return int(self.failed)
                told = signal.sigtimedwait(HANDLED, 0.5)
                if told is not None:
                    self._handle(signal.Signals(told.si_signo))
                self._bury()

    def _handle(self, number: signal.Signals) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self.stopping = True
            self._pass_on(signal.SIGTERM)
        elif number in (signal.SIGHUP, signal.SIGUSR1) and not self.stopping:
            self._reload(number)

    def _reload(self, number: signal.Signals) -> None:
        """Processes are told only of what can be served; those to come begin with it."""
        back = number == signal.SIGUSR1
        try:
            settings = self.configuration.read(back=back)
        except AeraError as error:
            generation = self.configuration.generation
            tell_reload(self.telemetry, REFUSED, generation, why=str(error))
            return
        self.configuration.take(settings)
        self._pass_on(number)
        self._wait_for_all()
        tell_reload(self.telemetry, BACK if back else TAKEN, self.configuration.generation)

    def _wait_for_all(self) -> None:
        """Until every process serves the same, unless there is something else to do."""
        wanted, end = self.configuration.generation, time.monotonic() + FOLLOWING
        places = [str(place.number) for place in self.places if place.process is not None]
        while time.monotonic() < end and not signal.sigpending() & URGENT:
            served = [read_counts(self.folder, place).get(GENERATION, 0) for place in places]
            if min(served, default=wanted) >= wanted:
                return
            time.sleep(0.02)

    def _pass_on(self, number: signal.Signals) -> None:
        for place in self.places:
            if place.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(place.process, number)

    def _start_missing(self) -> None:
        now = time.monotonic()
        for place in self.places:
            if place.process is None and not self.stopping and place.rests_until <= now:
                place.begun, place.process = now, os.fork()
                if not place.process:
                    self._serve(place)

    def _serve(self, place: Place) -> None:
        """All of a process's life."""
        code = 1
        try:
            parent = os.getppid()
            telemetry = SharedTelemetry(self.folder, str(place.number))
            telemetry.counts[GENERATION] = self.configuration.generation
            server = make_server(
                self.configuration, drain=self.drain, telemetry=telemetry, supervisor=parent
            )
            for other in self.places:
                if other is not place:
                    other.listening.close()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            code = 1 if run_server(server, place.listening) else 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            log.exception("a process could not serve")
        finally:
            logging.shutdown()
            sys.stderr.flush()
            os._exit(code)  # the rest of the program is the supervisor's

    def _bury(self) -> None:
        """Find out who has ended, and when to start a successor."""
        for place in self.places:
            if place.process is None:
                continue
            number, status = os.waitpid(place.process, os.WNOHANG)
            if not number:
                continue
            code, lived = os.waitstatus_to_exitcode(status), time.monotonic() - place.begun
            place.process = None
            if self.stopping:
                self.failed |= code != 0
                continue
            event = {"event": "process ended", "process": number, "code": code}
            log.warning(json.dumps(event))
            if code > 0 and lived < 1.0:  # it cannot start, and the next one could not either
                self.stopping = self.failed = True
                self._pass_on(signal.SIGTERM)
            place.failures = 0 if lived > SETTLED else place.failures + 1
            pause = 0.0 if place.failures < 2 else 0.1 * 2**place.failures
            place.rests_until = time.monotonic() + min(LONGEST_PAUSE, pause)


def bind_all(host: str, port: int, processes: int) -> list[socket.socket]:
    """A socket for each process; the system spreads new clients over them."""
    if processes == 1:
        return [bind(host, port)]
    if sys.platform != "linux":
        raise UsageError("several processes on one port need Linux; start one gateway per port")
    with bind(host, port) as alone:  # else another gateway's clients would be shared silently
        port = alone.getsockname()[1]
    return [bind(host, port, shared=True) for _ in range(processes)]


def run_gateway(configuration: Configuration, sockets: list[socket.socket], *, drain: float) -> int:
    """Serve until told to stop, with a process for each socket; 1 where requests were cut off."""
    if len(sockets) == 1:
        return min(1, run_server(make_server(configuration, drain=drain), sockets[0]))
    return Supervisor(configuration, sockets, drain=drain).run()


def sweep(where: Path) -> None:
    """Remove the folders of gateways whose processes were all killed."""
    for folder in where.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody lives, or it is not ours
            if time.time() - folder.stat().st_mtime > FRESH:
                os.close(_lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB))
                shutil.rmtree(folder)


def _lock(folder: Path, kind: int) -> int:
    """Lock a folder for as long as what is returned is open, in whichever process."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, kind)
    except OSError:
        os.close(opened)
        raise
    return opened


def _fast_folder() -> str | None:
    return str(MEMORY) if os.access(MEMORY, os.W_OK) else None
