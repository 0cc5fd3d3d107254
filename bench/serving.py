"""What the benches of the gateway share: servers as processes, a light client, and what a process used.

As a program it is one of those servers:

    .venv/bin/python bench/serving.py upstream PORT MILLISECONDS      a model server that answers after so long
    .venv/bin/python bench/serving.py proxy PORT URL                  the least an aiohttp proxy can do
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, TCPConnector, web

ROOT = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
ANSWER = "Nine times two is eighteen: \\boxed{18}."
WANTED = re.compile(rb'"n": ?(\d+)')
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


# --- servers --------------------------------------------------------------------------------------


class Upstream(asyncio.Protocol):
    """A model server of which nothing but its delay is felt."""

    delay = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport, self.read = transport, b""

    def data_received(self, data: bytes) -> None:
        self.read += data
        head, found, body = self.read.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not found or (length and len(body) < int(length[1])):
            return
        self.read = b""
        wanted = WANTED.search(body)
        reply = completion(int(wanted[1]) if wanted else 1)
        if self.delay:
            asyncio.get_running_loop().call_later(self.delay, self.transport.write, reply)
        else:
            self.transport.write(reply)


def completion(n: int) -> bytes:
    choice = {"message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}
    choices = [{"index": place, **choice} for place in range(n)]
    usage = {"prompt_tokens": 12, "completion_tokens": 9 * n, "total_tokens": 12 + 9 * n}
    body = json.dumps({"id": "x", "model": "m", "choices": choices, "usage": usage}).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    return f"{head}{len(body)}\r\n\r\n".encode() + body


async def serve_upstream(port: int, milliseconds: float) -> None:
    Upstream.delay = milliseconds / 1000
    server = await asyncio.get_running_loop().create_server(
        Upstream, "127.0.0.1", port, backlog=2048
    )
    await server.serve_forever()


async def serve_proxy(port: int, url: str) -> None:
    async with ClientSession(connector=TCPConnector(limit=0)) as session:

        async def chat(request: web.Request) -> web.Response:
            content = await request.read()
            headers = {"Content-Type": "application/json"}
            async with session.post(
                f"{url}/chat/completions", data=content, headers=headers
            ) as reply:
                return web.Response(
                    body=await reply.read(), status=reply.status, content_type="application/json"
                )

        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
        await asyncio.Event().wait()


def run(work: Any) -> None:
    """On uvloop where it is installed, as the gateway does."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


# --- processes ------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Process:
    """A server in a process of its own, once it listens."""

    def __init__(self, *line: str, log: Path | None = None, **variables: str) -> None:
        self.port = free_port()
        words = [str(self.port) if word == "PORT" else word for word in line]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
        with (log or Path(os.devnull)).open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *words], stderr=out, env={**environment, **variables}
            )
        self.url = f"http://127.0.0.1:{self.port}/v1"
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise SystemExit(f"{words} does not listen")

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def memory(self) -> float:
        """Megabytes held."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def sockets(self) -> int:
        """Connections held, listening and waking included."""
        found = 0
        for each in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found += "socket" in str(each.readlink())
        return found

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@contextlib.contextmanager
def running(*line: str, log: Path | None = None, **variables: str) -> Iterator[Process]:
    made = Process(*line, log=log, **variables)
    try:
        yield made
    finally:
        made.stop()


def upstream(milliseconds: float) -> "contextlib.AbstractContextManager[Process]":
    return running(__file__, "upstream", "PORT", str(milliseconds))


def proxy(url: str) -> "contextlib.AbstractContextManager[Process]":
    return running(__file__, "proxy", "PORT", url)


def gateway(
    *urls: str, log: Path, **variables: str
) -> "contextlib.AbstractContextManager[Process]":
    """`aera serve` as it starts by default, logging on."""
    told = {"AERA_UPSTREAM": ",".join(urls)} if urls else {}
    return running(
        "-m", "aera", "serve", "--model", "m", "--port", "PORT", log=log, **told, **variables
    )


# --- a light client -------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """One keep-alive connection that asks one thing after the other."""

    def __init__(self) -> None:
        self.read, self.waiting = b"", None  # type: bytes, asyncio.Future[bytes] | None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.read += data
        head, found, body = self.read.partition(b"\r\n\r\n")
        length = LENGTH.search(head) if found else None
        if length and len(body) >= int(length[1]) and self.waiting:
            self.read = b""
            self.waiting.set_result(head)
            self.waiting = None

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiting and not self.waiting.done():
            self.waiting.set_exception(error or ConnectionResetError("the server closed"))

    async def ask(self, request: bytes) -> bytes:
        """The head of the reply."""
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.waiting


def request(body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


if __name__ == "__main__":
    kind, port, rest = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    run(serve_upstream(port, float(rest)) if kind == "upstream" else serve_proxy(port, rest))
