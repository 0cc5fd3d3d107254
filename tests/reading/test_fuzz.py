"""Whatever a model writes, reading it raises nothing, and what is canonical stays as it is."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from aera.core import Response
from aera.reading.task import Task, get_task

FRAGMENTS = [
    *"{}{}{}()[]$%^_\\&*#,.:;=+-/<>|~!'\"` \n\t0123456789abcxyzABIJ",
    *("\\boxed{", "\\fbox{", "\\boxed", "\\boxed ", "boxed", "}}", "{{", "\\{", "\\}", "\\\\"),
    *("\\frac{", "\\frac12", "\\dfrac{1}{2}", "}{", "\\sqrt{", "\\sqrt 3", "\\text{", "\\text{B}"),
    *("\\left(", "\\right)", "\\pm ", "\\cup ", "\\cdot ", "\\times 10^", "\\pi", "\\infty"),
    *("^\\circ", "\\lbrace", "\\rbrace", "\\le", "\\leq ", "\\in ", "\\quad", "\\,", "\\!", "{,}"),
    *(
        "[THINK]",
        "<answer>",
        "</answer>",
        "<|channel|>final<|message|>",
        "\u25c1think\u25b7",
        "\nQ:",
    ),
    *(
        "**",
        "twelve",
        "1.249,00",
        " \u20ac",
        " is correct",
        "\u7b54\u6848\u662f",
        "\nA. ",
        "analysis",
    ),
    *("<think>", "</think>", "think>", "answer is ", "Answer:", "**Answer: ", "#### ", "option: "),
    *(" and ", " or ", "x=", "y = ", "f(x)=", "18"),
    *("1,080", "0.5", "36/2", "-3", "10%", "1e9", "9" * 50),
    *(" apples", " cm", " million", "th", "(B)", "B) bank", "better to redo the question"),
    *("\u2212", "\u0663", "\u221a", "\u03c0", "\u00b2"),
    *("\u00bd", "\u0130", "\u2028", "\ud800", "\U0001f600"),
    *("\x00", "\x1b", "\r", "\x0b", "\u200b", "\u00a0", "\ufeff", "\u4e2d", "e\u0301"),
]
TASKS = [*map(get_task, ("numeric-loose", "choice-loose", "expression", "numeric", "choice"))]


def strings(seed: int, *, count: int, most: int) -> Iterator[str]:
    random = Random(seed)
    for _ in range(count):
        yield "".join(random.choices(FRAGMENTS, k=random.randint(0, most)))


def check(task: Task, text: str) -> None:
    for answer in (task.read(Response(text)).answer, task.canonical(text)):
        assert answer is None or (isinstance(answer, str) and task.canonical(answer) == answer), (
            task.kind,
            text[:400],
            answer,
        )


def more(*later: int) -> list[Any]:
    """What is too long for every change."""
    return [pytest.param(each, marks=pytest.mark.nightly) for each in later]


@pytest.mark.parametrize("seed", [0, *more(*range(1, 10))])
def test_strings_are_read_without_a_fault(seed: int) -> None:
    for text in strings(seed, count=10_000, most=9):
        for task in TASKS[:3]:
            check(task, text)


@pytest.mark.parametrize("seed", [0, *more(*range(1, 10))])
def test_long_strings_are_read_without_a_fault(seed: int) -> None:
    pieces = list(strings(100 + seed, count=100, most=6_000))
    random = Random(seed)
    for turn in range(100):
        text = "".join(random.sample(pieces, 10))[:100_000]
        if turn % 2:  # neither thinking nor a box, so that all of it is searched for a phrase
            text = text.replace("think>", "").replace("box", "")
        for task in TASKS:
            check(task, text)


@pytest.mark.parametrize("kind", ["numeric", "choice", "expression"])
@pytest.mark.parametrize("times", [1, 2, 3, 50, 1_000, *more(20_000)])
def test_one_fragment_for_ever_is_read_without_a_fault(times: int, kind: str) -> None:
    for piece in FRAGMENTS:
        check(get_task(kind), piece * times)
        check(get_task(kind), f"\\boxed{{{piece * times}}} answer: {piece * times}")
