"""/v1/responses: requests for text are voted on as chats; everything else passes through."""

import json
from typing import Any

import pytest
from fakes import FakeUpstream, Fault
from gateways import House, visit
from live import boxed

ASKED: dict[str, Any] = {"model": "aera/m", "input": "how many?"}


async def respond(house: House, **fields: Any) -> Any:
    """The official client's response."""
    return await house.client.responses.create(**{**ASKED, **fields})


def test_a_response_has_the_text_the_usage_and_the_account() -> None:
    reply = visit(respond, FakeUpstream(boxed))
    assert (reply.status, "boxed" in reply.output_text) == ("completed", True)
    assert reply.id.startswith("resp_aera_")
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    assert reply.model_extra["aera"]["samples"] == 4


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


def test_a_stream_of_events_ends_with_the_response() -> None:
    async def act(house: House) -> list[Any]:
        stream = await house.client.responses.create(**ASKED, stream=True)
        return [event async for event in stream]

    events = visit(act, FakeUpstream(boxed))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert [event.sequence_number for event in events] == [*range(len(events))]
    told = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert events[-1].response.output_text == told != ""


def test_a_stream_that_fails_late_says_so() -> None:
    async def act(house: House) -> str:
        url = f"{house.url}/v1/responses"
        async with house.http.post(url, json={**ASKED, "stream": True}) as reply:
            return await reply.text()

    server = FakeUpstream(boxed, delay=lambda call: 0.2, faults=[Fault.status(500)])
    assert "event: error" in visit(act, server, keep_alive=0.02)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "web_search"}]},
        {"previous_response_id": "resp_1"},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        {"text": {"format": {"type": "json_object"}}},
        {"background": True},
    ],
)
def test_what_is_more_than_text_passes_through(fields: Any) -> None:
    async def act(house: House) -> tuple[int, str | None]:
        url = f"{house.url}/v1/responses"
        async with house.http.post(url, json={**ASKED, **fields}) as reply:
            return reply.status, reply.headers.get("x-aera-not-voted")

    status, note = visit(act, FakeUpstream(boxed))
    assert (status, note) == (404, "only text is voted on here")  # the stand-in has no such path


def test_a_voted_response_is_not_kept() -> None:
    async def act(house: House) -> tuple[str, int, str]:
        reply = await respond(house, store=True)
        status, text = await house.get(f"/v1/responses/{reply.id}")
        return reply.model_extra["aera"]["warnings"][-1], status, json.loads(text)["error"]["code"]

    note, status, code = visit(act, FakeUpstream(boxed))
    assert "not stored" in note
    assert (status, code) == (404, "not_found")
