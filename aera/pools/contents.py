"""Contents: what the responses of a pool are, counted."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aera.pools.record import Record
from aera.reading.health import Readability
from aera.reading.task import Task


@dataclass(frozen=True)
class Contents:
    """How many responses there are, of whom, how long, and what could be read of them."""

    readability: Readability = field(default_factory=Readability)
    tokens: int = 0
    texts: int = 0
    """Responses that have a text."""
    answers: int = 0
    """Responses of which only the answer was recorded."""
    logprobs: int = 0
    """Responses that have the log-probability of their text."""
    traces: int = 0
    """Responses that have a trace."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Responses of each model that is named."""

    @classmethod
    def of(cls, record: Record, task: Task) -> "Contents":
        """The responses to one question."""
        responses = record.responses
        read = Readability.of(record.question.id, responses, record.read(task).votes)
        return cls(
            read,
            tokens=sum(response.tokens for response in responses),
            texts=sum(bool(response.text) for response in responses),
            answers=sum(response.answer is not None for response in responses),
            logprobs=sum(response.logprob is not None for response in responses),
            traces=sum(response.trace is not None for response in responses),
            models=Counter(response.model for response in responses if response.model),
        )

    def join(self, others: "Iterable[Contents]") -> "Contents":
        """These and others together."""
        parts = [self, *others]
        models: Counter[str] = Counter()
        for part in parts:
            models.update(part.models)
        return Contents(
            Readability().join(part.readability for part in parts),
            tokens=sum(part.tokens for part in parts),
            texts=sum(part.texts for part in parts),
            answers=sum(part.answers for part in parts),
            logprobs=sum(part.logprobs for part in parts),
            traces=sum(part.traces for part in parts),
            models=models,
        )

    @property
    def responses(self) -> int:
        """All of them."""
        return self.readability.responses

    def as_json(self) -> dict[str, Any]:
        """Every number, and the tokens of a response on average."""
        each = round(self.tokens / self.responses, 1) if self.responses else None
        return {
            "readability": self.readability.as_json(),
            "tokens": {"all": self.tokens, "each": each},
            "texts": self.texts,
            "answers_only": self.answers,
            "logprobs": self.logprobs,
            "traces": self.traces,
            "models": dict(self.models),
        }


def count_contents(records: Iterable[Record], task: Task) -> Contents:
    """The contents of many questions."""
    return Contents().join(Contents.of(record, task) for record in records)
