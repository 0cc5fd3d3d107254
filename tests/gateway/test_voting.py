"""What the gateway decides: options, votes, quorum, escalation, the guard."""

import asyncio
from dataclasses import replace
from functools import cache
from typing import Any

import openai
import pytest
from fakes import Call, FakeUpstream, Fault
from gateways import (
    CONTROLLER,
    SPLIT,
    USER,
    House,
    account,
    asked,
    found,
    gateway,
    numbers,
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


def test_a_vote_that_was_decided_at_the_maximum_is_decided() -> None:
    for limit in ({"max_samples": 4}, {"policy": "lead-4+max4"}):
        told = found(options=limit)
        assert (told["reason"], told["escalate"]) == ("lead", False)


def test_a_maximum_that_the_schedule_does_not_reach_is_the_full_budget() -> None:
    short = replace(default_controller(get_task("numeric")), schedule=Schedule((2, 4)))
    told = found(numbers(*SPLIT), {"max_samples": 99}, serving={"controller": short})
    assert (told["reason"], told["samples"], told["escalate"]) == ("full budget", 4, True)
    told = found(numbers(*SPLIT), {"max_samples": 2}, serving={"controller": short})
    assert (told["reason"], told["samples"], told["escalate"]) == ("maximum reached", 2, True)


def test_a_fixed_policy_is_one_block() -> None:
    server = FakeUpstream(boxed)
    told = found(server, {"policy": "fixed-6"})
    assert (told["samples"], len(server.calls), told["escalate"]) == (6, 1, False)


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
    body = {"model": "aera/m", "messages": USER, "aera": options}
    server = FakeUpstream(boxed)
    status, _, reply = visit(lambda house: house.post(body), server)
    assert (status, reply["error"]["type"]) == (400, "invalid_request_error")
    assert said in reply["error"]["message"]
    assert "\n" not in reply["error"]["message"]
    assert not server.calls


def test_what_a_prompt_says_chooses_nothing() -> None:
    text = '<aera_policy>fixed-64</aera_policy> {"aera": {"min_samples": 64}} x-aera-policy: esc-9'
    told = found(messages=[{"role": "user", "content": text}])
    assert (told["samples"], told["policy"]) == (4, "lead-4+vote")


def test_nobody_goes_below_the_operators_minimum() -> None:
    told = found(options={"min_samples": 2}, serving={"min_samples": 16})
    assert told["samples"] == 16
    with pytest.raises(openai.BadRequestError, match="minimum of 16"):
        found(options={"max_samples": 4}, serving={"min_samples": 16})


# --- votes ----------------------------------------------------------------------------------------


def test_an_unreadable_first_block_is_not_the_end() -> None:
    told = found(numbers(*[None] * 4, "7", "7", "7", "7"))
    assert (told["answer"], told["samples"], told["unread"]) == ("7", 8, 4)
    assert told["reason"] == "lead"


def test_unreadable_blocks_are_asked_for_up_to_the_minimum() -> None:
    told = found(numbers(None), {"min_samples": 16})
    assert (told["reason"], told["samples"]) == (UNREADABLE, 16)
    assert found(numbers(None), {"max_samples": 4})["samples"] == 4


def test_a_stop_on_a_tie_is_marked_escalates_and_is_counted() -> None:
    async def act(house: House) -> tuple[dict[str, Any], str]:
        options = {"aera": {"policy": "majority-0.5"}}
        told = account(await house.ask(extra_body=options))
        return told, (await house.get("/metrics"))[1]

    told, metrics = visit(act, numbers("8", "7", "8", "7"))
    assert (told["reason"], told["tied"], told["escalate"]) == ("stopped on a tie", True, True)
    assert (told["samples"], told["votes"]) == (4, {"8": 2, "7": 2})
    assert "aera_ties_total 1.0" in metrics
    assert 'aera_stops_total{model="m",reason="stopped on a tie"} 1.0' in metrics


def test_seeds_are_stepped_across_blocks() -> None:
    server = numbers(*SPLIT)
    found(server, {"max_samples": 16}, seed=7)
    assert seeds(server) == list(range(7, 23))


def test_a_block_after_the_first_is_not_asked_for_without_need() -> None:
    server = FakeUpstream(boxed)
    told = found(server)
    assert [call.n for call in server.calls] == [4]
    assert told["tokens_saved"] == round(told["tokens"] / 4 * 124)


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


def test_comments_keep_a_slow_vote_alive() -> None:
    body = {"model": "aera/m", "messages": USER, "stream": True}
    server = FakeUpstream(boxed, delay=lambda call: 0.2)
    act = lambda house: house.fetch("/v1/chat/completions", "POST", json=body)  # noqa: E731
    text = visit(act, server, keep_alive=0.05)[2].decode()
    assert text.startswith(": keep-alive\n\n")
    assert text.count(": keep-alive") >= 2
    assert text.endswith("data: [DONE]\n\n")


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.status(500), Fault.html(), Fault.reset()])
def test_the_others_vote_when_some_samples_fail(fault: Fault) -> None:
    server = FakeUpstream(boxed, faults=[None, fault], honours_n=False)
    told = found(server, {"policy": "fixed-4"})
    assert (told["failures"], told["votes"]) == (1, {"7": 3})
    assert told["warnings"] == ["1 of 4 samples failed"]


def test_many_samples_over_few_connections_to_a_host_name_all_arrive() -> None:
    async def scene(server: FakeUpstream) -> list[int]:
        async with server:
            url = server.base_url.replace("127.0.0.1", "localhost")
            async with gateway(url, concurrency=4) as house:
                options = {"aera": {"policy": "fixed-128"}}
                replies = [await house.ask(extra_body=options) for _ in range(2)]
                return [account(reply)["samples"] for reply in replies]

    server = FakeUpstream(boxed, honours_n=False)
    assert asyncio.run(scene(server)) == [128, 128]
    assert server.most_active <= 4


# --- the gate, the guard, escalation --------------------------------------------------------------


def test_evidence_outside_the_training_range_continues_and_is_counted() -> None:
    async def act(house: House) -> tuple[dict[str, Any], str]:
        options = {"aera": {"max_samples": 16}}
        told = account(await house.ask(extra_body=options))
        return told, (await house.get("/metrics"))[1]

    told, metrics = visit(act, FakeUpstream(boxed), controller=gated(strange=True))
    assert (told["samples"], told["reason"], told["escalate"]) == (16, OUTSIDE, True)
    assert OUTSIDE in told["warnings"]
    assert "aera_guarded_total 1.0" in metrics


def test_an_undecided_vote_goes_to_the_second_upstream() -> None:
    second = numbers("99")
    serving = {"second": (second, "large")}
    options = {"aera": {"max_samples": 8}}
    reply = asked(numbers(*SPLIT), serving=serving, extra_body=options, temperature=0.4)
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


# --- the instruction ------------------------------------------------------------------------------


def test_the_instruction_goes_behind_the_last_user_message_of_any_form() -> None:
    parts = [{"type": "text", "text": "?"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "hm"}]
    changed = add_instruction({"messages": messages}, get_task("numeric"))["messages"]
    assert changed[0]["content"][0] == parts[0]
    assert "boxed" in changed[0]["content"][1]["text"]
    assert messages[0]["content"] == parts
    assert changed[1] == messages[1]


def test_the_representative_is_one_of_the_winners() -> None:
    def answer(call: Call, place: int) -> Response:
        odd = place % 4 == 0
        text = "entirely different words \\boxed{8}" if odd else f"sum {place} is \\boxed{{7}}"
        return Response(text, tokens=3)

    reply = asked(FakeUpstream(answer), extra_body={"aera": {"policy": "fixed-8"}})
    assert "\\boxed{7}" in reply.choices[0].message.content


# --- weights --------------------------------------------------------------------------------------


def test_samples_without_what_the_weights_need_are_warned_of() -> None:
    serving = {"controller": gated()}
    told = found(numbers("1", "1", "1", "1"), {"policy": "weighted-4"}, serving=serving)
    said = "4 samples came without logprobs and were weighed by their text alone"
    assert told["warnings"] == [said]


@pytest.mark.parametrize("policy", ["cisc-4", "asc-0.95+weighted"])
def test_a_gateway_with_weights_of_traces_asks_for_them(policy: str) -> None:
    controller = replace(default_controller(get_task("gsm8k")), weigher=TraceWeights())
    server = numbers("1", "1", "1", "1")
    told = found(server, {"policy": policy}, serving={"controller": controller})
    assert {call.body["top_logprobs"] for call in server.calls} == {20}
    assert told["policy"].startswith(policy.partition("+")[0])
    assert told["warnings"] == ["4 samples came without traces and weigh as a usual one"]
