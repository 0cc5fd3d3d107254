"""Server: a model server in a few numbers, for the time that questions wait at it."""

from dataclasses import dataclass
from math import inf

import numpy as np

from aera.arrays import Floats
from aera.errors import UsageError

NAMES = ("tokens_per_second", "slots", "prefill", "load")
"""What `parse` takes a number for."""


@dataclass(frozen=True)
class Server:
    """How fast responses come, how many at once, and how often somebody asks."""

    tokens_per_second: float
    """Of one sequence, however many others are under way."""
    slots: int | None = None
    """Sequences that it works on at once, first come, first served; None for any number."""
    prefill: float | None = None
    """Prompt tokens per second, before the first token of a call; None for no time at all."""
    load: float | None = None
    """Questions that arrive per second, at random; None for one after the other, each alone."""
    singly: bool = False
    """Whether `n` is ignored, so that every response is a call of its own."""

    def __post_init__(self) -> None:
        for name in NAMES:
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise UsageError(f"{name} of a server is more than 0, but got {value:g}")

    @classmethod
    def parse(cls, text: str) -> "Server":
        """Read "tokens_per_second=50,slots=64,prefill=5000,load=0.5,singly", or less of it."""
        parts = [part.strip() for part in text.split(",")]
        pairs = [part.partition("=") for part in parts if part != "singly"]
        found: dict[str, float] = {}
        for name, _, value in pairs:
            try:
                found[name] = int(value) if name == "slots" else float(value)
            except ValueError:
                raise UsageError(
                    f'a server is written "tokens_per_second=50,slots=64", but got "{name}={value}"'
                ) from None
        unknown = [name for name in found if name not in NAMES]
        if unknown:
            known = f"{', '.join(NAMES)} and singly"
            raise UsageError(f'a server has {known}, but got "{unknown[0]}"')
        if "tokens_per_second" not in found:
            raise UsageError("a server needs its tokens_per_second, as tokens_per_second=50")
        return cls(**found, singly="singly" in parts)  # type: ignore[arg-type]

    def generate(self, tokens: float) -> float:
        """Seconds that one response takes once it has begun."""
        return tokens / self.tokens_per_second

    def read(self, prompt_tokens: float) -> float:
        """Seconds before the first token of a call."""
        return prompt_tokens / self.prefill if self.prefill else 0.0

    def arrivals(self, questions: int, *, seed: int = 0) -> Floats:
        """The second at which each of so many questions is asked, as a Poisson process has it."""
        assert self.load is not None
        gaps = np.random.default_rng(seed).exponential(1 / self.load, questions)
        asked: Floats = np.cumsum(gaps)
        return asked

    def __str__(self) -> str:
        told = [f"{self.tokens_per_second:g} tokens per second each"]
        told += [] if self.slots is None else [f"{self.slots} slots"]
        told += [] if self.prefill is None else [f"{self.prefill:g} prompt tokens per second"]
        one = "one question after the other"
        told.append(one if self.load is None else f"{self.load:g} questions per second")
        return ", ".join([*told, "one call per response"] if self.singly else told)
