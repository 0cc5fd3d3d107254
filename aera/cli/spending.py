"""What the commands that spend say of it: before, while and after."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from aera.cli.options import say
from aera.sampling.budget import Budget

if TYPE_CHECKING:
    from aera.reading.task import Task
    from aera.sampling.budget import Ledger

EVERY = 10.0
"""Seconds between two lines about progress where there is no terminal."""


@dataclass(frozen=True)
class Estimate:
    """What is about to be asked, from the fewest responses it can take to the most."""

    questions: int
    fewest: int
    most: int
    max_tokens: int | None
    """The longest that a response may be, by the request."""
    usual: float | None = None
    """Tokens of a response, where responses were seen before."""
    prompt_tokens: float = 0.0
    """Of all prompts together, asked once; a server that takes no `n` bills one per response."""

    def describe(self, budget: Budget, *, concurrency: int) -> str:
        """It in one sentence, with tokens and money."""
        told = [_span(self.fewest, self.most, "response")]
        if self.usual is not None:
            low, high = self.fewest * self.usual, self.most * self.usual
            told.append(f"about {_span(low, high, 'token')} at {self.usual:,.0f} each")
            told += self._money(budget, low, high, "about ")
        elif self.max_tokens is not None:
            high = self.most * self.max_tokens
            told.append(f"at most {high:,} tokens, for max_tokens is {self.max_tokens:,}")
            told += self._money(budget, high, high, "at most about ")
        else:
            told.append("of unknown length, for the request has no max_tokens")
        return f"{_many(self.questions, 'question')}: {', '.join(told)}" + self._limits(
            budget, concurrency
        )

    def _money(self, budget: Budget, low: float, high: float, word: str) -> list[str]:
        if not budget.priced:
            return []
        each = self.most / max(1, self.questions)
        prompts = (self.prompt_tokens if low < high else each * self.prompt_tokens, low)
        costs = [budget.cost(*prompts), budget.cost(each * self.prompt_tokens, high)]
        shown = dict.fromkeys(f"{cost:,.4g}" for cost in costs)
        return [f"{word}{' to '.join(shown)} in money"]

    def _limits(self, budget: Budget, concurrency: int) -> str:
        """The limits, and how many responses may be under way within them."""
        stated = {
            "responses": budget.responses,
            "tokens": budget.tokens,
            "seconds": budget.seconds,
            "in money": budget.money,
        }
        said = [f"{limit:,} {name}" for name, limit in stated.items() if limit is not None]
        if not said:
            return ""
        text = f"; the limit is {' and '.join(said)}"
        if self.max_tokens is None or not (budget.tokens or budget.money):
            return text
        cost = budget.cost(0, self.max_tokens)
        fits = [(budget.tokens or 0) // self.max_tokens] if budget.tokens else []
        fits += [int((budget.money or 0) / cost)] if budget.money and cost else []
        at_once = max(1, min(fits)) if fits else concurrency
        if at_once >= min(concurrency, self.most):
            return text
        return (
            f"{text}, in which {_many(at_once, 'response')} can be under way at once, for "
            f"max_tokens is {self.max_tokens:,}; a lower one lets more"
        )


def _span(low: float, high: float, what: str) -> str:
    """From so many to so many."""
    if round(low) == round(high):
        return _many(round(high), what)
    return f"{low:,.0f} to {_many(round(high), what)}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


@dataclass
class Summary:
    """What became of some questions, and what it cost."""

    budget: Budget
    task: "Task"
    policy: str = ""
    """What decides where the controller does not step aside."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    """The answers, each as it is written."""

    def add(self, line: dict[str, Any]) -> None:
        """One more answer."""
        self.lines.append(line)

    @property
    def unanswered(self) -> list[dict[str, Any]]:
        """The questions without an answer."""
        return [line for line in self.lines if line["answer"] is None]

    def say(self, ledger: "Ledger") -> None:
        """What was spent and saved, and what is not as one would wish."""
        for sentence in (*self.sentences(), *tell_lost(ledger)):
            say(f"aera: {sentence}", stderr=True)

    def sentences(self) -> Iterable[str]:
        """The same as sentences."""
        total = {
            name: self._sum(name) for name in ("responses", "completion_tokens", "prompt_tokens")
        }
        saved, spent = self._sum("tokens_saved"), total["completion_tokens"]
        cost = self.budget.cost(total["prompt_tokens"], spent)
        money = f", {cost:,.4g} in money" if self.budget.priced else ""
        worth = f", worth {self.budget.cost(0, saved):,.4g} in money" if self.budget.priced else ""
        share = f", {saved / (saved + spent):.0%} of the full budget's" if saved else ""
        answered = len(self.lines) - len(self.unanswered)
        yield (
            f"{answered:,} of {_many(len(self.lines), 'question')} answered for "
            f"{_many(total['responses'], 'response')} and {_many(spent, 'token')}{money}; saved "
            f"about {_many(saved, 'token')}{share}{worth}"
        )
        aside = sum(line["policy"] != self.policy for line in self.lines)
        if aside:
            yield (
                f"{_many(aside, 'question')} decided by plain votes, for they are not clearly like "
                "those that the controller was taught on (--trust keeps it)"
            )
        yield from self._reading()
        yield from self._weighing()
        yield from self._trouble()

    def _sum(self, name: str) -> int:
        return sum(line[name] for line in self.lines)

    def _reading(self) -> Iterable[str]:
        """How much could be read, and what to do where nothing could."""
        from aera.policies.policy import UNREADABLE
        from aera.reading.health import Readability

        health = [Readability(**line["readability"]) for line in self.lines]
        everything = Readability().join(health)
        if everything.responses:
            yield everything.summary()
        unread = [
            own
            for own, line in zip(health, self.lines, strict=True)
            if line["reason"] == UNREADABLE
        ]
        if unread:
            joined, task = Readability().join(unread), self.task
            example = f"; one ends with {joined.examples[0]!r}" if joined.examples else ""
            yield (
                f"{len(unread)} of {_many(len(self.lines), 'question')} stopped after two blocks "
                f"in which nothing could be read; the task {task.name} looks for "
                f"{task.describe()}{example}. Give another --task (aera tasks), a task file with "
                "a pattern or path, or MODULE:NAME"
            )

    def _weighing(self) -> Iterable[str]:
        """Which votes brought less than the weights need; older lines do not say."""
        lacking: Counter[str] = Counter()
        for line in self.lines:
            lacking.update(line.get("lacking", {}))
        for said, count in lacking.items():
            yield f"{_many(count, 'response')} {said}"

    def _trouble(self) -> Iterable[str]:
        """Ties, failures, limits, and who has no answer."""
        tied = sum(line["tied"] for line in self.lines)
        if tied:
            yield f"{_many(tied, 'answer')} tied and won by being first"
        failed = sum(line["error"] is not None for line in self.lines)
        if failed:
            yield f"{failed} failed; the lines with an error say why"
        cut = sum(line["reason"].startswith("limit: ") for line in self.lines)
        if cut:
            yield f"{_many(cut, 'question')} ended by a limit"
        nothing = [line["question_id"] for line in self.lines if not line["responses"]]
        if nothing:
            shown = ", ".join(nothing[:5]) + (", ..." if len(nothing) > 5 else "")
            yield f"{_many(len(nothing), 'question')} got nothing: {shown}"
        if self.unanswered:
            yield f"{_many(len(self.unanswered), 'question')} without an answer"


def tell_lost(ledger: "Ledger") -> Iterable[str]:
    """What never came and may have been billed, which a limit holds back; nothing where nothing."""
    lost = ledger.lost
    if lost.responses:
        held = (
            f", so {lost.completion_tokens:,} tokens are held back"
            if lost.completion_tokens
            else ""
        )
        yield f"{_many(lost.responses, 'response')} never came and may have been billed{held}"


class Shown:
    """Progress of work that spends: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, name: str, total: int, *, done: int = 0) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn(name), BarColumn(), TextColumn("{task.fields[told]}"),
            console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._lines = not console.is_terminal
        self._begun = self._said = time.monotonic()
        self._before, self._total = done, total
        self._task = self._bar.add_task("", total=total, completed=done, told="")

    def __enter__(self) -> "Shown":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self, done: int, describe: Callable[[], str]) -> None:
        """So much is done; the rest of the line is made only where it is shown."""
        now = time.monotonic()
        due = self._lines and now - self._said >= EVERY
        if self._lines and not due:
            return
        rate = (done - self._before) / max(now - self._begun, 1e-9)
        left = f", {(self._total - done) / rate:,.0f} s left" if rate else ""
        told = f"{done:,}/{self._total:,} {describe()}{left}"
        self._bar.update(self._task, completed=done, told=told)
        if due:
            self._said = now
            say(told, stderr=True)
