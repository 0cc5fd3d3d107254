"""`aera serve --config`: what a file says, what is wrong with it; options by environment."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from aera.cli.serve_options import ServeOptions
from aera.cli.serve_settings import headers_of, read_settings
from aera.gateway.settings import GatewaySettings
from fakes import FakeUpstream
from gateways import BODY, CONTROLLER, ask, free_port, served
from live import boxed, in_background
from typer.main import get_command

from aera.cli import app
from aera.errors import UsageError

SECRET = "a-key-of-some-length"
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
concurrency = 32
timeout = 60
tries = 2

[[upstream]]
name = "cloud"
url = "https://cloud.test/v1"
forward_key = true

[[model]]
name = "small"
upstream = "gpu"
model = "qwen2.5-7b"
controller = "mine"
max_samples = 64
escalate = { upstream = "cloud", model = "huge" }

[[model]]
name = "large"
upstream = "cloud"
task = "numeric"
policy = "asc-0.9"
schedule = "4,8"
vote_by_default = true
min_samples = 8
deadline = 20.5
other_names = true

[keys]
env = "TEAM_KEYS"
file = "keys.txt"

[[key]]
name = "blue"
env = "BLUE_KEY"
models = ["small"]
requests_per_minute = 60
money_per_day = 2.5

[limits]
max_requests = 100
key_tokens_per_minute = 9_000
prices = [0.5, 1.5]
"""


def read(tmp_path: Path, text: str, **options: Any) -> GatewaySettings:
    file = tmp_path / "gateway.toml"
    file.write_text(text, "utf-8")
    return read_settings(ServeOptions(**{"config": file, **options}))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {"GPU_KEY": "k", "TEAM_KEYS": f"{SECRET}-1", "BLUE_KEY": f"{SECRET}-3"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "keys.txt").write_text(f"{SECRET}-2\n")
    (tmp_path / "mine").symlink_to(CONTROLLER)


@pytest.mark.usefixtures("keys")
def test_a_file_says_it_all(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE)
    small, large = settings.models
    assert (settings.default, settings.most_requests) == ("large", 100)
    assert [each.base_url for each in small.upstreams] == [
        "http://gpu-1.test/v1", "http://gpu-2.test/v1",
    ]  # fmt: skip
    first = small.upstreams[0]
    assert (first.key, first.headers, first.concurrency) == ("k", {"X-Team": "blue team"}, 32)
    assert (first.timeout, first.tries) == (60, 2)
    assert (small.name, small.upstream_name, small.ceilings.samples) == ("small", "qwen2.5-7b", 64)
    assert small.escalation is not None
    assert (small.escalation[0].base_url, small.escalation[1]) == ("https://cloud.test/v1", "huge")
    assert small.escalation[0].api_key_env is None
    assert small.controller.gate is not None
    assert (large.controller.label, tuple(large.controller.schedule)) == ("asc-0.9", (4, 8))
    assert (large.forward_key, large.votes_by_default, large.minimum) == (True, True, 8)
    assert (large.other_names, large.ceilings.usual_deadline) == (True, 20.5)
    assert [key.secret[-2:] for key in settings.keys] == ["-1", "-2", "-3"]
    plain, _, blue = settings.keys
    assert (plain.limits.tokens_per_minute, plain.limits.prices) == (9_000, (0.5, 1.5))
    assert (blue.name, blue.models, blue.limits.money_per_day) == ("blue", {"small"}, 2.5)
    assert (blue.limits.requests_per_minute, blue.limits.tokens_per_minute) == (60, 9_000)


def test_the_file_wins_and_options_fill_in(tmp_path: Path) -> None:
    text = SMALL + 'policy = "fixed-2"\n\n[[model]]\nname = "other"\n\n[limits]\nmax_bytes = 5\n'
    settings = read(tmp_path, text, policy="fixed-4", max_bytes=9, max_requests=7, timeout=3.0)
    assert [model.controller.label for model in settings.models] == ["fixed-2", "fixed-4"]
    assert (settings.largest_request, settings.most_requests) == (5, 7)
    assert settings.models[0].upstreams[0].timeout == 3.0


def test_the_key_for_one_server_is_not_sent_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert read(tmp_path, SMALL).models[0].upstreams[0].key == ""


def test_without_upstreams_in_the_file_the_options_name_them(tmp_path: Path) -> None:
    settings = read(tmp_path, '[[model]]\nname = "m"\n', upstream=["http://one.test/v1"])
    assert settings.models[0].upstreams[0].base_url == "http://one.test/v1"


def test_an_option_may_name_the_default_model(tmp_path: Path) -> None:
    text = SMALL + '\n[[model]]\nname = "other"\n'
    assert read(tmp_path, text, model="other").default == "other"
    with pytest.raises(UsageError, match='"gone" is none of small, other'):
        read(tmp_path, text, model="gone")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "gateway.toml is not TOML: Invalid value"),
        ("[server]\nx = 1", '"server" is unknown; there are default, [[upstream]], [[model]]'),
        ("[model]\nname = 'm'", "gateway.toml: write [[model]], as there may be several"),
        ("", "no upstream is given"),
        (SMALL.partition("[[model]]")[0], "gateway.toml, [[model]]: there is none"),
        (SMALL + "colour = 'red'", 'gateway.toml, [[model]] "small": "colour" is unknown'),
        (SMALL + "max_samples = '9'", "\"small\": max_samples must be a whole number, but is '9'"),
        (SMALL + "max_samples = true", "max_samples must be a whole number, but is True"),
        (SMALL + "max_samples = 0", "max_samples must be at least 1, but is 0"),
        (SMALL + "instruction = 1", "instruction must be true or false, but is 1"),
        (SMALL + "controller = 'gone'", 'gateway.toml, [[model]] "small": '),
        (SMALL + "controller = 'gone'\ntask = 'numeric'", "task is the controller's own"),
        (SMALL + "task = 'numbers'", 'gateway.toml, [[model]] "small": '),
        (SMALL + "policy = 'best'", 'gateway.toml, [[model]] "small": '),
        (SMALL + "upstream = 'cpu'", 'upstream names "cpu", but there are gpu'),
        (SMALL + "escalate = { upstream = 'gpu' }", "escalate takes { upstream, model }"),
        (SMALL + "[[model]]\nname = 'small'", 'gateway.toml: two models are called "small"'),
        (SMALL + "[[model]]\npolicy = 'fixed-1'", "gateway.toml, [[model]] 2: name is missing"),
        (SMALL + "[[model]]\nname = 'aera/x'", 'must not begin with "aera/"'),
        (SMALL + "[[upstream]]\nname = 'gpu'\nurl = 'http://x/v1'", "before it has the same name"),
        (SMALL + "[[upstream]]\nname = 'x'\nurl = 'x'", '"x": the base URL must start'),
        (SMALL + "[[upstream]]\nname = 'x'", "give either url or urls"),
        (
            SMALL + "[[upstream]]\nname = 'x'\nurl = 'http://x/v1'\napi_key_env = 'GONE_KEY'",
            '[[upstream]] "x": api_key_env names the variable GONE_KEY, which is not set',
        ),
        (SMALL + "[[key]]\nname = 'x'\nenv = 'GONE_KEY'", 'env names the variable GONE_KEY'),
        (SMALL + "[keys]\nenv = 'GONE_KEY'", "gateway.toml, [keys]: env names the variable GONE"),
        (SMALL + "[keys]\nfile = 'gone'", "gateway.toml, [keys]: the file of keys"),
        (SMALL + "[limits]\nkey_money_per_day = 1.0", "gateway.toml, [limits]: a limit in money"),
        (SMALL + "[limits]\nkey_share = 2", "key_share must be from 0 to 1, but is 2"),
        ("default = 'x'\n" + SMALL, 'the default model "x" is none of small'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_upstream_is_given_in_one_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be given beside it"):
        read(tmp_path, SMALL, upstream=["http://one.test/v1"])


def test_a_file_of_keys_without_any_does_not_open_the_door(tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("# all gone\n")
    with pytest.raises(UsageError, match="has none, and without a key anybody may ask"):
        read(tmp_path, SMALL + "[keys]\nfile = 'keys.txt'")
    with pytest.raises(UsageError, match="has none"):
        read(tmp_path, SMALL, keys_file=tmp_path / "keys.txt")


# --- as a process ---------------------------------------------------------------------------------


def checked(file: Path) -> tuple[int, str, str]:
    line = [sys.executable, "-m", "aera", "serve", "--config", str(file), "--check"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.usefixtures("keys")
def test_a_check_says_what_would_be_served(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(WHOLE)
    code, said, _ = checked(file)
    first, second, last = said.splitlines()
    assert code == 0
    assert first.startswith('"small" as "qwen2.5-7b" at http://gpu-1.test/v1, http://gpu-2.test/v1')
    assert "policy asc-0.9, checkpoints 4, 8, votes by default, and every other name" in second
    assert last == "3 keys (blue by name); all is well"
    assert SECRET not in said
    file.write_text(WHOLE.replace('"mine"', '"gone"'))
    code, said, complaint = checked(file)
    assert (code, said, complaint.count("\n")) == (2, "", 1)


def test_a_file_is_served(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "gateway.toml"
    with in_background(FakeUpstream(boxed)) as server:
        file.write_text(SMALL.replace("http://gpu.test/v1", server.base_url))
        with served(port, AERA_CONFIG=str(file)):
            asked = [
                ask(port, "/v1/chat/completions", {**BODY, "model": model})[0]
                for model in ("aera/small", "small", "large")
            ]
    assert asked == [200, 200, 404]


# --- the environment ------------------------------------------------------------------------------

HEADERS = ("header", "escalate_header")


@pytest.mark.parametrize("name", [each.name for each in fields(ServeOptions)])
def test_every_option_can_be_set_in_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"AERA_{name.upper()}"
    if name in HEADERS:
        monkeypatch.setenv(variable, "X-Team: blue team\nX-Other: 1")
        assert headers_of(None, variable) == {"X-Team": "blue team", "X-Other": "1"}
        return
    kind = str(get_type_hints(ServeOptions)[name])
    text = "1" if any(word in kind for word in ("int", "float", "bool")) else "some/thing"
    monkeypatch.setenv(variable, text)
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    context = command.make_context("serve", [], resilient_parsing=False)
    got = context.params[name]
    wanted: Any = {"int": 1, "float": 1.0, "bool": True}.get(
        next((word for word in ("bool", "float", "int") if word in kind), ""), text
    )
    assert got in (wanted, [wanted], Path(text))
