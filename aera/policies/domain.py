"""Home: what a controller was taught on. Lookout: whether the questions here are of that kind.

Weights travel from one model to another on the same task, and not from one task to another. So only
the questions are looked at, which no model can change: how long they are, how many numbers they
hold, how long their sentences are and how much of them is symbols.

Each question has a place among the taught ones, 0 to 1, in each of these. At home the places
average a half. A bet that they lie lower, or higher, grows by 1 + (distance from a half - SLACK);
as long as the true average is within SLACK of a half no bet grows on average, and the mean of all
bets exceeds 1 / ERROR with chance ERROR at most, however long one looks (Ville's inequality).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import takewhile
from math import log
from typing import Any

import numpy as np

from aera.arrays import Floats
from aera.core import Question
from aera.files import Json

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"\w+")
_END = re.compile(r"[.?!](?=\s|$)")
_SYMBOL = re.compile(r"[^\w\s]")
PLACES = 20
"""Taught questions that are kept of each fact: those at every twentieth of the way."""
FEWEST = 20
"""Questions below which nothing is known of their kind."""
SLACK = 0.1
"""How far the average place may be from a half at home: other years, other ways to ask."""
ERROR = 0.05
"""The chance of calling home abroad."""
WINDOW = 64
"""Questions after which a lookout starts anew, so that a change is noticed late in life too."""


def _count_numbers(text: str) -> float:
    return len(set(_NUMBER.findall(text)))


def _symbol_share(text: str) -> float:
    return len(_SYMBOL.findall(text)) / max(1, len(text))


def _sentence_length(text: str) -> float:
    return len(_WORD.findall(text)) / max(1, len(_END.findall(text)))


FACTS: dict[str, tuple[Callable[[str], float], str, str]] = {
    "length": (len, "shorter", "longer"),
    "numbers": (_count_numbers, "with fewer numbers", "with more numbers"),
    "sentence_length": (_sentence_length, "in shorter sentences", "in longer sentences"),
    "symbols": (_symbol_share, "with fewer symbols", "with more symbols"),
}
"""What a question shows of its kind, and what it is called to have less or more of it."""


def _measure(texts: Iterable[str]) -> Floats:
    """The facts of some texts, shape (texts, facts); white space does not count."""
    plain = [" ".join(text.split()) for text in texts]
    rows = [[measure(text) for measure, *_ in FACTS.values()] for text in plain]
    return np.array(rows, np.float64).reshape(len(rows), len(FACTS))


@dataclass(frozen=True)
class Home:
    """What a controller was taught on, beside its task: whose answers, and questions of what kind.

    Models, tier, read and deciding are for the reader. They change with the model as much as with
    the task, so nothing is decided by them.
    """

    spread: Mapping[str, tuple[float, ...]]
    """Of each fact the values at every twentieth of the taught questions."""
    questions: int
    models: tuple[str, ...] = ()
    """Who answered, where that was recorded."""
    tier: str = "counts"
    """What its votes weigh by: traces, logprobs and text, or less, down to counts alone."""
    read: float | None = None
    """The share of responses that could be read."""
    deciding: float | None = None
    """How many votes of the full budget decide in effect, the weights being what they are."""

    def __post_init__(self) -> None:
        if set(self.spread) != set(FACTS) or any(len(v) != PLACES for v in self.spread.values()):
            raise ValueError(f"a home has {PLACES} values of each of {', '.join(FACTS)}")

    @classmethod
    def of(cls, questions: Sequence[Question], **told: Any) -> "Home | None":
        """The home that these questions are; None where they are few or their words unknown."""
        worded = [each for each in questions if each.text != each.id]
        if len(worded) < FEWEST:
            return None
        words = [each.text.split() for each in worded]
        frame = reduce(_common, words), reduce(_common, (each[::-1] for each in words))
        at = (np.arange(PLACES) + 0.5) / PLACES
        values = np.quantile(_measure(_strip(q, *frame) for q in worded), at, axis=0).T
        spread = {
            name: tuple(round(float(v), 6) for v in own)
            for name, own in zip(FACTS, values, strict=True)
        }
        return cls(spread, len(worded), **told)

    def bets(self, text: str) -> Floats:
        """By how much the logs of all bets grow: for each fact one on less and one on more."""
        off = []
        for name, value in zip(FACTS, np.round(_measure([text])[0], 6), strict=True):
            below, upto = (np.searchsorted(self.spread[name], value, s) for s in ("left", "right"))
            off.append((below + upto) / (2 * PLACES) - 0.5)
        away: Floats = np.array(off)
        return np.stack([np.log1p(-away - SLACK), np.log1p(away - SLACK)])

    def as_json(self) -> Json:
        """Every field, as the config of a controller holds it."""
        return asdict(self)


def home_from_json(fields: Mapping[str, Any]) -> Home:
    """The home that a config holds."""
    known = {name: value for name, value in fields.items() if name in Home.__dataclass_fields__}
    spread = {name: tuple(map(float, values)) for name, values in known["spread"].items()}
    return Home(**{**known, "models": tuple(known.get("models", ())), "spread": spread})


class Lookout:
    """Looks at questions as they come and says whether they are those of a home.

    `abroad` is said when the evidence is in, and taken back after a whole window that shows none.
    In `doubt` is whoever has any evidence against being at home, be it little.
    """

    def __init__(self, home: Home | None) -> None:
        self.home = home
        self.abroad = False
        self._start()

    def _start(self) -> None:
        self._bets = np.zeros((2, len(FACTS)))
        self._seen: set[str] = set()
        self._head, self._tail = list[str](), list[str]()
        """The words that all questions begin with, and those they end with, backwards."""

    @property
    def evidence(self) -> float:
        """The log of what all bets together have grown to; 0 at the start."""
        bets = self._bets
        return float(np.logaddexp.reduce(bets, axis=None) - log(bets.size))

    @property
    def doubt(self) -> bool:
        """Whether more speaks against being at home than for it."""
        return self.abroad or self.evidence > 0

    @property
    def reason(self) -> str:
        """What is different here: the best bet."""
        side, fact = divmod(int(self._bets.argmax()), len(FACTS))
        _, less, more = [*FACTS.values()][fact]
        return more if side else less

    @property
    def news(self) -> str:
        """What to say where this has just changed."""
        if self.abroad:
            return (
                "the questions are not like those that the controller was taught on: they are "
                f"{self.reason}; it steps aside and plain votes decide (--trust keeps it)"
            )
        return "the questions are again like those that the controller was taught on; it decides"

    def see(self, question: Question) -> bool:
        """Look at one more question; returns whether there is doubt. One asked again says nothing.

        The first one only shows what the others may be wrapped in.
        """
        key = question.keys[0]
        if self.home is None or key in self._seen:
            return self.doubt
        if len(self._seen) >= WINDOW:
            self.abroad = self.abroad and self.evidence > 0
            self._start()
        words = question.text.split()
        if not self._seen:
            self._head, self._tail = words, words[::-1]
        else:
            self._head = _common(self._head, words)
            self._tail = _common(self._tail, words[::-1])
            self._bets += self.home.bets(_strip(question, self._head, self._tail))
            self.abroad = self.abroad or self.evidence >= -log(ERROR)
        self._seen.add(key)
        return self.doubt


def _strip(question: Question, head: Sequence[str], tail: Sequence[str]) -> str:
    """The words of a question without those that it is wrapped in, which are no part of it."""
    words = question.text.split()
    bare = words[len(head) : max(len(head), len(words) - len(tail))]
    return " ".join([*bare, *question.choices])


def _common(one: list[str], other: list[str]) -> list[str]:
    """The words that both begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return [word for word, _ in pairs]
