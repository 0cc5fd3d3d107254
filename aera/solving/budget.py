"""Budget: limits on what is spent, and what has been spent against them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from aera.errors import UsageError
from aera.response import Response


@dataclass(frozen=True)
class Budget:
    """Limits; None is no limit. Prices are per million tokens, in the currency of `money`."""

    responses: int | None = None
    tokens: int | None = None
    """Completion tokens."""
    seconds: float | None = None
    money: float | None = None
    prompt_price: float = 0.0
    completion_price: float = 0.0

    def __post_init__(self) -> None:
        if self.money is not None and not (self.prompt_price or self.completion_price):
            raise UsageError("a limit in money needs a price per million tokens")


class Spending:
    """What has been spent against a budget, by however many questions share it."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.responses = self.prompt_tokens = self.completion_tokens = 0
        self._granted = 0
        self.begun = time.monotonic()

    @property
    def money(self) -> float:
        """What the tokens so far cost."""
        prompt = self.prompt_tokens * self.budget.prompt_price
        return (prompt + self.completion_tokens * self.budget.completion_price) / 1e6

    @property
    def deadline(self) -> float | None:
        """When the seconds are over, as time.monotonic() reads."""
        return None if self.budget.seconds is None else self.begun + self.budget.seconds

    @property
    def exhausted(self) -> str | None:
        """The limit that has been hit, if any."""
        most = self.budget
        if most.responses is not None and self.responses >= most.responses:
            return "responses"
        if most.tokens is not None and self.completion_tokens >= most.tokens:
            return "tokens"
        if most.money is not None and self.money >= most.money:
            return "money"
        if most.seconds is not None and time.monotonic() - self.begun >= most.seconds:
            return "seconds"
        return None

    def grant(self, want: int) -> int:
        """How many of the wanted responses may still be asked for."""
        if self.budget.responses is None:
            return want
        granted = max(0, min(want, self.budget.responses - self.responses - self._granted))
        self._granted += granted
        return granted

    def release(self, granted: int) -> None:
        """A grant has been used, or came to nothing."""
        if self.budget.responses is not None:
            self._granted -= granted

    def book(self, responses: Iterable[Response]) -> None:
        """Count what came back."""
        for response in responses:
            self.responses += 1
            self.prompt_tokens += response.prompt_tokens
            self.completion_tokens += response.tokens
