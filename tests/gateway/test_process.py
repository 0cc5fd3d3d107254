"""`aera serve` as a process: how it stops, what it refuses, and its connections."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream, in_background
from gateways import BODY, CHAT, House, ask, free_port, served, visit, wait_for
from live import boxed

from aera.gateway.app import bind

THREADS = ThreadPoolExecutor(4)


def asking(port: int, body: Any = BODY) -> "Future[tuple[int, Any]]":
    """A request in a thread of its own."""
    return THREADS.submit(ask, port, CHAT, body)


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_turns_readiness_off_and_finishes_what_is_under_way(number: int) -> None:
    port, server = free_port(), FakeUpstream(boxed, delay=lambda call: 1.5)
    with in_background(server), served(port, AERA_UPSTREAM=server.base_url) as process:
        assert ask(port, "/ready")[0] == 200
        early = asking(port)
        assert wait_for(lambda: server.calls)
        process.send_signal(number)
        time.sleep(0.3)
        status, told = ask(port, "/ready")
        late = asking(port)  # balancers need a moment to hear of it
        assert (status, told["ready"], told["draining"]) == (503, False, True)
        assert (early.result(20)[0], late.result(20)[0]) == (200, 200)
        assert process.wait(10) == 0


def told_by(folder: Path, url: str, server: str) -> str:
    """The path of a file that says this of the server."""
    upstream = f'[[upstream]]\nname = "one"\nurl = "{url}"\n'
    model = '[[model]]\nname = "m"\nother_names = true\n'
    (folder / "gateway.toml").write_text(f"{upstream}{model}[server]\n{server}\n")
    return str(folder / "gateway.toml")


@pytest.mark.parametrize("signals", [1, 2])
def test_a_call_that_hangs_keeps_the_process_no_longer_than_was_said_or_a_second_signal(
    tmp_path: Path, signals: int
) -> None:
    port, server = free_port(), FakeUpstream(boxed, delay=lambda call: 60.0)
    seconds = 0.5 if signals == 1 else 30
    with in_background(server):
        file = told_by(tmp_path, server.base_url, f"drain_seconds = {seconds}")
        with served(port, "--config", file) as process:
            waiting = [asking(port), asking(port, {**BODY, "model": "m"})]
            assert wait_for(lambda: len(server.calls) == 2)
            for _ in range(signals):
                assert process.poll() is None
                process.send_signal(signal.SIGINT)
                time.sleep(0.3)
            assert process.wait(10) == 1
            for each in waiting:
                status, told = each.result(20)
                assert (status, told["error"]["code"]) == (503, "stopping")


@pytest.mark.parametrize(("path", "kind"), [(CHAT, b""), ("/v1/responses", b"event: error")])
def test_a_stream_that_is_cut_off_is_told_in_its_own_form(path: str, kind: bytes) -> None:
    async def act(house: House) -> list[bytes]:
        asked = BODY if path == CHAT else {"model": "aera/m", "input": "how many?"}
        body = {**asked, "stream": True}
        async with house.http.post(house.url + path, json=body) as stream:
            assert (await stream.content.readany()).startswith(b": keep-alive")
            house.server.handle_exit(signal.SIGTERM, None)
            house.server.handle_exit(signal.SIGTERM, None)
            return (await stream.read()).splitlines()[-3:-1]

    server = FakeUpstream(boxed, delay=lambda call: 60.0)
    before, last = visit(act, server, keep_alive=0.02)
    assert before == kind
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "stopping"


# --- who may come in ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A gateway on loopback without keys, as it starts by default."""
    found, server = free_port(), FakeUpstream(boxed)
    with in_background(server):
        folder = tmp_path_factory.mktemp("served")
        file = told_by(folder, server.base_url, 'allowed_hosts = ["gate.test"]')
        with served(found, "--config", file):
            yield found


def test_its_own_names_and_its_own_page_may_ask_and_no_other(port: int) -> None:
    own = {"localhost", f"127.0.0.1:{port}", f"[::1]:{port}", "localhost.", "gate.test"}
    assert {ask(port, CHAT, BODY, Host=host)[0] for host in own} == {200}
    assert ask(port, CHAT, BODY, Origin=f"http://127.0.0.1:{port}")[0] == 200
    for path in (CHAT, "/v1/models", "/state", "/metrics", "/"):
        for host in ("evil.test", f"evil.test:{port}", "127.0.0.1.evil.test", ""):
            status, told = ask(port, path, BODY if path == CHAT else None, Host=host)
            assert (status, told["error"]["code"]) == (421, "unknown_host")
    assert ask(port, "/health", Host="10.0.0.7:8001")[0] == 200, "for anybody"
    for path in ("/state", "/v1/models"):
        told = [ask(port, path, Sec_Fetch_Site=f"{site}-site")[0] for site in ("cross", "same")]
        assert (told, ask(port, path, Sec_Fetch_Site="same-origin")[0]) == ([403, 403], 200)
    for origin in ("null", "http://127.0.0.1:1"):
        assert ask(port, CHAT, BODY, Origin=origin)[0] == 403
    assert ask(port, "/v1/embeddings", BODY, Content_Type="text/plain; charset=x")[0] == 415


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        ("GET /v1/models HTTP/1.1\r\nX: y", {400, 421}),
        ("GET /v1/models HTTP/1.0", {421}),
        ("GET http://localhost/v1/models HTTP/1.1\r\nHost: evil.test", {421}),
    ],
)
def test_the_host_of_raw_requests(port: int, head: str, statuses: set[int]) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
        text = b"".join(iter(lambda: line.recv(65_536), b"")).decode()
    assert int(text.split()[1]) in statuses
    assert "127.0.0.1" not in text


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "::"])
def test_the_containers_health_check_follows_host_and_port(port: int, host: str) -> None:
    text = (Path(__file__).parents[2] / "Dockerfile").read_text("utf-8").replace("\\\n", "")
    [line] = re.findall(r"^HEALTHCHECK .*?CMD python (.*)$", text, re.MULTILINE)
    proxy = {"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    codes = []
    for each in (port, free_port()):
        where = {**os.environ, **proxy, "AERA_HOST": host, "AERA_PORT": str(each)}
        done = subprocess.run([sys.executable, *shlex.split(line)], check=False, env=where)
        codes.append(done.returncode)
    assert codes == [0, 1]


# --- connections ----------------------------------------------------------------------------------


def test_small_packets_are_sent_at_once() -> None:
    with bind("127.0.0.1", 0) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        with client, accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
