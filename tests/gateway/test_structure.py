"""Votes on structure: names first, then fields; what cannot be agreed on is left out."""

import json
import random
from typing import Any

import pytest
from aera.reading.chat import ChatReader, tool_calls
from aera.reading.schema import Schema, Schemas
from fakes import Call
from gateways import CONTROLLER, Scripted, account, asked, found, saying, visit
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from aera import Controller, Prefix, Question, Response, Schedule, get_task
from aera.policies.gate import LITTLE_AGREEMENT, NO_AGREEMENT
from aera.tally import Vote
from aera.voting.structure import StructureOutcome, settle, structure_vote, views

LONG = "a sentence that nobody else would have put in quite the same words, number {}"
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
Said = str | list[tuple[str, Any]]
"""A text, or functions with their arguments."""


def message_of(said: Said, mark: object = 0) -> dict[str, Any]:
    if isinstance(said, str):
        return {"content": said}
    calls = [
        {
            "id": f"call-{mark}-{place}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for place, (name, arguments) in enumerate(said)
    ]
    return {"content": None, "tool_calls": calls}


def replying(*replies: Said) -> Scripted:
    """An upstream whose samples reply so, the last for ever; no two ids are the same."""
    left, seen = list(replies), iter(range(9_999))

    def message(call: Call, place: int) -> dict[str, Any]:
        return message_of(left.pop(0) if len(left) > 1 else left[0], next(seen))

    return Scripted(message, finish="tool_calls")


def settled(
    *replies: Said, schemas: Schemas | None = None, wants_json: bool = False
) -> StructureOutcome:
    reader = ChatReader(
        get_task("numeric"), wants_json, schemas or Schemas(tools={"f": Schema(), "g": Schema()})
    )
    return settle([reader.read(response_of(said, place)) for place, said in enumerate(replies)])


def response_of(said: Said, mark: object = 0) -> Response:
    text = said if isinstance(said, str) else ""
    return Response(text, source={"message": message_of(said, mark)})


# --- names ----------------------------------------------------------------------------------------


def test_four_callers_with_their_own_words_beat_three_that_said_five() -> None:
    callers = [[("f", {"note": LONG.format(n), "n": 1})] for n in range(4)]
    server = replying("\\boxed{5}", callers[0], "\\boxed{5}", *callers[1:], "\\boxed{5}")
    reply = asked(server, tools=TOOLS, extra_body={"aera": {"policy": "fixed-7"}})
    [call] = reply.choices[0].message.tool_calls
    told = account(reply)
    assert (call.function.name, told["answer"]) == ("f", '[{"arguments":{"n":1},"name":"f"}]')
    assert told["votes"] == {'[{"arguments":{"n":1},"name":"f"}]': 4, "5": 3}
    assert told["structure"] == {
        "names": {"f": 4, "(text)": 3},
        "other_names": 0,
        "fields": {"f.n": {"value": "1", "share": 1.0}},
        "other_fields": 0,
        "left_out": ["f.note"],
        "other_left_out": 0,
    }
    assert not told["tied"]


def test_a_name_wins_though_its_callers_are_not_of_one_mind() -> None:
    found = settled(*["\\boxed{5}"] * 3, *([("f", {"n": n})] for n in (1, 1, 2, 3)))
    assert (found.name, found.answer) == ("f", '[{"arguments":{"n":1},"name":"f"}]')


def test_the_order_of_the_functions_is_part_of_the_name() -> None:
    found = settled([("f", {}), ("g", {})], [("g", {}), ("f", {})], [("f", {}), ("g", {})])
    assert dict(found.names.weights) == {"f, g": 2, "g, f": 1}


def test_arguments_of_the_same_function_called_twice_are_told_apart() -> None:
    found = settled(*[[("f", {"n": 1}), ("f", {"n": 2})]] * 2)
    assert [found.structure.show(path) for path in found.fields] == ["f[0].n", "f[1].n"]


def test_text_that_cannot_be_read_still_says_that_no_tool_is_called() -> None:
    server = replying(*["Which city?"] * 5, [("f", {"n": 1})], "Which one?")
    reply = asked(server, tools=TOOLS)
    told = account(reply)
    assert reply.choices[0].message.tool_calls is None
    assert (told["answer"], told["structure"]["names"]) == (None, {"(text)": 7, "f": 1})
    told = found(replying([("f", {})], *["Which?"] * 9), {"policy": "fixed-4"}, tools=TOOLS)
    assert told["structure"]["names"] == {"f": 1, "(text)": 3}
    assert told["warnings"] == ["the replies call no tool, and nothing could be read in them"]


# --- fields ---------------------------------------------------------------------------------------


def test_fields_are_voted_on_one_by_one_and_a_real_reply_is_returned() -> None:
    rows = [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 1, "b": 1}]
    found = settled(*([("f", row)] for row in rows))
    assert found.best == (0, 3)
    assert (found.matched, found.tied) == (2, False)


def test_winners_that_nobody_gave_together_are_not_stitched() -> None:
    rows = [(1, 1, 9), (1, 9, 1), (9, 1, 1), (9, 1, 1), (1, 9, 1), (1, 1, 9), (9, 1, 1)]
    replies = [json.dumps(dict(zip("abc", row, strict=True))) for row in rows]
    reply = asked(
        saying(*replies),
        response_format={"type": "json_object"},
        extra_body={"aera": {"policy": "fixed-7"}},
    )
    told = account(reply)
    assert {name: field["value"] for name, field in told["structure"]["fields"].items()} == {
        "a": "1", "b": "1", "c": "1"
    }  # fmt: skip
    assert json.loads(reply.choices[0].message.content) == {"a": 9, "b": 1, "c": 1}
    assert told["warnings"] == [
        "no reply has all that won; the one that is returned has 2 of 3 fields"
    ]


def test_the_same_words_given_twice_are_preferred_among_free_text() -> None:
    found = settled(*([("f", {"q": LONG.format(n)})] for n in (1, 2, 3, 2)))
    assert (found.best, found.fields) == ((1, 3), {})


def test_a_field_that_is_absent_is_voted_on_too() -> None:
    found = settled([("f", {"n": 1, "x": 2})], *[[("f", {"n": 1})]] * 3)
    assert found.answer == '[{"arguments":{"n":1},"name":"f"}]'


def test_lists_of_objects_are_taken_apart_and_lists_of_values_are_not() -> None:
    found = settled('{"tags": ["a", "b"], "rows": [{"k": 1}, {"k": 2}]}', wants_json=True)
    assert [".".join(path) for path in found.fields] == ["tags", "rows.0.k", "rows.1.k"]


def test_the_schema_says_which_strings_are_of_a_set() -> None:
    kinds = {"$defs": {"Kind": {"enum": ["x" * 80, "y" * 80]}}}
    properties = {"kind": {"anyOf": [{"$ref": "#/$defs/Kind"}, {"type": "null"}]}, "why": {}}
    schemas = Schemas(Schema.of({**kinds, "properties": properties}))
    rows = [{"kind": kind * 80, "why": why * 80} for kind, why in ("xa", "xb", "yc")]
    found = settled(*map(json.dumps, rows), wants_json=True, schemas=schemas)
    assert (list(found.fields), found.left_out) == ([("kind",)], (("why",),))


def test_huge_and_deep_values_are_voted_on_as_a_whole() -> None:
    wide = json.dumps({str(n): n for n in range(500)})
    deep: Any = 1
    for _ in range(50):
        deep = {"in": deep}
    assert list(settled(wide, wants_json=True).fields) == [()]
    assert [len(path) for path in settled(json.dumps(deep), wants_json=True).fields] == [8]
    assert settled("[" * 500 + "]" * 500, wants_json=True).answer is not None


def test_a_schema_that_refers_to_itself_is_followed_once() -> None:
    root: dict[str, Any] = {"anyOf": [{"$ref": "#"}, {"$ref": "#/none"}, {"$ref": "x"}] * 300}
    root["properties"] = {"in": {"$ref": "#"}, "word": {"enum": ["a"]}}
    schema = Schema.of(root)
    for _ in range(50):
        schema = schema.at("in")
    assert (schema.closed, schema.at("word").closed, schema.at("x").closed) == (False, True, False)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["anyOf", "$ref", "properties", "items", "a", "maxLength"]), inner
        )
    ),
    max_leaves=12,
)


@given(junk, st.lists(junk, max_size=6))
def test_no_schema_and_no_value_makes_it_fail(schema: Any, values: list[Any]) -> None:
    body = {
        "tools": [{"function": {"name": "f", "parameters": schema}}, schema],
        "functions": schema,
    }
    wanted = {"response_format": {"json_schema": {"schema": schema}}}
    schemas = Schemas.of({**body, **wanted})
    found = settled(*map(json.dumps, values), wants_json=True, schemas=schemas)
    assert len(found.answers) == len(values)
    found = settled(*([("f", value)] for value in values), schemas=schemas)
    assert len(found.best) <= len(values)


# --- when it stops --------------------------------------------------------------------------------


def test_free_text_beside_a_value_does_not_keep_the_vote_going() -> None:
    notes = [[("f", {"note": LONG.format(n), "n": 1})] for n in range(99)]
    told = found(replying(*notes), tools=TOOLS)
    assert (told["samples"], told["reason"], told["escalate"]) == (4, "confident leader", False)


def test_words_that_never_agree_are_left_out_after_the_first_block() -> None:
    words = [[("f", {"word": f"word {n}", "n": 1 + n % 4 // 3})] for n in range(99)]
    told = found(replying(*words), tools=TOOLS)
    assert told["structure"]["left_out"] == ["f.word"]
    assert (told["samples"] > 4, told["reason"]) == (True, "confident leader")


def test_numbers_that_never_agree_end_the_vote() -> None:
    told = found(replying(*([("f", {"n": n})] for n in range(99))), tools=TOOLS)
    assert (told["samples"], told["reason"], told["escalate"]) == (8, NO_AGREEMENT, True)


def test_numbers_of_which_hardly_any_agree_do_not_run_to_the_end() -> None:
    numbers = [n // 2 if n < 6 else n for n in range(200)]
    told = found(replying(*([("f", {"n": n})] for n in numbers)), tools=TOOLS)
    assert (told["samples"], told["reason"], told["escalate"]) == (16, LITTLE_AGREEMENT, True)


def test_undecided_names_keep_the_vote_going() -> None:
    texts, calls = ["\\boxed{5}"] * 50, [[("f", {"n": n})] for n in range(50)]
    mixed: list[Said] = [each for pair in zip(texts, calls, strict=True) for each in pair]
    told = found(replying(*mixed), {"max_samples": 16}, tools=TOOLS)
    assert (told["samples"], told["escalate"]) == (16, True)


def test_the_policy_is_asked_about_the_field_with_the_least_agreement() -> None:
    rows: list[Said] = [[("f", {"a": 1, "b": n})] for n in (1, 1, 2)]
    reader = ChatReader(get_task("numeric"))
    responses = [response_of(row) for row in rows]
    prefix = Prefix(Question("", ""), Schedule((2, 3))).extend(
        responses[:2], [reader.read(each) for each in responses[:2]]
    )
    prefix = prefix.extend(responses[2:], [reader.read(responses[2])])
    [view] = views(prefix)
    assert [vote.answer for vote in view.votes] == ["1", "1", "2"]
    assert len(view.previous or ()) == 2
    assert structure_vote(prefix).support == 2


def test_a_gate_decides_on_structures_too() -> None:
    calls = [[("f", {"note": LONG.format(n), "n": 1})] for n in range(200)]
    controller = Controller.load(CONTROLLER)
    told = found(replying(*calls), tools=TOOLS, serving={"controller": controller})
    assert all(0 <= chance <= 1 for chance in told["p_continue"])
    assert (told["answer"], told["tied"]) == ('[{"arguments":{"n":1},"name":"f"}]', False)
    assert told["votes"] == {told["answer"]: told["samples"]}


# --- the account is bounded -----------------------------------------------------------------------


def test_the_account_of_large_structures_stays_small() -> None:
    def row(n: int) -> str:
        many = {f"field {place} {'x' * 300}": n for place in range(60)}
        return json.dumps({**many, **{f"text {place}": f"{n} " * 5_000 for place in range(60)}})

    told = found(saying(*map(row, range(99))), response_format={"type": "json_object"})
    size = len(json.dumps({**told, "answer": None}))
    assert (len(told["structure"]["fields"]), told["structure"]["other_fields"]) == (20, 40)
    assert (len(told["structure"]["left_out"]), told["structure"]["other_left_out"]) == (20, 40)
    assert size < 20_000


# --- properties -----------------------------------------------------------------------------------

values = st.integers(0, 2) | st.booleans() | st.none() | st.sampled_from(["a", "b", LONG])
arguments = st.dictionaries(st.sampled_from("abc"), values | st.lists(values, max_size=2))
calls = st.lists(st.tuples(st.sampled_from("fg"), arguments), min_size=1, max_size=2)
replies = st.lists(calls | st.sampled_from(["\\boxed{5}", "\\boxed{6}", "none"]), min_size=1)


@given(replies, st.randoms())
def test_the_order_of_the_replies_does_not_matter_without_a_tie(
    said: list[Said], chance: random.Random
) -> None:
    outcome = settled(*said)
    assume(not outcome.tied)
    shuffled = chance.sample(said, len(said))
    again = settled(*shuffled)
    assert (again.name, again.answer, again.tied) == (outcome.name, outcome.answer, False)
    assert sorted(again.left_out) == sorted(outcome.left_out)


@given(replies, st.lists(st.text(), min_size=1))
def test_ids_never_matter(said: list[Said], marks: list[str]) -> None:
    reader = ChatReader(get_task("numeric"), False, Schemas(tools={"f": Schema()}))
    plain = settle([reader.read(response_of(each)) for each in said])
    named = settle([
        reader.read(response_of(each, marks[place % len(marks)])) for place, each in enumerate(said)
    ])  # fmt: skip
    assert (named.answers, named.best, named.tied) == (plain.answers, plain.best, plain.tied)


@given(replies)
def test_what_wins_is_a_reply_that_was_given(said: list[Said]) -> None:
    outcome = settled(*said)
    assert outcome.best
    first = outcome.best[0]
    assert outcome.answers[first] == outcome.answer
    names = [call["name"] for call in tool_calls(response_of(said[first]))]
    assert (", ".join(names) or "(text)") == outcome.name
    assert max(outcome.matches.values()) == outcome.matches[first]


@given(st.lists(st.none() | st.sampled_from(["1", "2"])))
def test_plain_votes_are_texts(answers: list[str | None]) -> None:
    outcome = settle([Vote(answer) for answer in answers])
    assert outcome.answer == settle([Vote(answer) for answer in answers if answer]).answer


# --- the official client --------------------------------------------------------------------------


class Place(BaseModel):
    """What somebody wants to know."""

    city: str
    people: int
    why: str


def test_parsed_replies_are_objects() -> None:
    rows = [Place(city="Rome", people=3 - (n == 1), why=LONG.format(n)) for n in range(9)]
    server = saying(*(row.model_dump_json() for row in rows))

    async def act(house: Any) -> Any:
        messages = [{"role": "user", "content": "where?"}]
        return await house.client.chat.completions.parse(
            model="aera/m", messages=messages, response_format=Place
        )

    reply = visit(act, server)
    parsed = reply.choices[0].message.parsed
    assert (parsed.city, parsed.people) == ("Rome", 3)
    assert account(reply)["structure"]["left_out"] == ["why"]
    assert server.calls[0].body["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("streams", [False, True])
def test_parallel_calls_and_a_second_turn(streams: bool) -> None:
    def message(call: Call, place: int) -> dict[str, Any]:
        if call.body["messages"][-1]["role"] == "tool":
            return {"content": "so \\boxed{7}"}
        return message_of([("f", {"n": 3}), ("g", {"n": 4})], f"{call.number}-{place}")

    async def ask(house: Any, messages: list[Any]) -> Any:
        fields = {"model": "aera/m", "messages": messages, "tools": TOOLS}
        if not streams:
            return await house.client.chat.completions.create(**fields)
        async with house.client.chat.completions.stream(**fields) as stream:
            return await stream.get_final_completion()

    async def act(house: Any) -> tuple[Any, Any]:
        messages: list[Any] = [{"role": "user", "content": "3 + 4?"}]
        first = (await ask(house, messages)).choices[0].message
        messages.append(first.model_dump(exclude_none=True))
        results = [{"role": "tool", "tool_call_id": c.id, "content": "7"} for c in first.tool_calls]
        return first, (await ask(house, [*messages, *results])).choices[0].message

    first, second = visit(act, Scripted(message))
    assert [call.function.name for call in first.tool_calls] == ["f", "g"]
    assert second.content == "so \\boxed{7}"


# --- hostile replies and requests -----------------------------------------------------------------


def test_a_number_beyond_all_numbers_is_no_json() -> None:
    far = [f'{{"n": 1e999, "why": "{LONG.format(n)}"}}' for n in range(4)]
    near = [json.dumps({"n": 1, "why": LONG.format(n)}) for n in range(4)]
    found = settled(*far, *near, wants_json=True)
    assert (found.answer, found.tally.total) == ('{"n":1}', 4)
    reply = asked(saying(*far), response_format={"type": "json_object"})
    assert account(reply)["unread"] == account(reply)["samples"]


def test_a_place_that_holds_now_an_object_and_now_a_list_can_be_left_out() -> None:
    rows = [
        {"n": 1, "in": inner, "why": LONG.format(n)}
        for n in range(4)
        for inner in ({"x": LONG.format(n)}, [{"y": LONG.format(-n)}])
    ]
    assert settled(*map(json.dumps, rows), wants_json=True).answer is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("", {"n": 1})], "\\boxed{7}"),
        ([("(text)", {"n": 1})], "\\boxed{7}"),
        ([("f, g", {"n": 1})], [("f", {"n": 1}), ("g", {"n": 2})]),
    ],
)
def test_odd_names_of_functions_are_names_of_their_own(one: Said, other: Said) -> None:
    for replies in ((one, other, other), (other, other, one)):
        told = account(asked(replying(*replies, other), tools=TOOLS))["structure"]
        assert len(told["names"]) == 2


def test_replies_with_a_thousand_fields_together_are_voted_on_as_wholes() -> None:
    rows = [json.dumps({f"{n}-{i}": i for i in range(150)}) for n in range(8)]
    found = settled(*rows, rows[3], wants_json=True)
    assert list(found.fields) == [()]
    assert found.tally.leaders.weight == 2
    assert found.best == (3, 8)


def test_many_calls_are_voted_on_one_by_one_and_very_many_as_one() -> None:
    wide = {str(n): n for n in range(150)}
    assert len(settled([("f", wide)] * 3).fields) == 3
    found = settled(*[[("f", {"n": n}) for n in range(500)]] * 2)
    assert list(found.fields) == [()]
    assert found.structure.show(()) == "value"


def test_of_countless_tools_and_alternatives_a_thousand_are_looked_at() -> None:
    tools = [{"function": {"name": f"f{n}"}} for n in range(2_000)]
    assert len(Schemas.of({"tools": tools}).tools) == 1_000
    schema = Schema.of({"anyOf": [{"type": "object"} for _ in range(20_000)]})
    assert len(schema.parts) == 1_000
