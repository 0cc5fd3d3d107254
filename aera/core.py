"""Question, Response, Vote, Prefix, Schedule and Tally: everything a policy may look at."""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from math import comb, exp, lgamma, log
from random import Random
from types import MappingProxyType
from typing import Protocol, TypeVar, cast

from aera.errors import UsageError


@dataclass(frozen=True)
class Schedule:
    """Strictly increasing checkpoints. `Schedule()` is the paper's 4, 8, 16, 32, 64, 128."""

    checkpoints: tuple[int, ...] = (4, 8, 16, 32, 64, 128)

    def __post_init__(self) -> None:
        points = self.checkpoints
        rising = all(a < b for a, b in pairwise(points))
        if not points or points[0] < 1 or not rising:
            raise UsageError(
                f"a schedule needs strictly increasing checkpoints from 1 up, but got {points}"
            )

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Read "4,8,16" or "1-128", which means every response."""
        first, dash, last = text.partition("-")
        try:
            points = range(int(first), int(last) + 1) if dash else map(int, text.split(","))
            return cls(tuple(points))
        except ValueError:
            raise UsageError(
                f'a schedule is written "4,8,16" or "1-128", but got "{text}"'
            ) from None

    @classmethod
    def doubling(cls, responses: int) -> "Schedule":
        """The usual checkpoints of so many responses: 4, then twice as many each time."""
        points = [4]
        while points[-1] < responses:
            points.append(2 * points[-1])
        return cls(tuple(points)).upto(responses)

    @property
    def first(self) -> int:
        """The first checkpoint."""
        return self.checkpoints[0]

    @property
    def last(self) -> int:
        """The last checkpoint: the full budget."""
        return self.checkpoints[-1]

    def after(self, count: int) -> int | None:
        """The next checkpoint beyond `count` responses, None at the end."""
        place = bisect_right(self.checkpoints, count)
        return self.checkpoints[place] if place < len(self.checkpoints) else None

    def upto(self, responses: int) -> "Schedule":
        """This schedule cut to a pool that holds only so many responses per question."""
        if responses < 1:
            raise UsageError("a schedule cannot be cut to fewer than one response")
        last = min(responses, self.last)
        return Schedule((*(c for c in self.checkpoints if c < last), last))

    def __iter__(self) -> Iterator[int]:
        return iter(self.checkpoints)

    def __len__(self) -> int:
        return len(self.checkpoints)

    def __str__(self) -> str:
        return ", ".join(map(str, self.checkpoints))


@dataclass(frozen=True, slots=True)
class Vote:
    """What one response says. `answer` is None when it abstains; an abstention never wins."""

    answer: str | None
    redo: bool = False
    raw: str | None = None
    """The last boxed content as written, also of a redo; only the Re2 rules look at it."""
    weight: float = 1.0
    scored: bool = False
    """Whether the weight is a score, of which the best counts: equal answers do not add up."""


@dataclass(frozen=True)
class Leaders:
    """The two answers with the most weight. `tied` says that the first won only by being first."""

    answer: str | None
    weight: float
    runner_up: float
    tied: bool

    @property
    def confidence(self) -> float:
        """The chance that the first is ahead in truth, under a Beta posterior (ASC's measure)."""
        return beta_confidence(self.weight, self.runner_up)


@dataclass(frozen=True, eq=False)
class Tally:
    """Weight per answer, in the order in which the answers were first seen."""

    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def add(self, votes: Iterable[Vote]) -> "Tally":
        """A new tally with these votes counted; abstentions leave it unchanged."""
        weights = dict(self.weights)
        for vote in votes:
            if vote.answer is not None:
                known = weights.get(vote.answer, 0.0)
                weights[vote.answer] = (
                    max(known, vote.weight) if vote.scored else known + vote.weight
                )
        return Tally(MappingProxyType(weights))

    @cached_property
    def total(self) -> float:
        """The weight of all valid votes."""
        return sum(self.weights.values())

    @cached_property
    def leaders(self) -> Leaders:
        """The leading answer and the weight behind it and behind the runner-up."""
        answer, first, second = None, 0.0, 0.0
        for candidate, weight in self.weights.items():
            if answer is None or weight > first:
                answer, first, second = candidate, weight, first
            elif weight > second:
                second = weight
        return Leaders(answer, first, second, tied=answer is not None and first == second)

    @property
    def majority(self) -> float:
        """Share of the valid weight behind the leader, 0 without a vote."""
        return self.leaders.weight / self.total if self.total else 0.0

    @property
    def gap(self) -> float:
        """Difference of the two largest shares, 0 without a vote."""
        return (self.leaders.weight - self.leaders.runner_up) / self.total if self.total else 0.0

    @cached_property
    def entropy(self) -> float:
        """Entropy of the shares divided by its maximum for that many answers; 0 when unanimous."""
        shares = [w / self.total for w in self.weights.values() if w > 0] if self.total else []
        if len(shares) < 2:
            return 0.0
        return min(1.0, -sum(share * log(share) for share in shares) / log(len(shares)))

    def __len__(self) -> int:
        return len(self.weights)


@lru_cache(maxsize=65_536)
def beta_confidence(first: float, second: float) -> float:
    """P(p > 1/2) under Beta(first + 1, second + 1), exact for whole counts.

    For whole counts this is P(Binomial(first + second + 1, 1/2) <= first). Learned weights make
    fractional counts; for those it is the regularised incomplete beta function at 1/2.
    """
    if first == int(first) and second == int(second):
        trials = int(first) + int(second) + 1
        # The upper tail mirrors the lower one and is the shorter sum: the runner-up has less.
        unfavourable = sum(comb(trials, k) for k in range(int(second) + 1))
        return float((2**trials - unfavourable) / 2**trials)
    return _beta_half(second + 1, first + 1)


def _beta_half(a: float, b: float) -> float:
    """I_{1/2}(a, b) by its continued fraction, on the side where that converges fast."""
    if a < b:
        return 1.0 - _beta_half(b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) - (a + b) * log(2)) / a
    value = 1.0  # 1 + d1/(1 + d2/(1 + ...)) at x = 1/2, evaluated from the tail upwards
    for m in range(200, 0, -1):
        even = m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)) / 2
        odd = -(a + m - 1) * (a + b + m - 1) / ((a + 2 * m - 2) * (a + 2 * m - 1)) / 2
        value = 1.0 + odd / (1.0 + even / value)
    return front / value


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
    """What the logprobs of its tokens say of it (aera.trace), where the server gave them."""
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


class Reader(Protocol):
    """Anything that reads votes; a Task does."""

    def read(self, response: Response) -> Vote:
        """What one response says."""
        ...


class Weighting(Protocol):
    """Anything that gives votes their weights; a Weigher does.

    It is given one block at a time. One with a true `looks_back` is given everything from the first
    response on, and what it gave to a vote must not change with what comes after.
    """

    def weigh(
        self, question: Question, responses: Sequence[Response], votes: Sequence[Vote]
    ) -> Sequence[Vote]:
        """The same votes with their weights."""
        ...


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
    """What `grow` and gates have made, by its maker."""

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
        return self.grow("tally", Tally(), lambda known, at: known.add(at.votes[at.start :]))

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
        return sum(response.tokens for response in self.responses)

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

    @property
    def encoder_ms(self) -> float:
        """What embedding these responses took, block by block; 0 where nobody did."""
        at: Prefix | None = self
        total = 0.0
        while at is not None:
            total, at = total + cast(float, at.memo.get("encoder_ms", 0.0)), at.previous
        return total

    def grow(self, key: Hashable, first: Made, step: Callable[[Made, "Prefix"], Made]) -> Made:
        """A value that grows block by block: each prefix in the chain adds its step to it once.

        A key begins with its maker's own class or function: nobody finds what another has made.
        """
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
