"""Budget: limits on what is spent, and what one response can cost at most."""

from dataclasses import dataclass

from aera.errors import UsageError


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
        limits = {
            "responses": self.responses,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "money": self.money,
        }
        for name, limit in limits.items():
            if limit is not None and not limit > 0:
                raise UsageError(f"a limit in {name} must be above 0, but got {limit:g}")
        if min(self.prompt_price, self.completion_price) < 0:
            raise UsageError("a price per million tokens is 0 or more")
        if self.money is not None and not self.priced:
            raise UsageError("a limit in money needs a price per million tokens")

    @property
    def priced(self) -> bool:
        """Whether tokens cost anything."""
        return bool(self.prompt_price or self.completion_price)

    @property
    def limited(self) -> bool:
        """Whether anything that is paid for is limited."""
        return not (self.responses is None and self.tokens is None and self.money is None)

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Their price."""
        prompt = prompt_tokens * self.prompt_price
        return (prompt + completion_tokens * self.completion_price) / 1e6


@dataclass(frozen=True)
class Bound:
    """What one response to a request can take at most."""

    completion_tokens: int | None = None
    """The request's own max_tokens; None where it has none."""
    prompt_bytes: int | None = None
    """Length of what is sent, which no tokenizer makes more tokens of; None where unknown."""


UNKNOWN = Bound()
