"""The gateway as a server: what passes through, who may ask for how much, leaving clients."""

import asyncio
import gzip
import io
import json
import logging
import math
import time
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from fakes import Call, FakeUpstream, Fault, serving
from gateways import BODY, CHAT, KEYS, NOBODY, SPLIT, House, bearer, housed, numbers, proxied, visit
from live import boxed

from aera import Response
from aera.gateway.config import Config, ModelConfig, UpstreamConfig
from aera.gateway.openai import DEEPEST, MOST_VALUES
from aera.sampling.replies import STREAMED


async def fine(request: web.Request) -> web.Response:
    return web.json_response({"ok": True}, headers={"x-upstream": "yes"})


def fetched(handler: Any, path: str, method: str = "GET", **request: Any) -> Any:
    """What one request in front of a handler brings, and what the handler saw."""
    return proxied(lambda house: house.fetch(path, method, **request), handler)


# --- pass-through ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_other_routes_are_passed_on_as_they_are(method: str) -> None:
    path = "/v1/files/a%2Fb%20c?limit=1&q=%C3%A9&q=2"
    content = b"" if method == "GET" else bytes(range(256))
    headers = {"Content-Type": "audio/wav", "X-Custom": "1"}
    told, [(request, got)] = fetched(fine, path, method, data=content, headers=headers)
    assert (told[0], told[1]["x-upstream"]) == (200, "yes")
    assert (request.method, request.raw_path, got) == (method, path, content)
    assert headers.items() <= request.headers.items()


def test_a_chat_that_is_passed_on_keeps_every_byte() -> None:
    content = b'{ "model":"m",  "messages":[], "big": 1e400 }'
    kind = {"Content-Type": "application/json"}
    _, [(_, got)] = fetched(fine, CHAT, "POST", data=content, headers=kind)
    assert got == content


def test_what_an_upstream_says_in_bad_json_leaves_in_good_json() -> None:
    logprobs = {"content": [{"logprob": -math.inf}, {"logprob": math.nan}]}
    choice = {"message": {"content": "\ud800 \\boxed{7}"}, "logprobs": logprobs}

    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"choices": [choice]})

    body = {**BODY, "aera": {"policy": "fixed-1"}, "logprobs": True}
    (_, _, text), _ = fetched(handler, CHAT, "POST", json=body)
    told = json.loads(text, parse_constant=pytest.fail)
    assert told["choices"][0]["logprobs"]["content"] == [{"logprob": None}] * 2
    assert told["aera"]["answer"] == "7"


def test_a_streamed_reply_passes_piece_by_piece() -> None:
    go = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        await reply.write(b"first")
        await asyncio.wait_for(go.wait(), 60)
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
        request.transport.abort()
        return reply

    with pytest.raises(aiohttp.ClientPayloadError):
        fetched(handler, "/v1/half")


@pytest.mark.parametrize("path", ["../x", "%2e%2e/x", "a/..%2f..%2fx", "a/%5c..%5cx"])
def test_a_path_cannot_climb_out_of_the_upstream(path: str) -> None:
    (status, _, _), seen = fetched(fine, f"/v1/{path}")
    assert (status, seen) == (404, [])


def test_a_redirect_is_for_the_client_to_follow() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"{NOBODY}/else"})

    moved, seen = fetched(handler, "/v1/moved", allow_redirects=False)
    assert (moved[0], len(seen)) == (307, 1)


def test_repeated_headers_of_a_reply_are_kept_and_those_of_one_connection_are_not() -> None:
    async def handler(request: web.Request) -> web.Response:
        own = {"Connection": "x-hop", "x-hop": "1", "x-aera-samples": "999"}
        reply = web.Response(text="x", headers=own)
        reply.headers.add("X-Twice", "1")
        reply.headers.add("X-Twice", "2")
        return reply

    sent = {"Connection": "keep-alive, X-Mine", "X-Mine": "1", "X-Kept": "1"}
    (_, headers, _), [(request, _)] = fetched(handler, "/v1/x", headers=sent)
    assert headers.getall("X-Twice") == ["1", "2"]
    assert not {"x-hop", "x-aera-samples"} & set(headers), "an upstream's account is not ours"
    assert ("X-Mine" in request.headers, "X-Kept" in request.headers) == (False, True)


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
    (_, _, events), _ = fetched(handler, CHAT, "POST", json={**body, "stream": True})
    assert events.count(b'"fp_1"') == events.count(b"data: {") == 3
    assert told["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert told["usage"]["completion_tokens_details"] == {"reasoning_tokens": 10}


def test_fields_beside_the_error_object_come_along() -> None:
    said = {"message": "odd", "param": "n", "detail": [{"loc": ["n"]}]}
    server = FakeUpstream(boxed, faults=[Fault("status", code=422, body=said)] * 9)
    status, _, told = visit(lambda house: house.post(), server)
    assert (status, told["detail"], told["error"]["message"]) == (422, [{"loc": ["n"]}], "odd")
    assert told["error"]["param"] == "n"


@pytest.mark.parametrize(
    ("reply", "said", "calls"),
    [({"text": "broken", "status": 500}, "broken", 2), ({"text": "data: {}"}, STREAMED, 1)],
)
def test_what_may_be_billed_is_not_to_be_tried_again(reply: Any, said: str, calls: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(**reply)

    (_, headers, told), seen = proxied(lambda house: house.post(), handler, tries=2)
    assert (headers["x-should-retry"], told["error"]["message"]) == ("false", said)
    assert len(seen) == calls


def test_a_choice_that_fails_leaves_the_others() -> None:
    async def handler(request: web.Request) -> web.Response:
        body = await request.json()
        if body["seed"] >= 128:
            return web.json_response({"error": {"message": "unlucky"}}, status=400)
        return web.json_response({"choices": [{"message": {"content": "\\boxed{7}"}}] * body["n"]})

    body = {**BODY, "n": 2, "seed": 0}
    (_, _, told), _ = proxied(lambda house: house.post(body), handler)
    assert (len(told["choices"]), told["aera"]["answer"]) == (1, "7")
    assert "1 of 2 choices could not be had: upstream 400: unlucky" in told["aera"]["warnings"]


# --- keys and limits ------------------------------------------------------------------------------


def nested(levels: int, wrap: Any) -> Any:
    """So many levels, the request's own among them; brackets in a text are none."""
    inner: Any = "{[" * DEEPEST
    for _ in range(levels - 1):
        inner = wrap(inner)
    return inner


@pytest.mark.parametrize(
    ("value", "status", "said"),
    [
        (nested(DEEPEST, lambda inner: [inner]), 200, ""),
        (nested(DEEPEST + 1, lambda inner: [inner]), 400, "nested deeper than"),
        (nested(DEEPEST, lambda inner: {"a": inner}), 200, ""),
        (nested(DEEPEST + 1, lambda inner: {"a": inner}), 400, "nested deeper than"),
        ([[]] * (MOST_VALUES // 2), 413, "more than 1,000,000 values"),
    ],
    ids=["lists", "deep lists", "objects", "deep objects", "many values"],
)
def test_a_request_has_so_many_levels_and_values(value: Any, status: int, said: str) -> None:
    content = json.dumps({**BODY, "model": "m", "x": value}, separators=(",", ":")).encode()
    sent = {"data": io.BytesIO(content), "headers": {"content-type": "application/json"}}
    got, _, told = visit(lambda house: house.fetch(CHAT, "POST", **sent))
    assert (got, said in told.decode()) == (status, True)


def test_a_stream_takes_a_place_until_it_ends_and_others_are_refused_meanwhile() -> None:
    async def act(house: House) -> tuple[int, int]:
        async with house.http.post(house.url + CHAT, json={**BODY, "stream": True}) as stream:
            during, headers, told = await house.post()
            assert (told["error"]["type"], headers["Retry-After"]) == ("rate_limit_error", "1")
            assert (await stream.read()).startswith(b": keep-alive\n\n")
        return during, (await house.post())[0]

    server = FakeUpstream(boxed, delay=lambda call: 0.2)
    assert visit(act, server, max_requests=1, keep_alive=0.01) == (429, 200)


def test_neither_logs_nor_errors_hold_keys_or_prompts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_KEY", "upstream-secret")
    faults = [None, None, Fault.status(500), Fault("html"), Fault("reset")]

    async def act(house: House) -> str:
        body = {"model": "aera/m", "messages": [{"role": "user", "content": "secret prompt"}]}
        bodies = [*[body] * 5, {**body, "aera": {"policy": "x"}}, {**body, "n": "2"}, b"{"]
        replies = [await house.post(each, headers=bearer(KEYS[0])) for each in bodies]
        replies += [await house.post(body, headers=bearer("wrong-secret"))]
        return json.dumps([reply[2] for reply in replies])

    with caplog.at_level(logging.DEBUG):
        told = visit(act, FakeUpstream(boxed, faults=faults), keys=KEYS)
    for secret in (*KEYS, "upstream-secret", "wrong-secret", "secret prompt"):
        assert secret not in caplog.text + told


def test_bodies_that_do_not_come_of_one_key_leave_room_for_the_other() -> None:
    async def act(house: House) -> tuple[int, int]:
        port, head = house.url.rpartition(":")[2], f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Authorization: Bearer {KEYS[0]}\r\nContent-Length: 1000\r\n\r\n{{"
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(30)]
        for writer in writers:
            writer.write(head.encode())
        await asyncio.sleep(0.1)
        other, same = [await house.post(BODY, headers=bearer(KEYS[place])) for place in (1, 0)]
        assert same[2]["error"]["code"] == "too_many_requests"
        for writer in writers:
            writer.close()
        return other[0], same[0]

    assert visit(act, keys=KEYS, max_requests=20) == (200, 429)


def test_two_authorization_headers_are_one_too_many() -> None:
    headers = [("Authorization", f"Bearer {key}") for key in KEYS]
    status, _, told = visit(lambda house: house.post(headers=headers), keys=KEYS)
    assert (status, told["error"]["code"]) == (400, "invalid_header")


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_the_money_of_a_key_is_for_a_day(model: str) -> None:
    async def act(house: House) -> list[Any]:
        body = {**BODY, "model": model}
        return [await house.post(body, headers=bearer(KEYS[0])) for _ in range(40)]

    money = {"key_money_per_day": 0.0008, "prices": (1.0, 10.0)}
    told = visit(act, keys=KEYS, **money)
    assert (told[0][0], told[-1][0]) == (200, 429)
    assert "its money of the day" in told[-1][2]["error"]["message"]
    assert 0 < int(told[-1][1]["Retry-After"]) <= 86_400


@pytest.mark.parametrize("asks", [{}, {"stream_options": {"include_usage": True}}])
def test_a_stream_that_is_passed_on_looks_as_it_was_asked_for(asks: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        events = [{"choices": [{"delta": {"content": "seven"}}]}]
        if body.get("stream_options", {}).get("include_usage"):
            events.append({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 30}})
        text = "".join(f"data: {json.dumps(each)}\n\n" for each in events) + "data: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    body = {**BODY, "model": "m", "stream": True, "max_tokens": 40, **asks}
    act = lambda house: house.fetch(CHAT, "POST", json=body, headers=bearer(KEYS[0]))  # noqa: E731
    (_, _, content), _ = proxied(act, handler, keys=KEYS, key_tokens_per_minute=500)
    assert b"seven" in content
    assert content.endswith(b"[DONE]\n\n")
    assert (b'"usage"' in content) == bool(asks)


def test_what_no_reply_says_is_estimated_and_the_metrics_say_so() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": {"content": "x" * 200}}]})

    async def act(house: House) -> Any:
        plain, key = {**BODY, "model": "m"}, bearer(KEYS[0])
        statuses = [(await house.post(plain, headers=key))[0] for _ in range(2)]
        return statuses, (await house.get("/metrics"))[1]

    (statuses, metrics), _ = proxied(act, handler, keys=KEYS, key_tokens_per_minute=600)
    assert statuses == [200, 429]
    assert "aera_key_tokens_estimated_total{" in metrics


@pytest.mark.parametrize(("says", "tokens"), [(True, 60), (False, 4 * 50)])
def test_a_vote_says_what_was_billed_or_that_nobody_says(says: bool, tokens: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        n = 2 + (await request.json()).get("n", 1)
        made = [{"message": {"content": "\\boxed{7}".rjust(200)}}] * n
        usage = {"usage": {"completion_tokens": 10 * n}} if says else {}
        return web.json_response({"choices": made, **usage})

    (_, _, reply), _ = proxied(lambda house: house.post(), handler)
    assert (reply["aera"]["samples"], reply["usage"]["completion_tokens"]) == (4, tokens)
    told = "\n".join(reply["aera"]["warnings"])
    assert ("does not say how many tokens 6 responses took" in told) != says


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/completions", {"prompt": ["a short question"] * 40}),
        ("/v1/completions", {"prompt": [[1, 2, 3]] * 40}),
        ("/v1/completions", {"prompt": "one", "best_of": 40}),
        ("/v1/responses", {"input": "x", "max_output_tokens": 5_000}),
        ("/v1/responses/", {"input": "x", "max_output_tokens": 5_000}),
        (CHAT, {"n": 4_000}),
        (CHAT, {"n": "40"}),
        (CHAT, {"max_tokens": "1000000"}),
        (CHAT, {"model": "aera/m", "max_tokens": "1000000"}),
        (CHAT, {"model": "aera/m", "best_of": 40}),
        (CHAT, {"n": 4, "max_completion_tokens": 1, "max_tokens": 900}),
    ],
)
def test_all_that_a_server_may_generate_counts_for_a_key(path: str, more: Any) -> None:
    billed = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal billed
        body = await request.json()
        prompts = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
        made = prompts * max(int(body.get("n") or 1), body.get("best_of") or 1)
        made *= int(body.get("max_output_tokens", body["max_tokens"]))
        billed += made
        usage = {"prompt_tokens": 5 * prompts, "completion_tokens": made}
        return web.json_response({"choices": [{"text": "x"}], "usage": usage})

    async def act(house: House) -> None:
        asked = {"messages": BODY["messages"]} if path == CHAT else {}
        body = {"model": "m", "max_tokens": 90, **asked, **more}
        for _ in range(5):
            await house.fetch(path, "POST", json=body, headers=bearer(KEYS[0]))

    proxied(act, handler, keys=KEYS, key_tokens_per_minute=3_000)
    # Of a path that nobody knows, what bounds a reply is not known either: one may come.
    assert billed <= (5_000 if path.endswith("/") else 3_000)


@pytest.mark.parametrize(
    ("path", "content", "code"),
    [
        ("/v1/completions", json.dumps({"model": "m", "n": 90}).encode("utf-16"), 400),
        ("/v1/completions", gzip.compress(b'{"model": "m", "n": 90}'), 400),
        ("/v1/batches", b'{"endpoint": "/v1/responses"}', 403),
        ("/v1/responses", b'{"model": "m", "input": "x", "background": true}', 403),
    ],
    ids=["UTF-16", "packed", "batch", "background"],
)
def test_what_cannot_be_counted_is_not_passed_on(path: str, content: bytes, code: int) -> None:
    sent = {"data": content, "headers": {**bearer(KEYS[0]), "Content-Type": "application/json"}}
    act = lambda house: house.fetch(path, "POST", **sent)  # noqa: E731
    (status, _, _), seen = proxied(act, fine, keys=KEYS, key_tokens_per_minute=3_000)
    assert (status, seen) == (code, [])
    assert proxied(act, fine, keys=KEYS)[0][0] == 200, "without a limit"


def test_what_the_second_upstream_says_is_charged_to_the_key() -> None:
    second = FakeUpstream(lambda call, place: Response("so \\boxed{99}", tokens=900))

    async def act(house: House) -> list[int]:
        body = {**BODY, "max_tokens": 900, "aera": {"max_samples": 4}}
        return [(await house.post(body, headers=bearer(KEYS[0])))[0] for _ in range(9)]

    limit = {"keys": KEYS[:1], "key_tokens_per_minute": 5_000}
    codes = visit(act, numbers(*SPLIT), second=(second, "large"), **limit)
    assert (codes[0], codes[-1]) == (200, 429)
    assert 0 < len(second.calls) <= 5


# --- readiness and metrics ------------------------------------------------------------------------


def test_a_server_that_refuses_our_key_is_not_ready_and_is_asked_once_for_many() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no"}}, status=401)

    async def act(house: House) -> list[Any]:
        return await asyncio.gather(*(house.get("/ready") for _ in range(20)))

    replies, seen = proxied(act, handler)
    assert {status for status, _ in replies} == {503}
    assert json.loads(replies[0][1])["replicas"][0]["refused"]
    assert len(seen) == 1
    # Where callers bring keys of their own, ours is nobody's concern.
    assert {status for status, _ in proxied(act, handler, forward_key=True)[0]} == {200}


def test_callers_own_keys_go_upstream_where_that_is_wanted() -> None:
    async def act(house: House) -> list[int]:
        bodies = [{**BODY, "model": model} for model in ("m", "aera/m")]
        statuses = [(await house.post(each, headers=bearer("theirs")))[0] for each in bodies]
        return [*statuses, (await house.post())[0]]

    server = FakeUpstream(boxed)
    assert visit(act, server, forward_key=True) == [200, 200, 401]
    assert [call.headers["Authorization"] for call in server.calls] == ["Bearer theirs"] * 2


def test_metrics_and_state_add_up_without_a_word_of_what_was_asked_or_said() -> None:
    async def act(house: House) -> Any:
        bodies = (BODY, {**BODY, "model": "m"}, b"{")
        replies = [(await house.post(body))[2] for body in bodies]
        return replies[0], await house.metrics(), await house.state()

    reply, values, state = visit(act, numbers("712", "8", None, "712", "712"))
    assert values["aera_requests_total", "m", "chat", "200"] == 2
    assert values["aera_requests_total", "", "chat", "400"] == 1
    assert values["aera_samples_total",] == values["aera_samples_per_question_sum",] == 8
    assert values["aera_unread_total",] == 1
    assert values["aera_stops_total", "m", "lead"] == 1
    assert values["aera_tokens_saved_total", "m"] > 0
    assert values["aera_overhead_seconds_count",] == values["aera_vote_seconds_count",] == 1
    [row] = state["latest"]
    assert (row["id"], row["answer"], row["unread"]) == (reply["id"], "712", 1)
    assert (row["votes"], row["tied"], row["votes_left_out"]) == ([6, 1], False, 0)
    assert (state["models"][0]["policy"], state["active"]) == ("lead-4", 0)
    assert not any(words in json.dumps(state) for words in ("so \\", "how many"))


# --- leaving, isolation ---------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [
    {"model": "m"}, {"model": "m", "stream": True}, {"model": "aera/m"},
    {"model": "aera/m", "n": 3}, {"model": "aera/m", "stream": True},
])  # fmt: skip
@pytest.mark.parametrize("keep_alive", [0.02, 5.0])
def test_when_the_client_leaves_all_upstream_calls_end(fields: Any, keep_alive: float) -> None:
    server = FakeUpstream(boxed, delay=lambda call: 60.0)

    async def act(house: House) -> float:
        asking = asyncio.create_task(house.post({**BODY, **fields}))
        while not server.active:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        asking.cancel()
        left = time.monotonic()
        while server.active and time.monotonic() - left < 50:
            await asyncio.sleep(0.01)
        return time.monotonic() - left

    assert visit(act, server, keep_alive=keep_alive) < 30  # where a reply would take sixty
    assert server.aborted == len(server.calls) > 0


def test_fifty_requests_at_once_keep_their_options_apart() -> None:
    async def one(house: House, number: int) -> None:
        words = [{"role": "user", "content": str(number)}]
        options = {"policy": f"fixed-{1 + number % 8}"}
        _, _, told = await house.post({**BODY, "messages": words, "aera": options})
        assert told["choices"][0]["message"]["content"] == f"so \\boxed{{{number}}}"
        account = told["aera"]
        assert (account["samples"], account["answer"]) == (1 + number % 8, str(number))

    def answer(call: Call, place: int) -> str:
        return f"so \\boxed{{{call.prompt}}}"

    server = FakeUpstream(answer, delay=lambda call: 0.01 * (call.number % 3))
    visit(lambda house: asyncio.gather(*[one(house, number) for number in range(50)]), server)


# --- many models ----------------------------------------------------------------------------------


async def test_other_routes_go_by_the_name_in_the_body_or_to_the_default() -> None:
    seen = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.path, await request.read()))
        return web.json_response({})

    models = ModelConfig("small", "one", "qwen-7b"), ModelConfig("large", "two")
    async with serving(handle) as url:
        servers = UpstreamConfig("one", (f"{url}/1",)), UpstreamConfig("two", (f"{url}/2",))
        async with housed(Config(upstream=servers, model=models)) as house:
            replies = [
                await house.fetch("/v1/embeddings", "POST", json={"model": name, "input": "x"})
                for name in ("large", "small", "other")
            ]
            replies += [await house.fetch("/v1/audio", "POST", data=b"\xff\x00")]
            replies += [await house.fetch("/v1/files")]
    assert [reply[0] for reply in replies] == [200, 200, 404, 200, 200]
    paths = ["2/embeddings", "1/embeddings", "1/audio", "1/files"]
    assert [path for path, _ in seen] == [f"/v1/{path}" for path in paths]
    assert json.loads(seen[1][1]) == {"model": "qwen-7b", "input": "x"}
    assert seen[2][1] == b"\xff\x00"


# --- /v1/responses: what asks for text is voted on ------------------------------------------------


ASKED: dict[str, Any] = {"model": "aera/m", "input": "how many?"}


async def respond(house: House, **fields: Any) -> Any:
    """The official client's response."""
    return await house.client.responses.create(**{**ASKED, **fields})


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ({"instructions": "Be brief."}, [("system", "Be brief."), ("user", "how many?")]),
        (
            {"input": [{"role": "developer", "content": "Be kind."},
                       {"role": "user", "content": [{"type": "input_text", "text": "how?"}]}]},
            [("system", "Be kind."), ("user", "how?")],
        ),
    ],
)  # fmt: skip
def test_a_chat_asks_for_the_same(fields: Any, messages: Any) -> None:
    server = FakeUpstream(boxed)
    more = {"max_output_tokens": 50, "reasoning": {"effort": "low"}, "temperature": 0.5}
    visit(lambda house: respond(house, **fields, **more), server)
    body = server.calls[0].body
    assert [(m["role"], m["content"]) for m in body["messages"]] == messages
    assert (body["max_completion_tokens"], body["reasoning_effort"]) == (50, "low")


@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
def test_a_stream_that_fails_late_says_so_and_is_counted_as_failed(path: str) -> None:
    async def act(house: House) -> Any:
        body = {**(BODY if path == CHAT else ASKED), "stream": True}
        _, _, told = await house.fetch(path, "POST", json=body)
        assert (b'"error"' if path == CHAT else b"event: error") in told
        return await house.metrics()

    server = FakeUpstream(boxed, delay=lambda call: 0.2, faults=[Fault.status(503)] * 9)
    metrics = visit(act, server, keep_alive=0.02)
    assert metrics["aera_requests_total", "m", "stream", "503"] == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "web_search"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        {"text": {"format": {"type": "json_object"}}},
        {"background": True},
    ],
)
def test_what_is_more_than_text_passes_through(fields: Any) -> None:
    body = {**ASKED, **fields}
    act = lambda house: house.fetch("/v1/responses", "POST", json=body)  # noqa: E731
    status, headers, _ = visit(act, FakeUpstream(boxed))
    note = headers.get("x-aera-not-voted")
    assert (status, note) == (404, "only text is voted on here")  # the stand-in has no such path
