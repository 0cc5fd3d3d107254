"""Weights without learning: a vote counts more where the model was sure of its tokens.

The weight is exp(mean confidence / 2), divided by the mean of that over the votes so far, its own
included. So a usual vote weighs one, and a rule for plain votes as ASC(0.95) keeps its meaning.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite
from typing import ClassVar

from aera.errors import UsageError
from aera.response import Question, Response
from aera.tally import Vote
from aera.trace import FULL, TRACE_NAMES, UNKNOWN

SCALE = 2.0
SUREST = 100.0
"""A confidence beyond this is a server's way to say that a token was impossible."""
_CONFIDENCE = TRACE_NAMES.index("trace_confidence")


@dataclass(frozen=True)
class TraceWeights:
    """A weighting that any policy can be used with; a response without a trace weighs one."""

    looks_back: ClassVar[bool] = True

    @property
    def asks(self) -> dict[str, object]:
        """The fields of a request whose responses have traces."""
        return dict(FULL)

    def weigh(
        self, question: Question, responses: Sequence[Response], votes: Sequence[Vote]
    ) -> list[Vote]:
        """The votes from the first response on with their weights; none depends on a later one."""
        total, count, weighed = 0.0, 0, []
        for response, vote in zip(responses, votes, strict=True):
            sureness = confidence_of(response)
            if vote.answer is None or not isfinite(sureness):
                weighed.append(replace(vote, weight=1.0))
                continue
            own = exp(min(sureness, SUREST) / SCALE)
            total, count = total + own, count + 1
            weighed.append(replace(vote, weight=own * count / total))
        return weighed

    def count_lacking(self, responses: Sequence[Response], votes: Sequence[Vote]) -> Counter[str]:
        """How many votes came without a trace."""
        pairs = zip(responses, votes, strict=True)
        bare = sum(v.answer is not None and not isfinite(confidence_of(r)) for r, v in pairs)
        return Counter({"came without traces and weigh as a usual one": bare} if bare else {})


def confidence_of(response: Response) -> float:
    """The mean confidence of its tokens, not finite where it is not known."""
    return (response.trace or UNKNOWN)[_CONFIDENCE]


WEIGHTS = {"traces": TraceWeights()}
"""Weights that need no training, by the name that `--weights` takes."""


def find_weights(name: str) -> TraceWeights:
    """The weights of this name."""
    if name not in WEIGHTS:
        raise UsageError(f'--weights is one of {", ".join(WEIGHTS)}, but got "{name}"')
    return WEIGHTS[name]


def name_weights(weigher: object) -> str | None:
    """What they are called; None where a weigher is none of them."""
    return next((name for name, known in WEIGHTS.items() if known == weigher), None)
