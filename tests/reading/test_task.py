"""What a response votes for under each task."""

from dataclasses import replace

import pytest

from aera.core import Question, Response, Vote
from aera.errors import UsageError
from aera.reading.task import (
    REDO_NOTE,
    TASKS,
    Task,
    get_task,
    needs_redo,
    task_from_json,
    with_redo,
)

PAPER = with_redo(get_task("gsm8k"))


def vote(name: str, text: str) -> str | None:
    return get_task(name).read(Response(text)).answer


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        ("numeric", r"\boxed{1} The answer is 2", "1"),
        ("numeric", "The answer is $1,080.", "1080"),
        ("numeric", r"\boxed{none} The answer is 2", None),
        ("numeric", "it makes 7", None),
        ("numeric", r"<think>\boxed{3}</think>The answer is 4", "4"),
        ("numeric", r"<think>\boxed{3}", None),
        ("choice", r"\boxed{\text{(B)}}", "B"),
        ("choice", "**Answer: C**", "C"),
        ("choice", "perhaps B", None),
        ("expression", r"\boxed{x = \dfrac{1}{2}}", "0.5"),
        ("expression", "The answer is $2x$.", "2x"),
        ("gpqa", r"\boxed{E}", None),
        ("mmlu-pro", r"\boxed{E}", "E"),
        ("gsm8k", "The answer is 7", "7"),
        ("gsm8k", r"\boxed{7}", "7"),
        ("gsm8k", r"<think>\boxed{7}</think> boxed", None),
        ("gsm8k", "so 6 + 1 = 7\n#### 7", "7"),
        ("gsm8k", r"\boxed{7}" + " Feel free to ask for more." * 8, "7"),
        ("numeric", "Adding up:\n\n**42**", "42"),
        ("numeric", "Adding up 3 and 4\nwe have 42 apples and 3 pears left", None),
        ("choice", "It is blue.\n\n(B)", "B"),
        ("choice", "It is blue.\nA dog", None),
        ("expression", "Solving:\n\n$x^2 + 1$", "x^2+1"),
        ("expression", "Solving gives\nno more than that", None),
        ("text", r"so \boxed{The Eiffel Tower!}", "eiffel tower"),
        ("text", "The answer is Paris. It is in France.", "paris"),
        ("text", "Thinking.\nParis", "paris"),
        ("yes-no", r"\boxed{\text{Yes}}", "yes"),
        ("yes-no", "The answer is: **No**, because", "no"),
        ("yes-no", "Hm.\nTrue", "yes"),
        ("yes-no", "perhaps", None),
        ("json", 'Here: {"answer": 4.0, "why": "so"} bye', "4"),
        ("json", '```json\n{"answer": " Paris "}\n```', "Paris"),
        ("json", '{"other": 1}', None),
        ("json", "no object", None),
    ],
)
def test_a_response_votes_for_what_it_says(name: str, text: str, answer: str | None) -> None:
    assert vote(name, text) == answer


def test_the_last_number_counts_only_where_somebody_asks_for_it() -> None:
    assert vote("gsm8k", "3 and 4 make 7 of them.") is None
    loose = replace(get_task("gsm8k"), loose=True)
    assert loose.read(Response("3 and 4 make 7 of them.")).answer == "7"
    assert not [name for name, task in TASKS.items() if task.loose]


def test_half_votes_once_however_it_is_written() -> None:
    halves = (r"\boxed{0.5}", r"\boxed{1/2}", r"\boxed{\frac{1}{2}}", "Answer: .50", "#### 0.5")
    assert {vote("numeric", text) for text in halves} == {"0.5"}


def test_the_redo_test_is_on_only_where_somebody_asks_for_it() -> None:
    assert not [task for task in TASKS.values() if task.redo or REDO_NOTE in task.template]
    assert PAPER.redo
    assert PAPER.template.endswith(REDO_NOTE)
    assert PAPER.read(Response("The answer is 7")) == Vote(None, redo=True)


@pytest.mark.parametrize(
    ("text", "redo"),
    [
        (r"\boxed{5}", False),
        (r"It's better to redo the question. \boxed{5}", True),
        (r"It is better to redo. \boxed{5}", True),
        (r"Better to redo? \boxed{5}", False),
        ("5", True),
        ("", True),
        ("Boxed", False),
        (r"\boxed{5}" + "." * 92, False),
        (r"\boxed{5}" + "." * 97, True),
        (r"<think>better to redo</think>\boxed{5}", True),
    ],
)
def test_a_redo_is_a_phrase_or_a_missing_box(text: str, redo: bool) -> None:
    assert needs_redo(text) is redo


def test_a_redo_abstains_and_keeps_what_it_had_boxed_before() -> None:
    text = r"\boxed{5}. It's better to redo the question. \boxed{6}"
    assert PAPER.read(Response(text)) == Vote(None, redo=True, raw="5")


@pytest.mark.parametrize("text", ["The answer is 5", "#### 5", "so\n5"])
def test_a_truncated_response_votes_by_its_box_only(text: str) -> None:
    task = get_task("gsm8k")
    assert task.read(Response(text)).answer == "5"
    assert task.read(Response(text, finish_reason="length")).answer is None
    boxed = Response(r"\boxed{6} and " + text, finish_reason="length")
    assert task.read(boxed) == Vote("6", raw="6")


def test_a_truncated_response_without_a_box_near_its_end_abstains_as_a_redo() -> None:
    response = Response(r"\boxed{5} and then" + " more" * 30, finish_reason="length")
    assert PAPER.read(response) == Vote(None, redo=True, raw="5")


def test_a_recorded_answer_is_read_where_there_is_no_text() -> None:
    assert get_task("numeric").read(Response("", answer="18.0")).answer == "18"
    assert get_task("choice").read(Response("", answer="N")).answer is None


def test_a_pattern_a_path_or_a_reader_is_the_only_place_that_is_looked_at() -> None:
    pattern = Task("mine", "numeric", pattern=r"^Result: (\S+)$")
    text = "Result: 4\nResult: 5.0\n\\boxed{6}"
    assert pattern.read(Response(text)).answer == "5"
    assert pattern.read(Response(r"\boxed{6}")).answer is None
    path = Task("mine", "json", path="steps.-1.value")
    assert path.read(Response('{"steps": [{"value": 1}, {"value": "b"}]}')).answer == "b"
    reader = Task("mine", "text", normalise=(), reader="builtins:len")
    assert reader.read(Response("four")).answer == "4"


def test_a_reader_that_fails_abstains_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    task = Task("mine", "text", reader="math:sqrt")
    assert [task.read(Response("x")).answer for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
    assert "math:sqrt failed" in caplog.text


@pytest.mark.parametrize("name", TASKS)
def test_a_failed_response_abstains(name: str) -> None:
    failed = get_task(name).read(Response("", error="timeout"))
    assert failed == get_task(name).read(Response(""))


def test_unread_responses_do_not_agree_on_anything() -> None:
    assert not get_task("numeric").same(None, "7")
    assert not get_task("numeric").same("x", "x")
    assert get_task("numeric").same("7.0", "7")


def test_the_prompt_lists_the_choices_by_letter() -> None:
    task = Task("mine", "choice", "Q: {question}!")
    assert task.prompt(Question("1", "Which?", ("red", "blue"))) == "Q: Which?\n(A) red\n(B) blue!"


@pytest.mark.parametrize("name", TASKS)
def test_a_task_survives_its_manifest(name: str) -> None:
    assert task_from_json({**get_task(name).as_json(), "unknown": 1}) == get_task(name)


def test_an_unknown_task_or_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="no task"):
        get_task("nothing")
    with pytest.raises(UsageError, match="numeric, choice, expression, text, yes-no or json"):
        Task("mine", "essay")
