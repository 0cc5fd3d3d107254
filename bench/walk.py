"""How many modules of aera one chat request passes, and one solved question.

    python bench/walk.py

`aera serve` and `aera solve` as processes before a stand-in for a model server. A module is passed
when a function of it is entered, in any thread. A request is counted after a first one like it; a
question from its first call to the model server to that of the next. What the whole command
`aera solve` passes, its start and end included, comes last.
"""

import http.client
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from inspect import CO_OPTIMIZED
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes import Call, FakeUpstream, in_background
from serving import free_port

ROOT = Path(__file__).parents[1]
HOME = f"{ROOT / 'aera'}{os.sep}"
CONTROLLER = ROOT / "aera" / "demo" / "controller"
GOALS = {"chat": 25, "solve": 20}
TEXTS = [f"Tom has {n} apples and buys {n + 1} more. How many apples has he?" for n in range(5)]


def watch(folder: Path, arguments: list[str]) -> None:
    """Be `aera`; at every SIGUSR1 and at the end, write the modules passed since the last time."""
    passed, everything, written = set[str](), set[str](), 0

    def see(frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & CO_OPTIMIZED and code.co_filename.startswith(HOME):
            passed.add(code.co_filename)

    def tell(modules: set[str], name: str) -> None:
        partial = folder / f"{name}.part"
        partial.write_text(json.dumps(sorted(each.removeprefix(HOME) for each in modules)))
        partial.rename(folder / name)

    def turn(*signalled: object) -> None:
        nonlocal written
        everything.update(passed)
        tell(passed, str(written))
        passed.clear()
        written += 1

    signal.signal(signal.SIGUSR1, turn)
    sys.argv = ["aera", *arguments]
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        runpy.run_module("aera", run_name="__main__")
    finally:
        sys.setprofile(None)
        tell(everything | passed, "all")


class Walk:
    """A process under `watch`, and what it has passed."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self._folder, self._read = folder, 0
        line = [sys.executable, __file__, "--watch", folder, *arguments]
        self.process = subprocess.Popen(
            [*map(str, line)], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )

    def modules(self) -> list[str]:
        """Those passed since the last time."""
        self.process.send_signal(signal.SIGUSR1)
        self._read += 1
        return self.read(str(self._read - 1))

    def read(self, name: str) -> list[str]:
        """What was written under a name, once it is."""
        file = self._folder / name
        while not file.exists():
            time.sleep(0.01)
        found: list[str] = json.loads(file.read_text())
        return found


def model_server(
    called: Callable[[str], None] = lambda prompt: None,
) -> AbstractContextManager[FakeUpstream]:
    """A model whose samples agree; `called` hears the prompt of each call before it is answered."""

    def say(call: Call, place: int) -> str:
        if not place:
            called(call.prompt)
        return "That makes 7 in all, so \\boxed{7}."

    return in_background(FakeUpstream(say))


def post(port: int, body: dict[str, Any]) -> None:
    """One request, answered well."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    if reply.status != 200:
        raise SystemExit(f"the gateway answered {reply.status}: {content!r:.200}")


def walk_chat(model: str, *options: object) -> list[str]:
    """What the second of two chat requests passes."""
    port = free_port()
    with model_server() as server, tempfile.TemporaryDirectory() as folder:
        asked = ("--upstream", server.base_url, "--model", "m", "--port", port, *options)
        walk = Walk(Path(folder), "serve", *asked)
        try:
            until = time.monotonic() + 60
            while walk.process.poll() is None and time.monotonic() < until:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            for text in TEXTS[:2]:
                walk.modules()
                post(port, {"model": model, "messages": [{"role": "user", "content": text}]})
            return walk.modules()
        finally:
            walk.process.terminate()
            walk.process.wait()


def walk_solve(*options: object) -> tuple[list[str], list[str]]:
    """What one question passes among others, and what the whole command does."""
    begun: dict[str, list[str]] = {}

    def called(prompt: str) -> None:
        text = next(each for each in TEXTS if each in prompt)
        if text not in begun:
            begun[text] = walk.modules()

    with model_server(called) as server, tempfile.TemporaryDirectory() as folder:
        rows = [{"id": str(n), "question": text} for n, text in enumerate(TEXTS)]
        (Path(folder) / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
        asked = ("--base-url", server.base_url, "--file", "asked.jsonl")
        asked += ("--out", "answers.jsonl", "--concurrency", "1")
        walk = Walk(Path(folder), "solve", *asked, "--model", "m", *options)
        walk.process.wait()
        return begun[TEXTS[2]], walk.read("all")


def show(what: str, modules: list[str], goal: int | None = None) -> None:
    """One list, and whether it is short enough."""
    wanted = "" if goal is None else f" (goal: at most {goal})"
    print(f"{what}: {len(modules)} modules{wanted}\n  {', '.join(modules)}\n", flush=True)


def main() -> None:
    """Walk all of it."""
    by = ("--controller", CONTROLLER)
    show("a chat request that votes", walk_chat("aera/m"), GOALS["chat"])
    show("the same with a controller", walk_chat("aera/m", *by), GOALS["chat"])
    show("a chat request that is passed on", walk_chat("m"), GOALS["chat"])
    one, everything = walk_solve("--task", "numeric")
    show("a question through solve", one, GOALS["solve"])
    led, all_of_it = walk_solve(*by)
    show("the same with a controller", led, GOALS["solve"])
    show("the whole command solve", everything)
    show("the whole command solve with a controller", all_of_it)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watch"]:
        watch(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
