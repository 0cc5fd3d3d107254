"""`aera serve` as people start it: options, environment variables, and its file."""

import asyncio
import json
import os
import signal
import socket
import tomllib
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from commands import refusal
from fakes import FakeUpstream, in_background, serving
from gateways import BODY, CONTROLLER, ask, free_port, served
from live import boxed, completion
from misbehaving import run_apart
from typer.main import get_command
from typer.testing import CliRunner, Result

from aera.cli import app
from aera.errors import UsageError
from aera.gateway.config import Config, read_config, write_config
from aera.sampling.replies import NO_API

KEY = "a-key-of-some-length-"
SECRET = "a-key-of-some-length"
UPSTREAM = ("--upstream", "http://127.0.0.1:1/v1")
SMALL = """
[[upstream]]
name = "gpu"
url = "http://gpu.test/v1"

[[model]]
name = "small"
"""


WHOLE = """
default = "large"

[[upstream]]
name = "gpu"
urls = ["http://gpu-1.test/v1", "http://gpu-2.test/v1"]
api_key_env = "GPU_KEY"
headers = { X-Team = "blue team" }
timeout = 60

[[upstream]]
name = "cloud"
url = "https://cloud.test/v1"
forward_key = true

[[model]]
name = "small"
upstream = "gpu"
model = "qwen2.5-7b"
controller = "mine"
escalate = { upstream = "cloud", model = "huge" }

[[model]]
name = "large"
upstream = "cloud"
policy = "asc-0.9"
schedule = "4,8"
vote_by_default = true
deadline = 20.5
other_names = true

[keys]
env = "TEAM_KEYS"
file = "keys.txt"

[[key]]
name = "blue"
env = "BLUE_KEY"
models = ["small"]

[limits]
prices = [0.5, 1.5]
"""


def called(*words: object, **variables: str) -> Result:
    """What the command says and how it ends, where it does not begin to serve."""
    return CliRunner().invoke(app, ["serve", *map(str, words)], env=variables)


def test_what_cannot_be_served_is_told_in_one_sentence_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for variables, told in (
            ({"AERA_KEYS": f"{KEY},short"}, "a key in AERA_KEYS has 5 characters and could be"),
            ({"AERA_PORT": port}, f"cannot listen on 127.0.0.1, port {port}: "),
        ):
            known = {**os.environ, "AERA_UPSTREAM": UPSTREAM[1], **variables}
            done = run_apart(tmp_path, "serve", env=known)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1)
            assert done.stderr.startswith(f"aera: {told}")
            assert KEY not in done.stderr


# --- options --------------------------------------------------------------------------------------


def test_there_are_at_most_twenty_options_and_the_environment_sets_nearly_all() -> None:
    options = get_command(app).commands["serve"].params  # type: ignore[attr-defined]
    assert len([each for each in options if each.name != "help"]) <= 20
    assert [each.name for each in options if not each.envvar] == ["print_config"]


def test_the_environment_sets_it_all() -> None:
    port = free_port()
    one, other = FakeUpstream(boxed), FakeUpstream(boxed)
    with in_background(one), in_background(other):
        variables = {
            "AERA_UPSTREAM": f"{one.base_url},{other.base_url}", "AERA_MODEL": "m",
            "AERA_KEYS": f"{KEY}1, {KEY}2", "AERA_VOTE_BY_DEFAULT": "1", "AERA_TASK": "numeric",
            "AERA_POLICY": "fixed-8",
        }  # fmt: skip
        with served(port, **variables) as process:
            assert ask(port, "/v1/models")[0] == 401
            assert len(ask(port, "/ready")[1]["replicas"]) == 2
            messages = {"messages": BODY["messages"]}
            status, reply = ask(port, "/v1/chat/completions", messages, key=f"{KEY}2")
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
    assert (status, reply["model"], reply["aera"]["samples"]) == (200, "m", 8)
    assert process.returncode == 0
    assert f"AERA on http://127.0.0.1:{port}/v1" in said
    assert '"model": "m", "status": 200' in said
    assert "how many" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "no upstream is given"),
        (("--upstream", "ftp://x"), "must start with http"),
        ((*UPSTREAM, "--escalate-to", "http://x/v1"), "URL#MODEL"),
        ((*UPSTREAM, "--task", "poetry"), 'no task is called "poetry"'),
        ((*UPSTREAM, "--policy", "lead-4+weighted"), "weights come with a trained controller"),
        ((*UPSTREAM, "--record", "kept"), "give --audit-share too"),
        ((*UPSTREAM, "--audit-share", "2"), "--audit-share must be from 0 to 1"),
        ((*UPSTREAM, "--model", "aera/m"), "--model must be a name"),
        ((*UPSTREAM, "--api-key-env", "GONE_KEY"), "--api-key-env names the variable GONE_KEY"),
        ((*UPSTREAM, "--host", "0.0.0.0"), "clients need keys: set AERA_KEYS"),
        (("--config", "x.toml", "--policy", "fixed-1"), "--policy says something of one model"),
    ],
)
def test_a_wrong_option_is_refused_before_serving(options: tuple[str, ...], said: str) -> None:
    caught = called(*options, AERA_KEYS="").exception
    assert isinstance(caught, UsageError)
    assert said in str(caught)


def test_everything_can_be_printed_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    said = called(*UPSTREAM, "--print-config").output
    printed = tomllib.loads(said)
    assert (printed["model"][0]["max_samples"], printed["server"]["port"]) == (512, 8001)
    assert "\n# Most samples of one request, all choices together.\nmax_samples = 512" in said
    assert write_config(read_config(printed)) == said.rstrip("\n")


@pytest.mark.parametrize(("place", "key"), [("one.test/v2", ("ONE_KEY",)), ("two.test/v1", ())])
def test_the_key_of_the_first_server_stays_at_its_address(
    place: str, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONE_KEY", "k")
    options = ["--upstream", "http://one.test/v1", "--api-key-env", "ONE_KEY"]
    more = ["--escalate-to", f"http://{place}#large", "--print-config"]
    printed = tomllib.loads(called(*options, *more).output)
    assert printed["model"][0]["escalate"] == {"upstream": "second", "model": "large"}
    assert tuple(printed["upstream"][1].get("api_key_env", ())) == key


# --- the file -------------------------------------------------------------------------------------


def read(tmp_path: Path, text: str) -> Config:
    (tmp_path / "gateway.toml").write_text(text, "utf-8")
    return read_config(tomllib.loads(text), f"{tmp_path / 'gateway.toml'}, ", tmp_path)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {"GPU_KEY": "k", "TEAM_KEYS": f"{SECRET}-1", "BLUE_KEY": f"{SECRET}-3"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "keys.txt").write_text(f"{SECRET}-2\n")
    (tmp_path / "mine").symlink_to(CONTROLLER)


@pytest.mark.usefixtures("keys")
def test_a_file_says_it_all(tmp_path: Path) -> None:
    config = read(tmp_path, WHOLE)
    small, large = config.model
    first, second = config.find("gpu").endpoints
    assert (first.key, second.key, first.timeout) == ("k", "k", 60)
    assert first.headers == {"X-Team": "blue team"}
    assert (small.model, small.controller) == ("qwen2.5-7b", tmp_path / "mine")
    assert small.escalate == {"upstream": "cloud", "model": "huge"}
    assert (large.vote_by_default, large.deadline, large.max_samples) == (True, 20.5, 512)
    assert [key.secret[-2:] for key in config.key] == ["-1", "-2", "-3"]
    assert (config.key[-1].name, config.key[-1].models) == ("blue", ("small",))
    assert (config.default, config.limits.prices) == ("large", (0.5, 1.5))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[model]\nname = 'm'", "write [[model]], as there may be several"),
        ("", "there are no models"),
        (SMALL + "colour = 'red'", 'gateway.toml, [[model]] "small": "colour" is unknown'),
        (SMALL + "max_sample = 9", 'did you mean "max_samples"?'),
        ("key_tokens_per_minute = 9\n" + SMALL, "is unknown here; it goes into [limits]"),
        ("env = 'x'\n" + SMALL, "it goes into [keys] or [[key]]"),
        (SMALL + "max_samples = '9'", "\"small\": max_samples must be a whole number, but is '9'"),
        (SMALL + "max_samples = 0", "max_samples must be at least 1, but is 0"),
        (SMALL + "on_alarm = 'panic'", "on_alarm is one of log, full-budget"),
        (SMALL + "controller = 'gone'\ntask = 'numeric'", "task is the controller's own"),
        (SMALL + "upstream = 'cpu'", 'no upstream "cpu"; there are gpu'),
        (SMALL + "escalate = { upstream = 'gpu' }", "escalate takes a model"),
        (SMALL + "[[model]]\nname = 'small'", 'two models are called "small"'),
        (SMALL + "[[model]]\nname = 'aera/x'", 'without "aera/" before it'),
        (SMALL + "[[upstream]]\nname = 'x'\nurl = 'x'", '"x": the base URL must start'),
        (SMALL + "[[upstream]]\nname = 'x'", "give url or urls"),
        (SMALL.replace("[[model]]", "api_key_env = 'GONE_KEY'\n[[model]]"),
         '[[upstream]] "gpu": api_key_env names the variable GONE_KEY, which is not set'),
        (SMALL.replace("[[model]]", "forward_key = true\n[[model]]") + "audit_share = 1.0",
         "paid for with the clients' own keys"),
        (SMALL + "[[key]]\nname = 'x'\nenv = 'HOME'\nmodels = ['y']", 'names the model "y"'),
        (SMALL + "[keys]\nenv = 'GONE_KEY'", "env names the variable GONE_KEY"),
        (SMALL + "[keys]\nfile = 'gone'", "the file of keys"),
        (SMALL + "[keys]\nfile = 'empty.txt'", "has none, and without a key anybody may ask"),
        (SMALL + "[limits]\nkey_money_per_day = 1.0", "a limit in money needs prices"),
        ("default = 'x'\n" + SMALL, 'the default model "x" is none of small'),
        (SMALL + "[limits]\nprices = [nan, 1.0]", "[limits]: prices must be a number, but is nan"),
        (SMALL + 2 * "[[key]]\nname = 'x'\nenv = 'HOME'\n", 'two keys are called "x"'),
        (SMALL + "[keys]\nenv = 'TWICE'\n[[key]]\nname = 'x'\nenv = 'TWICE'",
         "the key in TWICE is in TWICE too"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setenv("TWICE", KEY)
    (tmp_path / "empty.txt").write_text("# all gone\n")
    assert said in refusal(UsageError, read, tmp_path, text)


@pytest.mark.usefixtures("keys")
def test_a_check_says_what_would_be_served(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(WHOLE)
    done = called("--config", file, "--check")
    first, second = done.stdout.splitlines()
    assert first.startswith('"small" as "qwen2.5-7b" at http://gpu-1.test/v1, http://gpu-2.test/v1')
    assert "policy asc-0.9, checkpoints 4, 8, votes by default, and every other name" in second
    assert "http://gpu-2.test/v1 does not answer: is the model server running there?" in done.stderr
    assert done.exit_code == 1, "nobody is there"
    file.write_text(WHOLE.replace('"mine"', '"gone"'))
    done = called("--config", file, "--check")
    assert '[[model]] "small": ' in str(done.exception)


def answering(status: int = 200, says: Any = None, **reply: Any) -> Any:
    """A server that answers everything with this, and a chat with what it says after so long."""

    async def answer(request: web.Request) -> web.Response:
        if request.method == "GET" and status:
            return web.Response(status=status, **reply)
        if says == "nothing":
            await asyncio.sleep(60)
        assert (await request.json())["max_tokens"] == 1
        return web.json_response(says or completion("so"), status=400 if says else 200)

    return in_background(serving(answer))


def listing(*names: str, says: Any = None) -> Any:
    """A server that lists these models."""
    models = {"object": "list", "data": [{"id": name} for name in names]}
    return answering(says=says, text=json.dumps(models), content_type="application/json")


@pytest.mark.parametrize(
    ("server", "code", "said"),
    [
        (listing("m", "other"), 0, ""),
        (listing("models/m"), 0, ""),
        (listing("a", "b"), 1, 'does not list the model "m": it has "a", "b"'),
        (listing(*"abcdefgh"), 1, 'it has "a", "b", "c", "d", "e", 3 more'),
        (listing(), 1, 'does not list the model "m": it has none'),
        (listing("m", says={"error": "odd"}), 1, 'gives no reply as "m": upstream 400: odd'),
        (listing("m", says={"error": "give max_completion_tokens"}), 0, ""),
        (listing("m", says="nothing"), 1, 'as "m": upstream: no reply within 0.5 s'),
        (answering(0, says="nothing"), 1, "does not answer: is the model server running there?"),
        (answering(404), 0, ""),
        (answering(429), 1, "answers 429: too many requests"),
        (answering(500), 1, "fails with status 500"),
        (answering(302, headers={"Location": "/"}), 1, "which is not followed: give its final"),
        (answering(401), 1, "answers 401: no key is set; look at --api-key-env"),
        (answering(text="<html>", content_type="text/html"), 1, f"answers with no JSON{NO_API}"),
    ],
)
def test_a_check_asks_the_model_servers_and_tries_a_chat(
    monkeypatch: pytest.MonkeyPatch, server: Any, code: int, said: str
) -> None:
    monkeypatch.setattr("aera.cli.options.CHAT_SECONDS", 0.5)
    with server as url:
        known = url.replace("//", "//me:hidden@")
        done = called("--upstream", known, "--model", "m", "--check")
    assert (done.exit_code, done.stderr.count("\n")) == (code, bool(said))
    assert done.stderr.startswith(f"{url} " if said else "")
    assert said in done.stderr
    assert ("all is well" in done.stdout) == (code == 0)
    assert "hidden" not in done.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), 'ask for "aera/MODEL", MODEL as the server calls it'),
        (("--model", "m"), 'URL does not list the model "m": it has "other"'),
    ],
)
def test_the_start_says_what_to_ask_for_and_what_cannot_work(options: Any, said: str) -> None:
    with listing("other") as url:
        with served(port := free_port(), "--upstream", url, *options) as process:
            assert ask(port, "/health")[0] == 200
            lines = iter(process.stderr.readline, "")
            assert any(line.startswith(said.replace("URL", url)) for line in lines)
        done = called("--upstream", url, *options, "--check")
    assert done.stdout.startswith('"m" at ' if options else "any model at ")


def test_options_may_name_the_server_of_a_file(tmp_path: Path) -> None:
    (file := tmp_path / "gateway.toml").write_text('[[model]]\nname = "small"\nmax_n = 2\n')
    line = [*UPSTREAM, "--config", file, "--port", 9, "--print-config"]
    printed = tomllib.loads(called(*line).output)
    assert (printed["upstream"][0]["urls"], printed["server"]["port"]) == ([UPSTREAM[1]], 9)
    assert (printed["model"][0]["name"], printed["model"][0]["max_n"]) == ("small", 2)
