"""Task: how to ask, how to read what comes back, and when two answers are the same."""

from dataclasses import asdict, dataclass, replace
from typing import Protocol

from aera.errors import UsageError
from aera.reading.canonical import LETTERS, canonical_choice, canonical_expression, canonical_number
from aera.reading.find import (
    last_boxed,
    last_number,
    stated_choice,
    stated_expression,
    stated_number,
    visible,
)
from aera.response import Question, Response
from aera.tally import Vote

REDO_PHRASE = "better to redo"
REDO_CUT = "s better to redo the question"
REDO_TAIL = 100
"""Characters at the end of a response among which the Re2 test looks for its box."""

CANONICAL = {"numeric": canonical_number, "expression": canonical_expression}
STATED = {"numeric": stated_number, "choice": stated_choice, "expression": stated_expression}


@dataclass(frozen=True)
class Task:
    """One benchmark or one kind of question: prompt template, reader and grader."""

    name: str
    kind: str
    template: str = "{question}"
    letters: str = LETTERS
    """The letters a choice may be."""
    redo: bool = False
    """Whether the Re2 redo test decides who abstains; on in the paper's tasks."""
    loose: bool = False
    """Whether the last number of a text without box or phrase counts (GSM8K only)."""
    shuffle: bool = False
    """Whether the choices are put in an order of their own, by a recorded seed, when asking."""
    equivalence: bool = False
    """Whether math-verify is asked too when two expressions are the same (equivalence.py)."""

    def __post_init__(self) -> None:
        if self.kind not in STATED:
            raise UsageError(
                f'a task is numeric, choice or expression, but "{self.name}" is "{self.kind}"'
            )
        if self.equivalence and self.kind != "expression":
            raise UsageError(f'equivalence is for expressions, but "{self.name}" is {self.kind}')

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

    def read(self, response: Response) -> Vote:
        """What a response says: a vote, or an abstention."""
        if response.error is not None:
            return Vote(None, redo=self.redo)
        if self.redo:
            return self._re2(response.text)
        shown = visible(response.text)
        raw = last_boxed(shown)
        return Vote(None if response.truncated else self._find(shown, raw), raw=raw)

    def _re2(self, text: str) -> Vote:
        """The vote under the redo test: only a box near the end counts, and only without a redo."""
        redo = needs_redo(text)
        raw = last_boxed(visible(text.partition(REDO_CUT)[0] if redo else text))
        return Vote(None if redo or raw is None else self.canonical(raw), redo, raw)

    def canonical(self, raw: str) -> str | None:
        """The one form of an answer, None when it makes no sense for this kind."""
        if self.kind == "choice":
            return canonical_choice(raw, self.letters)
        return CANONICAL[self.kind](raw)

    def same(self, one: str | None, other: str) -> bool:
        """Whether two answers are the same; no answer is never the same as anything."""
        canonical = None if one is None else self.canonical(one)
        return canonical is not None and canonical == self.canonical(other)

    def _find(self, text: str, raw: str | None) -> str | None:
        """The answer of a text: its box, else a phrase or marker, else (loose) its last number."""
        if raw is None:
            raw = STATED[self.kind](text)
        if raw is None and self.loose:
            raw = last_number(text)
        return None if raw is None else self.canonical(raw)

    def describe(self) -> str:
        """Where an answer is found, and what is special about reading it."""
        if self.redo:
            places = ["a box near the end of the response, unless it asks to redo the question"]
        else:
            places = ["the last box", 'else what follows "the answer is" or ####']
            places += ["else the last number"] if self.loose else []
        if self.kind == "choice":
            places.append(f"letters {self.letters[0]} to {self.letters[-1]}")
        places += ["choices shuffled when asking"] if self.shuffle else []
        return "; ".join(places)

    def as_json(self) -> dict[str, object]:
        """Every field, as the manifest of a pool holds it."""
        return asdict(self)


def needs_redo(text: str) -> bool:
    """The Re2 evaluator's test: it asks for a redo, or no box stands near the end of the text."""
    return REDO_PHRASE in text or "boxed" not in text[-REDO_TAIL:].lower()


def task_from_json(fields: dict[str, object]) -> Task:
    """The task a manifest describes."""
    known = {name: value for name, value in fields.items() if name in Task.__dataclass_fields__}
    return Task(**known)  # type: ignore[arg-type]


_NUMERIC = (
    "{question}\n\nSolve this step by step. Put only the final number inside \\boxed{}, "
    "without units or extra text."
)
_CHOICE = (
    "{question}\n\nThink step by step about the options, then choose the single best one and "
    "put only its letter inside \\boxed{}."
)
_EXPRESSION = (
    "{question}\n\nSolve the problem step by step. If you reach a final answer, put it inside "
    "\\boxed{}."
)
_REDO = (
    "\n\nNote: if you notice that your approach leads nowhere, you may abandon it by saying "
    '"It\'s better to redo the question." and ending there.'
)


def _paper(task: Task) -> Task:
    return replace(task, template=task.template + _REDO, redo=True)


_NUMBERS = Task("numeric", "numeric", _NUMERIC)
_CHOICES = Task("choice", "choice", _CHOICE)
_EXPRESSIONS = Task("expression", "expression", _EXPRESSION)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _NUMBERS,
        _CHOICES,
        _EXPRESSIONS,
        _paper(replace(_NUMBERS, name="gsm8k", loose=True)),
        _paper(replace(_CHOICES, name="gpqa", letters="ABCD", shuffle=True)),
        _paper(replace(_CHOICES, name="commonsense", letters="ABCDE")),
        _paper(replace(_CHOICES, name="mmlu-pro")),
        _paper(replace(_EXPRESSIONS, name="math")),
        _paper(replace(_EXPRESSIONS, name="amc")),
        _paper(replace(_EXPRESSIONS, name="aime")),
    )
}


def get_task(name: str) -> Task:
    """A preset by name."""
    if name not in TASKS:
        raise UsageError(f'no task is called "{name}"; known are {", ".join(TASKS)}')
    return TASKS[name]


class Reader(Protocol):
    """Anything that reads votes; a Task does."""

    def read(self, response: Response) -> Vote:
        """What one response says."""
        ...
