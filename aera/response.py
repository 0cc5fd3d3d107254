"""Question, Response and Prefix: everything a policy may look at."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import TypeVar, cast

from aera.schedule import Schedule
from aera.tally import Tally, Vote

Made = TypeVar("Made")


@dataclass(frozen=True)
class Question:
    """A question as the reasoner sees it. The truth is not here and never will be."""

    id: str
    text: str
    choices: tuple[str, ...] = ()
    system: str | None = None
    """A system message of its own."""
    group: str | None = None
    """Questions of one group, like those of one text, are never parted by a split."""

    @property
    def keys(self) -> tuple[str, ...]:
        """What makes it one with others: its words, and its group where it has one."""
        words = " ".join("\0".join([self.text, *sorted(self.choices)]).split())
        return (words,) if self.group is None else (words, f"group {self.group}")

    def arrange(self, seed: int) -> "Question":
        """The same question with its choices in the order that `seed` and its id give."""
        order = choice_order(self.id, len(self.choices), seed=seed)
        return replace(self, choices=tuple(self.choices[i] for i in order))


def choice_order(question_id: str, count: int, *, seed: int) -> tuple[int, ...]:
    """The recorded shuffle of a question's choices: position -> original index."""
    order = list(range(count))
    Random(f"{seed}:{question_id}").shuffle(order)
    return tuple(order)


@dataclass(frozen=True, slots=True)
class Response:
    """One completion. A failed one has an `error`, costs what it cost, and abstains."""

    text: str
    tokens: int = 0
    logprob: float | None = None
    """Sum of the token log-probabilities at temperature 1, where the server gives them."""
    finish_reason: str | None = None
    seed: int | None = None
    latency_ms: float | None = None
    error: str | None = None
    model: str | None = None
    answer: str | None = None
    """What it answered, where that is all that was recorded of it."""
    trace: tuple[float, ...] | None = None
    """What its tokens' log-probabilities say (aera/trace.py), where the server gives them."""
    prompt_tokens: int = 0
    """Billed with it; 0 for the siblings that came from the same call."""
    calls: int = 0
    """Calls it took, retries included; 0 for siblings."""
    source: object = field(default=None, repr=False, compare=False)
    """The choice it was read from, or the error that came instead; never stored."""

    @property
    def truncated(self) -> bool:
        """Cut off by the token limit."""
        return self.finish_reason == "length"


@dataclass(frozen=True, eq=False)
class Prefix:
    """The first responses to a question with their votes: all that a decision may depend on."""

    question: Question
    schedule: Schedule
    responses: tuple[Response, ...] = ()
    votes: tuple[Vote, ...] = ()
    previous: "Prefix | None" = None
    """The prefix at the checkpoint before, so that a checkpoint costs only its new block."""
    memo: dict[Hashable, object] = field(default_factory=dict, repr=False)
    """What `remember` and `grow` have made."""

    def extend(self, responses: Sequence[Response], votes: Sequence[Vote]) -> "Prefix":
        """The prefix one block later."""
        return Prefix(
            self.question,
            self.schedule,
            (*self.responses, *responses),
            (*self.votes, *votes),
            self if self.responses else None,
        )

    @cached_property
    def tally(self) -> Tally:
        """The weight behind every answer so far."""
        known = self._latest_with("tally")
        return known.tally.add(self.votes[len(known) :]) if known else Tally().add(self.votes)

    @property
    def start(self) -> int:
        """Where the newest block begins."""
        return len(self.previous) if self.previous else 0

    @property
    def next_checkpoint(self) -> int | None:
        """How far the next block would reach, None at the full budget."""
        return self.schedule.after(len(self))

    @cached_property
    def completion_tokens(self) -> int:
        """Completion tokens spent so far, failures and abstentions included."""
        known = self._latest_with("completion_tokens")
        before, start = (known.completion_tokens, len(known)) if known else (0, 0)
        return before + sum(response.tokens for response in self.responses[start:])

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens billed so far, where the responses say."""
        return sum(response.prompt_tokens for response in self.responses)

    @property
    def persistence(self) -> int:
        """How many checkpoints in a row, this one included, have had the same leader."""
        leader, count, before = self.tally.leaders.answer, 1, self.previous
        while before is not None and before.tally.leaders.answer == leader:
            count, before = count + 1, before.previous
        return count

    @property
    def redos(self) -> int:
        """How many responses ask to redo the question."""
        return sum(vote.redo for vote in self.votes)

    def remember(self, key: Hashable, make: Callable[["Prefix"], Made]) -> Made:
        """What `make` makes of this prefix: once under each key, however many policies ask.

        A key begins with its maker's own class or function: nobody finds what another has made.
        """
        if key not in self.memo:
            self.memo[key] = make(self)
        return cast(Made, self.memo[key])

    def grow(self, key: Hashable, first: Made, step: Callable[[Made, "Prefix"], Made]) -> Made:
        """A value that grows block by block: each prefix in the chain adds its step to it once."""
        pending: list[Prefix] = []
        at: Prefix | None = self
        while at is not None and key not in at.memo:  # a loop, for chains are long
            pending.append(at)
            at = at.previous
        value = first if at is None else cast(Made, at.memo[key])
        for prefix in reversed(pending):
            value = step(value, prefix)
            prefix.memo[key] = value
        return value

    def _latest_with(self, name: str) -> "Prefix | None":
        """The latest earlier prefix that has computed this value; a loop, for chains are long."""
        prefix = self.previous
        while prefix is not None and name not in prefix.__dict__:
            prefix = prefix.previous
        return prefix

    def __len__(self) -> int:
        return len(self.responses)


def unfold(
    question: Question, responses: Sequence[Response], *, votes: Sequence[Vote], schedule: Schedule
) -> Iterator[Prefix]:
    """Every prefix of recorded responses, checkpoint by checkpoint."""
    prefix = Prefix(question, schedule)
    for checkpoint in schedule:
        block = slice(len(prefix), checkpoint)
        prefix = prefix.extend(responses[block], votes[block])
        yield prefix
