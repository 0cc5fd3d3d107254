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
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?")
_WORD = re.compile(r"[a-z]+")
_STEP = re.compile(r"\n[ \t]*(?:#+\s|\*\*|\d{1,3}\.|[sS]tep\b|-\s)")
_HEDGES = frozenset(
    {"wait", "however", "mistake", "incorrect", "assume", "assuming", "sorry", "actually", "error"}
)
_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3})")
_DRESS = re.compile(r"\\text\s?\{[^{}]{0,80}\}|\\[()\[\],$]|\$")
_BLANKS = re.compile(r"[ \t]{2,}")
_FRACTION = re.compile(r"(?<!/)(?<!/ )\\d?frac\s?\{(\d[\d.]{0,15})\}\s?\{(\d[\d.]{0,15})\}")
_SIGNS = {"\\times": "*", "\\cdot": "*", "×": "*", "\\div": "/", "÷": "/"}
_SUM = re.compile(
    # Not behind an operator or a bracket: the rest of a longer sum is not a sum of its own.
    r"(?<![\w.*/+)-])(?<![-+*/)] )"
    r"(\d{1,12}(?:\.\d{1,9})?(?:\s?[-+*/]\s?\d{1,12}(?:\.\d{1,9})?){1,8})"
    r"\s?=\s?(-?\d{1,12}(?:\.\d{1,9})?)(?![\d.%]{0,9} ?[-+*/=%])"
)
_TERM = re.compile(r"[-+*/]|\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Asked:
    """What the question brings along: its words and its numbers."""

    words: frozenset[str]
    numbers: frozenset[float]
    length: int


@lru_cache(maxsize=1_024)
def describe_question(question: Question) -> Asked:
    """Read a question once for all its responses."""
    text = " ".join([question.text, *question.choices])
    return Asked(frozenset(_WORD.findall(text.lower())), frozenset(_numbers(text)), len(text))


def _numbers(text: str) -> list[float]:
    plain = _SEPARATOR.sub("", text) if "," in text else text
    return [float(number) for number in _NUMBER.findall(plain)]


class Seen:
    """One response beside its question, read once for all traits."""

    def __init__(self, asked: Asked, response: Response, answer: str | None) -> None:
        self.asked, self.response, self.answer = asked, response, answer
        self.text = response.text
        self.tokens = max(1, response.tokens)
        self.numbers = _numbers(self.text)
        self.distinct = frozenset(self.numbers)
        self.words = frozenset(_WORD.findall(self.text.lower()))
        self.sums = check_sums(self.text)
        """How many sums written out, as 3 * 4 = 12, are right and how many are wrong."""
        self.box = self.text.rfind("\\boxed")
        self.boxed = self.box >= 0
        self.value = _as_number(answer)
        """The answer as a number, NaN where it is none."""
        self.mentions = self.numbers.count(self.value)


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


def _logprob(seen: Seen) -> float:
    logprob = seen.response.logprob
    return nan if logprob is None or not isfinite(logprob) else logprob


def _digits(seen: Seen) -> float:
    return sum(map(seen.text.count, "0123456789")) / max(1, len(seen.text))


def _lines(seen: Seen) -> int:
    return seen.text.count("\n") + 1


def _first_mention(seen: Seen) -> float:
    return seen.numbers.index(seen.value) / len(seen.numbers) if seen.mentions else 1.0


def _if_number(seen: Seen, fact: bool) -> float:
    return nan if isnan(seen.value) else float(fact)


def _given(seen: Seen) -> float:
    return _if_number(seen, seen.value in seen.asked.numbers)


TRAITS: tuple[Feature, ...] = (
    Feature("mean_logprob", "mean token logprob", lambda s: _logprob(s) / s.tokens, LOGPROBS),
    Feature("logprob", "sum of the token logprobs", _logprob, LOGPROBS),
    Feature("log_tokens", "log of its completion tokens", lambda s: log(s.tokens), COUNTS),
    Feature("token_length", "characters per token", lambda s: len(s.text) / s.tokens),
    Feature(
        "truncated",
        "cut off by the token limit",
        lambda s: float(s.response.truncated),
        COUNTS,
    ),
    Feature("log_lines", "log(1 + lines)", lambda s: log1p(_lines(s))),
    Feature("line_length", "characters per line", lambda s: len(s.text) / _lines(s)),
    Feature("digits", "share of digits among characters", _digits),
    Feature(
        "latex", "backslashes per character", lambda s: _share(s.text.count("\\"), len(s.text))
    ),
    Feature("steps", "headings, items and steps", lambda s: float(len(_STEP.findall(s.text)))),
    Feature("code", "code fences", lambda s: float(s.text.count("```"))),
    Feature("boxes", "boxed answers", lambda s: float(s.text.count("\\boxed"))),
    Feature(
        "box_place",
        "where the last box stands",
        lambda s: _share(s.box, len(s.text)) if s.boxed else nan,
    ),
    Feature(
        "after_box",
        "log of the text behind the last box",
        lambda s: log1p(len(s.text) - s.box) if s.boxed else nan,
    ),
    Feature("hedges", "distinct words of doubt", lambda s: float(len(s.words & _HEDGES))),
    Feature("right_sums", "sums written out that are right", lambda s: float(s.sums[0])),
    Feature("wrong_sums", "sums written out that are wrong", lambda s: float(s.sums[1])),
    Feature("no_sums", "no sum is written out", lambda s: float(not any(s.sums))),
    Feature("log_numbers", "log(1 + numbers)", lambda s: log1p(len(s.numbers))),
    Feature("log_distinct", "log(1 + distinct numbers)", lambda s: log1p(len(s.distinct))),
    Feature(
        "numbers_used",
        "share of the question's numbers it uses",
        lambda s: _share(len(s.asked.numbers & s.distinct), len(s.asked.numbers)),
    ),
    Feature(
        "numbers_unused",
        "numbers of the question it leaves out",
        lambda s: float(len(s.asked.numbers - s.distinct)),
    ),
    Feature(
        "numbers_given",
        "share of its numbers that the question has",
        lambda s: _share(len(s.asked.numbers & s.distinct), len(s.distinct)),
    ),
    Feature(
        "numbers_new",
        "numbers that the question does not have",
        lambda s: float(len(s.distinct - s.asked.numbers)),
    ),
    Feature(
        "words_given",
        "share of its words that the question has",
        lambda s: _share(len(s.words & s.asked.words), len(s.words)),
    ),
    Feature(
        "words_used",
        "share of the question's words it uses",
        lambda s: _share(len(s.words & s.asked.words), len(s.asked.words)),
    ),
    Feature("answer_given", "the question has the answer", _given, COUNTS),
    Feature("answer_mentions", "how often the answer is said", lambda s: float(s.mentions)),
    Feature("answer_first", "where the answer is said first", _first_mention),
    Feature("answer_size", "log(1 + size of the answer)", lambda s: log1p(abs(s.value)), COUNTS),
    Feature(
        "answer_whole",
        "the answer is a whole number",
        lambda s: _if_number(s, s.value % 1 == 0),
        COUNTS,
    ),
    Feature(
        "answer_negative",
        "the answer is below zero",
        lambda s: _if_number(s, s.value < 0),
        COUNTS,
    ),
    Feature(
        "answer_length",
        "characters of the answer",
        lambda s: float(len(s.answer or "")),
        COUNTS,
    ),
    Feature(
        "answer_round",
        "the answer is a multiple of ten",
        lambda s: _if_number(s, s.value % 10 == 0),
        COUNTS,
    ),
    Feature(
        "question_length",
        "log of the question's length",
        lambda s: log1p(s.asked.length),
        COUNTS,
    ),
    Feature(
        "question_numbers",
        "numbers in the question",
        lambda s: float(len(s.asked.numbers)),
        COUNTS,
    ),
    *(replace(number, group=TRACE) for number in TRACES),
)
TRAIT_NAMES: tuple[str, ...] = tuple(trait.name for trait in TRAITS)
_MEASURED = TRAITS[: -len(TRACES)]
"""Those before the numbers of the trace, which are taken as they are."""
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
        seen, silent = Seen(known, response, vote.answer), _textless(response)
        row = [nan if silent and t.group == TEXT else t.measure(seen) for t in _MEASURED]
        rows.append([*row, *(n if isfinite(n) else nan for n in response.trace or UNKNOWN)])
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(TRAITS))
