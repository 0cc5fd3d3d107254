"""Best-of-n: every response is a candidate of its own, and a score says how good it is.

BestOfN puts scores where weights were. The tally's leader is then the best response so far, and
whatever looks at a tally (the vote, the vote features, a gate) works as it does for votes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isinf, isnan, nan
from typing import Any, Protocol

from aera.errors import ControllerError, UsageError
from aera.plugins import attempt, load_named
from aera.reading.task import Reader
from aera.response import Question, Response
from aera.tally import Vote
from aera.voting.traits import traits
from aera.voting.weigher import Weigher, Weighting


class Scorer(Protocol):
    """A reward model, a judge, or anything else that says how good responses are."""

    def score(self, question: Question, responses: Sequence[Response]) -> Sequence[float]:
        """One number per response, whatever the others are: higher is better, NaN is no score."""
        ...


@dataclass(frozen=True)
class BestOfN:
    """A weighting in which each response votes for itself; the same text twice counts once.

    Scores are 0 or more, for they stand where weights do: squash a reward that may be negative.
    """

    scorer: Scorer
    uses_logprobs: bool = False
    """Whether the scorer looks at log-probabilities, and so should be given them."""

    def weigh(
        self, question: Question, responses: Sequence[Response], votes: Sequence[Vote]
    ) -> list[Vote]:
        """A vote for each response's own text; one that failed, is blank or unscored abstains."""
        there = [i for i, each in enumerate(responses) if each.error is None and each.text.strip()]
        scores = dict(
            zip(there, self._scores(question, [responses[i] for i in there]), strict=True)
        )
        return [
            replace(vote, answer=None)
            if isnan(scores.get(i, nan))
            else replace(vote, answer=responses[i].text, weight=scores[i], scored=True)
            for i, vote in enumerate(votes)
        ]

    def as_json(self) -> dict[str, object]:
        """What a controller on disk keeps of it: all but the scorer's code."""
        return {"name": type(self.scorer).__name__, "uses_logprobs": self.uses_logprobs}

    def _scores(self, question: Question, responses: Sequence[Response]) -> list[float]:
        """What the scorer says, if it makes sense."""
        if not responses:
            return []
        name = type(self.scorer).__name__
        try:
            told = self.scorer.score(question, responses)
        except Exception as error:
            raise ControllerError(f"{name} failed: {type(error).__name__}: {error}") from error
        try:
            scores = [float(score) for score in told]
        except (TypeError, ValueError):
            raise ControllerError(f"{name} gave {told!r:.60} for scores") from None
        if len(scores) != len(responses):
            raise ControllerError(
                f"{name} gave {len(scores)} scores for {len(responses)} responses"
            )
        for score in scores:
            if score < 0 or isinf(score):
                raise ControllerError(f"a score is 0 or more and finite, but {name} gave {score:g}")
        return scores


def gives_weights(weigher: Weighting | None) -> bool:
    """Whether votes get weights; without a weigher they do not, and a score is no weight."""
    return weigher is not None and not isinstance(weigher, BestOfN)


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


def load_scorer(named: str) -> Scorer:
    """A scorer by MODULE:NAME, from the working directory or the environment.

    The name is that of a scorer, or of a class or function that makes one without arguments.
    """
    found = load_named(named, "scorer")
    if callable(found) and (isinstance(found, type) or not _can_score(found)):
        found = attempt(found, f'"{named}" makes no scorer')
    if not _can_score(found):
        raise UsageError(f'"{named}" is no scorer: it has no method score(question, responses)')
    scorer: Scorer = found
    return scorer


def _can_score(something: Any) -> bool:
    return callable(getattr(something, "score", None))
