"""The client against servers of every kind: what is sent, retried, remembered and refused."""

import asyncio
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fakes import Call, FakeUpstream, Fault, in_background, serving
from live import BODY, QUESTION, SEEDED, Handler, asked, boxed, completion, seeds, texts, using
from traced import TracedUpstream

from aera import Budget, Chat, OpenAISampler, Response, get_task
from aera.errors import UpstreamError, UsageError
from aera.sampling.budget import Ledger
from aera.sampling.client import GIVES, LARGE, LONG_LISTS, STRICT, Endpoint, RequestBody, Upstream
from aera.sampling.replies import trim_logprobs
from aera.trace import FULL, TRACE_NAMES

OTHER = {**BODY, "model": "other"}
BIG = {**BODY, "messages": [{"role": "user", "content": "x" * 2_000_000}]}


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance that never makes a retry wait."""
    monkeypatch.setattr("aera.sampling.client.random.uniform", lambda low, high: 0.0)


def refused(server: FakeUpstream | Handler, n: int = 4, **options: Any) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        asked(server, n, **options)
    return caught.value


def counted(make: Callable[[], web.Response]) -> tuple[Handler, list[Any]]:
    """A handler that always answers so, and the bodies it has seen."""
    calls: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        calls.append(await request.json())
        return make()

    return handle, calls


# --- n and seeds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("honours_n", [True, False])
def test_no_two_requests_cover_the_same_seed(honours_n: bool) -> None:
    server = FakeUpstream(boxed, honours_n=honours_n)
    blocks = asked(server, 4, 4, 8, 1)
    if not honours_n:
        assert [c.body.get("n") for c in server.calls] == [4, *[None] * 16]
    sent = seeds(server) if honours_n else [call.body["seed"] for call in server.calls]
    assert sorted(sent) == list(range(100, 117))
    assert [r.seed for block in blocks for r in block] == list(range(100, 117))


def test_a_kind_of_request_that_is_refused_n_is_asked_singly_and_others_are_not() -> None:
    bodies: list[dict[str, Any]] = []

    async def handle(request: web.Request) -> web.Response:
        bodies.append(body := await request.json())
        if body.get("n", 1) > 1 and body["temperature"] < 1e-5:
            return web.json_response({"error": {"message": "n must be 1"}}, status=400)
        return web.json_response(completion(*["hello"] * body.get("n", 1)))

    async def act(upstream: Upstream) -> list[Response]:
        heats = [{**BODY, "temperature": heat} for heat in (1e-6, 0.7, 1e-6)]
        return [each for body in heats for each in await upstream.complete(body, 3)]

    made = using(handle, act)
    assert texts(made) == ["hello"] * 9
    assert [body.get("n", 1) for body in bodies] == [3, 1, 1, 1, 3, 1, 1, 1]
    assert sum(response.calls for response in made) == len(bodies)


def test_a_bad_request_is_not_taken_for_a_refusal_of_n() -> None:
    async def act(upstream: Upstream) -> None:
        got = await upstream.complete(SEEDED, 4)
        assert all("too long" in str(response.error) for response in got)
        await upstream.complete(SEEDED, 4)

    server = FakeUpstream(boxed, faults=[Fault.status(400, "too long")] * 2)
    using(server, act)
    assert [call.n for call in server.calls] == [4, 1, 4]


@pytest.mark.parametrize(
    ("param", "taken", "calls"),
    [("seed", False, 1), ("seed", True, 3), ("messages", False, 2), ("stop", False, 2)],
)
def test_a_setting_that_was_taken_or_not_sent_is_not_what_a_server_refuses_for_good(
    param: str, taken: bool, calls: int
) -> None:
    async def act(upstream: Upstream) -> Any:
        for _ in range(taken):
            await upstream.complete(body, 2)
        return (await upstream.complete(body, 2))[0].source

    body = {**SEEDED, "stop": None}
    fault = Fault("status", 400, body={"error": {"message": "too long", "param": param}})
    server = FakeUpstream(boxed, faults=[None] * taken + [fault] * 2)
    error = using(server, act)
    assert (error.final, error.calls, len(server.calls)) == (calls == 1, calls - taken, calls)


@pytest.mark.parametrize(
    ("given", "asks", "calls"),
    [
        # One short reply of a server that takes n is an accident, two in a row are a habit, and so
        # is one of a server that never took it; another model's are its own.
        ([8, 1], [(BODY, 8)] * 3, [8, 8, 7, 8]),
        ([4, 2, 2], [(BODY, 4), (BODY, 6), (BODY, 3)], [4, 6, 4, *[1] * 5]),
        ([1], [(BODY, 4), (OTHER, 4), (BODY, 2)], [4, 1, 1, 1, 4, 1, 1]),
    ],
)
def test_fewer_choices_than_asked_for(given: list[int], asks: Any, calls: list[int]) -> None:
    async def act(upstream: Upstream) -> list[int]:
        return [len(await upstream.complete(body, n)) for body, n in asks]

    server = FakeUpstream(boxed, faults=map(Fault.short, given))
    assert using(server, act, tries=1) == [n for _, n in asks]
    assert [call.n for call in server.calls] == calls


def test_a_server_that_did_not_take_n_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aera.sampling.client.N_REMEMBERED", 0.1)
    server = FakeUpstream(boxed, faults=[Fault.short(1)], delay=lambda call: 0.15)
    asked(server, 3, 3)
    assert [call.n for call in server.calls] == [3, 1, 1, 3]


# --- what is sent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("seed", [{}, {"seed": 7}, {"seed": None}, {"seed": "odd"}])
def test_a_large_request_is_written_outside_the_event_loop_and_seeds_step(
    large: bool, seed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    class Counting:
        def encode(self, value: Any) -> str:
            threads.append(threading.get_ident())
            return STRICT.encode(value)

    monkeypatch.setattr("aera.sampling.client.STRICT", Counting())
    plain = {**(BIG if large else BODY), **seed}
    server = FakeUpstream(boxed, honours_n=False)
    asked(server, 3, 2, body=RequestBody({**plain, "n": 3}))
    assert {thread != threading.get_ident() for thread in threads} == {large}
    stepped = [{"seed": 7 + i} if seed == {"seed": 7} else {} for i in range(5)]
    expected = [{**plain, "n": 3}, *({**plain, **step} for step in stepped[1:])]
    seen = sorted(server.calls, key=lambda call: str(call.body.get("seed")).zfill(2))
    assert [dict(call.body) for call in seen] == expected  # those at once come in any order


@pytest.mark.parametrize("size", [None, LARGE + 1])
def test_a_number_that_json_lacks_is_refused_and_never_sent(size: int | None) -> None:
    server = FakeUpstream(boxed)
    with pytest.raises(UsageError, match="Infinity or NaN"):
        asked(server, 2, body=RequestBody({**BODY, "top_p": float("nan")}, size=size))
    assert server.calls == []


def test_keys_and_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", " secret\n")
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    server = FakeUpstream(boxed)
    asked(server, 1, api_key_env="MY_KEY", headers={"X-Team": "votes"})
    asked(server, 1, api_key_env=None)
    asked(server, 1, headers={"authorization": "Basic own"})
    shown = [{name.lower(): value for name, value in c.headers.items()} for c in server.calls]
    assert [each.get("authorization") for each in shown] == ["Bearer secret", None, "Basic own"]
    assert shown[0]["x-team"] == "votes"
    assert "own" not in repr(Endpoint("http://localhost/v1", headers={"a": "Basic own"}))


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(completion(f"for {request.host}"))

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with in_background(serving(handle)) as url:
        monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
        [made] = asked("http://model.invalid/v1", 1, tries=1)
    assert texts(made) == ["for model.invalid"]


def test_what_a_server_stores_is_not_sent_back() -> None:
    cookies: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        cookies.append(dict(request.cookies))
        reply = web.json_response(completion("hello"))
        reply.set_cookie("session", "first-client")
        return reply

    with in_background(serving(handle)) as url:
        # aiohttp stores none for addresses
        asked(url.replace("127.0.0.1", "localhost"), 1, 1)
    assert cookies == [{}, {}]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-made certificate for 127.0.0.1, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext"
    made += f" subjectAltName=IP:127.0.0.1 -keyout {key} -out {cert}"
    subprocess.run(made.split(), check=True, capture_output=True, timeout=60)
    return cert, key


def test_a_self_made_certificate_needs_the_ca_file(certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    handle, _ = counted(lambda: web.json_response(completion("hello")))
    for ca_file, error in ((str(certificate[0]), False), (None, True)):
        [[made]] = asked(handle, 1, site={"ssl_context": context}, ca_file=ca_file, tries=1)
        assert (made.error is not None) is error


# --- failures -------------------------------------------------------------------------------------


def test_a_server_that_stays_busy_says_how_often_it_was_asked() -> None:
    [[made]] = asked(FakeUpstream(boxed, faults=[Fault.status(429)] * 3), 1, tries=3)
    assert made.error == "upstream 429 planned_429: planned, after 3 tries in 0 s"


def test_a_web_page_comes_with_a_hint_that_the_address_may_be_wrong() -> None:
    page = lambda: web.Response(status=404, text="hello", content_type="text/html")  # noqa: E731
    handle, calls = counted(page)
    told = str(refused(handle, 1))
    assert ("hello" in told, len(calls)) == (True, 1)
    assert "not one of an OpenAI-compatible server, which ends in /v1" in told


@pytest.mark.parametrize(
    ("place", "cause"),
    [
        ("http://127.0.0.1:9/v1", "connection refused"),
        ("http://no-such-host.invalid/v1", "its name could not be resolved"),
    ],
)
def test_a_server_that_is_not_there_is_an_error_without_its_address(place: str, cause: str) -> None:
    [made] = asked(place, 2, tries=2)
    told = f"upstream: the connection failed: {cause}"
    assert [(r.error, r.calls) for r in made] == [(told, 2), (told, 0)]
    assert isinstance(made[0].source, UpstreamError)
    assert place.split("/")[2] in str(made[0].source.detail), "for the log only"


def test_a_refusal_does_not_lose_what_has_come_before() -> None:
    faults = [None, None, Fault.hang(60), Fault.status(401, "revoked")]
    server = FakeUpstream(boxed, honours_n=False, faults=faults)
    [block] = asked(server, 4)
    failed = [response for response in block if response.error]
    assert [each.error for each in failed] == ["upstream 401 planned_401: revoked"] * 2
    assert all(isinstance(response.source, UpstreamError) for response in failed)
    assert server.aborted == 1
    server = FakeUpstream(boxed, faults=[None, Fault.short(2), Fault.status(401, "revoked")])
    _, block = asked(server, 4, 4)
    assert [response.error is None for response in block] == [True, True, False, False]
    assert [response.calls for response in block] == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("said", "status", "told"),
    [
        ({"message": "no credit", "code": 402}, 402, "no credit"),
        ({"message": "no credit", "code": "403", "type": "billing"}, 403, "no credit"),
        ({"message": "busy", "code": "overloaded"}, 502, "busy"),
        ("flat", 502, "flat"),
        ({"message": {"a": 1}, "code": True, "type": ["x"]}, 502, "no message"),
    ],
)
def test_an_error_of_good_status_is_the_servers_own(said: Any, status: int, told: str) -> None:
    handle, calls = counted(lambda: web.json_response({"error": said}))
    if status < 500:
        error: Any = refused(handle, 1, tries=2)
    else:
        [[response]] = asked(handle, 1, tries=2)
        error = response.source
    assert (error.status, error.message, error.body) == (status, told, {"error": said})
    assert len(calls) == (1 if status < 500 else 2)


@pytest.mark.parametrize("shared", [False, True])
def test_a_redirect_is_not_followed_and_told_to_the_owner_alone(shared: bool) -> None:
    secret = {"Location": "https://user:secret@inside.example:9/v1?token=secret"}
    handle, calls = counted(lambda: web.Response(status=307, headers=secret))
    error = refused(handle, 2, shared=shared)
    assert ("redirects to https://inside.example:9, which is not" in str(error)) is not shared
    assert ("inside" in f"{error} {error.message}") is not shared
    assert error.detail == "redirected to https://inside.example:9"
    assert "secret" not in f"{error} {error.detail}"
    assert (error.status, error.calls, len(calls)) == (307, 1, 1)


# --- a model's context ----------------------------------------------------------------------------

CONTEXT, PROMPT = 4_096, 1_000
LONG = {**SEEDED, "max_tokens": 5_000}
VLLM = "This model's maximum context length is 4096 tokens"
SGLANG = "exceeds the model's maximum context length of 4096 tokens"


def narrow(said: str, prompt: int = PROMPT) -> tuple[Handler, list[int]]:
    """A server whose model takes no more than its context, and the lengths that it was asked for.

    What it says may hold how many tokens were asked for.
    """
    lengths: list[int] = []

    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        lengths.append(most := body["max_tokens"])
        if prompt + most > CONTEXT:
            told = said.format(total=prompt + most, most=most)
            return web.json_response({"error": {"message": told}}, status=400)
        n = body.get("n", 1)
        usage = {"prompt_tokens": prompt, "completion_tokens": n * most}
        return web.json_response(completion(*["hello"] * n, usage=usage))

    return handle, lengths


@pytest.mark.parametrize(
    ("said", "first"),
    [
        (
            f"{VLLM}. However, you requested {{total}} tokens (1000 in the messages, {{most}} in "
            "the completion). Please reduce the length of the messages or completion.",
            3_096,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: {most}. "
            f"{VLLM} and your request has 1000 input tokens ({{most}} > 4096 - 1000).",
            3_096,
        ),
        (
            f"Requested token count {SGLANG}. You requested a total of {{total}} tokens: 1000 "
            "tokens from the input messages and {most} tokens for the completion.",
            3_096,
        ),
        # Where the prompt's tokens are not said and it is long, half of the context is tried.
        (
            f"{VLLM}. However, you requested {{most}} output tokens and your prompt contains at "
            "least 97 input tokens, for a total of at least {total} tokens.",
            2_048,
        ),
        ("the request exceeds the available context size (4096 tokens), try increasing it", 2_048),
    ],
)
def test_a_context_is_learned_from_its_first_refusal(said: str, first: int) -> None:
    handle, lengths = narrow(said)
    long = {**LONG, "messages": [{"role": "user", "content": "word" * PROMPT}]}
    blocks = asked(handle, 4, 4, body=long)
    assert [texts(block) for block in blocks] == [["hello"] * 4] * 2
    assert lengths == [5_000, first, 2_048], "the second is not refused"
    assert [response.calls for block in blocks for response in block] == [2, 0, 0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    "said",
    [
        f"{VLLM}. However, your request has 5000 input tokens.",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "request (5000 tokens) exceeds the available context size (4096 tokens)",
    ],
)
def test_a_prompt_that_does_not_fit_stays_a_refusal(said: str) -> None:
    handle, lengths = narrow(said, prompt=5_000)
    assert str(refused(handle, 4, body=LONG)) == f"upstream 400: {said}"
    assert lengths == [5_000]


def test_what_a_client_wrote_is_no_context() -> None:
    handle, lengths = narrow(f"[{{{{'type': 'int_parsing', 'input': \"{VLLM}\"}}}}]")
    assert "int_parsing" in str(refused(handle, 1, body=LONG))
    assert lengths == [5_000]


def test_a_length_that_the_server_does_not_know_stays_null_near_a_limit() -> None:
    body = RequestBody({"max_tokens": None, "max_completion_tokens": 400})
    assert body.cut(50) == {"max_tokens": None, "max_completion_tokens": 50}


async def test_a_limit_on_tokens_holds_for_responses_that_the_context_cuts() -> None:
    handle, lengths = narrow(f"{VLLM} and your request has 100 input tokens", prompt=100)
    chat = Chat("m", get_task("numeric"), {"max_tokens": 5_000})
    ledger, bounds = Ledger(Budget(tokens=20_000)), list[int | None]()

    async with serving(handle) as url, OpenAISampler(Endpoint(url), chat) as sampler:
        while held := await ledger.reserve(4, bound := sampler.bound(QUESTION)):
            bounds.append(bound.max_tokens)
            await sampler.sample(QUESTION, held.responses, held=held)
            held.close()
    assert lengths[:2] == [5_000, 3_996]
    assert bounds[0] == 5_000
    assert lengths[2:] == bounds[1:], "what is reserved is what is asked for"
    spent = 4 * 3_996 + sum(lengths[2:])
    assert (ledger.spent.completion_tokens, spent <= 20_000) == (spent, True)


# --- size -----------------------------------------------------------------------------------------


def test_a_reply_without_end_is_not_read_to_the_end() -> None:
    sent = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        reply = web.StreamResponse()
        await reply.prepare(request)
        while True:
            await reply.write(b" " * 2**16)
            sent += 2**16

    assert "larger than" in str(refused(handle, 1, largest_reply=2**20))
    assert sent < 32 * 2**20


def test_large_refusals_are_refusals_and_any_good_status_is_a_success() -> None:
    page = b"<html>maintenance" + b" " * 3_000_000
    handle, calls = counted(lambda: web.Response(body=page, status=503))
    [[response]] = asked(handle, 1, tries=2, largest_reply=1_000_000)
    assert "upstream 503: <html>maintenance" in str(response.error)
    assert len(calls) == 2
    handle, _ = counted(lambda: web.json_response(completion("x" * 3_000_000), status=201))
    assert texts(asked(handle, 1)[0]) == ["x" * 3_000_000]


# --- time -----------------------------------------------------------------------------------------


def test_retry_after_in_seconds_is_honoured() -> None:
    arrivals: list[float] = []

    async def handle(request: web.Request) -> web.Response:
        arrivals.append(time.monotonic())
        if len(arrivals) > 1:
            return web.json_response(completion("hello"))
        headers = {"Retry-After": "0.7"}
        return web.json_response({"error": "slow down"}, status=429, headers=headers)

    [[made]] = asked(handle, 1)
    assert (made.text, made.calls) == ("hello", 2)
    assert 0.7 <= arrivals[1] - arrivals[0] < 2


@pytest.mark.parametrize(("seconds", "calls"), [(0.3, 1), (-1.0, 0)])
def test_a_deadline_of_the_caller_cuts_the_timeout_short(seconds: float, calls: int) -> None:
    async def act(upstream: Upstream) -> list[Response]:
        return await upstream.complete(BODY, 2, deadline=time.monotonic() + seconds)

    begun, server = time.monotonic(), FakeUpstream(boxed, faults=[Fault.hang(60)])
    made = using(server, act)
    told = "no reply within 0.3 s" if calls else "the deadline passed before the call"
    assert [told in str(response.error) for response in made] == [True, True]
    assert sum(response.calls for response in made) == len(server.calls) == calls
    assert time.monotonic() - begun < 30


def test_waiting_for_a_permit_ends_at_the_deadline() -> None:
    async def act(upstream: Upstream) -> Response:
        slow = asyncio.create_task(upstream.complete(BODY, 1))
        await asyncio.sleep(0.1)
        [made] = await upstream.complete(BODY, 1, deadline=time.monotonic() + 0.2)
        slow.cancel()
        return made

    begun = time.monotonic()
    made = using(FakeUpstream(boxed, faults=[Fault.hang(60)]), act, concurrency=1)
    assert (made.error is None, made.calls) == (False, 0)
    assert time.monotonic() - begun < 30


# --- many at once ---------------------------------------------------------------------------------


def test_a_model_that_is_refused_for_overload_does_not_slow_down_the_others() -> None:
    now = most = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal now, most
        if (await request.json())["model"] == "other":
            return web.json_response(Fault.status(429).body, status=429)
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.2)
        now -= 1
        return web.json_response(completion("hello"))

    async def act(upstream: Upstream) -> list[list[Response]]:
        await asyncio.gather(*(upstream.complete(OTHER, 1) for _ in range(20)))
        return await asyncio.gather(*(upstream.complete(BODY, 1) for _ in range(60)))

    made = using(handle, act, shared=True, tries=3, concurrency=64)
    assert not any(response.error for [response] in made)
    assert most == 60


class Choosy(FakeUpstream):
    """A slow server that refuses every other model or key."""

    async def _reply(self, request: web.Request, call: Call, fault: Any) -> web.StreamResponse:
        known = call.body["model"] == "m"
        if not known or request.headers.get("Authorization") == "Bearer bad":
            await asyncio.sleep(0.05)
            fault = Fault.status(401 if known else 404, "not for you")
        return await super()._reply(request, call, fault)


GOOD, BAD = ({"Authorization": f"Bearer {name}"} for name in ("good", "bad"))


@pytest.mark.parametrize(
    ("asks", "remembered", "calls"),
    [
        ([*[(BODY, {})] * 16, (OTHER, {}), *[(BODY, {})] * 20], 10.0, 37),
        # Who waits with the same key is not refused a second time, unless that is long ago.
        ([(BODY, BAD), (BODY, GOOD), (BODY, BAD), (BODY, GOOD)], 10.0, 3),
        ([(OTHER, {})] * 3, 10.0, 1),
        ([(OTHER, {})] * 3, 0.0, 3),
    ],
)
def test_a_refusal_is_for_those_who_wait_with_the_same_model_and_key(
    asks: list[tuple[dict[str, Any], dict[str, str]]],
    remembered: float,
    calls: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(upstream: Upstream) -> list[bool]:
        works = [upstream.complete(body, 1, headers=headers) for body, headers in asks]
        return [got.error is None for [got] in await asyncio.gather(*works)]

    monkeypatch.setattr("aera.sampling.client.REFUSAL_REMEMBERED", remembered)
    server = Choosy(boxed, delay=lambda call: 0.1)
    good = [body is BODY and headers is not BAD for body, headers in asks]
    assert using(server, act, concurrency=1 if len(asks) < 9 else 4, shared=len(asks) > 9) == good
    assert len(server.calls) == calls


WRONG = {"base_url": "localhost", "concurrency": 0, "tries": 0, "largest_reply": 0, "ca_file": "?"}


@pytest.mark.parametrize("wrong", [{name: value} for name, value in WRONG.items()])
def test_an_impossible_endpoint_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Endpoint(**{"base_url": "http://localhost/v1", **wrong})


# --- wished for beside a request ------------------------------------------------------------------


_, TOKENS, FULLY = GIVES


def say(call: Call, place: int) -> str:
    return "three and four make \\boxed{7}."


def ask(server: TracedUpstream, *blocks: int, **wishes: object) -> list[Response]:
    """What came of these blocks."""
    body = RequestBody({**BODY, **wishes}, wishes=FULL, task=get_task("numeric"))
    return [each for block in asked(server, *blocks, body=body) for each in block]


def trace_of(response: Response) -> dict[str, float]:
    return dict(zip(TRACE_NAMES, response.trace, strict=True))


def test_full_traces_are_asked_for_and_kept_small() -> None:
    server = TracedUpstream(say)
    got = ask(server, 4)
    assert {call.body["top_logprobs"] for call in server.calls} == {20}
    trace = trace_of(got[0])
    assert trace["trace_answer_logprob"] == pytest.approx(-1.5), "the box holds the 7 alone"
    assert trace["trace_answer_confidence"] == pytest.approx(1.5 + 9.5)
    assert trace["trace_least"] == pytest.approx(-1.5)
    assert not any(map(isnan, trace.values()))
    assert got[0].source["logprobs"] is None, "the lists themselves are not held"  # type: ignore[index]


def test_what_is_refused_is_asked_for_once() -> None:
    server = TracedUpstream(say, refuses=frozenset({"top_logprobs"}))
    got = ask(server, 1, 1)
    assert [call.body.get("top_logprobs") for call in server.calls] == [20, None, None]
    assert texts(got) == [say(server.calls[0], 0)] * 2
    assert [response.calls for response in got] == [2, 1]


def test_long_replies_come_in_parts_in_their_order() -> None:
    server = TracedUpstream(lambda call, place: f"\\boxed{{{call.body['seed'] + place}}}")
    got = ask(server, 3 * LONG_LISTS + 1, seed=0)
    assert [response.text for response in got] == [f"\\boxed{{{i}}}" for i in range(len(got))]
    assert max(call.n for call in server.calls) == LONG_LISTS


def test_a_client_keeps_its_own_logprobs_and_no_others() -> None:
    got = ask(TracedUpstream(say), 1, logprobs=True, top_logprobs=2)
    source = got[0].source
    shown = trim_logprobs(source, {"logprobs": True, "top_logprobs": 2})
    assert {len(row["top_logprobs"]) for row in shown["logprobs"]["content"]} == {2}
    shown = trim_logprobs(source, {"logprobs": True})
    assert {len(row["top_logprobs"]) for row in shown["logprobs"]["content"]} == {0}
    assert trim_logprobs(source, {})["logprobs"] is None
    assert not isnan(trace_of(got[0])["trace_confidence"])


@pytest.mark.parametrize(
    ("most", "no", "gives", "n"),
    [(20, "", FULLY, True), (3, "", TOKENS, False), (20, "top_logprobs", TOKENS, True)],
)
def test_a_server_can_be_asked_what_it_gives(most: int, no: str, gives: str, n: bool) -> None:
    server = TracedUpstream(say, most=most, refuses=frozenset({no}), honours_n=n)
    assert using(server, lambda by: by.probe("m")) == {"gives": gives, "takes_n": n}
