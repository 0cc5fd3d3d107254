"""/v1/responses: requests for text are voted on as chats; everything else passes through."""

from typing import Any

import pytest
from fakes import FakeUpstream, Fault
from gateways import BODY, House, visit
from live import boxed

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


@pytest.mark.parametrize(
    ("path", "said"), [("chat/completions", b'"error"'), ("responses", b"event: error")]
)
def test_a_stream_that_fails_late_says_so_and_is_counted_as_failed(path: str, said: bytes) -> None:
    async def act(house: House) -> Any:
        body = {**(ASKED if path == "responses" else BODY), "stream": True}
        _, _, told = await house.fetch(f"/v1/{path}", "POST", json=body)
        assert said in told
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
