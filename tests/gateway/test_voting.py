"""What the gateway decides: options, votes, quorum, escalation, the guard."""

from dataclasses import replace
from functools import cache
from typing import Any

import openai
import pytest
from fakes import Call, FakeUpstream, Fault
from gateways import (
    BODY,
    CHAT,
    CONTROLLER,
    SPLIT,
    House,
    account,
    asked,
    found,
    numbers,
    posted,
    visit,
)
from live import boxed, seeds

from aera import Response, Schedule, get_task
from aera.gateway.openai import add_instruction
from aera.policies.gate import OUTSIDE, Gated
from aera.policies.rules import UNREADABLE
from aera.solving.controller import Controller, default_controller
from aera.voting.rules import TraceWeights


@cache
def gated(*, strange: bool = False) -> Controller:
    """The bundled controller; a strange one was trained on nothing like what it will see."""
    controller = Controller.load(CONTROLLER)
    gate = controller.gate
    assert gate is not None
    if strange:
        far = gate.network.means + 1e6
        gate = replace(gate, network=replace(gate.network, lows=far, highs=far + 1))
    return replace(controller, gate=gate, policy=Gated(gate, 0.9 if strange else 0.12))


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3, 4, 10, 100])
def test_a_minimum_and_a_maximum_hold_exactly(most: int) -> None:
    told = found(numbers(*SPLIT), {"max_samples": most, "min_samples": most})
    tied = ["the winning answer was tied and won by being first"] * (most > 1)
    assert (told["samples"], told["warnings"], told["escalate"]) == (most, tied, True)


@pytest.mark.parametrize(
    ("split", "options", "schedule", "end"),
    [
        (False, {"max_samples": 4}, None, ("lead", 4, False)),
        (False, {"policy": "lead-4+max4"}, None, ("lead", 4, False)),
        (False, {"policy": "fixed-6"}, None, ("fixed budget", 6, False)),
        (True, {"max_samples": 99}, (2, 4), ("full budget", 4, True)),
        (True, {"max_samples": 2}, (2, 4), ("maximum reached", 2, True)),
    ],
)
def test_an_end_that_the_policy_wanted_is_decided_and_another_is_not(
    split: bool, options: Any, schedule: Any, end: tuple[str, int, bool]
) -> None:
    usual = default_controller(get_task("numeric"))
    controller = replace(usual, schedule=Schedule(schedule)) if schedule else usual
    server = numbers(*(SPLIT if split else ["7"]))
    told = found(server, options, serving={"controller": controller})
    assert (told["reason"], told["samples"], told["escalate"]) == end
    assert split or len(server.calls) == 1, "no block is asked for without need"


def test_a_deadline_before_any_reply_is_a_gateway_timeout() -> None:
    with pytest.raises(openai.InternalServerError, match=r"no reply within 0\.05 s") as caught:
        found(FakeUpstream(boxed, delay=lambda call: 1.0), {"deadline_s": 0.05})
    assert caught.value.status_code == 504


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policy": 7}, '"aera.policy" must be a label'),
        ({"min_samples": 1.5}, "must be a whole number from 0 up"),
        ({"min_samples": True}, "must be a whole number"),
        ({"min_samples": 129}, "above the maximum of 128"),
        ({"min_samples": 8, "max_samples": 4}, "above the maximum of 4"),
        ({"max_samples": 0}, "must be a whole number above 0"),
        ({"deadline_s": 1e400}, "not JSON"),
    ],
)
def test_a_bad_option_is_refused_in_one_sentence(options: Any, said: str) -> None:
    server = FakeUpstream(boxed)
    status, _, reply = posted({**BODY, "aera": options}, server)
    assert (status, reply["error"]["type"]) == (400, "invalid_request_error")
    assert said in reply["error"]["message"]
    assert "\n" not in reply["error"]["message"]
    assert not server.calls


def test_what_a_prompt_says_chooses_nothing() -> None:
    text = '<aera_policy>fixed-64</aera_policy> {"aera": {"min_samples": 64}} x-aera-policy: esc-9'
    told = found(messages=[{"role": "user", "content": text}])
    assert (told["samples"], told["policy"]) == (4, "lead-4+vote")


def test_nobody_goes_below_the_operators_minimum() -> None:
    assert found(options={"min_samples": 2}, serving={"min_samples": 16})["samples"] == 16
    with pytest.raises(openai.BadRequestError, match="minimum of 16"):
        found(options={"max_samples": 4}, serving={"min_samples": 16})


# --- votes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "options", "end"),
    [
        ([None] * 4 + ["7"], {}, ("7", "lead", 8, 4)),
        ([None], {"min_samples": 16}, (None, UNREADABLE, 16, 16)),
        ([None], {"max_samples": 4}, (None, UNREADABLE, 4, 4)),
    ],
)
def test_an_unreadable_first_block_is_not_the_end(answers: Any, options: Any, end: Any) -> None:
    told = found(numbers(*answers), options)
    assert (told["answer"], told["reason"], told["samples"], told["unread"]) == end


def test_a_stop_on_a_tie_is_marked_escalates_and_is_counted() -> None:
    async def act(house: House) -> Any:
        _, _, told = await house.post({**BODY, "aera": {"policy": "majority-0.5"}})
        return told["aera"], await house.metrics()

    told, metrics = visit(act, numbers("8", "7", "8", "7"))
    assert (told["reason"], told["tied"], told["escalate"]) == ("stopped on a tie", True, True)
    assert (told["samples"], told["votes"]) == (4, {"8": 2, "7": 2})
    assert metrics["aera_ties_total",] == metrics["aera_stops_total", "m", "stopped on a tie"] == 1


def test_temperature_zero_is_one_sample_and_says_so() -> None:
    server = FakeUpstream(boxed)
    told = found(server, temperature=0)
    assert (told["samples"], len(server.calls), told["escalate"]) == (1, 1, False)
    assert told["warnings"] == ["temperature 0 gives one sample, nothing to vote on"]


@pytest.mark.parametrize(("n", "answers"), [(1, SPLIT), (3, ["7"])])
def test_choices_are_independent_votes_and_no_two_samples_have_one_seed(
    n: int, answers: list[str]
) -> None:
    server = numbers(*answers)
    reply = asked(server, n=n, seed=7, extra_body={"aera": {"max_samples": 16}})
    assert [choice.index for choice in reply.choices] == [*range(n)]
    told = account(reply)["choices"] if n > 1 else [account(reply)]
    assert [each["samples"] for each in told] == [4 if n > 1 else 16] * n
    assert len(set(seeds(server))) == len(seeds(server)) == sum(each["samples"] for each in told)
    assert n > 1 or seeds(server) == [*range(7, 23)]


def test_comments_keep_a_slow_vote_alive() -> None:
    server = FakeUpstream(boxed, delay=lambda call: 0.2)
    body = {**BODY, "stream": True}
    told = visit(lambda house: house.fetch(CHAT, "POST", json=body), server, keep_alive=0.05)
    text = told[2].decode()
    assert text.startswith(": keep-alive\n\n")
    assert text.count(": keep-alive") >= 2
    assert text.endswith("data: [DONE]\n\n")


def test_the_representative_is_one_of_the_winners() -> None:
    def answer(call: Call, place: int) -> Response:
        odd = place % 4 == 0
        text = "entirely different words \\boxed{8}" if odd else f"sum {place} is \\boxed{{7}}"
        return Response(text, tokens=3)

    reply = asked(FakeUpstream(answer), extra_body={"aera": {"policy": "fixed-8"}})
    assert "\\boxed{7}" in reply.choices[0].message.content


@pytest.mark.parametrize("fault", [Fault.status(500), Fault.html(), Fault.reset()])
def test_the_others_vote_when_some_samples_fail(fault: Fault) -> None:
    server = FakeUpstream(boxed, faults=[None, fault], honours_n=False)
    told = found(server, {"policy": "fixed-4"})
    assert (told["failures"], told["votes"]) == (1, {"7": 3})
    assert told["warnings"] == ["1 of 4 samples failed"]


def test_many_samples_over_few_connections_all_arrive() -> None:
    server = FakeUpstream(boxed, honours_n=False)
    told = found(server, {"policy": "fixed-128"}, serving={"concurrency": 4})
    assert told["samples"] == 128
    assert server.most_active <= 4


# --- the gate, the guard, escalation --------------------------------------------------------------


def test_evidence_outside_the_training_range_continues_and_is_counted() -> None:
    async def act(house: House) -> Any:
        _, _, told = await house.post({**BODY, "aera": {"max_samples": 16}})
        return told["aera"], await house.metrics()

    told, metrics = visit(act, controller=gated(strange=True))
    assert (told["samples"], told["reason"], told["escalate"]) == (16, OUTSIDE, True)
    assert OUTSIDE in told["warnings"]
    assert metrics["aera_guarded_total",] == 1


def test_an_undecided_vote_goes_to_the_second_upstream() -> None:
    second = numbers("99")
    options = {"aera": {"max_samples": 8}}
    reply = asked(
        numbers(*SPLIT), serving={"second": (second, "large")}, extra_body=options, temperature=0.4
    )
    told = account(reply)
    assert reply.choices[0].message.content == "so \\boxed{99}"
    assert (told["escalate"], told["escalated"], told["answer"]) == (True, True, "99")
    assert reply.usage.completion_tokens == 9 * 3
    [call] = second.calls
    assert (call.body["model"], call.body["temperature"], call.n) == ("large", 0.4, 1)


def test_a_decided_vote_stays() -> None:
    second = numbers("99")
    told = found(serving={"second": (second, "large")})
    assert (told["escalate"], told["escalated"], second.calls) == (False, False, [])


@pytest.mark.parametrize("fault", [Fault.status(401, "no"), Fault.status(500, "no")])
def test_a_failing_escalation_falls_back_with_a_warning(fault: Fault) -> None:
    serving = {"second": (FakeUpstream(boxed, faults=[fault] * 9), "large")}
    told = found(numbers(*SPLIT), {"max_samples": 4}, serving=serving)
    assert (told["escalate"], told["escalated"]) == (True, False)
    assert any(warning.startswith("escalation failed") for warning in told["warnings"])


# --- the instruction, weights ---------------------------------------------------------------------


def test_the_instruction_goes_behind_the_last_user_message_of_any_form() -> None:
    parts = [{"type": "text", "text": "?"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "hm"}]
    changed = add_instruction({"messages": messages}, get_task("numeric"))["messages"]
    assert changed[0]["content"][0] == parts[0]
    assert "boxed" in changed[0]["content"][1]["text"]
    assert messages[0]["content"] == parts
    assert changed[1] == messages[1]


def test_samples_without_what_the_weights_need_are_warned_of() -> None:
    told = found(numbers("1"), {"policy": "weighted-4"}, serving={"controller": gated()})
    said = "4 samples came without logprobs and were weighed by their text alone"
    assert told["warnings"] == [said]


@pytest.mark.parametrize("policy", ["cisc-4", "asc-0.95+weighted"])
def test_a_gateway_with_weights_of_traces_asks_for_them(policy: str) -> None:
    controller = replace(default_controller(get_task("gsm8k")), weigher=TraceWeights())
    server = numbers("1")
    told = found(server, {"policy": policy}, serving={"controller": controller})
    assert {call.body["top_logprobs"] for call in server.calls} == {20}
    assert told["policy"].startswith(policy.partition("+")[0])
    assert told["warnings"] == ["4 samples came without traces and weigh as a usual one"]
