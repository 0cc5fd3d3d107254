"""Faults F1 to F18 from outside: `aera` as processes, judged by ledgers of servers that misbehave.

A fault that is still there is marked; whoever mends it removes the mark. F9, what a large vote does
to the time that others wait, is a matter of timing and is measured by `bench/misbehaving.py`.
"""

import json
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import run
from gateways import wait_for
from misbehaving import Gateway, Server, begin, run_apart, write_questions

PLAIN = "how many ways are there to do this, given that nobody has ever tried it before, and why?"
ASKED = [f"{PLAIN} ({i})" for i in range(60)]
SOLVE = ["solve", "--model", "m", "--task", "numeric", "--seed", "0", "--file", "asked.jsonl"]
SAMPLE = ["sample", "asked.jsonl", "--model", "m", "--task", "numeric", "--out", "pool"]
AUDITED = 'task = "numeric"\nschedule = "4,8"\naudit_share = 1.0\n'


def spend(folder: Path, server: Server, verb: list[str], *options: object) -> str:
    """Run a command that spends; what it says at the end."""
    if not (folder / "asked.jsonl").exists():
        write_questions(folder / "asked.jsonl", ASKED)
    done = run(folder, *verb, "--base-url", server.url, *options)
    assert "Traceback" not in done.stderr
    return done.stderr


def said_tokens(stderr: str) -> int:
    """The tokens that a command says it has spent."""
    told = re.findall(r"answered for .*? and ([\d,]+) tokens", stderr)[-1]
    return int(told.replace(",", ""))


def key(name: str, **limits: Any) -> str:
    told = "".join(f"{field} = {json.dumps(value)}\n" for field, value in limits.items())
    return f'[[key]]\nname = "{name}"\n{told}'


House = tuple[Server, Gateway]


@contextmanager
def housed(folder: Path, *others: str, told: Any = None, **kind: Any) -> Iterator[House]:
    """A gateway before a server of this kind, and before others that are there already."""
    with Server(**kind) as server, Gateway(folder, *others, server.url, **told or {}) as gateway:
        yield server, gateway


# --- limits of a command --------------------------------------------------------------------------


def test_money_holds_where_later_prompts_have_more_tokens_a_byte(tmp_path: Path) -> None:
    dense = [f"{i:04}" * 500 for i in range(60)]
    write_questions(tmp_path / "asked.jsonl", [*ASKED, *dense])
    with Server(takes_n=False, agree=True, delay=0.3) as server:
        spend(tmp_path, server, SOLVE, "--max-money", 0.5, "--prices", "10,0.01")
        assert server.calls > len(ASKED)
        assert server.money(10, 0.01) <= 0.5


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        (SOLVE, {"usage": False, "hidden": True}),
        (SAMPLE, {"usage": False, "characters": 1}),
        (SOLVE, {"zeros": True, "hidden": True}),
        (SOLVE, {"hidden": True}),
        (SAMPLE, {"fault": "500"}),
        (SOLVE, {"fault": "half"}),
    ],
    ids=str,
)
def test_tokens_hold_with_reasoning_without_usage_and_with_billed_failures(
    tmp_path: Path, verb: list[str], kind: Any
) -> None:
    with Server(tokens=100, **kind) as server:
        options = "--max-tokens-total", 6_000, "--set", "max_tokens=150"
        said = spend(tmp_path, server, verb, *options)
        assert 0 < server.completion_tokens <= 6_000
    unsaid = not server.usage or server.zeros
    assert ("does not say how many tokens" in said) == unsaid


@pytest.mark.parametrize("limit", ["--max-tokens-total", "--max-responses"])
def test_choices_that_nobody_asked_for_count(tmp_path: Path, limit: str) -> None:
    most = {"--max-tokens-total": 4_000, "--max-responses": 100}[limit]
    with Server(surplus=3, tokens=20) as server:
        options = [limit, most, "--set", "max_tokens=40", "--concurrency", 2]
        said = spend(tmp_path, server, SOLVE, *options)
        spent = server.choices if limit == "--max-responses" else server.completion_tokens
        first = 2 * 3 * (1 if limit == "--max-responses" else 40)  # before anybody could know
        assert spent <= most + first
        assert said_tokens(said) == server.completion_tokens


@pytest.mark.parametrize("kind", [{"surplus": -2}, {"takes_n": False}], ids=["fewer", "ignores n"])
def test_who_gives_fewer_choices_is_asked_again_within_the_limit(tmp_path: Path, kind: Any) -> None:
    with Server(**kind) as server:
        spend(tmp_path, server, SOLVE, "--max-responses", 100)
        assert 90 <= server.choices <= 100


@pytest.mark.parametrize("verb", [[*SOLVE, "--out", "a.jsonl"], SAMPLE], ids=["solve", "sample"])
def test_two_commands_on_one_file_pay_once(tmp_path: Path, verb: list[str]) -> None:
    write_questions(tmp_path / "asked.jsonl", ASKED[:8])
    with Server(held=0, agree=True) as server:
        options = ["--base-url", server.url, "--concurrency", 8]
        options += ["--responses", 4] if verb is SAMPLE else []
        first = begin(tmp_path, *verb, *options)
        assert wait_for(lambda: server.calls == 8)
        second = begin(tmp_path, *verb, *options)
        wait_for(lambda: second.poll() is not None or server.calls > 8)
        server.held = None
        said = [each.communicate(timeout=60)[1] for each in (first, second)]
    assert (first.returncode, second.returncode, server.twice) == (0, 2, 0), said


@pytest.mark.parametrize("verb", [[*SOLVE, "--out", "a.jsonl"], SAMPLE], ids=["solve", "sample"])
def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path, verb: list[str]) -> None:
    write_questions(tmp_path / "asked.jsonl", ASKED)
    with Server() as server:
        full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))  # noqa: E731
        done = run_apart(tmp_path, *verb, "--base-url", server.url, preexec_fn=full)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.search(r"a\.jsonl|pool/", done.stderr.splitlines()[-1])


# --- keys: what they spend, ask for and see -------------------------------------------------------

LIMITED = ("streams", "unsaid", "zeros", "padded", "plain", "votes")
KEYS = (
    "".join(key(name, tokens_per_minute=1_000) for name in LIMITED)
    + "".join(key(name, tokens_per_minute=100_000) for name in ("large", "larger"))
    + key("leaving", money_per_day=1.0)
    + key("good", models=["good"])
    + key("bad", models=["bad"])
)
TWO = '[[model]]\nname = "good"\n[[model]]\nname = "bad"\n'
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nbad\r\n--b\r\n'
    b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--b--\r\n'
)
TWICE = b'{"model": "bad", "messages": [{"role": "user", "content": "hi"}], "model": "good"}'


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A gateway with two models and keys of many kinds; each test has keys of its own."""
    told: Any = {"model": TWO, "keys": KEYS, "limits": "prices = [0, 1000]"}
    folder = tmp_path_factory.mktemp("house")
    with housed(folder, told=told, tokens=300, agree=True) as made:
        yield made


def test_a_client_that_leaves_is_charged(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    server, gateway = house
    monkeypatch.setattr(server, "delay", 5.0)
    before, codes = server.completion_tokens, []
    for text in ASKED[:8]:
        calls = server.calls
        how = {"leave": lambda: server.calls > calls}  # noqa: B023
        asked: Any = {"model": "aera/good", "key": "leaving", "max_tokens": 100}
        codes.append(gateway.chat(text, how=how, **asked)[0])
    assert (codes[0], codes[-1]) == (0, 429)
    assert server.completion_tokens - before <= 2_000


@pytest.mark.parametrize(
    ("name", "kind", "fields"),
    [
        ("plain", {}, {}),
        ("votes", {}, {"model": "aera/good"}),
        ("streams", {}, {"stream": True}),
        ("unsaid", {"usage": False}, {"stream": True}),
        ("zeros", {"zeros": True}, {}),
        ("padded", {"padding": 5_000}, {}),
    ],
)
def test_a_key_is_charged_for_what_it_got(
    house: House, monkeypatch: pytest.MonkeyPatch, name: str, kind: Any, fields: Any
) -> None:
    server, gateway = house
    for field, value in kind.items():
        monkeypatch.setattr(server, field, value)
    asked = {"model": "good", "key": name, "max_tokens": 300, **fields}
    codes = [gateway.chat(text, **asked)[0] for text in ASKED[:10]]
    assert (codes[0], codes[-1]) == (200, 429)


@pytest.mark.parametrize("model", ["m", "aera/m"])
@pytest.mark.parametrize("ends", [signal.SIGHUP, signal.SIGKILL])
def test_what_a_key_has_spent_outlives_a_restart(tmp_path: Path, model: str, ends: int) -> None:
    told: Any = {"keys": key("day", money_per_day=0.9), "limits": "prices = [0, 1000]"}
    with Server(tokens=300, agree=True) as server:
        codes, port = [], 0
        for _ in range(2):
            with Gateway(tmp_path, server.url, port=port, **told) as gateway:
                port = gateway.port
                asked: Any = {"model": model, "key": "day", "max_tokens": 300}
                codes += [gateway.chat(text, **asked)[0] for text in ASKED[:6]]
                time.sleep(1.2)
                gateway.process.send_signal(ends)
                gateway.process.wait(10)
    assert (codes[0], codes[6:]) == (200, [429] * 6)
    assert server.completion_tokens <= 900


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_an_idle_key_gets_no_more_than_its_room(tmp_path: Path, model: str) -> None:
    told: Any = {"keys": key("small", tokens_per_minute=2_000), "model": "max_tokens = 900"}
    with (
        housed(tmp_path, told=told, tokens=800) as (server, gateway),
        ThreadPoolExecutor(8) as many,
    ):
        asked: Any = {"model": model, "key": "small", "max_tokens": 900}
        codes = [*many.map(lambda text: gateway.chat(text, **asked)[0], ASKED[:8])]
        assert 200 in codes
        assert server.total <= 2_100, "a little has come back since"
        asked["max_tokens"] = 5_000
        assert gateway.chat("x" * 3_000, **asked)[0] == 400


@pytest.mark.parametrize(("name", "model"), [("large", "good"), ("larger", "aera/good")])
def test_one_reply_cannot_lock_a_key_for_years(
    house: House, monkeypatch: pytest.MonkeyPatch, name: str, model: str
) -> None:
    server, gateway = house
    monkeypatch.setattr(server, "says", 999_999_999)
    monkeypatch.setattr(server, "after", server.calls + 1)
    asked: Any = {"model": model, "key": name, "max_tokens": 50}
    assert [gateway.chat(text, **asked)[0] for text in ASKED[:3]] == [200] * 3


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/audio/transcriptions", FORM, "multipart/form-data; boundary=b"),
        ("/v1/chat/completions", TWICE, "application/json"),
        ("/v1/completions", TWICE, "application/json"),
    ],
    ids=["form", "chat with two models", "completion with two models"],
)
def test_a_key_gets_at_no_other_model(house: House, path: str, body: bytes, kind: str) -> None:
    server, gateway = house
    before = len(server.seen)
    assert gateway.ask(path, body, key="good", Content_Type=kind)[0] in (400, 403, 415)
    assert path not in [seen for seen, _ in server.seen[before:]]


def test_state_shows_a_key_its_own_models(house: House) -> None:
    gateway = house[1]
    status, reply = gateway.chat("what is secret?", model="aera/bad", key="bad")
    assert status == 200
    own, other = (gateway.ask("/state", key=name)[2].decode() for name in ("bad", "good"))
    assert '"bad"' in own
    assert '"good"' in other
    assert '"bad"' not in other
    assert reply["id"] not in other


# --- large requests, servers that hang or refuse --------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_hostile_bodies_at_once_take_little_memory(tmp_path: Path) -> None:
    def peak(gateway: Gateway) -> int:
        status = Path(f"/proc/{gateway.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) // 1024

    with housed(tmp_path) as (_, gateway), ThreadPoolExecutor(4) as many:
        # Too many values, and as many as are taken: of a list, and with long names.
        named = ",".join(f'{{"{place:08}":0}}' for place in range(199_000)).encode()
        lists = b"[]," * 490_000 + b"[]"
        for values, code in ((b"[]," * 5_000_000 + b"[]", 413), (lists, 400), (named, 400)):
            body = b'{"model": "aera/m", "messages": 5, "x": [' + values + b"]}"
            codes = many.map(lambda _: gateway.ask(body=body, timeout=120)[0], range(4))  # noqa: B023
            assert [*codes] == [code] * 4
        assert peak(gateway) < 400
        assert gateway.chat(PLAIN)[0] == 200


def test_a_server_that_hangs_is_not_waited_for_where_another_answers(tmp_path: Path) -> None:
    def answered(text: str) -> bool:
        try:
            return gateway.chat(text, how={"timeout": 12})[0] == 200
        except TimeoutError:
            return False

    with (
        Server(fault="hang", every=1, after=1) as dead,
        housed(tmp_path, dead.url, agree=True) as (_, gateway),
        ThreadPoolExecutor(8) as many,
    ):
        assert all(many.map(answered, ASKED[:8]))


def test_a_refused_last_block_is_the_reason(tmp_path: Path) -> None:
    told = {"model": 'schedule = "4,8"\npolicy = "asc-1"\n'}
    with housed(tmp_path, told=told, fault="429", after=2, every=1) as (_, gateway):
        status, reply = gateway.chat(PLAIN)
    assert status == 200
    assert "upstream failed" in reply["aera"]["reason"]


# --- audits and what is recorded ------------------------------------------------------------------


def lines(folder: Path) -> str:
    """All that is recorded, as text."""
    files = [each for each in folder.rglob("*.jsonl") if "dropped" not in each.name]
    return "".join(each.read_text("utf-8") for each in files)


def recording(folder: Path) -> dict[str, str]:
    return {"model": f'{AUDITED}record = "{folder}"'}


def test_forgotten_while_the_audit_runs_stays_forgotten(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with housed(tmp_path, told=recording(kept), agree=True, held=1) as (server, gateway):
        name = gateway.chat("what was forgotten?")[1]["id"]
        assert wait_for(lambda: server.calls == 2)
        run(tmp_path, "drop", kept, "--ids", name)
        server.held = None
        assert gateway.chat("what stays?")[0] == 200
        assert wait_for(lambda: "what stays?" in lines(kept))
        assert not wait_for(lambda: "what was forgotten?" in lines(kept), 1)


def test_a_folder_that_others_can_read_takes_no_recording(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    kept.chmod(0o755)
    with housed(tmp_path, told=recording(kept)) as (_, gateway):
        assert gateway.process.poll() == 2
    assert [*kept.iterdir()] == []


def test_audits_of_a_burst_keep_to_their_tokens(tmp_path: Path) -> None:
    model = 'task = "numeric"\nschedule = "4,64"\naudit_share = 1.0\naudit_tokens = 2000\n'
    with (
        housed(tmp_path, told={"model": model}, agree=True, delay=0.3) as (server, gateway),
        ThreadPoolExecutor(12) as many,
    ):
        asked = many.map(lambda text: gateway.chat(text, max_tokens=60)[1], ASKED[:12])
        voted = sum(reply["usage"]["completion_tokens"] for reply in asked)
        time.sleep(1.5)
        assert 0 < server.completion_tokens - voted <= 2_000


def test_the_id_of_a_reply_names_one_request(tmp_path: Path) -> None:
    kept, ids = tmp_path / "kept", []
    told = {**recording(kept), "keys": key("blue") + key("red")}
    with housed(tmp_path, told=told, agree=True) as (_, gateway):
        for name in ("blue", "red"):
            said = [{"role": "user", "content": f"what did {name} ask?"}]
            body = {"model": "aera/m", "messages": said}
            headers = gateway.ask(body=body, key=name, X_Request_Id="the same")[1]
            ids.append({n.lower(): value for n, value in headers.items()}["x-request-id"])
        assert wait_for(lambda: "blue ask" in lines(kept) and "red ask" in lines(kept))
        run(tmp_path, "drop", kept, "--ids", ids[0])
        assert "red ask" in lines(kept)
