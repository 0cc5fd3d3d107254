"""`aera serve` as people start it: a process with options or environment variables."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aera.cli.serve_options import ServeOptions
from aera.cli.serve_settings import read_settings
from fakes import FakeUpstream
from gateways import BODY, CONTROLLER, ask, free_port, served
from live import boxed, in_background

from aera import BestOfN, Controller, Fixed, Schedule, get_task
from aera.errors import UsageError

KEY = "a-key-of-some-length-"
command = import_module("aera.cli.serve")  # the package has a function of that name


def refused(*options: str, **variables: str) -> tuple[int, str]:
    """The exit code and the complaint of a command that will not start."""
    line = [sys.executable, "-m", "aera", "serve", *options]
    done = subprocess.run(
        line, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_it_serves_by_options_and_stops_on_sigterm() -> None:
    port = free_port()
    with (
        in_background(FakeUpstream(boxed)) as upstream,
        served(port, "--upstream", upstream.base_url, "--model", "m") as process,
    ):
        status, reply = ask(port, "/v1/chat/completions", BODY)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    assert (status, reply["aera"]["samples"], process.returncode) == (200, 4, 0)
    assert f"AERA on http://127.0.0.1:{port}/v1" in said
    assert '"route": "chat", "model": "m", "status": 200' in said
    assert "how many" not in said


def test_sigterm_waits_for_what_is_under_way() -> None:
    port = free_port()
    slow = FakeUpstream(boxed, delay=lambda call: 0.5)
    with (
        in_background(slow) as upstream,
        served(port, AERA_UPSTREAM=upstream.base_url) as process,
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/v1/chat/completions", json.dumps(BODY))
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        status = connection.getresponse().status
        connection.close()
        process.communicate(timeout=20)
    assert (status, process.returncode) == (200, 0)


def test_the_environment_sets_it_all() -> None:
    port = free_port()
    one, other = FakeUpstream(boxed), FakeUpstream(boxed)
    with in_background(one), in_background(other):
        variables = {
            "AERA_UPSTREAM": f"{one.base_url},{other.base_url}", "AERA_MODEL": "m",
            "AERA_KEYS": f"{KEY}1, {KEY}2", "AERA_VOTE_BY_DEFAULT": "1", "AERA_MIN_SAMPLES": "8",
            "AERA_INSTRUCTION": "1", "AERA_TASK": "numeric", "AERA_LOG_LEVEL": "error",
        }  # fmt: skip
        with served(port, **variables):
            assert ask(port, "/v1/models")[0] == 401
            assert len(ask(port, "/ready")[1]["replicas"]) == 2
            messages = {"messages": BODY["messages"]}
            status, reply = ask(port, "/v1/chat/completions", messages, key=f"{KEY}2")
    assert (status, reply["model"], reply["aera"]["samples"]) == (200, "m", 8)
    assert "boxed" in (one.calls + other.calls)[0].prompt


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", ""])
def test_a_public_address_without_keys_is_refused(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AERA_KEYS", raising=False)
    with pytest.raises(UsageError, match="clients need keys: set AERA_KEYS"):
        command.serve(["http://127.0.0.1:1/v1"], host=host)


def test_a_short_key_is_refused_in_one_sentence() -> None:
    code, said = refused(AERA_UPSTREAM="http://127.0.0.1:1/v1", AERA_KEYS=f"{KEY},short")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("aera: a key in AERA_KEYS has 5 characters and could be guessed")
    assert KEY not in said


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_a_private_address_needs_no_key(host: str) -> None:
    assert settings_of(keys_env="NO_SUCH_VARIABLE", host=host).keys == ()


def test_a_refusal_is_one_sentence_and_exit_code_two() -> None:
    code, said = refused("--host", "0.0.0.0", AERA_UPSTREAM="http://127.0.0.1:1/v1", AERA_KEYS="")
    assert code == 2
    assert said.startswith("aera: 0.0.0.0 can be reached from outside")
    assert said.count("\n") == 1


def test_a_port_that_is_taken_is_one_sentence_and_nothing_is_announced() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = refused(AERA_UPSTREAM="http://127.0.0.1:1/v1", AERA_PORT=port)
    assert code == 2
    assert said.startswith(f"aera: cannot listen on 127.0.0.1, port {port}: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"escalate_to": "http://x/v1"}, "URL#MODEL"),
        ({"log_level": "loud"}, "--log-level is one of"),
        ({"task": "poetry"}, 'no task is called "poetry"'),
        ({"upstream": ["ftp://x"]}, "must start with http"),
        ({"upstream": [","]}, "no upstream"),
        ({"header": ["nonsense"]}, "--header takes"),
        ({"equivalence": True, "task": "numeric"}, "equivalence is for expressions"),
        ({"equivalence": True, "controller": CONTROLLER}, "would change the votes"),
        ({"scorer": "judge:Judge"}, "--scorer needs --controller"),
        ({"scorer": "judge", "controller": CONTROLLER}, "named as MODULE:NAME"),
    ],
)
def test_a_wrong_setting_is_refused_before_serving(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        command.serve(**{"upstream": ["http://127.0.0.1:1/v1"], **setting})


def test_equivalence_without_the_library_is_refused_before_serving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aera.reading.equivalence.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="equivalence needs math-verify"):
        command.serve(["http://127.0.0.1:1/v1"], equivalence=True)


def test_the_environment_asks_for_equivalence() -> None:
    port, ways = free_port(), ("(x+1)^2", "x^2+2x+1")
    server = FakeUpstream(lambda call, place: f"\\boxed{{{ways[place % 2]}}}")
    with in_background(server):
        variables = {"AERA_UPSTREAM": server.base_url, "AERA_EQUIVALENCE": "1"}
        with served(port, **variables):
            status, reply = ask(port, "/v1/chat/completions", BODY)
    assert (status, reply["aera"]["votes"]) == (200, {"(x+1)^2": 4})


def test_a_scored_controller_is_served_with_its_scorer_and_not_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("judging.py").write_text(
        "class Length:\n"
        "    def score(self, question, responses):\n"
        "        return [len(response.text) / 100 for response in responses]\n\n"
        "def made():\n"
        "    return Length()\n"
    )
    scale = BestOfN(SimpleNamespace(score=len))
    Controller(get_task("expression"), Schedule((4,)), Fixed(4), weigher=scale).save("scored")
    server = FakeUpstream(lambda call, place: "ab" * (place + 1))
    with in_background(server):
        variables = {"AERA_UPSTREAM": server.base_url, "AERA_CONTROLLER": "scored"}
        code, said = refused(**variables)
        assert (code, said.count("\n")) == (1, 1)
        assert "--scorer MODULE:NAME" in said
        port = free_port()
        with served(port, **variables, AERA_SCORER="judging:made"):
            status, reply = ask(port, "/v1/chat/completions", BODY)
    assert (status, reply["aera"]["answer"]) == (200, "abababab")
    assert reply["aera"]["votes"] == {"ab": 0.02, "abab": 0.04, "ababab": 0.06, "abababab": 0.08}


def test_a_password_in_an_address_is_not_shown() -> None:
    assert command.without_password("http://me:hidden@h:1/v1") == "http://h:1/v1"


def settings_of(**given: Any) -> Any:
    options = ServeOptions(**{"upstream": ["http://one.test/v1"], **given})
    return read_settings(options)


def test_a_second_upstream_has_an_address_a_model_and_credentials_of_its_own() -> None:
    first = {"header": ["X-Secret: one"], "api_key_env": ["ONE_KEY"]}
    endpoint, model = (
        settings_of(escalate_to="http://two.test/v1#large", **first).models[0].escalation
    )
    assert (endpoint.base_url, model) == ("http://two.test/v1", "large")
    assert (endpoint.api_key_env, endpoint.headers) == (None, {})
    own = {"escalate_key_env": "TWO_KEY", "escalate_header": ["X-Secret: two"]}
    endpoint, _ = (
        settings_of(escalate_to="http://two.test/v1#large", **first, **own).models[0].escalation
    )
    assert (endpoint.api_key_env, endpoint.headers) == ("TWO_KEY", {"X-Secret": "two"})


def test_a_second_model_at_the_same_address_has_the_same_credentials() -> None:
    first = {"header": ["X-Secret: one"], "api_key_env": ["ONE_KEY"]}
    endpoint, _ = settings_of(escalate_to="http://ONE.test/v1#large", **first).models[0].escalation
    assert (endpoint.api_key_env, endpoint.headers) == ("ONE_KEY", {"X-Secret": "one"})


def test_each_upstream_may_have_a_key_of_its_own() -> None:
    both = ["http://one.test/v1", "http://two.test/v1"]
    own = settings_of(upstream=both, api_key_env=["ONE_KEY", "TWO_KEY"]).models[0].upstreams
    assert [each.api_key_env for each in own] == ["ONE_KEY", "TWO_KEY"]
    same = settings_of(upstream=both, api_key_env=["ONE_KEY"]).models[0].upstreams
    assert [each.api_key_env for each in same] == ["ONE_KEY", "ONE_KEY"]
    with pytest.raises(UsageError, match="once, or once for each of 2 upstreams, but got 3"):
        settings_of(upstream=both, api_key_env=["ONE_KEY"] * 3)


def test_the_environment_sets_headers_ceilings_and_limits() -> None:
    port, server = free_port(), FakeUpstream(boxed)
    variables = {
        "AERA_HEADER": "X-Team: blue team\nX-Other: yes",
        "AERA_MAX_SAMPLES": "6",
        "AERA_MAX_N": "2",
        "AERA_MAX_TOKENS": "70",
    }
    with in_background(server), served(port, AERA_UPSTREAM=server.base_url, **variables):
        status, told = ask(port, "/v1/chat/completions", {**BODY, "aera": {"max_samples": 8}})
        assert ask(port, "/v1/chat/completions", {**BODY, "n": 3})[0] == 400
    assert (status, told["aera"]["warnings"]) == (200, ["max_samples was cut from 8 to 6"])
    [call] = server.calls
    assert (call.headers["X-Team"], call.headers["X-Other"]) == ("blue team", "yes")
    assert call.body["max_tokens"] == 70


def test_the_environment_names_the_certificates(tmp_path: Path) -> None:
    code, said = refused(
        AERA_UPSTREAM="https://127.0.0.1:1/v1", AERA_CA_FILE=str(tmp_path / "gone.pem")
    )
    assert (code, "CA file" in said) == (2, True)


def test_the_callers_own_key_goes_upstream_where_that_is_wanted() -> None:
    port, server = free_port(), FakeUpstream(boxed)
    own = {"OPENAI_API_KEY": "the-gateways-own", "AERA_FORWARD_KEY": "1"}
    with in_background(server), served(port, AERA_UPSTREAM=server.base_url, **own):
        statuses = [
            ask(port, "/v1/chat/completions", {**BODY, "model": model}, key=f"of-{model}")[0]
            for model in ("aera/m", "m")
        ]
        without = ask(port, "/v1/chat/completions", BODY)[0]
    assert (statuses, without) == ([200, 200], 401)
    sent = [call.headers["Authorization"] for call in server.calls]
    assert sent == ["Bearer of-aera/m", "Bearer of-m"]
