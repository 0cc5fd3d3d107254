"""Weigher: one response in, the weight of its vote out. Frozen, plain numpy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from aera.arrays import Floats
from aera.network import Network, check_features, sigmoid
from aera.response import Question, Response
from aera.tally import Vote
from aera.voting.traits import TRAIT_NAMES, traits


@dataclass(frozen=True, eq=False)
class Weigher:
    """A learned chance of being right, used as the weight of a vote.

    Trained so that the true answer gets as much of the vote as possible. What lies outside the
    range seen in training counts as its edge; a missing trait (no logprob) as the median.
    """

    network: Network
    features: tuple[str, ...] = TRAIT_NAMES

    def __post_init__(self) -> None:
        check_features(self.features, TRAIT_NAMES)

    def weights(self, seen: Floats) -> Floats:
        """Weights for rows of traits, between 0 and 1.

        Rounded, for the last bits depend on how many rows are multiplied at once.
        """
        held = np.clip(seen, self.network.lows, self.network.highs)
        return np.round(sigmoid(self.network.outputs(held))[..., 0], 9)

    @property
    def uses_logprobs(self) -> bool:
        """Whether it learned from logprobs, and so should be given them."""
        lows, highs = self.network.lows, self.network.highs
        place = self.features.index("mean_logprob")
        return lows is None or highs is None or bool(lows[place] < highs[place])

    def weigh(
        self, question: Question, responses: Sequence[Response], votes: Sequence[Vote]
    ) -> list[Vote]:
        """The same votes with their weights; an abstention stays one."""
        weights = self.weights(traits(question, responses, votes))
        return [replace(v, weight=float(w)) for v, w in zip(votes, weights, strict=True)]


class Weighting(Protocol):
    """Anything that gives votes their weights; a Weigher does."""

    def weigh(
        self, question: Question, responses: Sequence[Response], votes: Sequence[Vote]
    ) -> Sequence[Vote]:
        """The same votes with their weights."""
        ...
