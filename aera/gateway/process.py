"""The gateway as a process: where it listens, and how it stops."""

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from types import FrameType

import uvicorn

from aera.gateway.server import Application, collect_seldom
from aera.gateway.settings import GatewaySettings

log = logging.getLogger("aera.gateway")
BACKLOG = 2_048
"""Clients that may wait to be let in."""
LISTENERS = 8
"""Sockets on which new clients are let in; all are the same address."""
KEEP_ALIVE = 75
"""Seconds an idle connection stays open: longer than in the pools of clients and balancers, for
whichever side closes first makes the other fail."""
CLOSING_SECONDS = 2
"""Seconds in which those who were cut off can be told."""
THREAD_SECONDS = 5.0
"""Seconds after which threads that do not end are left behind."""


class GatewayServer(uvicorn.Server):
    """Drains on SIGTERM or SIGINT: not ready, but answering, until all is done or time is up."""

    def __init__(self, config: uvicorn.Config, application: Application, drain: float) -> None:
        super().__init__(config)
        self.application, self.app, self.drain = application, application.app, drain
        self.alone = False
        """Whether the process does nothing else, and ends with it."""
        self.cut_off = 0
        """Requests that were ended before they had their answer."""
        self._signals = 0
        self._until: float | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals of this process for as long as it serves."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        taken = (signal.SIGTERM, signal.SIGINT)
        former = {each: signal.signal(each, self.handle_exit) for each in taken}
        try:
            yield
        finally:
            for each, handler in former.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins to drain, the second ends it."""
        self._signals += 1

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: go on draining."""
        if self._signals:
            self._go_on_draining()
        return await super().on_tick(counter)

    def _go_on_draining(self) -> None:
        if self._until is None:
            self._until = time.monotonic() + self.drain
            self.app.draining = True
        over = time.monotonic() >= self._until or self._signals > 1
        if over or not self.app.busy:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what is still under way, with a word to each, and leave."""
        if self.alone:
            # A thread that hangs in somebody else's code would keep the process for ever.
            end = threading.Timer(THREAD_SECONDS, os._exit, (1,))
            end.daemon = True
            end.start()
        self.cut_off = self.app.cut()
        if self.cut_off:
            log.warning("stopping: %d requests were cut off", self.cut_off)
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """Where clients will connect."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # Accepted sockets inherit it. Else a reply of two packets waits 40 ms for an acknowledgement:
    # asyncio sets it only on sockets that were made with the protocol's number.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def make_server(settings: GatewaySettings, *, drain: float = 30.0) -> GatewayServer:
    """A gateway that is ready to run."""
    application = Application(settings)
    config = uvicorn.Config(
        application.app,
        ws="none",
        log_config=None,
        access_log=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=CLOSING_SECONDS,
        server_header=False,
        proxy_headers=False,  # nobody asks for the client's address
    )
    return GatewayServer(config, application, drain)


def run_server(server: GatewayServer, listening: socket.socket) -> int:
    """Serve until told to stop; returns how many requests were cut off then."""
    server.alone = True
    collect_seldom()
    # uvloop lets one client in for each socket and round of its loop, and rounds are long when it
    # is busy: with one socket the last of a few hundred new clients would wait for seconds.
    server.run(sockets=[listening, *(listening.dup() for _ in range(LISTENERS - 1))])
    return server.cut_off
