"""Weigher: one response in, the weight of its vote out. Frozen, plain numpy.

Not every response brings what a weigher was taught with: a server may give no logprobs, and few
give those of the other likely tokens. Such a response is weighed by a lower weigher, taught on the
same questions without what it lacks, or all of its kind weigh the same; never by guessed traits.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from aera.arrays import Flags, Floats
from aera.core import Question, Reader, Response, Vote
from aera.network import Network, check_features, sigmoid
from aera.trace import FULL
from aera.voting.traits import (
    COUNTS,
    GROUPS,
    LOGPROBS,
    TRACE,
    TRAIT_NAMES,
    TRAITS,
    UNTRACED,
    brought,
    columns_of,
    having,
    traits,
)


@dataclass(frozen=True, eq=False)
class Weigher:
    """A learned chance of being right, used as the weight of a vote.

    Trained so that the true answer gets as much of the vote as possible. What lies outside the
    range seen in training counts as its edge; a trait that this response has not (its answer is no
    number) as the median.
    """

    network: Network
    features: tuple[str, ...] = UNTRACED
    lower: tuple["Weigher", ...] = ()
    """For responses that bring less, the one that needs most first."""

    def __post_init__(self) -> None:
        known = tuple(name for name in TRAIT_NAMES if name in self.features)
        check_features(self.features, known if len(known) == len(self.network.means) else UNTRACED)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The groups of traits that differed in training: what a response must bring."""
        lows, highs = self.network.lows, self.network.highs
        varied = [True] * len(self.features) if lows is None or highs is None else lows < highs
        used = {name for name, differs in zip(self.features, varied, strict=True) if differs}
        return frozenset(each.group for each in TRAITS if each.name in used) - {COUNTS}

    @property
    def tier(self) -> str:
        """The most that a response must bring: traces, logprobs, text, or counts alone."""
        return next((group for group in reversed(GROUPS) if group in self.needs), COUNTS)

    @property
    def asks(self) -> Mapping[str, object]:
        """The fields of a request whose responses bring what it needs."""
        return FULL if TRACE in self.needs else {"logprobs": True} if LOGPROBS in self.needs else {}

    def weights(self, seen: Floats) -> Floats:
        """Weights for rows of all traits, between 0 and 1.

        The first that needs no more than a row has weighs it; where nobody does, all are alike.
        """
        weights: Floats = np.full(seen.shape[:-1], self._usual)
        left: Flags = np.ones(seen.shape[:-1], dtype=bool)
        for weigher in (self, *self.lower):
            own = left.copy()
            for group in weigher.needs:
                own &= having(seen, group)
            weights[own] = weigher._weights(seen[own])
            left &= ~own
        return weights

    def weigh(
        self, question: Question, responses: Sequence[Response], votes: Sequence[Vote]
    ) -> list[Vote]:
        """The same votes with their weights; an abstention stays one."""
        weights = self.weights(traits(question, responses, votes))
        return [replace(v, weight=float(w)) for v, w in zip(votes, weights, strict=True)]

    def count_lacking(self, responses: Sequence[Response], votes: Sequence[Vote]) -> Counter[str]:
        """What votes came without that it needs, and how they were weighed."""
        lacking: Counter[str] = Counter()
        for response in (r for r, v in zip(responses, votes, strict=True) if v.answer is not None):
            has = brought(response)
            if not self.needs <= has:
                by = next((each for each in self.lower if each.needs <= has), None)
                missing = " and ".join(each for each in GROUPS if each in self.needs - has)
                lacking[f"came without {missing} and {_weighed_by(by)}"] += 1
        return lacking

    def _weights(self, seen: Floats) -> Floats:
        """Its own, rounded, for the last bits depend on how many rows are multiplied at once."""
        held = np.clip(seen[..., self._columns], self.network.lows, self.network.highs)
        return np.round(sigmoid(self.network.outputs(held))[..., 0], 9)

    @cached_property
    def _columns(self) -> list[int]:
        return columns_of(self.features)

    @cached_property
    def _usual(self) -> float:
        """The weight of a response in the middle of training: the scale its votes are on."""
        return float(self._weights(np.full(len(TRAIT_NAMES), np.nan)))


def _weighed_by(weigher: Weigher | None) -> str:
    if weigher is None:
        return "all weigh the same"
    known = " and ".join(group for group in GROUPS if group in weigher.needs)
    return f"were weighed by their {known} alone"


@dataclass(frozen=True, eq=False)
class ChanceRight:
    """A trained weigher as a small local reward model: the chance that a response is right.

    What the task cannot read gets 0.
    """

    weigher: Weigher
    task: Reader

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        votes = [self.task.read(response) for response in responses]
        chances = self.weigher.weights(traits(question, responses, votes))
        return [
            0.0 if vote.answer is None else float(chance)
            for vote, chance in zip(votes, chances, strict=True)
        ]
