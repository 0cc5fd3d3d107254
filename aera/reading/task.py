r"""Task: how to ask, how to read what comes back, and when two answers are the same.

An answer is looked for in this order, and the first place that has one counts:

1. what the task's own `pattern` or `reader` finds, where it has one (then nothing else is tried);
2. the last box, \boxed{} or \fbox{}, anywhere in the text;
3. the last "#### 18", "the answer is 18" or <answer>18</answer>, also in other languages;
4. the last line, where it is nothing but an answer, perhaps behind a label, or has one thing in
   bold; for a choice, the one letter that the text declares for, or the words of an option;
5. for tasks that say so (`loose`), the last sentence, where it names one number or one option, and
   the one line like "C. Paris".

Thinking never counts, and what is not closed hides everything. A box that cannot be understood
abstains, as do two in one sentence, "15 (or 16)", a letter with the words of another option, and
doubt: what stands elsewhere would be a guess. Of a response that was cut off only a box counts that
is not taken back, or what it says at least three times and nothing else.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from aera.core import Question, Reader, Response, Vote
from aera.errors import PoolError, UsageError
from aera.files import Json, load_named
from aera.reading import equivalence, find
from aera.reading.canonical import (
    LETTERS,
    NORMALISATIONS,
    WORDS,
    canonical_choice,
    canonical_expression,
    canonical_json,
    canonical_number,
    canonical_text,
    canonical_yes_no,
    is_rounded,
)
from aera.reading.find import find_json, last_boxed, select, visible
from aera.settings import read_fields, read_toml, setting
from aera.trace import ServedTokens

log = logging.getLogger("aera.reading")
REDO_PHRASE = "better to redo"
REDO_CUT = "s better to redo the question"
REDO_TAIL = 100
"""Characters at the end of a response among which the Re2 test looks for its box."""
LONGEST_LINE = 60
"""Characters of a last line beyond which it is prose."""
KINDS = ("numeric", "choice", "expression", "text", "yes-no", "json")
"""What an answer may be: a number, a letter, a formula, a short text, yes or no, a JSON value."""


@dataclass(frozen=True)
class Task:
    """One benchmark or one kind of question: prompt template, reader and grader."""

    name: str = setting(MISSING, "What it is called; else the name of the file.")
    kind: str = setting(MISSING, "What its answers are.", choices=KINDS)
    template: str = setting("{question}", "The user message.", keys=("prompt",))
    system: str | None = setting(None, "A system message, where a question has none of its own.")
    letters: str = setting(LETTERS, "The letters a choice may be.")
    pattern: str | None = setting(
        None, "A regular expression whose last match is the answer: its first group, or all of it."
    )
    path: str | None = setting(
        None, "For json, the field that is the answer, as answer or result.0.value; else all of it."
    )
    normalise: tuple[str, ...] = setting(
        WORDS, "For text, what does not count: case, punctuation, articles, accents."
    )
    reader: str | None = setting(
        None, "MODULE:NAME of a function from a text to an answer or None, instead of all rules."
    )
    redo: bool = setting(False, "Whether the Re2 redo test decides who abstains, as in the paper.")
    loose: bool = setting(False, "Whether a last sentence counts that names one number or option.")
    thinking: tuple[str, ...] = setting(
        (), "Markers of thinking beside those known: each that opens, then the one that closes."
    )
    shuffle: bool = setting(False, "Whether choices get an order of their own, by a recorded seed.")
    equivalence: bool = setting(
        False, "Whether math-verify is asked too when two expressions are the same."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "normalise", tuple(self.normalise))
        object.__setattr__(self, "thinking", tuple(self.thinking))
        if len(self.thinking) % 2 or not all(self.thinking):
            raise UsageError(
                f'the thinking of the task "{self.name}" needs pairs: a marker that opens, then '
                "the one that closes"
            )
        if self.kind not in KINDS:
            kinds = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
            raise UsageError(f'a task is {kinds}, but "{self.name}" is "{self.kind}"')
        if self.equivalence and self.kind != "expression":
            raise UsageError(f'equivalence is for expressions, but "{self.name}" is {self.kind}')
        if "{question}" not in self.template:
            raise UsageError(f'the prompt of the task "{self.name}" has no {{question}} in it')
        for each in set(self.normalise) - set(NORMALISATIONS):
            known = ", ".join(NORMALISATIONS)
            raise UsageError(f'"{each}" cannot be normalised away; known are {known}')
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

    def read(self, response: Response, options: Sequence[str] = ()) -> Vote:
        """What a response says: a vote, or an abstention. A choice may be named by its words."""
        if response.error is not None:
            return Vote(None, redo=self.redo)
        if response.answer is not None:
            return Vote(self.canonical(response.answer), raw=response.answer)
        if self.redo:
            return self._read_re2(response.text)
        shown, cut = visible(response.text, self.thinking), response.truncated
        if self._own:
            found = None if cut else self._find_own(shown)
            return Vote(None if found is None else self.canonical(found), raw=found)
        shown, cut = self._asked(shown, cut)
        return self._read_box(shown, options, cut) or Vote(self._find(shown, options, cut))

    @property
    def _own(self) -> bool:
        """Whether it looks in one place of its own only."""
        return self.reader is not None or self.pattern is not None or self.kind == "json"

    def _asked(self, text: str, cut: bool) -> tuple[str, bool]:
        """The text before it goes on to questions that nobody asked, and whether it was cut off.

        Where it begins with a question and there are others, nobody knows which was asked.
        """
        ends = [place for each in _ENDS if (place := text.find(each)) > 0] if "<" in text else []
        if ends:
            text, cut = text[: min(ends)], False
        starts = [match.start() for match in _RUN_ON.finditer(f"\n{text}")]
        before = text[: starts[0]] if starts else ""
        if not before.strip():
            return ("" if len(starts) > 1 else text), cut
        whole = last_boxed(before) or next(find.statements(self.kind, before), None)
        return (before, False) if whole else (text, cut)

    def _read_box(self, text: str, options: Sequence[str], cut: bool) -> Vote | None:
        """The vote of the last box, None where there is none.

        It abstains where a second box shares its sentence, and where the text takes it back and
        is cut off before another.
        """
        found = find.boxes(text)
        raw, start, end = next(found, (None, 0, 0))
        if raw is None:
            return None
        answer = find.offered(self.canonical(raw) or find.named_option(raw, options), options)
        other, _, stop = next(found, (None, 0, start))
        doubted = answer is None or (
            find.contradicts(answer, _AFTER_LETTER.sub("", raw), options)
            or self._names_another(answer, text, end)
            or (other and _JOINED.fullmatch(text, stop, start) and self.canonical(other) != answer)
            or (cut and _TAKEN_BACK.search(text, end))
        )
        return Vote(None if doubted else answer, raw=raw)

    def _read_re2(self, text: str) -> Vote:
        """The vote under the redo test: only a box near the end counts, and only without a redo."""
        redo = needs_redo(text)
        raw = last_boxed(visible(text.partition(REDO_CUT)[0] if redo else text, self.thinking))
        return Vote(None if redo or raw is None else self.canonical(raw), redo, raw)

    def _find_own(self, text: str) -> str | None:
        """What the task's own reader, pattern or path finds."""
        if self.reader is not None:
            return _own_answer(self.reader, text)
        if self.pattern is not None:
            matches = list(_compile(self.pattern).finditer(text))
            found = matches[-1][1 if matches[-1].re.groups else 0] if matches else ""
            return last_boxed(found) or found or None
        value = select(find_json(text), self.path or "")
        return value if isinstance(value, str) or value is None else canonical_json(value)

    def answer_place(self, text: str) -> slice | None:
        """Where the answer stands in what a response shows, None where it reads none."""
        written: str | None = None
        start = -1
        if self._own:
            written = self._find_own(text)
        elif box := next(find.boxes(text), None):
            written, start = box[0], text.find(box[0], box[1])
        elif not self.redo:
            said = next(find.statements(self.kind, text), None)
            written, start = said[:2] if said else (self._written(text, ()), -1)
        if written is None:
            return None
        start = text.rfind(written) if start < 0 else start
        return None if start < 0 else slice(start, start + len(written))

    def _find(self, text: str, options: Sequence[str], cut: bool) -> str | None:
        """The answer of a text without a box.

        Where it is cut off, only what it says again and again, and nothing else.
        """
        if not text.isascii():
            text = text[-find.TAIL :].translate(_QUOTES)
            text = unicodedata.normalize("NFKC", text) if self.kind == "choice" else text
        if cut:
            stated = find.statements(self.kind, text)
            said = [self.canonical(value or "") for value, _, end in stated if end < len(text)]
            return said[0] if len(set(said)) == 1 and len(said) > 2 else None
        written = self._written(text, options)
        return find.offered(None if written is None else self.canonical(written), options)

    def _written(self, text: str, options: Sequence[str]) -> str | None:
        """A phrase or marker, a last line, for choices a declaration, a last sentence if loose."""
        for said, _, end in find.statements(self.kind, text, options):
            doubted = find.DOUBT.search(text, end) or self._names_another(said or "", text, end)
            return None if doubted else said
        last = find.lines(text)
        line = find.last_said(last) or ""
        if "\\boxed" in line:  # a box that is empty or never closed
            return None
        if len(last) < 2 or not all(map(_ITEM.match, last)):
            line = line if self.kind in ("text", "yes-no") else _LABEL.sub("", line)
            if bold := self._bold(line, text):
                return bold
            bare, alone = _SO.sub("", line.strip(find.EDGES)), _ALONE.get(self.kind, _ANYTHING)
            if len(bare) <= LONGEST_LINE and alone.fullmatch(bare) and self.canonical(bare):
                return bare
        if self.kind == "choice":
            first = text.strip().partition("\n")[0].strip(find.EDGES)
            if _LETTER_ONLY.fullmatch(first):
                return first
            if found := find.chosen(text, options) or find.named_option(line, options):
                return found
        return self._last_sentence(text, options) if self.loose else None

    def _bold(self, line: str, text: str) -> str | None:
        """The one thing in bold of a last line, for a choice the only one in all of the text."""
        bold = [*find.BOLD.finditer(line)]
        if line.startswith(("- ", "* ")) or len(bold) != 1:
            return None
        after = line[bold[0].end() :].strip(" .!")
        # What a text stresses before its end need not be its answer.
        denied = {"yes-no": find.DENIAL["numeric"].search(line), "text": after}.get(self.kind)
        if denied or self._names_another(bold[0][1], line, bold[0].end()):
            return None
        spans = find.BOLD.findall(text[-find.TAIL :] if self.kind == "choice" else line)
        alone = _FORMULA_ONLY if self.kind == "expression" else _ANYTHING
        said = {self.canonical(span) for span in spans if alone.fullmatch(span)} - {None}
        return said.pop() if len(said) == 1 else None

    def _names_another(self, said: str, text: str, end: int) -> bool:
        """Whether another answer is offered behind one that ends here, as in "5 (or 6)"."""
        found = find.OTHER.match(text, end)
        one, other = self.canonical(said), self.canonical(found["other"]) if found else None
        if one is None or other is None:
            return False
        return one != other and not is_rounded(one, other) and not is_rounded(other, one)

    def _last_sentence(self, text: str, options: Sequence[str]) -> str | None:
        """What the last sentence names, where that is one thing only and it denies nothing."""
        sentence, denial = find.last_said(find.sentences(text)), find.DENIAL.get(self.kind)
        if sentence is None or denial is None:
            return None
        if self.kind == "choice":
            denied = denial.search(text.rstrip().rpartition("\n\n")[2])
            listed = find.OPTION.match(find.last_said(find.lines(text)) or "")
            found = set() if listed else find.choices_in(sentence, options)
            found = found or find.choices_in(find.option_line(text), options)
        else:
            denied = denial.search(sentence)
            found = {canonical_number(number) for number in find.numbers_in(sentence)}
        return found.pop() if len(found) == 1 and not denied else None

    def canonical(self, raw: str) -> str | None:
        """The one form of an answer, None when it makes no sense for this kind."""
        if self.kind == "choice":
            return canonical_choice(raw, self.letters)
        if self.kind == "text":
            return canonical_text(raw, self.normalise)
        return _CANONICAL[self.kind](raw)

    def same(self, one: str | None, other: str) -> bool:
        """Whether two answers mean the same, as none and another never do.

        With equivalence, math-verify is asked too.
        """
        found, wanted = self.canonical(one or ""), self.canonical(other)
        if found is None or wanted is None or not self.equivalence:
            return found is not None and found == wanted
        return found == wanted or equivalence.shared_equivalence().same(found, wanted)

    def describe(self) -> str:
        """Where an answer is found, and what is special about reading it."""
        if self.reader is not None:
            told = f"what {self.reader} makes of the text"
        elif self.pattern is not None:
            told = f"the last match of {self.pattern}"
        elif self.kind == "json":
            told = f"{f'the field {self.path} of ' if self.path else ''}the last JSON value"
        elif self.redo:
            told = "a box near the end of the response, unless it asks to redo the question"
        else:
            told = "the last box; else #### or a phrase; else a last line that is one"
            told += "; else a last sentence that names one" if self.loose else ""
        if self.kind == "choice":
            told += f"; letters {self.letters[0]} to {self.letters[-1]}"
        return told + ("; choices shuffled when asking" if self.shuffle else "")

    def as_json(self) -> dict[str, object]:
        """Every field, as the manifest of a pool holds it."""
        return asdict(self)


_FORMULA_ONLY = re.compile(
    r"(?=.*(?:\d|\\[a-zA-Z]))"
    r"(?:\\[a-zA-Z]++|\\[^a-zA-Z]|(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])|[^a-zA-Z\\])++"
)
_LETTER_ONLY = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice) )?[(\[]?[A-Za-z][)\].]?")
_ANYTHING = re.compile(".*[^:]", re.DOTALL)
_ALONE = {"expression": _FORMULA_ONLY, "choice": _LETTER_ONLY}
"""What a last line must be where an answer cannot be told from prose."""
_SO = re.compile(r"^(?:=?>|->|=|\u2192|\u21d2|[-\u2022\u2234])[ \t]+(?=[-\w$\\(])")
"""What a last line may begin with that only says that it follows."""
_LABEL = re.compile(
    r"[ *_#>]{0,5}(?!(?:confidence|note|check|hint|each|every|step|case|part|reason)\b)"
    r"(?:[^\W\d_]{2}|[^\W\d_a-zA-Z])[^\d:=|]{0,50}[:\uff1a][*_]{0,3}\s*(?=\S)",
    re.IGNORECASE,
)
"""What it may begin with that names its answer, as in "Total cost: $18"."""
_ITEM = re.compile(rf"[-*\u2022] |{_LABEL.pattern}", re.IGNORECASE)
"""What the lines of a list begin with, of which the last is no more an answer than the others."""
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
_RUN_ON = re.compile(r"\n(?:Q|Question|Problem|Human|User) ?\d{0,3}:")
_ENDS = ("<|endoftext|>", "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "</s>")
"""Behind these, another turn would begin."""
_JOINED = re.compile(
    r"[ $]*|[^\n.;?!=]{0,40}(?:,|\b(?:and|or)\b)[^\n.;?!=]{0,40}(?:\b[a-z]\s?=\s?)?"
)
_TAKEN_BACK = re.compile(r"\b(?:wait|hmm|actually|however|but|mistake|re-?check)\b", re.IGNORECASE)
_AFTER_LETTER = re.compile(r"^\W{0,4}(?:text\w{0,3}\{)?\W{0,2}[A-Za-z]\b")


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
def _load_reader(named: str) -> Any:
    found = load_named(named, "reader")
    if not callable(found):
        raise UsageError(f'"{named}" is no reader: a function from a text to an answer or None')
    return found


def _own_answer(named: str, text: str) -> str | None:
    """What a reader of the user's own says; what it raises on one response is an abstention."""
    reader, found = _load_reader(named), None
    try:
        found = reader(text)
    except Exception as error:  # noqa: BLE001 - it is not our code, and must not end a batch
        _warn_once(named, f"{type(error).__name__}: {error}")
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


REDO_NOTE = (
    "\n\nNote: if you notice that your approach leads nowhere, you may abandon it by saying "
    '"It\'s better to redo the question." and ending there.'
)
_ASKED = {
    "numeric": "Solve this step by step. Put only the final number inside \\boxed{}, "
    "without units or extra text.",
    "choice": "Think step by step about the options, then choose the single best one and "
    "put only its letter inside \\boxed{}.",
    "expression": "Solve the problem step by step. If you reach a final answer, put it inside "
    "\\boxed{}.",
    "text": "Think step by step, then put only the final answer, as short as possible, "
    "inside \\boxed{}.",
    "yes-no": "Think step by step, then put only the final answer, yes or no, inside \\boxed{}.",
    "json": 'Answer with one JSON object whose field "answer" holds the final answer.',
}


def _preset(name: str, kind: str, **more: Any) -> Task:
    return Task(name, kind, f"{{question}}\n\n{_ASKED[kind]}", **more)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        *(_preset(kind, kind) for kind in KINDS[:-1]),
        _preset("json", "json", path="answer"),
        _preset("numeric-loose", "numeric", loose=True),
        _preset("choice-loose", "choice", loose=True),
        _preset("gsm8k", "numeric"),
        _preset("gpqa", "choice", letters="ABCD", shuffle=True),
        _preset("commonsense", "choice", letters="ABCDE"),
        _preset("mmlu-pro", "choice"),
        *(_preset(name, "expression") for name in ("math", "amc", "aime")),
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


def read_task(path: Path) -> Task:
    """A task from a TOML file; what is wrong is said with its key."""
    place = f'"{path}"'
    told = read_fields(Task, read_toml(path), place)
    if "kind" not in told:
        raise UsageError(f"{place}: kind is missing; it is one of {', '.join(KINDS)}")
    if "path" in told and told["kind"] != "json":
        raise UsageError(f'{place}: path goes with kind = "json"')
    try:
        return replace(TASKS[told["kind"]], **{"name": path.stem, **told})
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None


EXAMPLES = 3
SHOWN = 80
"""Characters of an example: the end of a response, where an answer would stand."""
LITTLE = 0.75
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
    markers: Mapping[str, int] = field(default_factory=dict)
    """How many begin with a tag that is neither thinking nor an answer that is known of."""

    @classmethod
    def of(
        cls, question_id: str, responses: Sequence[Response], votes: Sequence[Vote]
    ) -> "Readability":
        """The responses to one question."""
        fates = [*map(_fate, responses, votes)]
        ends = [
            f"{question_id}: {_end(response.answer or response.text)}"
            for response, fate in zip(responses, fates, strict=True)
            if fate == "unread"
        ]
        tags = dict(Counter(filter(None, (find.unknown_marker(each.text) for each in responses))))
        return cls(len(votes), **Counter(fates), examples=tuple(ends[:EXAMPLES]), markers=tags)

    def join(self, others: "Iterable[Readability]") -> "Readability":
        """This and others together; examples are of different questions where there are."""
        parts = [self, *others]
        firsts = [each for part in parts for each in part.examples[:1]]
        more = [each for part in parts for each in part.examples[1:]]
        names = ("responses", "read", "unread", "truncated", "failed")
        counts = {name: sum(getattr(part, name) for part in parts) for name in names}
        markers = dict(sum((Counter(part.markers) for part in parts), Counter[str]()))
        return Readability(**counts, examples=(*firsts, *more)[:EXAMPLES], markers=markers)

    @property
    def share(self) -> float:
        """Of the responses that were read."""
        return self.read / self.responses if self.responses else 0.0

    def summary(self, task: Task | None = None) -> str:
        """One line; the markers a task knows of are not worth a word."""
        whole = max(1, self.responses)
        rows = (
            (self.unread, "without an answer that could be found"),
            (self.truncated, "cut off before one"),
            (self.failed, "failed or empty"),
        )
        parts = [f"{100 * self.read / whole:.1f} % of {self.responses:,} responses read"]
        parts += [f"{100 * count / whole:.1f} % {name}" for count, name in rows if count]
        known = [] if task is None else [each.lower() for each in task.thinking]
        parts += [
            f"{count:,} begin with {marker} (if that is thinking, a task file says so: "
            f'thinking = ["{marker}", "{marker[0]}/{marker[1:]}"])'
            for marker, count in Counter(self.markers).most_common(EXAMPLES)
            if marker not in known
        ]
        return ", ".join(parts)

    def lines(self, task: Task | None = None) -> list[str]:
        """The summary, and below it what was not read."""
        examples = (f"  not read: {each}" for each in self.examples)
        return [f"readable: {self.summary(task)}", *examples]

    def check(self, task: Task, where: str) -> None:
        """Refuse what nothing could be read of."""
        if self.responses and not self.read:
            raise PoolError(f"nothing could be read in {where}: {self.why(task)}")

    def why(self, task: Task) -> str:
        """What was looked for where nothing was found, and what would help."""
        example = f"; one ends with {self.examples[0]!r}" if self.examples else ""
        return f"the task {task.name} looks for {task.describe()}{example}; {self.advice(task)}"

    def warning(self, task: Task) -> str | None:
        """What must be said loudly, None where enough was read."""
        if self.share >= LITTLE:
            return None
        return (
            f"ONLY {100 * self.share:.0f} % of the responses could be read as {task.name} "
            f"({task.describe()}): what is said of these questions rests on few of them; "
            f"{self.advice(task)}"
        )

    def advice(self, task: Task) -> str:
        """What would help to read more."""
        if self.truncated > self.unread:
            return "most were cut off: allow more tokens (--set max_tokens=...)"
        if self.failed > self.unread:
            return "most failed or came without a text: look at what the server sends"
        loose = f"--task {task.kind}-loose reads a last sentence too; or "
        may = f"{task.kind}-loose" in TASKS and not (task.loose or task.redo or task.pattern)
        return (
            f"{loose if may else ''}give another --task (aera tasks), a task file with a pattern "
            "or path, or MODULE:NAME"
        )

    def as_json(self) -> Json:
        """Every field, and the share; markers where there are any."""
        told = {**asdict(self), "examples": list(self.examples), "share": round(self.share, 4)}
        return {name: value for name, value in told.items() if name != "markers" or value}


NOTHING = Readability()
"""Of no response."""


def _fate(response: Response, vote: Vote) -> str:
    """What became of a response, by the name of the count that it is in."""
    if vote.answer is not None:
        return "read"
    if response.error is not None or not (response.answer or response.text):
        return "failed"
    return "truncated" if response.truncated else "unread"


def _end(text: str) -> str:
    """The end of a text on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= SHOWN else f"\u2026 {flat[-SHOWN:]}"


def add_traces(responses: Iterable[Response], task: Task) -> list[Response]:
    """The responses, each with its trace where the server listed its tokens."""
    return [_add_trace(response, task) for response in responses]


def _add_trace(response: Response, task: Task) -> Response:
    tokens = getattr(response.source, "tokens", None)
    if response.trace is not None or not isinstance(tokens, ServedTokens):
        return response
    said = visible(response.text, task.thinking)
    return replace(response, trace=tokens.trace(said, task.answer_place(said)))


def readable_answer(question: Question, text: str | None, task: Task) -> str | None:
    """A written answer in a form the task can read, None where there is none.

    A worked solution counts as what it boxes, puts behind #### or calls the answer, a choice by its
    text as its letter.
    """
    text = text or ""
    if task.kind == "choice":
        text = dict(zip(question.choices, LETTERS, strict=False)).get(text, text)
    _, mark, marked = text.rpartition("####")
    stated = () if task.kind in ("text", "json") else find.statements(task.kind, text)
    said = next((value for value, _, _ in stated), None)
    forms = (last_boxed(text), marked.strip() if mark else None, said, text)
    return next((form for form in forms if form and task.canonical(form) is not None), None)


# --- readers of one question ----------------------------------------------------------------------

LEADERS = 4
"""Answers another one is compared with."""


class QuestionReader:
    """Reads the votes of one question, in order; an option may be named by its words.

    With `same`, an answer equal to a leading one joins it. What a vote becomes depends on earlier
    responses only, so live and replayed runs agree. Where two answers turn out to be equal late,
    votes that were counted stay and the next ones join.
    """

    def __init__(
        self,
        task: Task,
        options: tuple[str, ...] = (),
        *,
        same: Callable[[str, str], bool] | None = None,
    ) -> None:
        self._task, self._options, self._same = task, options, cache(same) if same else None
        self._weights: dict[str, float] = {}
        self._joined: dict[str, str] = {}
        """By answer, the one that its votes go to."""

    def read(self, response: Response) -> Vote:
        """What a response says, under the name its answer goes by."""
        vote = self._task.read(response, self._options)
        if (name := vote.answer) is None or self._same is None:
            return vote
        while name in self._joined:
            name = self._joined[name]
        leaders = (each for each in self._ahead_of(name) if self._same(each, name))
        if (leader := next(leaders, None)) is not None:
            self._joined[name] = leader
            name = leader
        self._weights[name] = self._weights.get(name, 0.0) + vote.weight
        return replace(vote, answer=name)

    def _ahead_of(self, name: str) -> list[str]:
        """The leading answers with more votes than this one, or as many but earlier."""
        own = [each for each in self._weights if each not in self._joined]
        leaders = sorted(own, key=lambda each: -self._weights[each])[:LEADERS]
        return leaders[: leaders.index(name)] if name in leaders else leaders


def question_reader(task: Task, question: Question | None = None) -> Reader:
    """What reads the responses to one question: the task, or what knows its options or merges."""
    options = question.choices if question and task.kind == "choice" else ()
    same = equivalence.shared_equivalence().same if task.equivalence else None
    return QuestionReader(task, options, same=same) if options or same else task
