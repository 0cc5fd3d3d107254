"""The Responses API in front of votes, with the official client, and the way out of a vote."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from aera.gateway.responses import ResponsesWire
from aera.gateway.responses_request import to_chat
from aiohttp import web
from fakes import Call, FakeUpstream, Fault
from gateways import (
    USER,
    House,
    Scripted,
    account,
    anything,
    gateway,
    numbers,
    saying,
    visit,
)
from hypothesis import given
from hypothesis import strategies as st
from live import boxed
from pydantic import BaseModel

from aera.errors import UsageError

TOOL = {
    "type": "function",
    "name": "add",
    "description": "adds",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": False,
}


async def respond(house: House, **fields: Any) -> Any:
    return await house.client.responses.create(**{"model": "aera/m", "input": "?", **fields})


def responded(server: FakeUpstream, **fields: Any) -> Any:
    return visit(lambda house: respond(house, **fields), server)


def calling(*names: str) -> Scripted:
    """An upstream that calls these functions, and says seven once it has a result."""

    def message(call: Call, place: int) -> dict[str, Any]:
        if call.body["messages"][-1]["role"] == "tool":
            return {"content": "so \\boxed{7}"}
        calls = [
            {
                "id": f"call-{call.number}-{place}-{name}",
                "type": "function",
                "function": {"name": name, "arguments": '{"a": 3}'},
            }
            for name in names
        ]
        return {"content": None, "tool_calls": calls}

    return Scripted(message)


def proxied(
    act: Callable[[House], Awaitable[Any]], **settings: Any
) -> tuple[Any, list[tuple[str, dict[str, Any]]]]:
    """What comes of it in front of a server that takes every route, and what that server got."""
    seen = []

    async def handler(request: web.Request) -> web.Response:
        content = await request.read()
        seen.append((request.path, json.loads(content) if content else {}))
        return web.json_response({"id": "theirs", "object": "response", "output": []})

    async def scene() -> Any:
        async with anything(handler) as url, gateway(url, **settings) as house:
            return await act(house)

    return asyncio.run(scene()), seen


# --- whole ----------------------------------------------------------------------------------------


def test_a_response_is_voted_on() -> None:
    server = numbers("8", "7", "7", "7", "7")
    reply = responded(server, instructions="Be brief.", metadata={"k": "v"}, max_output_tokens=99)
    assert (reply.output_text, reply.status, reply.model) == (
        "so \\boxed{7}",
        "completed",
        "aera/m",
    )
    assert (reply.object, reply.id[:10], reply.store) == ("response", "resp_aera_", False)
    assert (reply.metadata, reply.instructions) == ({"k": "v"}, "Be brief.")
    assert reply.max_output_tokens == 99
    assert (account(reply)["answer"], account(reply)["votes"]["8"]) == ("7", 1)
    samples = account(reply)["samples"]
    assert reply.usage.output_tokens == 3 * samples
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    assert reply.usage.output_tokens_details.reasoning_tokens == 0
    sent = server.calls[0].body
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}
    ]  # fmt: skip
    assert (sent["model"], sent["max_completion_tokens"]) == ("m", 99)
    assert "metadata" not in sent


def test_a_reply_that_was_cut_off_is_incomplete() -> None:
    reply = responded(numbers("7"), max_output_tokens=1)
    assert reply.status == "incomplete"
    assert reply.incomplete_details.reason == "max_output_tokens"


def test_parallel_calls_and_a_second_turn() -> None:
    async def act(house: House) -> tuple[Any, Any]:
        conversation: list[Any] = [{"role": "user", "content": "3 + 4?"}]
        first = await respond(house, input=conversation, tools=[TOOL], tool_choice="auto")
        conversation += first.output
        conversation += [
            {"type": "function_call_output", "call_id": item.call_id, "output": "7"}
            for item in first.output
        ]
        return first, await respond(house, input=conversation, tools=[TOOL])

    server = calling("add", "add")
    first, second = visit(act, server)
    assert [item.type for item in first.output] == ["function_call"] * 2
    assert json.loads(first.output[0].arguments) == {"a": 3}
    assert account(first)["structure"]["names"] == {"add, add": 4}
    assert second.output_text == "so \\boxed{7}"
    told = server.calls[-1].body["messages"]
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in told[1]["tool_calls"]] == [c.call_id for c in first.output]
    assert server.calls[0].body["tools"][0]["function"]["name"] == "add"


class Sum(BaseModel):
    """What somebody wants to know."""

    total: int
    why: str


def test_parsed_responses_are_objects() -> None:
    rows = [Sum(total=7 + (n == 1), why=f"{n} " * 50) for n in range(9)]
    server = saying(*(row.model_dump_json() for row in rows))

    async def act(house: House) -> Any:
        return await house.client.responses.parse(model="aera/m", input="?", text_format=Sum)

    reply = visit(act, server)
    assert reply.output_parsed.total == 7
    assert account(reply)["structure"]["left_out"] == ["why"]
    wanted = server.calls[0].body["response_format"]
    assert (wanted["type"], wanted["json_schema"]["name"]) == ("json_schema", "Sum")


def test_every_kind_of_input_becomes_a_message() -> None:
    content = [
        {"type": "input_text", "text": "what is it?"},
        {"type": "input_image", "image_url": "data:image/png;base64,x", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:x"},
    ]
    made = to_chat({
        "input": [
            {"role": "developer", "content": "Be kind."},
            {"type": "message", "role": "user", "content": content},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"role": "assistant", "content": [{"type": "output_text", "text": "wait"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1",
             "output": [{"type": "input_text", "text": "done"}]},
        ],
        "reasoning": {"effort": "low", "summary": "auto"},
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "include": ["message.output_text.logprobs"],
        "store": True,
        "temperature": None,
    })  # fmt: skip
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert made.body == {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [
                {"type": "text", "text": "what is it?"},
                {"type": "image_url",
                 "image_url": {"url": "data:image/png;base64,x", "detail": "low"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:x"}},
            ]},
            {"role": "assistant", "content": "wait", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "done"}]},
        ],
        "reasoning_effort": "low",
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_object"},
        "verbosity": "low",
        "logprobs": True,
    }  # fmt: skip
    assert [note.split(":")[0] for note in made.notes] == [
        "a voted response is not stored, so no later one can refer to it",
        "no summary of the reasoning is made of a voted response",
        "1 items of earlier reasoning were not sent to the model",
    ]


def test_what_is_not_done_is_a_warning() -> None:
    assert "not stored" in account(responded(numbers("7"), store=True))["warnings"][0]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"previous_response_id": "resp_1"}, 'a request with "previous_response_id"'),
        ({"conversation": "conv_1"}, 'a request with "conversation"'),
        ({"prompt": {"id": "p"}}, 'a request with "prompt"'),
        ({"background": True}, "a request in the background"),
        ({"truncation": "auto"}, "may be truncated"),
        ({"tools": [{"type": "web_search"}]}, 'the tool "web_search"'),
        ({"include": ["file_search_call.results"]}, 'includes "file_search_call.results"'),
        ({"input": [{"type": "item_reference", "id": "x"}]}, 'an input of type "item_reference"'),
        ({"text": {"format": {"type": "grammar"}}}, 'the format "grammar"'),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}]},
            'content of type "input_image" without its data',
        ),
    ],
)
def test_what_cannot_be_voted_on_is_refused_in_one_sentence(fields: Any, what: str) -> None:
    server = FakeUpstream(boxed)
    with pytest.raises(openai.BadRequestError) as caught:
        responded(server, **fields)
    told = str(caught.value.body["message"])  # type: ignore[index]
    assert what in told
    assert told.endswith(
        'cannot be voted on: ask for the plain model, or send "aera": {"vote": false}'
    )
    assert server.calls == []


junk = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(
    st.dictionaries(st.sampled_from(["type", "role", "content", "output", "name"]), st.text())
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(
    ["input", "tools", "text", "reasoning", "include", "instructions", "tool_choice", "stream"]
), junk))  # fmt: skip
def test_junk_is_translated_or_refused(body: dict[str, Any]) -> None:
    try:
        made = ResponsesWire.open(body)
    except UsageError:
        return
    assert isinstance(made.chat["messages"], list)


anything_at_all = st.recursive(junk, lambda inner: st.lists(inner, max_size=2), max_leaves=4)
call = st.dictionaries(st.sampled_from(["id", "function"]), st.dictionaries(
    st.sampled_from(["name", "arguments"]), st.text(max_size=3) | anything_at_all
) | junk)  # fmt: skip
message = st.fixed_dictionaries({}, optional={
    "content": anything_at_all, "refusal": anything_at_all, "reasoning": anything_at_all,
    "tool_calls": st.lists(call, max_size=2) | junk, "function_call": call | junk,
})  # fmt: skip


@given(message | junk, junk, junk)
def test_whatever_a_model_says_becomes_a_response(said: Any, finish: Any, logprobs: Any) -> None:
    choice = {"message": said, "finish_reason": finish, "logprobs": logprobs}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    about = {"id": "chatcmpl-1", "created": 0, "model": "m", "aera": {"warnings": []}}
    wire = ResponsesWire.open({"input": "?"})
    events = list(wire.events({**about, "choices": [choice], "usage": usage}))
    last = json.loads(events[-1].split(b"data: ")[1])["response"]
    assert last["output"]
    done = [json.loads(each.split(b"data: ")[1]) for each in events if b"output_item.done" in each]
    assert [each["item"] for each in done] == last["output"]


def test_a_response_without_input_is_refused() -> None:
    with pytest.raises(openai.BadRequestError, match='"input" must be a list of objects'):
        responded(numbers("7"), input=None)


def test_upstream_errors_stay_what_they_are() -> None:
    with pytest.raises(openai.RateLimitError, match="slow down"):
        responded(FakeUpstream(boxed, faults=[Fault.status(429, "slow down")] * 9))


# --- streams --------------------------------------------------------------------------------------


async def events_of(house: House, **fields: Any) -> list[Any]:
    stream = await respond(house, stream=True, **fields)
    return [event async for event in stream]


def test_the_events_of_a_text() -> None:
    events = visit(events_of, numbers("7"))
    assert [event.type.removeprefix("response.") for event in events] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(9))
    assert (events[0].response.status, events[0].response.output) == ("in_progress", [])
    assert events[4].delta == events[5].text == events[-1].response.output_text == "so \\boxed{7}"
    assert account(events[-1].response)["samples"] == 4


def test_the_events_of_calls() -> None:
    events = visit(lambda house: events_of(house, tools=[TOOL]), calling("add", "add"))
    one = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
           "output_item.done"]  # fmt: skip
    assert [event.type.removeprefix("response.") for event in events] == [
        "created", "in_progress", *one, *one, "completed"
    ]  # fmt: skip
    assert [event.item.name for event in events if "added" in event.type] == ["add", "add"]


def test_the_clients_own_stream_puts_it_together() -> None:
    rows = [Sum(total=7, why=f"{n} " * 50) for n in range(9)]
    server = saying(*(row.model_dump_json() for row in rows))

    async def act(house: House) -> Any:
        async with house.client.responses.stream(
            model="aera/m", input="?", text_format=Sum
        ) as stream:
            return await stream.get_final_response()

    assert visit(act, server).output_parsed.total == 7


def test_a_stream_that_was_cut_off_ends_incomplete() -> None:
    events = visit(lambda house: events_of(house, max_output_tokens=1), numbers("7"))
    assert events[-1].type == "response.incomplete"


def test_thoughts_and_refusals_are_items_of_their_own() -> None:
    def message(call: Call, place: int) -> dict[str, Any]:
        return {"content": None, "refusal": "I would rather not", "reasoning_content": "hm"}

    reply = visit(events_of, Scripted(message))[-1].response
    assert [item.type for item in reply.output] == ["reasoning", "message"]
    assert reply.output[1].content[0].refusal == "I would rather not"


def test_comments_keep_a_slow_vote_alive_and_a_failure_is_raised() -> None:
    async def act(house: House) -> str:
        body = {"model": "aera/m", "input": "?", "stream": True}
        async with house.http.post(f"{house.url}/v1/responses", json=body) as reply:
            return await reply.text()

    text = visit(act, FakeUpstream(boxed, delay=lambda call: 0.2), keep_alive=0.05)
    assert text.startswith(": keep-alive\n\n")
    assert "\n\nevent: response.completed\ndata: {" in text
    server = FakeUpstream(boxed, delay=lambda call: 0.1, faults=[Fault.status(400, "no")] * 9)
    with pytest.raises(openai.APIError, match="no"):
        visit(events_of, server, keep_alive=0.02)


# --- the way out ----------------------------------------------------------------------------------


def test_a_plain_model_is_passed_on() -> None:
    reply, seen = proxied(lambda house: respond(house, model="m", previous_response_id="resp_1"))
    assert reply.id == "theirs"
    assert seen == [
        ("/v1/responses", {"model": "m", "input": "?", "previous_response_id": "resp_1"})
    ]


@pytest.mark.parametrize("model", ["m", "aera/m"])
@pytest.mark.parametrize("way", [{"extra_body": {"aera": {"vote": False}}},
                                 {"extra_headers": {"x-aera-vote": "false"}}])  # fmt: skip
def test_a_request_may_leave_the_vote_where_it_is_the_default(model: str, way: Any) -> None:
    async def act(house: House) -> None:
        await respond(house, model=model, tools=[{"type": "web_search"}], **way)
        await house.ask(model, **way)

    _, seen = proxied(act, vote_by_default=True)
    assert [body for _, body in seen] == [
        {"model": "m", "input": "?", "tools": [{"type": "web_search"}]},
        {"model": "m", "messages": USER},
    ]


def test_a_request_may_ask_for_a_vote_on_a_plain_model() -> None:
    async def act(house: House) -> tuple[Any, Any]:
        way = {"extra_body": {"aera": {"vote": True}}}
        return await house.ask("m", **way), await respond(house, model="m", **way)

    server = numbers("7")
    replies = visit(act, server)
    assert [(reply.model, account(reply)["samples"]) for reply in replies] == [("m", 4)] * 2
    assert all("aera" not in call.body for call in server.calls)


@pytest.mark.parametrize("said", ["maybe", 1, [], {}])
def test_a_wish_that_is_neither_yes_nor_no_is_refused(said: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="must be true or false"):
        responded(numbers("7"), extra_body={"aera": {"vote": said}})


def test_a_default_vote_is_a_vote_on_responses_too() -> None:
    reply = visit(lambda house: respond(house, model="m"), numbers("7"), vote_by_default=True)
    assert account(reply)["samples"] == 4


def test_options_never_reach_the_upstream_on_other_routes() -> None:
    async def act(house: House) -> Any:
        url, told = f"{house.url}/v1/embeddings", {"model": "m", "input": "x"}
        async with house.http.post(url, json={**told, "aera": {"policy": "fixed-4"}}) as reply:
            refused = (await reply.json())["error"]["message"]
        async with house.http.post(url, json={**told, "aera": {"vote": False}}) as reply:
            return refused, reply.status

    (refused, status), seen = proxied(act)
    assert refused == 'nothing is voted on here: leave "aera" out of the request'
    assert (status, seen) == (200, [("/v1/embeddings", {"model": "m", "input": "x"})])


def test_a_voted_response_cannot_be_had_again_and_others_can() -> None:
    async def act(house: House) -> Any:
        theirs = await house.client.responses.retrieve("resp_1")
        with pytest.raises(openai.NotFoundError, match="voted responses are not stored"):
            await house.client.responses.retrieve("resp_aera_1")
        return theirs.id

    told, seen = proxied(act)
    assert (told, [path for path, _ in seen]) == ("theirs", ["/v1/responses/resp_1"])


def test_models_are_listed_and_looked_up_under_both_names() -> None:
    async def handler(request: web.Request) -> web.Response:
        one = {"id": "org/m", "object": "model"}
        listed = {"object": "list", "data": [one]}
        return web.json_response(listed if request.path == "/v1/models" else one)

    async def scene() -> list[str]:
        async with anything(handler) as url, gateway(url) as house:
            listed = [model.id async for model in house.client.models.list()]
            found = [(await house.client.models.retrieve(name)).id for name in listed]
            async with house.http.get(f"{house.url}/v1/models/aera/org/m") as reply:
                return [*listed, *found, (await reply.json())["id"]]

    assert asyncio.run(scene()) == ["org/m", "aera/org/m"] * 2 + ["aera/org/m"]
