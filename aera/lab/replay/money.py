"""Money: what policies cost at the prices of tokens, and what they save against the full budget.

A question's prompt is billed once for every block that is asked for, as by a server that takes `n`.
Its length is the largest that any response to the question recorded. A fixed budget is one block;
every other policy asks for one block per checkpoint up to its stop.
"""

from dataclasses import dataclass
from math import inf

from aera.arrays import Floats
from aera.errors import UsageError

MILLION = 1_000_000
QUESTIONS = 1_000
"""Money is told for so many questions."""


@dataclass(frozen=True)
class Prices:
    """What a million prompt tokens and a million completion tokens cost."""

    prompt: float
    completion: float

    def __post_init__(self) -> None:
        for name, price in (("prompt", self.prompt), ("completion", self.completion)):
            if not 0 <= price < inf:
                raise UsageError(f"the price of {name} tokens is 0 or more, but got {price}")

    def charge(self, prompts: Floats, completions: Floats) -> Floats:
        """Money for so many tokens of either kind."""
        total: Floats = (self.prompt * prompts + self.completion * completions) / MILLION
        return total

    def as_json(self) -> dict[str, float]:
        """The prices as an evaluation file holds them."""
        return {"prompt": self.prompt, "completion": self.completion}


@dataclass(frozen=True)
class Terms:
    """What spending is counted in besides tokens; None is not counted."""

    prices: Prices | None = None
    """Of tokens, in money."""
    price: float | None = None
    """Of the mean full budget, in units of reward: best-of-n."""


PLAIN = Terms()
"""Tokens only."""


def write_money(amount: float) -> str:
    """Two decimals; below one, four digits."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4g}"
