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
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from aera.core import Question, Response, Vote
from aera.errors import ReadingError, UsageError
from aera.files import load_named
from aera.reading.canonical import LETTERS, canonical_choice, canonical_expression, canonical_number
from aera.reading.find import (
    NORMALISATIONS,
    canonical_text,
    canonical_yes_no,
    last_boxed,
    last_line,
    last_number,
    phrase_ends,
    stated_choice,
    stated_expression,
    stated_number,
    stated_text,
    stated_yes_no,
    visible,
)
from aera.reading.json_values import canonical_json, find_json, select
from aera.trace import ServedTokens

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


NUMERIC = (
    "{question}\n\nSolve this step by step. Put only the final number inside \\boxed{}, "
    "without units or extra text."
)
CHOICE = (
    "{question}\n\nThink step by step about the options, then choose the single best one and "
    "put only its letter inside \\boxed{}."
)
EXPRESSION = (
    "{question}\n\nSolve the problem step by step. If you reach a final answer, put it inside "
    "\\boxed{}."
)
TEXT = (
    "{question}\n\nThink step by step, then put only the final answer, as short as possible, "
    "inside \\boxed{}."
)
YES_NO = (
    "{question}\n\nThink step by step, then put only the final answer, yes or no, inside \\boxed{}."
)
JSON = '{question}\n\nAnswer with one JSON object whose field "answer" holds the final answer.'
REDO_NOTE = (
    "\n\nNote: if you notice that your approach leads nowhere, you may abandon it by saying "
    '"It\'s better to redo the question." and ending there.'
)

_NUMBERS = Task("numeric", "numeric", NUMERIC)
_CHOICES = Task("choice", "choice", CHOICE)
_EXPRESSIONS = Task("expression", "expression", EXPRESSION)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _NUMBERS,
        _CHOICES,
        _EXPRESSIONS,
        Task("text", "text", TEXT),
        Task("yes-no", "yes-no", YES_NO),
        Task("json", "json", JSON, path="answer"),
        replace(_NUMBERS, name="gsm8k"),
        replace(_CHOICES, name="gpqa", letters="ABCD", shuffle=True),
        replace(_CHOICES, name="commonsense", letters="ABCDE"),
        replace(_CHOICES, name="mmlu-pro"),
        replace(_EXPRESSIONS, name="math"),
        replace(_EXPRESSIONS, name="amc"),
        replace(_EXPRESSIONS, name="aime"),
    )
}
"""What --task may name without a file."""


def with_redo(task: Task) -> Task:
    """A task as the paper has it: the note that allows to give up, and the Re2 redo test."""
    return replace(task, template=task.template + REDO_NOTE, redo=True)


def get_task(name: str) -> Task:
    """A task by the name of a preset, by a file NAME.toml, or by MODULE:NAME from Python."""
    if name in TASKS:
        return TASKS[name]
    if name.endswith(".toml") or Path(name).is_file():
        return read_task(Path(name))
    if ":" in name:
        return _from_python(name)
    raise UsageError(
        f'no task is called "{name}"; known are {", ".join(TASKS)}, a file NAME.toml and '
        "MODULE:NAME"
    )


def _from_python(named: str) -> Task:
    """A Task, or a function from a text to an answer, which makes one."""
    found: Any = load_named(named, "task")
    if isinstance(found, Task):
        return found
    if not callable(found):
        raise UsageError(f'"{named}" is neither a Task nor a function from a text to an answer')
    return Task(named.rpartition(":")[2], "text", normalise=(), reader=named)


# --- files ----------------------------------------------------------------------------------------

KEYS: dict[str, tuple[str, type]] = {
    "name": ("name", str),
    "kind": ("kind", str),
    "prompt": ("template", str),
    "system": ("system", str),
    "pattern": ("pattern", str),
    "path": ("path", str),
    "reader": ("reader", str),
    "letters": ("letters", str),
    "normalise": ("normalise", list),
    "loose": ("loose", bool),
    "redo": ("redo", bool),
    "shuffle": ("shuffle", bool),
    "equivalence": ("equivalence", bool),
}
"""Keys of a task file, the field each sets, and what it must be."""


def read_task(path: Path) -> Task:
    """A task from a TOML file; what is wrong is said with its key."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f'there is no task file "{path}"') from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f'the task file "{path}" is not TOML: {error}') from None
    told: dict[str, Any] = {}
    for key, value in content.items():
        _check(key, value, path)
        told[KEYS[key][0]] = value
    if "kind" not in told:
        raise UsageError(f'"{path}": the key "kind" is missing; it is one of {", ".join(KINDS)}')
    if told.get("path") is not None and told["kind"] != "json":
        raise UsageError(f'"{path}": the key "path" goes with kind = "json"')
    base = TASKS[told["kind"]]
    defaults: dict[str, Any] = {field.name: getattr(base, field.name) for field in fields(Task)}
    normalise = tuple(str(each) for each in told.get("normalise", WORDS))
    try:
        return Task(**{**defaults, "name": path.stem, **told, "normalise": normalise})
    except UsageError as error:
        raise UsageError(f'"{path}": {error}') from None


def _check(key: str, value: Any, path: Path) -> None:
    if key not in KEYS:
        raise UsageError(f'"{path}": no key is called "{key}"; known are {", ".join(KEYS)}')
    kind = KEYS[key][1]
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        wanted = {str: "a text", list: "a list of texts", bool: "true or false"}[kind]
        raise UsageError(f'"{path}": the key "{key}" must be {wanted}, but is {value!r:.40}')
    if key == "kind" and value not in KINDS:
        raise UsageError(f'"{path}": "kind" is one of {", ".join(KINDS)}, but is "{value}"')
    if isinstance(value, list) and not all(isinstance(each, str) for each in value):
        raise UsageError(f'"{path}": the key "{key}" must be a list of texts')


EXAMPLES = 3
SHOWN = 80
"""Characters of an example: the end of a response, where an answer would stand."""
LITTLE = 0.5
"""A share read below which nothing that follows should be believed."""


@dataclass(frozen=True)
class Readability:
    """How many responses were read, and why the others were not."""

    responses: int = 0
    read: int = 0
    unread: int = 0
    """There is a text, and no answer was found in it."""
    truncated: int = 0
    """Cut off by the token limit before an answer."""
    failed: int = 0
    """The server failed, or nothing came back."""
    examples: tuple[str, ...] = ()
    """What was not read, each by its question and its end."""

    @classmethod
    def of(
        cls, question_id: str, responses: Sequence[Response], votes: Sequence[Vote]
    ) -> "Readability":
        """The responses to one question."""
        read = unread = truncated = failed = 0
        examples: list[str] = []
        for response, vote in zip(responses, votes, strict=True):
            if vote.answer is not None:
                read += 1
            elif response.error is not None or not (response.text or response.answer):
                failed += 1
            elif response.truncated:
                truncated += 1
            else:
                unread += 1
                if len(examples) < EXAMPLES:
                    examples.append(f"{question_id}: {_end(response.answer or response.text)}")
        return cls(len(votes), read, unread, truncated, failed, tuple(examples))

    def join(self, others: "Iterable[Readability]") -> "Readability":
        """This and others together; examples are of different questions where there are."""
        parts = [self, *others]
        firsts = [each for part in parts for each in part.examples[:1]]
        more = [each for part in parts for each in part.examples[1:]]
        return Readability(
            sum(part.responses for part in parts),
            sum(part.read for part in parts),
            sum(part.unread for part in parts),
            sum(part.truncated for part in parts),
            sum(part.failed for part in parts),
            (*firsts, *more)[:EXAMPLES],
        )

    @property
    def share(self) -> float:
        """Of the responses that were read."""
        return self.read / self.responses if self.responses else 0.0

    @property
    def little(self) -> bool:
        """Whether so little was read that it must be said loudly."""
        return self.share < LITTLE

    def summary(self) -> str:
        """One line."""
        whole = max(1, self.responses)
        parts = [f"{100 * self.read / whole:.1f} % of {self.responses:,} responses read"]
        for count, name in (
            (self.unread, "without an answer that could be found"),
            (self.truncated, "cut off before one"),
            (self.failed, "failed or empty"),
        ):
            if count:
                parts.append(f"{100 * count / whole:.1f} % {name}")
        return ", ".join(parts)

    def lines(self) -> list[str]:
        """The summary, and below it what was not read."""
        return [f"readable: {self.summary()}", *(f"  not read: {each}" for each in self.examples)]

    def check(self, task: Task, where: str) -> None:
        """Refuse what nothing could be read of."""
        if self.responses and not self.read:
            raise ReadingError(
                f"nothing could be read in {where}: the task {task.name} looks for "
                f"{task.describe()}; {self._example()}give another --task (aera tasks), a task "
                "file with a pattern or path, or MODULE:NAME"
            )

    def warning(self, task: Task) -> str | None:
        """What must be said loudly, None where enough was read."""
        if not self.little:
            return None
        return (
            f"ONLY {100 * self.share:.0f} % of the responses could be read as {task.name} "
            f"({task.describe()}): what is said of these questions rests on few of them"
        )

    def _example(self) -> str:
        return f"one ends with {self.examples[0]!r}; " if self.examples else ""

    def as_json(self) -> dict[str, Any]:
        """Every field, and the share."""
        return {**asdict(self), "examples": list(self.examples), "share": round(self.share, 4)}


NOTHING = Readability()
"""Of no response."""


def _end(text: str) -> str:
    """The end of a text on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= SHOWN else f"… {flat[-SHOWN:]}"


def read_health(
    parts: Iterable[tuple[str, Sequence[Response], Sequence[Vote]]],
) -> Readability:
    """The readability of many questions, each with its responses and votes."""
    return Readability().join(Readability.of(*part) for part in parts)


NEAR = 80
"""Characters behind a phrase within which an answer begins."""
BOX, BEHIND = "box", 16
"""What every box is called by, and the characters from there to what is inside."""


def add_traces(responses: Iterable[Response], task: Task) -> list[Response]:
    """The responses, each with its trace where the server listed its tokens."""
    return [_add_trace(response, task) for response in responses]


def _add_trace(response: Response, task: Task) -> Response:
    tokens = getattr(response.source, "tokens", None)
    if response.trace is not None or not isinstance(tokens, ServedTokens):
        return response
    said = visible(response.text)
    return replace(response, trace=tokens.trace(said, answer_place(said, task)))


def answer_place(text: str, task: Task) -> slice | None:
    """Where the answer stands that the task reads in a text, None where it reads none."""
    found = task.find(text)
    start = -1 if found is None else _locate(found, text)
    return None if found is None or start < 0 else slice(start, start + len(found))


def _locate(found: str, text: str) -> int:
    """In the last box that begins with it, else behind the last such phrase, else at its last."""
    box = text.rfind(BOX)
    while box >= 0:
        if (start := text.find(found, box, box + BEHIND + len(found))) >= 0:
            return start
        box = text.rfind(BOX, 0, box)
    for end in phrase_ends(text):
        if (start := text.find(found, end, end + NEAR + len(found))) >= 0:
            return start
    return text.rfind(found)


def readable_answers(
    written: Iterable[tuple[Question, str | None]], task: Task
) -> list[str | None]:
    """Each answer in a form the task can read, None where there is none.

    A worked solution counts as what it boxes or puts behind ####, a choice by its text as its
    letter.
    """
    return [_readable(question, text, task) if text else None for question, text in written]


def _readable(question: Question, text: str, task: Task) -> str | None:
    if task.kind == "choice":
        text = dict(zip(question.choices, LETTERS, strict=False)).get(text, text)
    marked = text.rpartition("####")[2].strip() if "####" in text else None
    for form in (last_boxed(text), marked, text):
        if form and task.canonical(form) is not None:
            return form
    return None
