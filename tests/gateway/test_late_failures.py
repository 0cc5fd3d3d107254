"""What was paid for is never lost: a late failure leaves the best answer so far."""

import pytest
from aiohttp import web
from fakes import FakeUpstream, Fault
from gateways import BODY, SPLIT, account, found, numbers, posted, proxied
from live import boxed

FAULTS = {
    "429": (Fault.status(429, "slow down", retry_after="9"), "slow down"),
    "400": (Fault.status(400, "enough"), "enough"),
    "401": (Fault.status(401, "no such key"), "no such key"),
    "503": (Fault.status(503, "overloaded"), "overloaded"),
    "reset": (Fault("reset"), "connection"),
    "hang": (Fault.hang(30), "no reply within"),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("good", [1, 3])
def test_a_failure_after_some_blocks_leaves_the_best_answer_so_far(kind: str, good: int) -> None:
    fault, said = FAULTS[kind]
    server = numbers("5", "6", "5", "6", *SPLIT, faults=[*[None] * good, *[fault] * 99])
    told = found(server, serving={"timeout": 0.5})
    assert (told["answer"], told["reason"]) == ("5", "upstream failed")
    assert any(said in warning for warning in told["warnings"]), told["warnings"]
    assert (told["escalate"], told["tokens_saved"]) == (True, 0)


def test_fields_beside_the_error_object_come_along() -> None:
    fault = Fault("status", code=422, body={"detail": [{"loc": ["n"]}], "error": "odd"})
    server = FakeUpstream(boxed, faults=[fault] * 9)
    status, _, told = posted(BODY, server)
    assert (status, told["detail"], told["error"]["message"]) == (422, [{"loc": ["n"]}], "odd")


def test_a_choice_that_fails_leaves_the_others() -> None:
    async def handler(request: web.Request) -> web.Response:
        body = await request.json()
        if body["seed"] >= 128:
            return web.json_response({"error": {"message": "unlucky"}}, status=400)
        choices = [{"message": {"content": "\\boxed{7}"}}] * body["n"]
        return web.json_response({"choices": choices})

    reply, _ = proxied(lambda house: house.ask(n=2, seed=0), handler)
    told = account(reply)
    assert (len(reply.choices), told["answer"]) == (1, "7")
    assert told["warnings"] == ["1 of 2 choices could not be had: upstream 400: unlucky"]
