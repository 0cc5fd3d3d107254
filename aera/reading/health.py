"""Readability: which share of responses was read, and what the others look like."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aera.errors import ReadingError
from aera.reading.task import Task
from aera.response import Response
from aera.tally import Vote

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
