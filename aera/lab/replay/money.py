"""Money: what policies cost at the prices of tokens, and what they save against the full budget.

A question's prompt is billed once for every block that is asked for, as by a server that takes `n`.
Its length is the largest that any response to the question recorded. A fixed budget is one block;
every other policy asks for one block per checkpoint up to its stop.
"""

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from aera.arrays import Floats
from aera.errors import UsageError

if TYPE_CHECKING:
    from aera.lab.replay.frontier import Point

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


def explain_prices(prices: Prices) -> str:
    """What the figures under "money" are."""
    return (
        f"money is for {QUESTIONS:,} questions, at {prices.prompt:g} for a million prompt and "
        f"{prices.completion:g} for a million completion tokens; every block bills the prompt once"
    )


def tell_saving(point: "Point", full: "Point", prices: Prices) -> str:
    """What a policy saves in money against its full budget."""
    own, most = point.money(prices), full.money(prices)
    share = 100 * (1 - own / most) if most else 0.0
    return (
        f"{point.policy} costs {write_money(own)} for {QUESTIONS:,} questions and {full.policy} "
        f"{write_money(most)}: {write_money(abs(most - own))} or {abs(share):.1f} % "
        f"{'saved' if own <= most else 'more'}"
    )


def tell_unknown(point: "Point", prices: Prices) -> str | None:
    """Whose prompts have a price and no recorded length, in one sentence; None where none."""
    lengths = point.trajectories.prompts
    questions = len(point.columns)
    unknown = questions if lengths is None else int(np.count_nonzero(lengths == 0))
    if not prices.prompt or not unknown:
        return None
    return (
        f"no response to {unknown} of {questions} questions recorded its prompt tokens, so money "
        "leaves their prompts out"
    )
