"""The gateway as a server: pass-through, keys, limits, logs, leaving clients, shutdown."""

import asyncio
import io
import json
import logging
import math
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from fakes import Call, FakeUpstream, Fault
from gateways import BODY, House, account, anything, gateway, numbers, visit
from live import boxed
from prometheus_client.parser import text_string_to_metric_families

from aera.gateway.proxy import MOST_VALUES

KEYS = {"keys": ("first-key", "second-key")}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def proxied(
    act: Callable[[House], Awaitable[Any]], handler: Callable[[web.Request], Any]
) -> tuple[Any, list[tuple[web.Request, bytes]]]:
    """What comes of acting on a gateway in front of a handler, and what the handler saw."""
    seen: list[tuple[web.Request, bytes]] = []

    async def noting(request: web.Request) -> Any:
        seen.append((request, await request.read()))
        return await handler(request)

    async def scene() -> Any:
        async with anything(noting) as url, gateway(url) as house:
            return await act(house)

    return asyncio.run(scene()), seen


async def fine(request: web.Request) -> web.Response:
    return web.json_response({"ok": True}, headers={"x-upstream": "yes", "x-request-id": "own"})


# --- the whole schema -----------------------------------------------------------------------------

EVERYTHING = {
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "s"},
        {"role": "user", "content": [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "strict": True}}],
    "temperature": 0.2, "top_p": 0.9, "seed": 3, "stop": ["\n\n"], "max_tokens": 17,
    "max_completion_tokens": 18, "response_format": {"type": "text"}, "logit_bias": {"1": -5},
    "presence_penalty": 0.1, "user": "me", "guided_regex": "[0-9]+", "future": {"deep": [None]},
}  # fmt: skip


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_every_field_reaches_the_upstream_as_it_was(model: str) -> None:
    server = FakeUpstream(boxed)
    options = {"aera": {"policy": "fixed-1"}}
    visit(lambda house: house.post({**EVERYTHING, "model": model, **options}), server)
    [call] = server.calls
    assert call.body == {**EVERYTHING, "model": "m"}


def test_a_plain_request_is_passed_on_byte_by_byte() -> None:
    content = b'{ "model":"m",  "messages":[], "big": 1e400 }'
    _, [(_, got)] = proxied(lambda house: house.post(content), fine)
    assert got == content


def test_what_an_upstream_says_in_bad_json_leaves_in_good_json() -> None:
    logprobs = {"content": [{"logprob": -math.inf}, {"logprob": math.nan}]}
    choice = {"message": {"content": "\ud800 \\boxed{7}"}, "logprobs": logprobs}

    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"choices": [choice]})

    async def act(house: House) -> str:
        url, body = f"{house.url}/v1/chat/completions", {**BODY, "aera": {"policy": "fixed-1"}}
        async with house.http.post(url, json={**body, "logprobs": True}) as reply:
            return await reply.text()

    text, _ = proxied(act, handler)
    told = json.loads(text, parse_constant=pytest.fail)
    assert told["choices"][0]["logprobs"]["content"] == [{"logprob": None}] * 2
    assert told["aera"]["answer"] == "7"


# --- pass-through ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_other_routes_are_passed_on_with_method_path_and_query(method: str) -> None:
    async def act(house: House) -> tuple[int, str]:
        url = f"{house.url}/v1/files/a%2Fb%20c?limit=1&q=%C3%A9&q=2"
        async with house.http.request(method, aiohttp.client.URL(url, encoded=True)) as reply:
            return reply.status, reply.headers["x-upstream"]

    told, [(request, _)] = proxied(act, fine)
    assert told == (200, "yes")
    assert (request.method, request.raw_path) == (
        method,
        "/v1/files/a%2Fb%20c?limit=1&q=%C3%A9&q=2",
    )


def test_a_body_and_its_type_are_passed_on_unchanged() -> None:
    content = bytes(range(256))

    async def act(house: House) -> None:
        headers = {"Content-Type": "audio/wav", "X-Custom": "1"}
        await house.http.post(f"{house.url}/v1/audio", data=content, headers=headers)

    _, [(request, got)] = proxied(act, fine)
    assert (got, request.headers["Content-Type"], request.headers["X-Custom"]) == (
        content, "audio/wav", "1"
    )  # fmt: skip


def test_embeddings_come_back_through_the_official_client() -> None:
    async def handler(request: web.Request) -> web.Response:
        row = {"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        told = {"object": "list", "data": [row], "model": "e", "usage": usage}
        return web.json_response(told)

    async def act(house: House) -> Any:
        return await house.client.embeddings.create(model="e", input="hi", encoding_format="float")

    reply, _ = proxied(act, handler)
    assert reply.data[0].embedding == [0.5, 1.0]


def test_an_upstreams_own_errors_pass_unchanged() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=418, text="teapot", headers={"Retry-After": "3"})

    async def act(house: House) -> Any:
        async with house.http.get(f"{house.url}/v1/teapots") as reply:
            return reply.status, await reply.text(), reply.headers["Retry-After"]

    assert proxied(act, handler)[0] == (418, "teapot", "3")


def test_a_streamed_reply_passes_piece_by_piece() -> None:
    go = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        await reply.write(b"first")
        await asyncio.wait_for(go.wait(), 5)
        await reply.write(b"second")
        return reply

    async def act(house: House) -> bytes:
        async with house.http.get(f"{house.url}/v1/slow") as reply:
            assert await reply.content.readexactly(5) == b"first"
            go.set()
            return await reply.read()

    assert proxied(act, handler)[0] == b"second"


def test_a_reply_that_breaks_off_breaks_off_for_the_client() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        await reply.write(b"half")
        await asyncio.sleep(0.05)
        assert request.transport is not None
        request.transport.abort()
        return reply

    async def act(house: House) -> None:
        async with house.http.get(f"{house.url}/v1/half") as reply:
            with pytest.raises(aiohttp.ClientError):
                await reply.read()

    proxied(act, handler)


@pytest.mark.parametrize(
    "path", ["/v1/../admin", "/v1/%2e%2e/admin", "/v1/a/..%2f..%2fadmin", "/v1/a/%5c..%5cadmin"]
)
def test_a_path_cannot_climb_out_of_the_upstream(path: str) -> None:
    async def act(house: House) -> int:
        url = aiohttp.client.URL(house.url + path, encoded=True)
        async with house.http.get(url) as reply:
            return reply.status

    status, seen = proxied(act, fine)
    assert (status, seen) == (404, [])


def test_a_redirect_is_for_the_client_to_follow() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "http://127.0.0.1:1/else"})

    async def act(house: House) -> int:
        async with house.http.get(f"{house.url}/v1/moved", allow_redirects=False) as reply:
            return reply.status

    status, seen = proxied(act, handler)
    assert (status, len(seen)) == (307, 1)


def test_the_upstreams_request_id_is_kept_and_others_get_one() -> None:
    async def act(house: House) -> tuple[str, str]:
        async with house.http.get(f"{house.url}/v1/x") as one:
            own = one.headers["x-request-id"]
        _, headers, _ = await house.post(b"[]")
        return own, headers["x-request-id"]

    (own, other), _ = proxied(act, fine)
    assert own == "own"
    assert len(other) == 32


def test_models_are_listed_under_both_names() -> None:
    status, text = visit(lambda house: house.get("/v1/models"), FakeUpstream(boxed))
    listed = json.loads(text)
    assert (status, listed["object"]) == (200, "list")
    assert [model["id"] for model in listed["data"]] == ["recorded", "aera/recorded"]


def test_repeated_headers_of_a_reply_are_kept_and_those_of_one_connection_are_not() -> None:
    async def handler(request: web.Request) -> web.Response:
        reply = web.Response(text="x", headers={"Connection": "x-hop", "x-hop": "1"})
        reply.headers.add("Set-Cookie", "a=1")
        reply.headers.add("Set-Cookie", "b=2")
        reply.headers.add("X-Twice", "1")
        reply.headers.add("X-Twice", "2")
        return reply

    async def act(house: House) -> Any:
        headers = {"Connection": "keep-alive, X-Mine", "X-Mine": "1", "X-Kept": "1"}
        async with house.http.get(f"{house.url}/v1/x", headers=headers) as reply:
            return reply.headers

    headers, [(request, _)] = proxied(act, handler)
    assert headers.getall("X-Twice") == ["1", "2"]
    assert "x-hop" not in headers
    assert ("X-Mine" in request.headers, "X-Kept" in request.headers) == (False, True)


def test_the_id_in_the_log_is_the_replys_and_an_upstreams_account_is_not_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="x", headers={"x-aera-samples": "999", "x-request-id": "theirs"})

    async def act(house: House) -> Any:
        async with house.http.get(f"{house.url}/v1/x") as reply:
            return reply.headers

    with caplog.at_level(logging.INFO, "aera.gateway"):
        headers, _ = proxied(act, handler)
    [line] = [json.loads(record.message) for record in caplog.records if record.name[:4] == "aera"]
    assert line["id"] == headers["x-request-id"] == "theirs"
    assert "samples" not in line
    assert "x-aera-samples" not in headers


def test_a_reply_keeps_what_an_upstream_says_beside_its_choices() -> None:
    numbers_of = {"reasoning_tokens": 5, "odd": 10**400, "less": -3, "word": "x"}
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": numbers_of,
    }

    async def handler(request: web.Request) -> web.Response:
        wanted = json.loads(await request.read()).get("n", 1)
        choices = [{"message": {"content": f"\\boxed{{{place}}}"}} for place in range(wanted)]
        about = {"usage": usage, "system_fingerprint": "fp_1", "service_tier": "flex"}
        return web.json_response({"choices": choices, **about})

    body = {**BODY, "aera": {"max_samples": 8}}
    (_, _, told), seen = proxied(lambda house: house.post(body), handler)
    assert (len(seen), told["system_fingerprint"], told["service_tier"]) == (2, "fp_1", "flex")
    assert told["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert told["usage"]["completion_tokens_details"] == {"reasoning_tokens": 10}


def test_a_listed_name_that_votes_can_be_looked_up() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"id": "org/m", "object": "model"})

    async def act(house: House) -> str:
        return str((await house.client.models.retrieve("aera/org/m")).id)

    told, [(request, _)] = proxied(act, handler)
    assert (told, request.raw_path) == ("aera/org/m", "/v1/models/org%2Fm")


@pytest.mark.parametrize("route", ["completions", "embeddings"])
def test_a_vote_where_nothing_is_voted_on_is_refused(route: str) -> None:
    async def act(house: House) -> tuple[int, Any]:
        body = {"model": "aera/m", "input": "x"}
        async with house.http.post(f"{house.url}/v1/{route}", json=body) as reply:
            return reply.status, await reply.json()

    (status, told), seen = proxied(act, fine)
    assert (status, seen) == (400, [])
    assert told["error"]["message"].endswith(' and /v1/responses only; here ask for "m"')


# --- keys and limits ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (bearer("wrong"), 401),
        (bearer("first-key "), 200),
        (bearer("second-key"), 200),
        ({"Authorization": "bearer first-key"}, 200),
        ({"Authorization": "first-key"}, 401),
        ({"Authorization": "Basic first-key"}, 401),
        (bearer("clé"), 401),
    ],
)
def test_any_of_the_keys_is_needed(headers: dict[str, str], status: int) -> None:
    async def act(house: House) -> list[int]:
        chat, _, told = await house.post(BODY, headers=headers)
        if chat != 200:
            assert told["error"]["code"] == "invalid_api_key"
        paths = ("/v1/models", "/state")
        return [chat, *[(await house.get(path, headers=headers))[0] for path in paths]]

    assert visit(act, FakeUpstream(boxed), **KEYS) == [status] * 3


@pytest.mark.parametrize("model", ["m", "aera/m"])
@pytest.mark.parametrize(("own", "sent"), [("upstream-key", "Bearer upstream-key"), ("", None)])
def test_the_clients_key_and_options_stay_here(
    model: str, own: str, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_KEY", own)
    server = FakeUpstream(boxed)
    headers = {**bearer("first-key"), "Cookie": "a=b", "x-aera-min-samples": "4"}
    visit(lambda house: house.post({**BODY, "model": model}, headers=headers), server, **KEYS)
    seen = {name.lower(): value for name, value in server.calls[0].headers.items()}
    assert seen.get("authorization") == sent
    assert not {"cookie", "x-aera-min-samples"} & set(seen)


def test_no_header_or_field_chooses_the_upstream() -> None:
    server = FakeUpstream(boxed)
    other = "http://127.0.0.1:1/v1"
    headers = {"x-its-endpoint": other, "Host": "127.0.0.1:1", "X-Forwarded-Host": "127.0.0.1:1"}
    body = {**BODY, "base_url": other, "endpoint": other}
    status, _, _ = visit(lambda house: house.post(body, headers=headers), server)
    assert (status, len(server.calls)) == (200, 1)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/audio"])
def test_a_request_that_is_too_large_is_refused(path: str) -> None:
    async def act(house: House) -> tuple[int, Any]:
        async with house.http.post(house.url + path, data=b"x" * 3000) as reply:
            return reply.status, await reply.json()

    server = FakeUpstream(boxed)
    status, told = visit(act, server, max_bytes=1000)
    assert (status, told["error"]["code"]) == (413, "request_too_large")
    assert not server.calls


@pytest.mark.parametrize(
    ("path", "encoding"),
    [("/v1/chat/completions", "utf-8"), ("/v1/chat/completions", "utf-16"), ("/v1/x", "utf-8")],
)
def test_a_request_of_too_many_values_is_refused(path: str, encoding: str) -> None:
    async def act(house: House) -> list[tuple[int, str]]:
        told = []
        for count in (100, MOST_VALUES // 2):
            values = ",".join(["[]"] * count)
            asked = json.dumps({**BODY, "model": "m", "aera": {"vote": False}})
            body = f'{asked[:-1]},"x":[{values}]}}'
            data, kind = io.BytesIO(body.encode(encoding)), {"content-type": "application/json"}
            async with house.http.post(house.url + path, data=data, headers=kind) as reply:
                told.append((reply.status, await reply.text()))
        return told

    [(status, _), (refused, said)] = visit(act, FakeUpstream(boxed))
    assert (status in (200, 404), refused) == (True, 413)
    assert "more than 1,000,000 values" in said


def test_too_many_requests_at_once_are_refused() -> None:
    async def act(house: House) -> list[int]:
        busy = [
            asyncio.create_task(house.post({**BODY, "model": model, "stream": False}))
            for model in ("m", "aera/m")
        ]
        await asyncio.sleep(0.1)
        status, headers, told = await house.post(BODY)
        assert (told["error"]["type"], headers["Retry-After"]) == ("rate_limit_error", "1")
        return [status, *[(await task)[0] for task in busy], (await house.post(BODY))[0]]

    server = FakeUpstream(boxed, delay=lambda call: 0.3)
    assert visit(act, server, max_requests=2) == [429, 200, 200, 200]


def test_a_stream_takes_a_place_until_it_ends() -> None:
    async def act(house: House) -> tuple[int, int]:
        url = f"{house.url}/v1/chat/completions"
        async with house.http.post(url, json={**BODY, "stream": True}) as stream:
            during = (await house.post(BODY))[0]
            await stream.read()
        return during, (await house.post(BODY))[0]

    server = FakeUpstream(boxed, delay=lambda call: 0.2)
    assert visit(act, server, max_requests=1, keep_alive=0.01) == (429, 200)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("DELETE", "/health", 405), ("OPTIONS", "/v1/models", 405)],
)
def test_what_is_not_offered_is_an_error_object(method: str, path: str, status: int) -> None:
    async def act(house: House) -> tuple[int, Any]:
        async with house.http.request(method, house.url + path) as reply:
            return reply.status, await reply.json()

    told = visit(act, FakeUpstream(boxed))
    assert told[0] == status
    assert set(told[1]["error"]) == {"message", "type", "param", "code"}


def test_neither_logs_nor_errors_hold_keys_or_prompts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_KEY", "upstream-secret")
    faults = [None, None, Fault.status(500), Fault.html(), Fault.reset()]

    async def act(house: House) -> str:
        body = {"model": "aera/m", "messages": [{"role": "user", "content": "secret prompt"}]}
        bad = [{**body, "aera": {"policy": "x"}}, {**body, "n": "2"}, b"{"]
        replies = [await house.post(body, headers=bearer("first-key")) for _ in faults]
        replies += [await house.post(each, headers=bearer("first-key")) for each in bad]
        replies += [await house.post(body, headers=bearer("wrong-secret"))]
        return json.dumps([reply[2] for reply in replies])

    with caplog.at_level(logging.DEBUG):
        told = visit(act, FakeUpstream(boxed, faults=faults), **KEYS)
    for secret in ("first-key", "second-key", "upstream-secret", "wrong-secret", "secret prompt"):
        assert secret not in caplog.text + told


def test_each_request_is_one_json_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "aera.gateway"):
        visit(lambda house: house.post(BODY), FakeUpstream(boxed))
    [line] = [json.loads(record.message) for record in caplog.records if record.name[:4] == "aera"]
    assert (line["route"], line["status"], line["samples"]) == ("chat", 200, "4")
    assert line["stop-reason"] == "confident leader"
    assert line["ms"] > 0


# --- health and metrics ---------------------------------------------------------------------------


def test_health_ready_and_the_page_need_no_key() -> None:
    async def act(house: House) -> list[int]:
        return [(await house.get(path))[0] for path in ("/health", "/ready", "/metrics", "/")]

    assert visit(act, FakeUpstream(boxed), **KEYS) == [200] * 4


def test_ready_tells_of_every_replica() -> None:
    async def act(house: House) -> tuple[int, Any]:
        status, text = await house.get("/ready")
        return status, json.loads(text)

    status, told = visit(act, FakeUpstream(boxed), "http://127.0.0.1:1/v1")
    assert (status, told["ready"]) == (200, True)
    assert [replica["answers"] for replica in told["replicas"]] == [True, False]
    assert visit(act, "http://127.0.0.1:1/v1")[0] == 503


def test_a_server_that_refuses_our_key_is_not_ready_and_is_asked_once_for_many() -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"error": {"message": "no"}}, status=401)

    async def act(house: House) -> list[Any]:
        return await asyncio.gather(*(house.get("/ready") for _ in range(20)))

    async def scene(**settings: Any) -> list[Any]:
        async with anything(handler) as url, gateway(url, **settings) as house:
            return await act(house)

    replies = asyncio.run(scene())
    assert {status for status, _ in replies} == {503}
    assert json.loads(replies[0][1])["replicas"][0]["refused"]
    assert len(asked) == 1
    # Where callers bring keys of their own, ours is nobody's concern.
    assert {status for status, _ in asyncio.run(scene(forward_key=True))} == {200}


def test_a_dead_replica_costs_nobody_an_answer() -> None:
    async def act(house: House) -> list[int]:
        bodies = [{**BODY, "model": model} for model in ("m", "aera/m", "m", "aera/m")]
        return [(await house.post(body))[0] for body in bodies]

    assert visit(act, "http://127.0.0.1:1/v1", FakeUpstream(boxed)) == [200] * 4


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_no_upstream_at_all_is_a_bad_gateway(model: str) -> None:
    body = {**BODY, "model": model}
    status, _, told = visit(lambda house: house.post(body), "http://127.0.0.1:1/v1")
    assert (status, told["error"]["type"]) == (502, "upstream_error")


def test_the_metrics_parse_and_add_up() -> None:
    async def act(house: House) -> str:
        await house.post(BODY)
        await house.post({**BODY, "model": "m"})
        await house.post(b"{")
        return (await house.get("/metrics"))[1]

    families = text_string_to_metric_families(visit(act, numbers("7", "8", None, "7", "7")))
    values = {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}
    assert values["aera_requests_total", "m", "chat", "200"] == 2
    assert values["aera_requests_total", "", "chat", "400"] == 1
    assert values["aera_samples_total",] == values["aera_samples_per_question_sum",] == 8
    assert values["aera_unread_total",] == 1
    assert values["aera_stops_total", "m", "confident leader"] == 1
    assert values["aera_tokens_saved_total", "m"] > 0
    assert values["aera_overhead_seconds_count",] == values["aera_vote_seconds_count",] == 1


def test_a_stream_that_fails_late_is_counted_as_failed() -> None:
    async def act(house: House) -> str:
        url = f"{house.url}/v1/chat/completions"
        async with house.http.post(url, json={**BODY, "stream": True}) as reply:
            assert (reply.status, b'"error"' in await reply.read()) == (200, True)
        return (await house.get("/metrics"))[1]

    server = FakeUpstream(boxed, faults=[Fault.status(503)] * 9, delay=lambda call: 0.1)
    metrics = visit(act, server, keep_alive=0.01)
    assert 'aera_requests_total{model="m",route="stream",status="503"} 1.0' in metrics


def test_the_state_tells_of_votes_without_a_word_of_what_was_asked_or_said() -> None:
    async def act(house: House) -> tuple[Any, str]:
        reply = await house.post(BODY)
        return reply[2], (await house.get("/state"))[1]

    reply, text = visit(act, FakeUpstream(lambda call, place: "It is so. \\boxed{712}"))
    state = json.loads(text)
    row = state["latest"][0]
    assert (row["id"], row["answer"]) == (reply["id"], "712")
    assert (row["tied"], row["unread"], row["votes_left_out"]) == (False, 0, 0)
    assert (state["models"][0]["policy"], state["active"], len(state["latest"])) == (
        "asc-0.95",
        0,
        1,
    )
    assert state["latest"][0]["votes"] == [4]
    assert "It is so" not in text
    assert "how many" not in text


# --- leaving, isolation, shutdown -----------------------------------------------------------------


@pytest.mark.parametrize("fields", [
    {"model": "m"}, {"model": "m", "stream": True}, {"model": "aera/m"},
    {"model": "aera/m", "n": 3}, {"model": "aera/m", "stream": True},
])  # fmt: skip
@pytest.mark.parametrize("keep_alive", [0.02, 5.0])
def test_when_the_client_leaves_all_upstream_calls_end_at_once(
    fields: dict[str, Any], keep_alive: float
) -> None:
    server = FakeUpstream(boxed, delay=lambda call: 5.0)

    async def act(house: House) -> float:
        asking = asyncio.create_task(house.post({**BODY, **fields}))
        while not server.active:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        asking.cancel()
        left = time.monotonic()
        while server.active and time.monotonic() - left < 2:
            await asyncio.sleep(0.002)
        return time.monotonic() - left

    assert visit(act, server, keep_alive=keep_alive) < 0.1
    assert server.aborted == len(server.calls) > 0


def test_fifty_requests_at_once_keep_their_options_apart() -> None:
    def answer(call: Call, place: int) -> str:
        return f"so \\boxed{{{call.prompt}}}"

    async def one(house: House, number: int) -> None:
        messages = [{"role": "user", "content": str(number)}]
        options = {"aera": {"policy": f"fixed-{1 + number % 8}"}}
        reply = await house.ask(
            messages=messages, extra_body=options, temperature=number / 50 + 0.1
        )
        assert (account(reply)["samples"], account(reply)["answer"]) == (
            1 + number % 8,
            str(number),
        )
        assert reply.choices[0].message.content == f"so \\boxed{{{number}}}"

    async def act(house: House) -> None:
        await asyncio.gather(*[one(house, number) for number in range(50)])

    server = FakeUpstream(answer, delay=lambda call: 0.01 * (call.number % 3))
    visit(act, server)
    temperatures = {call.prompt: call.body["temperature"] for call in server.calls}
    assert temperatures == {str(number): number / 50 + 0.1 for number in range(50)}


@pytest.mark.parametrize("fields", [{}, {"model": "m"}])
def test_a_shutdown_finishes_what_is_under_way(fields: dict[str, Any]) -> None:
    async def act(house: House) -> int:
        asking = asyncio.create_task(house.post({**BODY, **fields}))
        await asyncio.sleep(0.1)
        house.server.handle_exit(signal.SIGTERM, None)
        return (await asking)[0]

    assert visit(act, FakeUpstream(boxed, delay=lambda call: 0.4)) == 200
