r"""Task: how to ask, how to read what comes back, and when two answers are the same.

An answer is looked for in this order, and the first place that has one counts:

1. what the task's own `pattern` or `reader` finds, where it has one (then nothing else is tried);
2. the last box, \boxed{} or \fbox{}, anywhere in the text;
3. the last "#### 18" or "the answer is 18";
4. the last line, where it is nothing but an answer;
5. for tasks that say so (`loose`), the last number of the text.

Thinking sections are passed over. A box that cannot be understood abstains: what stands elsewhere
would be a guess. Of a response that was cut off only a box counts.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Protocol

from aera.errors import UsageError
from aera.plugins import load_named
from aera.reading.canonical import (
    LETTERS,
    canonical_choice,
    canonical_expression,
    canonical_number,
)
from aera.reading.find import (
    last_boxed,
    last_line,
    last_number,
    stated_choice,
    stated_expression,
    stated_number,
    stated_text,
    stated_yes_no,
    visible,
)
from aera.reading.json_values import canonical_json, find_json, select
from aera.reading.words import NORMALISATIONS, canonical_text, canonical_yes_no
from aera.response import Question, Response
from aera.tally import Vote

log = logging.getLogger("aera.reading")
REDO_PHRASE = "better to redo"
REDO_CUT = "s better to redo the question"
REDO_TAIL = 100
"""Characters at the end of a response among which the Re2 test looks for its box."""
LONGEST_LINE = 60
"""Characters of a last line beyond which it is prose."""
WORDS = ("case", "punctuation", "articles")

STATED: dict[str, Callable[[str], str | None]] = {
    "numeric": stated_number,
    "choice": stated_choice,
    "expression": stated_expression,
    "text": stated_text,
    "yes-no": stated_yes_no,
}
KINDS = (*STATED, "json")
"""What an answer may be: a number, a letter, a formula, a short text, yes or no, a JSON value."""


class Reader(Protocol):
    """Anything that reads votes; a Task does."""

    def read(self, response: Response) -> Vote:
        """What one response says."""
        ...


@dataclass(frozen=True)
class Task:
    """One benchmark or one kind of question: prompt template, reader and grader."""

    name: str
    kind: str
    template: str = "{question}"
    system: str | None = None
    """A system message sent with every question, where a question has none of its own."""
    letters: str = LETTERS
    """The letters a choice may be."""
    pattern: str | None = None
    """A regular expression whose last match is the answer: its first group, or all of it."""
    path: str | None = None
    """For json, the field that is the answer, as answer or result.0.value; None is all of it."""
    normalise: tuple[str, ...] = WORDS
    """For text, what does not count: case, punctuation, articles, accents."""
    reader: str | None = None
    """MODULE:NAME of a function from a text to an answer or None, instead of all rules here."""
    redo: bool = False
    """Whether the Re2 redo test decides who abstains, as in the paper."""
    loose: bool = False
    """Whether the last number of a text without box or phrase counts."""
    shuffle: bool = False
    """Whether the choices are put in an order of their own, by a recorded seed, when asking."""
    equivalence: bool = False
    """Whether math-verify is asked too when two expressions are the same (equivalence.py)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "normalise", tuple(self.normalise))
        if self.kind not in KINDS:
            raise UsageError(
                f'a task is {", ".join(KINDS[:-1])} or {KINDS[-1]}, but "{self.name}" is '
                f'"{self.kind}"'
            )
        if self.equivalence and self.kind != "expression":
            raise UsageError(f'equivalence is for expressions, but "{self.name}" is {self.kind}')
        if "{question}" not in self.template:
            raise UsageError(f'the prompt of the task "{self.name}" has no {{question}} in it')
        unknown = sorted(set(self.normalise) - set(NORMALISATIONS))
        if unknown:
            raise UsageError(
                f'"{unknown[0]}" cannot be normalised away; known are {", ".join(NORMALISATIONS)}'
            )
        if self.pattern is not None:
            _compile(self.pattern)

    # --- asking -----------------------------------------------------------------------------------

    def prompt(self, question: Question) -> str:
        """The user message for a question, its choices listed by letter."""
        lines = [
            f"({letter}) {text}" for letter, text in zip(LETTERS, question.choices, strict=False)
        ]
        return self.template.replace("{question}", "\n".join([question.text, *lines]))

    def question_in(self, prompt: str) -> str:
        """The question inside a user message, which may be bare or in the template."""
        before, _, after = self.template.partition("{question}")
        dressed = prompt.startswith(before) and prompt.endswith(after)
        return prompt[len(before) : len(prompt) - len(after)] if dressed else prompt

    # --- reading ----------------------------------------------------------------------------------

    def read(self, response: Response) -> Vote:
        """What a response says: a vote, or an abstention."""
        if response.error is not None:
            return Vote(None, redo=self.redo)
        if response.answer is not None:
            return Vote(self.canonical(response.answer), raw=response.answer)
        if self.redo:
            return self._read_re2(response.text)
        shown = visible(response.text)
        if self.reader is not None or self.pattern is not None or self.kind == "json":
            found = None if response.truncated else self._find_own(shown)
            return Vote(None if found is None else self.canonical(found), raw=found)
        raw = last_boxed(shown)
        if raw is None and not response.truncated:
            found = self._find(shown)
            return Vote(None if found is None else self.canonical(found))
        return Vote(None if raw is None else self.canonical(raw), raw=raw)

    def _read_re2(self, text: str) -> Vote:
        """The vote under the redo test: only a box near the end counts, and only without a redo."""
        redo = needs_redo(text)
        raw = last_boxed(visible(text.partition(REDO_CUT)[0] if redo else text))
        return Vote(None if redo or raw is None else self.canonical(raw), redo, raw)

    def _find_own(self, text: str) -> str | None:
        """What the task's own reader, pattern or path finds."""
        if self.reader is not None:
            return _own_answer(self.reader, text)
        if self.pattern is not None:
            matches = list(_compile(self.pattern).finditer(text))
            return (matches[-1][1 if matches[-1].re.groups else 0] or None) if matches else None
        value = select(find_json(text), self.path or "")
        return value if isinstance(value, str) or value is None else canonical_json(value)

    def find(self, text: str) -> str | None:
        """The answer as it is written in what a response shows, wherever it may stand."""
        if self.reader is not None or self.pattern is not None or self.kind == "json":
            return self._find_own(text)
        return last_boxed(text) or (None if self.redo else self._find(text))

    def _find(self, text: str) -> str | None:
        """The answer of a text without a box: a phrase or marker, a last line, a last number."""
        stated = STATED[self.kind](text)
        if stated is not None:
            return stated
        line = last_line(text)
        short = line is not None and len(line) <= LONGEST_LINE
        if line and short and self._is_answer(line) and self.canonical(line) is not None:
            return line
        return last_number(text) if self.loose else None

    def _is_answer(self, line: str) -> bool:
        """Whether a last line is an answer and no prose, which some kinds cannot tell from it."""
        if self.kind == "expression":
            return bool(_FORMULA_ONLY.fullmatch(line))
        return self.kind != "choice" or bool(_LETTER_ONLY.fullmatch(line))

    def canonical(self, raw: str) -> str | None:
        """The one form of an answer, None when it makes no sense for this kind."""
        if self.kind == "choice":
            return canonical_choice(raw, self.letters)
        if self.kind == "text":
            return canonical_text(raw, self.normalise)
        return _CANONICAL[self.kind](raw)

    def same(self, one: str | None, other: str) -> bool:
        """Whether two answers are the same; no answer is never the same as anything."""
        canonical = None if one is None else self.canonical(one)
        return canonical is not None and canonical == self.canonical(other)

    def describe(self) -> str:
        """Where an answer is found, and what is special about reading it."""
        if self.reader is not None:
            places = [f"what {self.reader} makes of the text"]
        elif self.pattern is not None:
            places = [f"the last match of {self.pattern}"]
        elif self.kind == "json":
            field = f"the field {self.path} of " if self.path else ""
            places = [f"{field}the last JSON value"]
        elif self.redo:
            places = ["a box near the end of the response, unless it asks to redo the question"]
        else:
            places = ["the last box", "else #### or a phrase", "else a last line that is one"]
            places += ["else the last number"] if self.loose else []
        if self.kind == "choice":
            places.append(f"letters {self.letters[0]} to {self.letters[-1]}")
        places += ["choices shuffled when asking"] if self.shuffle else []
        return "; ".join(places)

    def as_json(self) -> dict[str, object]:
        """Every field, as the manifest of a pool holds it."""
        return asdict(self)


_FORMULA_ONLY = re.compile(
    r"(?=.*[\d\\])"
    r"(?:\\[a-zA-Z]++|\\[^a-zA-Z]|(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])|[^a-zA-Z\\])++"
)
_LETTER_ONLY = re.compile(r"[(\[]?[A-Za-z][)\].]?")


def _canonical_value(raw: str) -> str | None:
    """A JSON value as text: numbers exactly, texts without white space around them."""
    number = canonical_number(raw)
    return number if number is not None else (" ".join(raw.split()) or None)


_CANONICAL: dict[str, Callable[[str], str | None]] = {
    "numeric": canonical_number,
    "expression": canonical_expression,
    "yes-no": canonical_yes_no,
    "json": _canonical_value,
}


@lru_cache(maxsize=256)
def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise UsageError(f'the pattern "{pattern}" is no regular expression: {error}') from None


@lru_cache(maxsize=64)
def _load_reader(named: str) -> Callable[[str], object]:
    found: Any = load_named(named, "reader")
    if not callable(found):
        raise UsageError(f'"{named}" is no reader: a function from a text to an answer or None')
    reader: Callable[[str], object] = found
    return reader


def _own_answer(named: str, text: str) -> str | None:
    """What a reader of the user's own says; what it raises on one response is an abstention."""
    reader = _load_reader(named)
    try:
        found = reader(text)
    except Exception as error:  # noqa: BLE001 - it is not our code, and must not end a batch
        _warn_once(named, f"{type(error).__name__}: {error}")
        return None
    return None if found is None else str(found)


@lru_cache(maxsize=64)
def _warn_once(named: str, trouble: str) -> None:
    log.warning("the reader %s failed, and the response abstains: %s", named, trouble)


def needs_redo(text: str) -> bool:
    """The Re2 evaluator's test: it asks for a redo, or no box stands near the end of the text."""
    return REDO_PHRASE in text or "boxed" not in text[-REDO_TAIL:].lower()


def task_from_json(fields: dict[str, object]) -> Task:
    """The task a manifest describes."""
    known = {name: value for name, value in fields.items() if name in Task.__dataclass_fields__}
    return Task(**known)  # type: ignore[arg-type]
