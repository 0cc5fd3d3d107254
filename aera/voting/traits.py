"""Traits: what one response shows of itself, from one table. The weigher's inputs.

Nothing here looks at other responses, at other questions or at the truth. A trait that does not
exist (no logprob, an answer that is no number) is NaN.

Not every response brings all that a trait needs. What it needs is the trait's group: the text, the
logprob, the trace of its tokens, or nothing beyond the counts that everybody has.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite, isnan, log, log1p, nan

import numpy as np

from aera.arrays import Flags, Floats
from aera.core import Question, Response, Vote
from aera.trace import TRACE_NAMES, TRACES, UNKNOWN, Feature

COUNTS, TEXT, LOGPROBS, TRACE = "counts", "text", "logprobs", "traces"
GROUPS = (TEXT, LOGPROBS, TRACE)
"""What a response may bring beyond its answer and its tokens; what is had last is lost first."""
# Each begins with what it looks for, which is then searched for fast, and looks back from there.
_NUMBER = re.compile(r"\d\d{0,11}(?:\.\d{1,9})?")
_LETTERS = bytes(c if chr(c) in "abcdefghijklmnopqrstuvwxyz" else 32 for c in range(256))
# Whatever is no letter is a blank.
_STEP = re.compile(r"\n[ \t]*(?:#+\s|\*\*|\d{1,3}\.|[sS]tep\b|-\s)")
_HEDGES = frozenset(b"wait however mistake incorrect assume assuming sorry actually error".split())
_SEPARATOR = re.compile(r",(?<=\d,)(?=\d{3})")
_DRESS = re.compile(r"\\text\s?\{[^{}]{0,80}\}|\\[()\[\],$]|\$")
_BLANKS = re.compile(r"[ \t]{2,}")
_FRACTION = re.compile(r"\\(?<!/\\)(?<!/ \\)d?frac\s?\{(\d[\d.]{0,15})\}\s?\{(\d[\d.]{0,15})\}")
_SIGNS = {"\\times": "*", "\\cdot": "*", "×": "*", "\\div": "/", "÷": "/"}
_SUM = re.compile(
    # Not behind an operator or a bracket: the rest of a longer sum is not a sum of its own.
    r"(\d(?<![\w.*/+)-]\d)(?<![-+*/)] \d)\d{0,11}(?:\.\d{1,9})?"
    r"(?:\s?[-+*/]\s?\d{1,12}(?:\.\d{1,9})?){1,8})"
    r"\s?=\s?(-?\d{1,12}(?:\.\d{1,9})?)(?![\d.%]{0,9} ?[-+*/=%])"
)
_TERM = re.compile(r"[-+*/]|\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Asked:
    """What the question brings along: its words and its numbers."""

    words: frozenset[bytes]
    numbers: frozenset[float]
    length: int


@lru_cache(maxsize=1_024)
def describe_question(question: Question) -> Asked:
    """Read a question once for all its responses."""
    text = " ".join([question.text, *question.choices])
    return Asked(_words(text), frozenset(_numbers(text)), len(text))


def _words(text: str) -> frozenset[bytes]:
    """The words of plain letters, in lower case."""
    return frozenset(text.lower().encode("ascii", "replace").translate(_LETTERS).split())


def _numbers(text: str) -> list[float]:
    plain = _SEPARATOR.sub("", text) if "," in text else text
    return [float(number) for number in _NUMBER.findall(plain)]


def _textless(response: Response) -> bool:
    """Whether only its answer was recorded."""
    return response.answer is not None and not response.text


def _as_number(answer: str | None) -> float:
    top, _, bottom = (answer or "").partition("/")
    try:
        value = float(top) / float(bottom or 1)
    except (ValueError, ZeroDivisionError, OverflowError):
        return nan
    return value if isfinite(value) else nan


def check_sums(text: str) -> tuple[int, int]:
    """Right and wrong sums in a text; units, dollars and LaTeX around the numbers are ignored."""
    plain = _SEPARATOR.sub("", text) if "," in text else text
    plain = _DRESS.sub("", plain)
    for sign, operator in _SIGNS.items():
        plain = plain.replace(sign, operator)
    plain = _FRACTION.sub(r"\1/\2", _BLANKS.sub(" ", plain))
    right = wrong = 0
    for chain, said in _SUM.findall(plain):
        value = _value(chain)
        if value is not None:
            close = abs(value - float(said)) <= 0.006 + 0.001 * abs(value)
            right, wrong = right + close, wrong + (not close)
    return right, wrong


def _value(chain: str) -> float | None:
    """A chain of numbers and operators, products first; None when it divides by zero."""
    total, term, operator = 0.0, 0.0, "+"
    for token in _TERM.findall(chain):
        if token in "+-*/":
            operator = token
            continue
        number = float(token)
        if operator in "+-":
            total, term = total + term, number if operator == "+" else -number
        elif operator == "*":
            term *= number
        elif number:
            term /= number
        else:
            return None
    return total + term


def _share(part: int, whole: int) -> float:
    return part / whole if whole else nan


# --- the table ------------------------------------------------------------------------------------


_TABLE: dict[str, tuple[str, str]] = {
    "mean_logprob": (LOGPROBS, "mean token logprob"),
    "logprob": (LOGPROBS, "sum of the token logprobs"),
    "log_tokens": (COUNTS, "log of its completion tokens"),
    "token_length": (TEXT, "characters per token"),
    "truncated": (COUNTS, "cut off by the token limit"),
    "log_lines": (TEXT, "log(1 + lines)"),
    "line_length": (TEXT, "characters per line"),
    "digits": (TEXT, "share of digits among characters"),
    "latex": (TEXT, "backslashes per character"),
    "steps": (TEXT, "headings, items and steps"),
    "code": (TEXT, "code fences"),
    "boxes": (TEXT, "boxed answers"),
    "box_place": (TEXT, "where the last box stands"),
    "after_box": (TEXT, "log of the text behind the last box"),
    "hedges": (TEXT, "distinct words of doubt"),
    "right_sums": (TEXT, "sums written out that are right"),
    "wrong_sums": (TEXT, "sums written out that are wrong"),
    "no_sums": (TEXT, "no sum is written out"),
    "log_numbers": (TEXT, "log(1 + numbers)"),
    "log_distinct": (TEXT, "log(1 + distinct numbers)"),
    "numbers_used": (TEXT, "share of the question's numbers it uses"),
    "numbers_unused": (TEXT, "numbers of the question it leaves out"),
    "numbers_given": (TEXT, "share of its numbers that the question has"),
    "numbers_new": (TEXT, "numbers that the question does not have"),
    "words_given": (TEXT, "share of its words that the question has"),
    "words_used": (TEXT, "share of the question's words it uses"),
    "answer_given": (COUNTS, "the question has the answer"),
    "answer_mentions": (TEXT, "how often the answer is said"),
    "answer_first": (TEXT, "where the answer is said first"),
    "answer_size": (COUNTS, "log(1 + size of the answer)"),
    "answer_whole": (COUNTS, "the answer is a whole number"),
    "answer_negative": (COUNTS, "the answer is below zero"),
    "answer_length": (COUNTS, "characters of the answer"),
    "answer_round": (COUNTS, "the answer is a multiple of ten"),
    "question_length": (COUNTS, "log of the question's length"),
    "question_numbers": (COUNTS, "numbers in the question"),
}
TRAITS: tuple[Feature, ...] = (
    *(Feature(name, said, group) for name, (group, said) in _TABLE.items()),
    *(replace(number, group=TRACE) for number in TRACES),
)
TRAIT_NAMES: tuple[str, ...] = tuple(trait.name for trait in TRAITS)
_SILENT = {name: nan for name, (group, _) in _TABLE.items() if group == TEXT}
"""What a response without a text shows in place of it."""
UNTRACED: tuple[str, ...] = tuple(trait.name for trait in TRAITS if trait.group != TRACE)
"""Those that need no trace."""
_TELLING = {TEXT: "token_length", LOGPROBS: "mean_logprob", TRACE: "trace_confidence"}
"""A trait of each group that every response has that brings what the group needs."""
_CONFIDENCE = TRACE_NAMES.index(_TELLING[TRACE])


def columns_of(names: Iterable[str]) -> list[int]:
    """Where these traits stand in the table."""
    return [TRAIT_NAMES.index(name) for name in names]


def having(seen: Floats, group: str) -> Flags:
    """Which rows of traits are of responses that brought what a group needs."""
    known: Flags = ~np.isnan(seen[..., TRAIT_NAMES.index(_TELLING[group])])
    return known


def brought(response: Response) -> frozenset[str]:
    """The groups whose traits a response has; the same that its row of traits tells."""
    has = {
        TEXT: not _textless(response),
        LOGPROBS: isfinite(nan if response.logprob is None else response.logprob),
        TRACE: isfinite((response.trace or UNKNOWN)[_CONFIDENCE]),
    }
    return frozenset(group for group in GROUPS if has[group])


def traits(question: Question, responses: Sequence[Response], votes: Sequence[Vote]) -> Floats:
    """The traits of some responses to one question, shape (responses, traits)."""
    known, rows = describe_question(question), []
    for response, vote in zip(responses, votes, strict=True):
        found, trace = _measure(known, response, vote.answer), response.trace
        if _textless(response):
            found |= _SILENT
        shown = UNKNOWN if trace is None else [n if isfinite(n) else nan for n in trace]
        rows.append([*found.values(), *shown])
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(TRAITS))


def _measure(asked: Asked, response: Response, answer: str | None) -> dict[str, float]:
    """What one response shows beside its question, by name, in the order of the table."""
    text, tokens = response.text, max(1, response.tokens)
    lines, box = text.count("\n") + 1, text.rfind("\\boxed")
    numbers = _numbers(text)
    distinct, words = frozenset(numbers), _words(text)
    right, wrong = check_sums(text)
    shared, words_shared = len(asked.numbers & distinct), len(words & asked.words)
    value = _as_number(answer)
    mentions, is_number = numbers.count(value), not isnan(value)
    logprob = nan if response.logprob is None else response.logprob
    logprob = logprob if isfinite(logprob) else nan
    return {
        "mean_logprob": logprob / tokens,
        "logprob": logprob,
        "log_tokens": log(tokens),
        "token_length": len(text) / tokens,
        "truncated": response.truncated,
        "log_lines": log1p(lines),
        "line_length": len(text) / lines,
        "digits": sum(map(text.count, "0123456789")) / max(1, len(text)),
        "latex": _share(text.count("\\"), len(text)),
        "steps": len(_STEP.findall(text)),
        "code": text.count("```"),
        "boxes": text.count("\\boxed"),
        "box_place": _share(box, len(text)) if box >= 0 else nan,
        "after_box": log1p(len(text) - box) if box >= 0 else nan,
        "hedges": len(words & _HEDGES),
        "right_sums": right,
        "wrong_sums": wrong,
        "no_sums": not (right or wrong),
        "log_numbers": log1p(len(numbers)),
        "log_distinct": log1p(len(distinct)),
        "numbers_used": _share(shared, len(asked.numbers)),
        "numbers_unused": len(asked.numbers - distinct),
        "numbers_given": _share(shared, len(distinct)),
        "numbers_new": len(distinct - asked.numbers),
        "words_given": _share(words_shared, len(words)),
        "words_used": _share(words_shared, len(asked.words)),
        "answer_given": value in asked.numbers if is_number else nan,
        "answer_mentions": mentions,
        "answer_first": numbers.index(value) / len(numbers) if mentions else 1.0,
        "answer_size": log1p(abs(value)),
        "answer_whole": value % 1 == 0 if is_number else nan,
        "answer_negative": value < 0 if is_number else nan,
        "answer_length": len(answer or ""),
        "answer_round": value % 10 == 0 if is_number else nan,
        "question_length": log1p(asked.length),
        "question_numbers": len(asked.numbers),
    }
