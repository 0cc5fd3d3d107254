"""Whatever is sent to the gateway, and whatever comes back from upstream: no failure of its own."""

import http.client
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from fakes import in_background, serving
from gateways import CHAT, config_of, housed
from hypothesis import example, given, settings
from hypothesis import strategies as st

NO_HTTP = b"Invalid HTTP request received."
"""What uvicorn itself says of bytes that are no request."""
FINE: dict[str, Any] = {"message": {"role": "assistant", "content": "\\boxed{7}"}}

surrogates = st.text(st.characters(codec=None, exclude_categories=[]), max_size=6)
numbers = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([0, 1, -1, 1e308, 10**400])
junk = st.recursive(
    st.none() | st.booleans() | numbers | surrogates,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(surrogates, inner, max_size=3),
    max_leaves=6,
)


def some(optional: str = "", **known: Any) -> Any:
    """Objects with any of these fields, each as it is known or as it should not be."""
    fields = dict.fromkeys(optional.split(), junk)
    fields |= {name: strategy | junk for name, strategy in known.items()}
    return st.fixed_dictionaries({}, optional=fields)


def few(strategy: Any) -> Any:
    return st.lists(strategy, max_size=3)


message = some(
    "tool_calls name",
    role=st.sampled_from(["user", "system", "assistant"]),
    content=st.text(max_size=9) | few(some("type text image_url")),
)
options = some(
    "threshold max_tokens_total deadline_s else",
    policy=st.sampled_from(["asc-0.9", "fixed-2", "esc-3", "fixed-0", "asc-nan"]),
    min_samples=st.integers(0, 9),
    max_samples=st.integers(0, 9),
)
body = some(
    "stream_options tools tool_choice max_tokens unknown",
    model=st.sampled_from(["aera/m", "m"]),
    messages=few(message),
    n=st.integers(0, 2),
    stream=st.booleans(),
    seed=st.integers(),
    temperature=st.sampled_from([0, 0.0, 1]),
    response_format=st.just({"type": "json_object"}),
    aera=options,
)
choice = some(
    "logprobs usage token_ids index",
    message=some("reasoning tool_calls function_call", content=surrogates),
    finish_reason=st.sampled_from(["stop", "length"]),
)
reply = some("model", choices=few(choice), usage=some("prompt_tokens completion_tokens"))


class Target:
    """A running gateway, and what its upstream answers to everything."""

    address, told, status = "", b"", 200

    @asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        async with serving(self.answer) as url, housed(config_of([url])) as house:
            self.address = urlsplit(house.url).netloc
            yield

    async def answer(self, request: web.Request) -> web.Response:
        content = await request.read()
        if self.told:
            return web.Response(body=self.told, status=self.status)
        wanted = json.loads(content).get("n") if request.path.endswith("completions") else None
        count = wanted if isinstance(wanted, int) and 0 < wanted < 9 else 1
        return web.json_response({"choices": [FINE] * count})

    def send(self, method: str, path: str, content: bytes = b"", **headers: str) -> Any:
        """The status; an error says what it is in JSON."""
        with closing(http.client.HTTPConnection(self.address, timeout=60)) as connection:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": "localhost", **headers}.items():
                connection.putheader(name.replace("_", "-"), value.encode("latin-1"))
            connection.putheader("Content-Length", str(len(content)))
            connection.endheaders(content)
            got = connection.getresponse()
            text = got.read()
        if got.status >= 400 and method != "HEAD" and text != NO_HTTP:
            error = json.loads(text)["error"]
            assert {"message", "type", "param", "code"} <= set(error)
            assert isinstance(error["message"], str)
        return got.status


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """A gateway in a thread of its own."""
    made = Target()
    with in_background(made.up()):
        yield made


@pytest.fixture(autouse=True)
def fine_upstream(target: Target) -> None:
    target.told, target.status = b"", 200


def fuzzed(examples: int) -> Any:
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


@fuzzed(300)
@given(body)
def test_no_request_makes_the_gateway_fail(target: Target, sent: Any) -> None:
    assert target.send("POST", CHAT, json.dumps(sent).encode()) < 500


@fuzzed(100)
@given(st.binary(max_size=60) | junk.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_make_the_gateway_fail(target: Target, sent: bytes) -> None:
    assert target.send("POST", CHAT, sent) < 500


@pytest.mark.parametrize("model", ["m", "aera/m"])
@pytest.mark.parametrize(
    "sent",
    [
        '{"model": "%s", "messages": [], "x": ' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"model": "%s", "messages": [], "seed": 1' + "0" * 5000 + "}",
        '{"model": "%s", "messages": [], "x": NaN}',
        '{"model": "%s", "messages": [], "aera": {}, "temperature": 1e999}',
        '{"model": "%s", "messages": [], "x": "\xff"}',
    ],
    ids=["deep", "long number", "NaN", "Infinity", "no UTF-8"],
)
def test_a_request_that_is_no_sound_json_is_refused(target: Target, model: str, sent: str) -> None:
    assert target.send("POST", CHAT, (sent % model).encode("latin-1")) == 400


@fuzzed(150)
@given(
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"]),
    st.sampled_from(["/", "/v1/", "/v1/models", CHAT, "/state", "/metrics", "/v1"])
    | st.text("abz/.%2e5c?&=#:@~\\", max_size=12).map(lambda tail: f"/v1/{tail}"),
    st.dictionaries(
        st.sampled_from(["Host", "Authorization", "x-aera-policy", "x-aera-min-samples", "Cookie",
                         "x-aera-x", "Content-Type", "Accept", "Range", "Expect", "x-request-id"]),
        st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=9),
    ),
)  # fmt: skip
@example("GET", "/v1/x", {"Content-Type": "\x7f"})
@example("GET", "/v1/x", {"Host": "[::1"})
def test_no_method_path_or_header_makes_the_gateway_fail(
    target: Target, method: str, path: str, headers: dict[str, str]
) -> None:
    target.told = b"{}"
    assert target.send(method, path, **headers) < 500


@fuzzed(200)
@given(reply | junk, st.sampled_from([200, 200, 200, 201, 304, 400, 404, 429, 500]))
def test_no_reply_of_an_upstream_makes_it_fail(target: Target, told: Any, status: int) -> None:
    target.told, target.status = json.dumps(told).encode(), status
    sent = json.dumps({"model": "aera/m", "messages": [], "aera": {"policy": "fixed-3"}}).encode()
    allowed = {200, 502, status} if status != 304 else {502}
    assert target.send("POST", CHAT, sent) in allowed
