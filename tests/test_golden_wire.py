"""The gateway's wire as clients see it: requests with the replies they got, in golden/wire/*.json.

Each file holds how one `aera serve` is started, and cases that it answers in any order. A case
sends what must come `before`, then `request`, and compares status, the headers that are promised
and the body. How to write the replies anew is in golden/files.py.
"""

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from gateways import CONTROLLER, free_port, served
from golden.files import HERE, WRITE, compare, plain, pretty, tidy
from golden.standin import standin

FILES = {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "wire").glob("*.json"))}
CASES = [(file, name) for file, golden in FILES.items() for name in golden["cases"]]
NOW: dict[str, dict[str, Any]] = {}
"""Replies to be written."""
PROMISED = re.compile(r"content-type|retry-after|x-request-id|x-aera-.*|allow|connection|location")


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A gateway by the name of its file, started when it is first asked for."""
    running: dict[str, int] = {}
    with ExitStack() as stack:
        url = stack.enter_context(standin())

        def find(file: str) -> int:
            if file not in running:
                golden, config = FILES[file], HERE / "wire" / f"{file}.toml"
                folder, running[file] = tmp_path_factory.mktemp(file), free_port()
                if config.exists():
                    text = config.read_text().replace("UPSTREAM/v1", url)
                    text = text.replace("CONTROLLER", str(CONTROLLER))
                    (folder / config.name).write_text(text)
                options = [each.replace("UPSTREAM/v1", url) for each in golden["serve"]]
                told = golden.get("environment", {})
                stack.enter_context(served(running[file], *options, folder=folder, **told))
            return running[file]

        yield find
    if WRITE:
        for file, replies in NOW.items():
            golden = FILES[file]
            for name, reply in replies.items():
                golden["cases"][name]["reply"] = reply
            (HERE / "wire" / f"{file}.json").write_text(pretty(golden) + "\n")


def ask(port: int, request: Any) -> dict[str, Any]:
    """The reply to a request, as it is compared."""
    headers, body = dict(request.get("headers", {})), request.get("body")
    if body is not None and not isinstance(body, str):
        body = json.dumps(body)
        headers = {"Content-Type": "application/json", **headers}
    if isinstance(body, str):
        body = body.replace("LONG", "long " * 1000)
    method = request.get("method", "POST" if body else "GET")
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, request["path"], body, headers)
        reply = connection.getresponse()
        content = reply.read().decode()
    seen = sorted((name.lower(), value) for name, value in reply.getheaders())
    told = {name: value for name, value in seen if PROMISED.fullmatch(name)}
    return {
        "status": reply.status,
        "headers": {name: tidy_header(name, value) for name, value in told.items()},
        "body": tidy_body(request, told.get("content-type", ""), content),
    }


def tidy_header(name: str, value: str) -> str:
    if name == "x-aera-overhead-ms":
        return re.sub(r"^\d+\.\d$", "MS", value)
    if name == "retry-after":
        return value if value == "30" else "SECONDS"  # the stand-in's 30 is passed on; else a clock
    return plain(value)


def tidy_body(request: Any, kind: str, content: str) -> Any:
    """JSON as a value, events as a list of lines, metrics as their names and state as its keys."""
    if request["path"] == "/metrics":
        named = re.findall(r"^# (?:HELP|TYPE) (aera_\w+)", content, re.MULTILINE)
        return sorted({each for each in named if not each.endswith("_created")})  # once they count
    if kind.startswith("application/json"):
        value = tidy(json.loads(content))
        return shape(value) if request["path"] == "/state" else value
    if kind.startswith("text/event-stream"):
        lines = [line for line in content.splitlines() if line and not line.startswith(":")]
        return [tidy_event(line) for line in lines]
    return plain(content) if not kind.startswith("text/html") else content[:15]


def tidy_event(line: str) -> Any:
    name, _, value = line.partition(": ")
    return {name: tidy(json.loads(value))} if value.startswith("{") else line


def shape(value: Any) -> Any:
    """The keys of a value, and of what is in it, without the values."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [shape(value[0])]
    return "..."


@pytest.mark.parametrize(("file", "name"), CASES, ids=[f"{file}-{name}" for file, name in CASES])
def test_a_reply_is_what_it_was(gateways: Any, file: str, name: str) -> None:
    case = FILES[file]["cases"][name]
    for request in [*case.get("before", []), case["request"]]:
        reply = ask(gateways(file), request)
    if WRITE:
        NOW.setdefault(file, {})[name] = reply
        return
    compare(f"{file}: {name}", pretty(case["reply"]), pretty(reply))
