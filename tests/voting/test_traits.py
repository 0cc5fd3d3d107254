import time
from math import isnan, log, log1p

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera import Question, Response, Vote
from aera.trace import TRACE_NAMES
from aera.voting.traits import TRAIT_NAMES, TRAITS, check_sums, traits

QUESTION = Question("q", "Tom has 3 boxes of 12 pens and 1,500 coins. How many pens?")
ANSWERS = ["36", "-4", "1/3", "0.5", "x+1", "", "B", "7/0", "1/2/3", "nan", "inf", "9" * 400, None]
# Text made of what the patterns look for, which is more hostile than any text at large.
PIECES = [*"0123456789+-*/=., \n$%\\{}()", "\\frac", "\\text", "\\times", "\\boxed", "Step", "**"]
texts = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(PIECES)).map("".join))


def row(text: str, answer: str | None = "36", **fields: object) -> dict[str, float]:
    """The traits of one response by name."""
    response = Response(text, **{"tokens": 10, **fields})  # type: ignore[arg-type]
    return dict(zip(TRAIT_NAMES, traits(QUESTION, [response], [Vote(answer)])[0], strict=True))


# --- sums -----------------------------------------------------------------------------------------

RIGHT = [
    *("3 * 4 = 12", "3*4=12", "3 \\times 4 = 12", "3 × 4 = 12", "3 \\cdot 4 = 12", "12 ÷ 4 = 3"),
    *("12 \\div 4 = 3", "$3 + $4 = $7", "\\(3 + 4 = 7\\)", "\\[3 + 4 = 7\\]", "so 3 + 4 = 7."),
    *("3 + 4 = 7 apples", "3\\text{ cm} + 4\\text{ cm} = 7\\text{ cm}", "1,000 + 2,500 = 3,500"),
    *("\\frac{1}{2} * 10 = 5", "\\dfrac{10}{4} + 1 = 3.5", "5 + 3 * 4 = 17", "2 - 5 = -3"),
    *("20 - 6 / 2 + 1 = 18", "2 * 3 * 4 / 6 = 4", "1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 = 45"),
    *("0.1 + 0.2 = 0.3", "10 / 3 = 3.33", "2 / 3 = 0.67", "1000 / 7 = 143", "x = 3 * 4 = 12"),
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_sum_is_right_in_whatever_dress(text: str) -> None:
    assert check_sums(text) == (1, 0)


NEITHER = [
    *("4 / 0 = 0", "4 / 0.0 = 4", "1 + 4 / 0 * 0 = 1", "36", "x = 12", "7 = 3 + 4", "3 + = 7"),
    *("a3 + 4 = 9", "3 apples * 4 = 99", "3 + 4 = x", "3 + 4 = ", "1.2.3 + 4 = 9 + 2", ""),
]


@pytest.mark.parametrize("text", NEITHER)
def test_what_is_no_sum_is_neither_right_nor_wrong(text: str) -> None:
    assert check_sums(text) == (0, 0)


def test_all_sums_of_a_text_are_counted() -> None:
    assert check_sums("3 + 4 = 7, then 7 * 2 = 14\nand 14 - 1 = 12, 5 / 0 = 1") == (2, 1)
    assert check_sums("3 + 4 = 7 + 2 = 9") == (1, 0), "7 is on its way to 9"


@given(
    st.lists(st.tuples(st.sampled_from("+-*/"), st.integers(1, 999)), min_size=1, max_size=8),
    st.integers(0, 999),
    st.sampled_from(["", " "]),
)
def test_a_chain_is_what_python_says(tail: list[tuple[str, int]], first: int, space: str) -> None:
    chain = str(first) + "".join(f"{space}{sign}{space}{number}" for sign, number in tail)
    value = eval(chain)
    if abs(value) >= 1e11:
        return
    assert check_sums(f"{chain} = {value:.6f}") == (1, 0)
    assert check_sums(f"{chain} = {value + 1 + 0.01 * abs(value):.6f}") == (0, 1)


# --- any text at all ------------------------------------------------------------------------------


@given(texts, st.sampled_from(ANSWERS), texts, st.integers(0, 5), st.none() | st.floats())
def test_no_text_is_too_odd_and_no_trait_infinite(
    text: str, answer: str | None, asks: str, tokens: int, logprob: float | None
) -> None:
    response = Response(text, tokens, logprob)
    found = traits(Question("q", asks, (asks, "B")), [response], [Vote(answer)])
    assert found.shape == (1, len(TRAITS))
    assert not np.isinf(found).any()


# Shapes that make a careless pattern try every start against every end.
HOSTILE = ["1", "1 + ", "1.", "\\frac{1}{", "\\text{", " ", "#", "1,", "1=", "\\boxed", "\n"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_hostile_text_is_described_in_time(piece: str) -> None:
    begun = time.thread_time()
    traits(QUESTION, [Response("\n" + piece * 50_000, 10)], [Vote("36")])
    assert time.thread_time() - begun < 5, "far from it where linear, far beyond where not"


# --- one response and its question ----------------------------------------------------------------


# --- what the table says --------------------------------------------------------------------------


def test_an_empty_response_has_no_shares() -> None:
    found = row("", None, tokens=0)
    missing = {name for name, value in found.items() if isnan(value)}
    assert missing == {
        *("logprob", "mean_logprob", "latex", "box_place", "numbers_given", "words_given"),
        *("after_box", "answer_size", "answer_whole", "answer_given"),
        *("answer_negative", "answer_round"),
        *TRACE_NAMES,
    }
    assert found["log_tokens"] == 0


def test_a_response_is_described_by_what_it_says() -> None:
    text = "Step:\n1. 3 * 12 = 36\n2. wait, 3 * 12 = 30\nso 36\n\\boxed{36}"
    found = row(text, finish_reason="length", tokens=20)
    wanted = {
        "log_tokens": log(20),
        "token_length": len(text) / 20,
        "truncated": 1,
        "log_lines": log1p(5),
        "digits": sum(letter.isdecimal() for letter in text) / len(text),
        "steps": 2,
        "boxes": 1,
        "box_place": text.index("\\boxed") / len(text),
        "hedges": 1,
        "right_sums": 1,
        "wrong_sums": 1,
        "no_sums": 0,
        "log_numbers": log1p(10),
        "log_distinct": log1p(6),  # 1, 2, 3, 12, 36, 30
        "numbers_used": 2 / 3,
        "numbers_unused": 1,
        "numbers_given": 2 / 6,
        "numbers_new": 4,
        "answer_given": 0,
        "answer_mentions": 3,
        "answer_first": 3 / 10,
        "answer_size": log1p(36),
        "answer_whole": 1,
        "answer_round": 0,
        "question_numbers": 3,
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
