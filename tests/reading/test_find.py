"""Where a text gives its answer, and where it only seems to."""

import pytest

from aera.reading.find import (
    last_boxed,
    last_number,
    stated_choice,
    stated_expression,
    stated_number,
    visible,
)

BOXES = [
    (r"so \boxed{18}.", "18"),
    (r"\boxed{1} then \boxed{2}", "2"),
    (r"\boxed{1} then \fbox{2}", "2"),
    (r"\fbox{1} then \boxed{2}", "2"),
    (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed {18}", "18"),
    (r"\boxed{ 18 }", "18"),
    (r"\boxed 18 apples", "18"),
    (r"\boxed{1} and \boxed{}", "1"),
    (r"\boxed{1} and \boxed{  }", "1"),
    (r"\boxed{1} and \boxed{2", "1"),
    (r"\boxed{1} and \boxed{\frac{1}{2}", "1"),
    (r"\boxed{\boxed{5}}", "5"),
    (r"\boxed{x + \fbox{5} }", "5"),
    (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    (r"\boxed{\text{a \} b}}", r"\text{a \} b}"),
    (r"} \boxed{3} }", "3"),
    (r"{ \boxed{3}", "3"),
    (r"a box of \boxes{5}", None),
    (r"\boxed{", None),
    (r"\boxed", None),
    (r"box", None),
    ("", None),
]

THINKING = [
    ("plain", "plain"),
    ("<think>5</think>6", "6"),
    ("5</think>6", "6"),
    ("6<think>5", "6"),
    ("<think>5", ""),
    ("<think>1</think>2<think>3</think>4", "4"),
    ("<think>1</think>2<think>3", "2"),
    ("I think>5", "I think>5"),
]

NUMBERS = [
    *(("The answer is 18.", "18"), ("Answer: 18", "18")),
    *(("**Answer:** 18", "18"), ("#### 18", "18")),
    *(("**Answer: 18**", "18"), ("answer is:\n\n\\[18\\]", "18")),
    ("The answer was $1,080.", "1,080"),
    *(("answer is $1{,}080$", "1{,}080"), ("Answer = -3", "-3"), ("Answer:\n18", "18")),
    ("the answer is 5 + 3 = 8.", "8"),
    *(("Answer: x = 5", "5"), (r"answer is \$5.50 each", "5.50")),
    *((r"answer is $\frac{1}{2}$", r"\frac{1}{2}"), ("the answer is about 7", "7")),
    *(("The answer is 5. No: the answer is 6", "6"), ("The answer is not 5. The answer is 6", "6")),
    *(("Answer: 5\n#### 6", "6"), ("#### 5\nAnswer: 6", "6")),
    ("the answer is 6. Answer: none", "6"),
    *(("The answer is 15 or 16", None), ("Answer: 5 to 6", None), ("the answer is 2x", None)),
    *(("the answer is not 5", None), ("#### 2. Add them up", None)),
    *(("answers: 5", None), ("18", None)),
    *((r"the answer is 3\sqrt{2}", None), ("The answer isn't 5", None), ("answer is 5-6", None)),
]

CHOICES = [
    *(("The answer is B.", "B"), ("Answer: B", "B")),
    *(("**Answer: B**", "B"), ("**Answer:** B", "B")),
    *(("The correct answer is (C) bank", "C"), ("Answer: **(D)**", "D"), ("Answer:\n\nC", "C")),
    *((r"answer is \text{B}", "B"), ("answer is $B$", "B"), ("The correct option is: [b]", "b")),
    *(("the answer is B because", "B"), ("The answer is A because", "A"), ("Answer: A", "A")),
    *(("Answer: A\nIt fits.", "A"), ("Answer: A, the bank", "A"), ("Answer: A) bank", "A")),
    *(("Answer: a", "a"), ("answer is b.", "b")),
    *(("answer is option C.", "C"), ("Answer: 'A'", "A")),
    ("answer is likely (B)", "B"),
    *(("The answer is C. The answer is not B.", "C"), ("Answer: I.", "I")),
    *(("answer is not B", None), ("Answer: I think so", None)),
    ("the answer is a bit unclear", None),
    *(("Answer: I'd say", None), ("Answer: A or B?", None), ("answer is B/C", None), ("B", None)),
    *(("Answer: A bank", None), ("Answer: Bank", None), ("Answer: (A) and (C)", None)),
    *(("the answer is c of the list", None), ("Answer: B, C", None), ("Answer: 5", None)),
]

EXPRESSIONS = [
    *(("The answer is $x+1$.", "x+1"), (r"answer is \(\frac{1}{2}\).", r"\frac{1}{2}")),
    (r"Answer: \[ x^2 \]", "x^2"),
    *(("Answer: x = 5 or x = 6", "x = 5 or x = 6"), ("#### 18", "18")),
    ("answer: 2.5x+1. So", "2.5x+1"),
    *(("answer is 18 inches.", "18"), (r"answer is 3\pi", r"3\pi")),
    *(("**Answer: 2x+3**", "2x+3"), ("answer is $x$", "x"), ("Answer: (1, 2)", "(1, 2)")),
    ("Answer: 2 or more", None),
    *(("the answer is a bit unclear", None), ("Answer: I think", None)),
    *(("the answer is unknown", None), ("Answer: see above", None), ("x+1", None)),
]


@pytest.mark.parametrize(("text", "content"), BOXES)
def test_the_last_closed_box_with_something_in_it_counts(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


def test_a_box_may_hold_an_essay() -> None:
    assert last_boxed("\\boxed{%s}" % ("{x}" * 5_000)) == "{x}" * 5_000


@pytest.mark.parametrize(("text", "shown"), THINKING)
def test_thinking_is_not_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(("text", "number"), NUMBERS)
def test_a_number_is_read_behind_a_phrase(text: str, number: str | None) -> None:
    assert stated_number(text) == number


@pytest.mark.parametrize(("text", "letter"), CHOICES)
def test_a_letter_is_read_behind_a_phrase(text: str, letter: str | None) -> None:
    assert stated_choice(text) == letter


@pytest.mark.parametrize(("text", "formula"), EXPRESSIONS)
def test_a_formula_is_read_behind_a_phrase(text: str, formula: str | None) -> None:
    assert stated_expression(text) == formula


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3 apples and 4 pears make 7.", "7"),
        ("it costs $1,080.50 now", "$1,080.50"),
        ("from 12-5 we get -7", "-7"),
        ("12-5", "5"),
        ("no number", None),
    ],
)
def test_the_last_number_is_found(text: str, number: str | None) -> None:
    assert last_number(text) == number
