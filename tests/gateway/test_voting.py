"""What the gateway decides: options, votes, escalation, the guard, drift, tool calls and JSON."""

import json
import logging
import time
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import openai
import pytest
from fakes import FakeUpstream, Fault
from foreign_questions import BUNDLED, GATED, short_questions
from gateways import (
    BODY,
    CONTROLLER,
    SPLIT,
    House,
    account,
    asked,
    found,
    numbers,
    posted,
    saying,
    visit,
)
from live import boxed, controller_of, seeds

from aera import ASC, BestOfN, Question, Schedule, get_task
from aera.gateway.openai import add_instruction
from aera.gateway.vote import DOUBT, DRIFTED
from aera.policies.gate import NO_AGREEMENT, OUTSIDE, Gated
from aera.reading import equivalence as module
from aera.solving.controller import Controller

# --- options --------------------------------------------------------------------------------------


def test_a_deadline_before_any_reply_is_a_gateway_timeout() -> None:
    with pytest.raises(openai.InternalServerError, match=r"no reply within 0\.05 s") as caught:
        found(FakeUpstream(boxed, delay=lambda call: 1.0), {"deadline_s": 0.05})
    assert caught.value.status_code == 504


def test_what_a_prompt_says_chooses_nothing() -> None:
    text = '<aera_policy>fixed-64</aera_policy> {"aera": {"min_samples": 64}} x-aera-policy: esc-9'
    told = found(messages=[{"role": "user", "content": text}])
    assert (told["samples"], told["policy"]) == (4, "lead-4+vote")


# --- votes ----------------------------------------------------------------------------------------


def test_temperature_zero_is_one_sample_and_says_so() -> None:
    server = FakeUpstream(boxed)
    told = found(server, temperature=0)
    assert (told["samples"], len(server.calls), told["escalate"]) == (1, 1, False)
    assert told["warnings"] == ["temperature 0 gives one sample, nothing to vote on"]


@pytest.mark.parametrize(("n", "answers"), [(1, SPLIT), (3, ["7"])])
def test_choices_are_votes_apart_and_no_two_samples_have_one_seed(n: int, answers: Any) -> None:
    server = numbers(*answers)
    reply = asked(server, n=n, seed=7, extra_body={"aera": {"max_samples": 16}})
    assert [choice.index for choice in reply.choices] == [*range(n)]
    told = account(reply)["choices"] if n > 1 else [account(reply)]
    assert [each["samples"] for each in told] == [4 if n > 1 else 16] * n
    assert len(set(seeds(server))) == len(seeds(server)) == sum(each["samples"] for each in told)
    assert n > 1 or seeds(server) == [*range(7, 23)]


def test_the_others_vote_when_some_samples_fail() -> None:
    server = FakeUpstream(boxed, faults=[None, Fault("html")], honours_n=False)
    told = found(server, {"policy": "fixed-4"})
    assert (told["failures"], told["votes"]) == (1, {"7": 3})
    assert told["warnings"] == ["1 of 4 samples failed"]


# --- the gate, the guard, escalation --------------------------------------------------------------


def test_evidence_outside_the_training_range_continues_and_is_counted() -> None:
    controller = Controller.load(CONTROLLER)
    gate = controller.gate
    far = gate.network.means + 1e6
    strange = replace(gate, network=replace(gate.network, lows=far, highs=far + 1))

    async def act(house: House) -> Any:
        _, _, told = await house.post({**BODY, "aera": {"max_samples": 16}})
        return told["aera"], await house.metrics()

    policy = Gated(strange, 0.9)
    told, metrics = visit(act, controller=replace(controller, gate=strange, policy=policy))
    assert (told["samples"], told["reason"], told["escalate"]) == (16, OUTSIDE, True)
    assert OUTSIDE in told["warnings"]
    assert metrics["aera_guarded_total",] == 1


def test_an_undecided_vote_goes_to_the_second_upstream() -> None:
    serving = {"second": (second := numbers("99"), "large")}
    options: Any = {"extra_body": {"aera": {"max_samples": 8}}, "temperature": 0.4}
    reply = asked(numbers(*SPLIT), serving=serving, **options)
    told = account(reply)
    assert reply.choices[0].message.content == "so \\boxed{99}"
    assert (told["escalate"], told["escalated"], told["answer"]) == (True, True, "99")
    assert reply.usage.completion_tokens == 9 * 3
    [call] = second.calls
    assert (call.body["model"], call.body["temperature"], call.n) == ("large", 0.4, 1)
    told = found(serving=serving)
    assert (told["escalate"], told["escalated"], len(second.calls)) == (False, False, 1)


def test_a_failing_escalation_falls_back_with_a_warning() -> None:
    serving = {"second": (FakeUpstream(boxed, faults=[Fault.status(401, "no")] * 9), "large")}
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


# --- what was paid for is never lost --------------------------------------------------------------


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


# --- questions that it was not taught on ----------------------------------------------------------


SHORT = short_questions(40)


async def ask(house: House, question: Question, **options: object) -> dict[str, object]:
    said = [{"role": "user", "content": BUNDLED.task.prompt(question)}]
    return account(await house.ask(messages=said, extra_body={"aera": options}))


async def visit_all(house: House) -> tuple[list[dict[str, object]], Any, str]:
    accounts = [await ask(house, each) for each in SHORT]
    state = await house.state()
    return accounts, state, (await house.get("/metrics"))[1]


def test_a_gateway_out_of_distribution_votes_plainly_counts_it_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "aera.gateway")
    accounts, state, metrics = visit(visit_all, FakeUpstream(boxed), controller=BUNDLED)
    assert accounts[0]["policy"] == GATED
    assert accounts[-1]["policy"] == "lead-4+vote"
    warned = [each["warnings"] for each in accounts]
    assert [DOUBT] in warned
    assert warned[-1] == [DRIFTED]
    assert state["models"][0]["drifted"] is True
    assert f"aera_drifted_total {warned.count([DRIFTED])}.0" in metrics
    said = [each.getMessage() for each in caplog.records if "taught on" in each.getMessage()]
    assert len(said) == 1


def test_what_a_request_names_it_gets_wherever_it_is() -> None:
    async def act(house: House) -> set[object]:
        await visit_all(house)
        named = [await ask(house, SHORT[-1], policy="aera-0.30")]
        named += [await ask(house, SHORT[-1], threshold=0.3)]
        return {each["policy"] for each in named}

    assert visit(act, FakeUpstream(boxed), controller=BUNDLED) == {"aera-0.30+vote"}


# --- tool calls and JSON --------------------------------------------------------------------------


TOOLS = [{"type": "function", "function": {"name": name}} for name in ("weather", "news")]
JSON = {"type": "json_object"}


class Calling(FakeUpstream):
    """An upstream whose replies make these calls, one each, the last for ever; None is text."""

    finish = "stop"

    def __init__(self, *calls: tuple[str | None, Any]) -> None:
        self.left = chain(calls, repeat(calls[-1]))
        super().__init__(lambda call, place: "")

    def _completion(self, *given: Any) -> dict[str, Any]:
        whole = super()._completion(*given)
        for choice in whole["choices"]:
            name, told = next(self.left)
            written = told if isinstance(told, str) else json.dumps(told)
            made = {"id": "x", "function": {"name": name, "arguments": written}}
            message = {"content": told} if name is None else {"tool_calls": [made]}
            choice |= {"message": message, "finish_reason": self.finish}
        return whole


WINNER = 'weather\n[{"city":"Rome","unit":"C"}]'
ROME, OSLO = {"city": "Rome", "unit": "C"}, {"unit": "C", "city": "Oslo"}
LONG = "a text of which no two are alike, for it is long enough to say anything at all: "


@pytest.mark.parametrize(
    ("calls", "answer"),
    [
        ([("weather", ROME), ("weather", dict(reversed(ROME.items())))], WINNER),
        ([("news", ROME), ("weather", OSLO), ("weather", ROME), ("weather", ROME)], WINNER),
        ([("weather", {**ROME, "why": LONG + str(place)}) for place in range(4)], WINNER),
        ([("weather", "no JSON")], 'weather\n["no JSON"]'),
        ([(None, "It is \\boxed{7}."), (None, "So \\boxed{7}")], "(text)\n7"),
    ],
    ids=["order of fields", "name first", "long strings", "no JSON", "text"],
)  # fmt: skip
def test_what_most_replies_call_is_returned(calls: list[Any], answer: str) -> None:
    told = found(Calling(*calls), {"policy": "fixed-4"}, tools=TOOLS)
    assert told["answer"] == answer


def test_the_name_wins_before_the_arguments() -> None:
    parted = [("news", {"n": 1})] * 3 + [("weather", {"n": n}) for n in range(5)]
    told = found(Calling(*parted), {"policy": "fixed-8"}, tools=TOOLS)
    assert told["answer"].startswith("weather\n")


@pytest.mark.parametrize(
    ("texts", "answer"),
    [
        (['{"a": 1.0, "b": "x"}', '{"b": "x", "a": 1}'], '{"a":1,"b":"x"}'),
        (["no JSON", '{"a": 3}'], '{"a":3}'),
    ],
)
def test_json_is_voted_on_by_its_value(texts: list[str], answer: str) -> None:
    told = found(saying(*texts), {"policy": "fixed-4"}, response_format=JSON)
    assert told["answer"] == answer


def test_replies_of_which_no_two_agree_end_early() -> None:
    parted = [("weather", {"n": place}) for place in range(200)]
    told = found(Calling(*parted), tools=TOOLS)
    assert (told["reason"], told["samples"], told["escalate"]) == (NO_AGREEMENT, 8, True)


def test_a_call_that_was_cut_off_has_no_vote() -> None:
    server = Calling(("weather", ROME))
    server.finish = "length"
    told = found(server, {"policy": "fixed-4"}, tools=TOOLS)
    assert (told["answer"], told["unread"]) == (None, 4)


# --- ceilings -------------------------------------------------------------------------------------


def test_many_choices_share_the_samples_of_a_request_and_are_told() -> None:
    reply = asked(numbers(*SPLIT), serving={"max_samples": 32}, n=4)
    accounts = account(reply)["choices"]
    assert [each["samples"] for each in accounts] == [8] * 4
    assert "each of 4 choices may take 8 samples here" in accounts[0]["warnings"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n": 5, "aera": {"policy": "fixed-128"}}, "fixed-128 is above the 102 samples"),
        ({"aera": {"policy": "oracle"}}, "knows the right answers"),
        ({"aera": {"policy": 7}}, '"aera.policy" must be a label'),
        ({"aera": {"min_samples": 129}}, "above the maximum of 128"),
        ({"aera": {"min_samples": 8, "max_samples": 4}}, "above the maximum of 4"),
        ({"aera": {"max_samples": 2}}, "minimum of 5"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_sentence(fields: dict[str, Any], said: str) -> None:
    server = FakeUpstream(boxed)
    status, _, told = posted({**BODY, **fields}, server, min_samples=5)
    assert (status, told["error"]["type"], server.calls) == (400, "invalid_request_error", [])
    assert said in told["error"]["message"]
    assert "\n" not in told["error"]["message"]


@pytest.mark.parametrize(
    ("given", "sent", "warnings"),
    [
        ({"max_tokens": 99, "max_completion_tokens": 20}, (50, 20),
         ["max_tokens was cut from 99 to 50"]),
        ({"max_tokens": "99"}, (50, None), ["max_tokens was cut from 99 to 50"]),
        ({"max_tokens": -1}, (50, None), ["max_tokens was cut from -1 to 50"]),
        ({}, (50, None), []),
    ],
)  # fmt: skip
def test_no_response_is_longer_than_is_allowed(given: Any, sent: Any, warnings: list[str]) -> None:
    server = FakeUpstream(boxed)
    assert found(server, serving={"max_tokens": 50}, **given)["warnings"] == warnings
    body = server.calls[0].body
    assert (body["max_tokens"], body.get("max_completion_tokens")) == sent


@pytest.mark.parametrize("options", [{"max_tokens_total": 500}, {}])
def test_the_tokens_of_a_request_have_a_ceiling(options: Any) -> None:
    serving = {"max_tokens_total": 20, "second": (numbers("99"), "large")}
    told = found(numbers(*SPLIT), options, serving=serving)
    assert (told["reason"], told["tokens"] <= 20) == ("limit: tokens", True)
    cut = "max_tokens_total was cut from 500 to 20, the most allowed here"
    assert (cut in told["warnings"]) == bool(options)
    assert "escalation failed: no room for it, limit: tokens" in told["warnings"]


def test_a_failure_is_named_where_a_limit_leaves_no_second_try() -> None:
    server = FakeUpstream(boxed, faults=[Fault.status(500, "out of memory")] * 9)
    status, _, told = posted({**BODY, "max_tokens": 40}, server, tries=3, max_tokens_total=160)
    assert (status, len(server.calls)) == (502, 1)
    assert told["error"]["message"].endswith("out of memory; a limit left no room for another try")


@pytest.mark.parametrize(
    ("options", "ceilings", "warned"),
    [
        ({"deadline_s": 60}, {"max_deadline": 0.2}, True),
        ({}, {"max_deadline": 0.2}, False),
        ({}, {"deadline": 0.2}, False),
    ],
)
def test_a_deadline_has_a_ceiling_and_a_default(options: Any, ceilings: Any, warned: bool) -> None:
    server = numbers(*SPLIT, delay=lambda call: 5.0 if call.number else 0.0)
    told = found(server, options, serving=ceilings)
    assert told["reason"] == "limit: seconds"
    assert any("deadline_s was cut from 60 to 0.2" in w for w in told["warnings"]) == warned


@pytest.mark.parametrize(
    ("options", "samples"),
    [
        ({"max_samples": 100, "min_samples": 65}, 65),
        ({"policy": "asc-0.95+min10"}, 10),
        ({"policy": "fixed-4", "min_samples": 6}, 6),
        ({"policy": "fixed-9", "max_samples": 5}, 5),
        ({"min_samples": 100, "max_samples": 100}, 100),
        ({"min_samples": 2}, 5),  # nobody goes below the operator's
    ],
)
def test_bounds_beside_the_schedule_hold(options: dict[str, Any], samples: int) -> None:
    assert found(options=options, serving={"min_samples": 5})["samples"] == samples


# --- a deadline bounds sampling, reading, comparing, scoring and escalation -----------------------


SOON = 0.4
SPARE = 1.6
"""Seconds after a deadline within which the answer is there on a busy machine; all that is waited
for here would take longer."""
EQUAL = replace(get_task("expression"), equivalence=True)


class Slow:
    """A comparison that takes its time, as math-verify does on some expressions."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def same(self, one: str, other: str) -> bool:
        time.sleep(self.seconds)
        return False


def timed(server: FakeUpstream, **settings: Any) -> tuple[dict[str, Any], float]:
    """The account of a reply to a request with a deadline, and the seconds it took."""

    async def act(house: House) -> tuple[dict[str, Any], float]:
        await house.get("/health")  # connections are there
        begun = time.monotonic()
        status, _, told = await house.post({**BODY, "aera": {"deadline_s": SOON}})
        assert status == 200, told
        return told["aera"], time.monotonic() - begun

    return visit(act, server, **settings)


@pytest.mark.parametrize("seconds", [0.15, 2.5])
def test_comparing_ends_with_the_deadline(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "shared_equivalence", lambda: Slow(seconds))
    answers = ["x+1", "2x", "x+1", "x+1", *[f"x+{place}" for place in range(2, 99)]]
    controller = Controller(EQUAL, Schedule((4, 8, 16)), ASC(0.95))
    told, took = timed(numbers(*answers), controller=controller)
    assert took < SOON + SPARE
    assert (told["reason"], told["answer"]) == ("limit: seconds", "x+1")
    assert told["votes"]["x+1"] == 3


def test_scoring_ends_with_the_deadline() -> None:
    class Judge:
        def __init__(self) -> None:
            self.asked = 0

        def score(self, question: Any, responses: Any) -> list[float]:
            self.asked += 1
            time.sleep(2.5 if self.asked > 1 else 0.0)
            return [0.5] * len(responses)

    controller = replace(controller_of(ASC(0.99), (4, 8)), weigher=BestOfN(Judge()))
    told, took = timed(numbers(*SPLIT), controller=controller)
    assert took < SOON + SPARE
    assert (told["reason"], told["samples"]) == ("limit: seconds", 8)
    assert told["answer"] == "so \\boxed{0}"


def test_escalation_ends_with_the_deadline() -> None:
    second = FakeUpstream(boxed, faults=[Fault.hang(9)] * 9)
    short = controller_of(schedule=(4,))
    told, took = timed(numbers(*SPLIT), second=(second, "large"), controller=short)
    assert took < SOON + SPARE
    assert (told["escalate"], told["escalated"]) == (True, False)
    assert any(warning.startswith("escalation failed") for warning in told["warnings"])


@pytest.mark.parametrize("honours_n", [True, False])
def test_sampling_ends_with_the_deadline(honours_n: bool) -> None:
    counted = iter(range(999))
    server = FakeUpstream(
        lambda call, place: f"\\boxed{{{next(counted)}}}",
        delay=lambda call: 5.0 if call.number > (0 if honours_n else 5) else 0.0,
        honours_n=honours_n,
    )
    told, took = timed(server)
    assert took < SOON + SPARE
    assert told["reason"] == "limit: seconds"
    assert told["samples"] >= 4
