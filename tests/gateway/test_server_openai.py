"""The contract: the official OpenAI client against a gateway, and raw transcripts of the wire."""

import asyncio
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from aiohttp import web
from fakes import Call, FakeUpstream, Fault
from gateways import (
    USER,
    House,
    Scripted,
    account,
    anything,
    asked,
    gateway,
    numbers,
    saying,
    visit,
)
from live import boxed, seeds

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def calling(*arguments: str) -> Scripted:
    """An upstream whose samples call a tool with these arguments, in turn."""
    left = list(arguments)

    def message(call: Call, place: int) -> dict[str, Any]:
        given = left.pop(0) if len(left) > 1 else left[0]
        function = {"name": "weather", "arguments": given}
        calls = [{"id": f"call-{place}", "type": "function", "function": function}]
        return {"content": None, "tool_calls": calls}

    return Scripted(message, finish="tool_calls")


async def streamed(house: House, **fields: Any) -> list[Any]:
    stream = await house.ask(stream=True, **fields)
    return [chunk async for chunk in stream]


# --- plain and voted ------------------------------------------------------------------------------


def test_a_plain_model_is_passed_straight_through() -> None:
    server = FakeUpstream(boxed)
    reply = asked(server, model="m", temperature=0.3)
    assert reply.choices[0].message.content == "so it is \\boxed{7}"
    assert "aera" not in reply.model_extra
    assert [call.body["model"] for call in server.calls] == ["m"]


def test_the_aera_name_of_a_model_votes() -> None:
    server = numbers("7", "7", "8", "7", "7")
    reply = asked(server)
    assert reply.model == "aera/m"
    assert reply.object == "chat.completion"
    assert reply.choices[0].message.content == "so \\boxed{7}"
    assert reply.choices[0].finish_reason == "stop"
    assert {call.body["model"] for call in server.calls} == {"m"}


def test_a_switch_makes_voting_the_default() -> None:
    reply = asked(numbers("7"), model="m", serving={"vote_by_default": True})
    assert account(reply)["samples"] == 4


@pytest.mark.parametrize("votes", [True, False])
def test_a_request_without_a_model_gets_the_configured_one(votes: bool) -> None:
    server = numbers("7")
    status, _, reply = visit(
        lambda house: house.post({"messages": USER}), server, vote_by_default=votes
    )
    assert (status, reply["model"], "aera" in reply) == (200, "m", votes)
    assert server.calls[0].body["model"] == "m"


def test_usage_is_the_sum_over_all_samples() -> None:
    server = FakeUpstream(boxed)
    reply = asked(server)
    assert account(reply)["samples"] == 4
    assert reply.usage.completion_tokens == 4 * (len("so it is \\boxed{7}") // 4)
    assert reply.usage.prompt_tokens == 2  # one call, one prompt
    assert reply.usage.total_tokens == reply.usage.completion_tokens + 2


def test_the_winner_is_returned_though_the_first_reply_says_otherwise() -> None:
    shared = "Let us think about it step by step, carefully. " * 20
    server = saying(f"{shared}\\boxed{{42}}", *[f"{shared}\\boxed{{17}}"] * 4)
    reply = asked(server, extra_body={"aera": {"policy": "fixed-5"}})
    assert reply.choices[0].message.content.endswith("\\boxed{17}")
    assert account(reply)["votes"] == {"42": 1, "17": 4}


def test_temperature_zero_is_one_sample_and_says_so() -> None:
    server = FakeUpstream(boxed)
    found = account(asked(server, temperature=0))
    assert (found["samples"], len(server.calls), found["escalate"]) == (1, 1, False)
    assert found["warnings"] == ["temperature 0 gives one sample, nothing to vote on"]


def test_n_choices_are_independent_votes_on_distinct_seeds() -> None:
    server = FakeUpstream(boxed)
    reply = asked(server, n=3, seed=100)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert [each["samples"] for each in account(reply)["choices"]] == [4, 4, 4]
    assert len(set(seeds(server))) == len(seeds(server)) == 12
    assert reply.usage.prompt_tokens == 6


# --- tools and JSON -------------------------------------------------------------------------------


def test_tool_calls_vote_on_name_and_canonical_arguments() -> None:
    server = calling('{"city": "Bonn"}', '{"city":"Rome","unit":"C"}', '{"unit":"C","city":"Rome"}')
    reply = asked(server, tools=[TOOL], tool_choice="auto")
    [call] = reply.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Rome", "unit": "C"}
    assert reply.choices[0].finish_reason == "tool_calls"
    assert sorted(account(reply)["votes"].values())[-1] > 1
    assert server.calls[0].body["tools"] == [TOOL]


def test_streamed_tool_calls_carry_an_index() -> None:
    server = calling('{"city": "Bonn"}')
    chunks = visit(lambda house: streamed(house, tools=[TOOL]), server)
    [call] = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or []]
    assert (call.index, call.function.name) == (0, "weather")
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_json_replies_vote_on_canonical_json() -> None:
    server = saying('{"a": 2}', '{"a": 1, "b": 2}', '{"b":2.0,"a":1}')
    reply = asked(server, response_format={"type": "json_object"})
    assert json.loads(reply.choices[0].message.content) == {"a": 1, "b": 2}
    assert account(reply)["answer"] == '{"a":1,"b":2}'


# --- streaming ------------------------------------------------------------------------------------


def test_a_stream_has_role_content_finish_and_usage() -> None:
    options = {"include_usage": True}
    chunks = visit(lambda house: streamed(house, stream_options=options), numbers("7"))
    first, second, third, last = chunks
    assert first.choices[0].delta.role == "assistant"
    assert second.choices[0].delta.content == "so \\boxed{7}"
    assert third.choices[0].finish_reason == "stop"
    assert account(third)["samples"] == 4
    assert (last.choices, last.usage.completion_tokens) == ([], 12)


def test_a_stream_without_the_wish_has_no_usage() -> None:
    chunks = visit(streamed, numbers("7"))
    assert len(chunks) == 3
    assert all(chunk.usage is None for chunk in chunks)


def test_an_error_before_the_first_byte_of_a_stream_is_an_http_error() -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(401, "bad key")] * 9)
    with pytest.raises(openai.AuthenticationError, match="bad key"):
        visit(streamed, server)


def test_an_error_after_the_first_byte_is_raised_by_the_client() -> None:
    server = FakeUpstream(boxed, delay=lambda call: 0.1, faults=[Fault.status(400, "no")] * 9)
    with pytest.raises(openai.APIError, match="no"):
        visit(streamed, server, keep_alive=0.02)


def test_a_plain_stream_is_the_upstreams_own() -> None:
    words = ["one ", "two"]
    base = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    rows = [{**base, "choices": [{"index": 0, "delta": {"content": word}}]} for word in words]
    sent = "".join(f"data: {json.dumps(row)}\n\n" for row in rows) + "data: [DONE]\n\n"

    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=sent, content_type="text/event-stream")

    async def scene() -> list[Any]:
        async with anything(handler) as url, gateway(url) as house:
            return await streamed(house, model="m")

    assert [chunk.choices[0].delta.content for chunk in asyncio.run(scene())] == words


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["m", "aera/m"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
def test_upstream_errors_keep_status_type_code_and_message(
    model: str, status: int, kind: type[openai.APIStatusError]
) -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(status, "as planned")] * 9)
    with pytest.raises(kind) as caught:
        asked(server, model=model)
    error = caught.value
    assert error.status_code == status
    assert error.body == {
        "message": "as planned", "type": f"planned_{status}", "param": None, "code": status
    }  # fmt: skip


def test_a_context_overflow_keeps_all_its_fields() -> None:
    told = {
        "message": "too long", "type": "invalid_request_error", "param": "messages",
        "code": "context_length_exceeded",
    }  # fmt: skip
    fault = Fault("status", code=400, body={"error": told})
    with pytest.raises(openai.BadRequestError) as caught:
        asked(FakeUpstream(boxed, faults=[fault] * 9))
    assert caught.value.body == told


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_retry_after_is_passed_on(model: str) -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(429, retry_after="7")] * 9)
    with pytest.raises(openai.RateLimitError) as caught:
        asked(server, model=model)
    assert caught.value.response.headers["retry-after"] == "7"


def test_a_refused_key_costs_one_call() -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(401)] * 99)
    with pytest.raises(openai.AuthenticationError):
        asked(server)
    assert len(server.calls) == 1


def test_a_page_instead_of_json_is_a_bad_gateway() -> None:
    with pytest.raises(openai.InternalServerError, match="not JSON") as caught:
        asked(FakeUpstream(boxed, faults=[Fault.html()] * 9))
    assert caught.value.status_code == 502


# --- the wire -------------------------------------------------------------------------------------


def transcript(body: dict[str, Any]) -> tuple[http.client.HTTPResponse, str]:
    """One exchange in the standard library's own HTTP."""

    def exchange(url: str) -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply, text

    return visit(lambda house: asyncio.to_thread(exchange, house.url), numbers("7"))


def test_the_transcript_of_a_plain_exchange() -> None:
    reply, text = transcript({"model": "aera/m", "messages": [{"role": "user", "content": "?"}]})
    said = json.loads(text)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.headers["x-aera-samples"] == "4"
    assert reply.headers["x-aera-stop-reason"] == "confident leader"
    assert float(reply.headers["x-aera-overhead-ms"]) >= 0
    assert len(reply.headers["x-request-id"]) == 32
    assert list(said) == ["id", "object", "created", "model", "choices", "usage", "aera"]
    assert said["choices"][0]["message"] == {"role": "assistant", "content": "so \\boxed{7}"}


def test_the_transcript_of_a_streamed_exchange() -> None:
    messages = [{"role": "user", "content": "?"}]
    reply, text = transcript({"model": "aera/m", "messages": messages, "stream": True})
    *events, done, end = text.split("\n\n")
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert (done, end) == ("data: [DONE]", "")
    assert all(event.startswith("data: {") for event in events)
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""}, {"content": "so \\boxed{7}"}, {}
    ]  # fmt: skip
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_comments_keep_a_slow_vote_alive() -> None:
    async def act(house: House) -> str:
        body = {"model": "aera/m", "messages": USER, "stream": True}
        async with house.http.post(f"{house.url}/v1/chat/completions", json=body) as reply:
            return await reply.text()

    text = visit(act, FakeUpstream(boxed, delay=lambda call: 0.2), keep_alive=0.05)
    assert text.startswith(": keep-alive\n\n")
    assert text.count(": keep-alive") >= 2
    assert text.endswith("data: [DONE]\n\n")
