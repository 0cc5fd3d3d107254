"""What a response votes for under each task."""

from dataclasses import replace

import pytest

from aera.errors import UsageError
from aera.reading.task import TASKS, Task, get_task, needs_redo, task_from_json
from aera.response import Question, Response
from aera.tally import Vote

LOOSE = replace(get_task("gsm8k"), redo=False)
PAPER = {"gsm8k", "gpqa", "commonsense", "mmlu-pro", "math", "amc", "aime"}


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
        ("gsm8k", "The answer is 7", None),
        ("gsm8k", r"\boxed{7}", "7"),
        ("gsm8k", r"<think>\boxed{7}</think> boxed", None),
    ],
)
def test_a_response_votes_for_what_it_says(name: str, text: str, answer: str | None) -> None:
    assert vote(name, text) == answer


def test_the_last_number_counts_for_gsm8k_only() -> None:
    assert LOOSE.read(Response("3 and 4 make 7.")).answer == "7"
    assert [name for name, task in TASKS.items() if task.loose] == ["gsm8k"]


def test_half_votes_once_however_it_is_written() -> None:
    halves = (r"\boxed{0.5}", r"\boxed{1/2}", r"\boxed{\frac{1}{2}}", "Answer: .50", "#### 0.5")
    assert {vote("numeric", text) for text in halves} == {"0.5"}


def test_the_redo_test_is_on_in_the_tasks_of_the_paper() -> None:
    assert {name for name, task in TASKS.items() if task.redo} == PAPER


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
    assert get_task("gsm8k").read(Response(text)) == Vote(None, redo=True, raw="5")


@pytest.mark.parametrize("name", ["numeric", "choice", "expression"])
def test_a_truncated_response_abstains(name: str) -> None:
    response = Response(r"\boxed{5}\boxed{B}", finish_reason="length")
    assert get_task(name).read(response) == Vote(None, raw="B")


def test_a_truncated_response_without_a_box_near_its_end_abstains_as_a_redo() -> None:
    response = Response(r"\boxed{5} and then" + " more" * 30, finish_reason="length")
    assert get_task("math").read(response) == Vote(None, redo=True, raw="5")


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
    with pytest.raises(UsageError, match="numeric, choice or expression"):
        Task("mine", "essay")
