"""How votes become an answer: the plain vote, weights by confidence, and best-of-n."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, isfinite, isinf, isnan
from typing import Any, ClassVar, Protocol

from aera.core import Leaders, Prefix, Question, Response, Tally, Vote, Weighting
from aera.errors import ControllerError, UsageError
from aera.files import attempt, load_named
from aera.trace import FULL, TRACE_NAMES, UNKNOWN
from aera.voting.traits import TRACE

Rule = Callable[[Prefix], Leaders]


def plain_vote(prefix: Prefix) -> Leaders:
    """The answer with the most weight; the one seen first wins a tie; None without a vote."""
    return prefix.tally.leaders


def find_winner(prefix: Prefix, answer: str | None) -> Response | None:
    """The response that stands for an answer: the heaviest of those that gave it."""
    given = [
        (vote.weight, response)
        for vote, response in zip(prefix.votes, prefix.responses, strict=True)
        if vote.answer == answer and answer is not None
    ]
    return max(given, key=lambda pair: pair[0])[1] if given else None


def re2_vote(prefix: Prefix) -> Leaders:
    """The Re2 evaluator's vote, kept for comparison: raw boxed text, redo filtered.

    When every response is a redo, all boxed contents vote. Ties go to the shortest string, then
    to the first in the alphabet.
    """
    boxed = [vote for vote in prefix.votes if vote.raw is not None]
    kept = [vote for vote in boxed if not vote.redo] or boxed
    counts = Counter(vote.raw for vote in kept if vote.raw is not None)
    ranked = sorted(counts, key=lambda raw: (-counts[raw], len(raw), raw))
    return Tally().add(Vote(raw, weight=counts[raw]) for raw in ranked).leaders


RULES: dict[str, Rule] = {"vote": plain_vote, "re2-vote": re2_vote}


SCALE = 2.0
SUREST = 100.0
"""A confidence beyond this is a server's way to say that a token was impossible."""
_CONFIDENCE = TRACE_NAMES.index("trace_confidence")


@dataclass(frozen=True)
class TraceWeights:
    """A weighting that any policy can be used with; a response without a trace weighs one."""

    looks_back: ClassVar[bool] = True
    asks: ClassVar[Mapping[str, object]] = FULL
    """The fields of a request whose responses have traces."""

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


def find_weights(name: str) -> TraceWeights:
    """The weights that need no training, by the name that `--weights` takes."""
    if name != TRACE:
        raise UsageError(f'--weights is one of {TRACE}, but got "{name}"')
    return TraceWeights()


CONFIDENT_SUREST = 0.1
"""Share of the votes that the filter keeps."""
FEWEST = 16
"""Votes that it keeps in any case: a handful of the surest is no vote."""


def cisc_vote(prefix: Prefix) -> Leaders:
    """Confidence-informed self-consistency: softmax weights of the mean confidence."""
    votes, sureness = _sure_votes(prefix)
    most = max(sureness, default=0.0)
    weights = [exp((each - most) / SCALE) for each in sureness]
    return _count(votes, weights)


def deepconf_vote(prefix: Prefix) -> Leaders:
    """DeepConf's filter: the surest tenth, at least sixteen, each weighing its confidence."""
    votes, sureness = _sure_votes(prefix)
    keep = max(FEWEST, ceil(CONFIDENT_SUREST * len(votes)))
    order = sorted(range(len(votes)), key=lambda place: (-sureness[place], place))
    kept = sorted(order[:keep])
    return _count([votes[place] for place in kept], [sureness[place] for place in kept])


def _sure_votes(prefix: Prefix) -> tuple[list[Vote], list[float]]:
    """The votes that say something, and how sure each is."""
    pairs = [
        (vote, confidence_of(response))
        for vote, response in zip(prefix.votes, prefix.responses, strict=True)
        if vote.answer is not None
    ]
    known = [sure for _, sure in pairs if isfinite(sure)]
    usual = sum(known) / len(known) if known else 1.0
    return [vote for vote, _ in pairs], [s if isfinite(s) else usual for _, s in pairs]


def _count(votes: Sequence[Vote], weights: Sequence[float]) -> Leaders:
    weighed = [replace(v, weight=w, scored=False) for v, w in zip(votes, weights, strict=True)]
    return Tally().add(weighed).leaders


CONFIDENT = {"cisc": cisc_vote, "deepconf": deepconf_vote}
"""By the names that labels begin with, as cisc-64."""


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

    def weigh(
        self, question: Question, responses: Sequence[Response], votes: Sequence[Vote]
    ) -> list[Vote]:
        """A vote for each response's own text; one that failed, is blank or unscored abstains."""
        there = [i for i, each in enumerate(responses) if each.error is None and each.text.strip()]
        given = [replace(vote, answer=None) for vote in votes]
        scores = self._scores(question, [responses[i] for i in there])
        for i, score in zip(there, scores, strict=True):
            if not isnan(score):
                given[i] = replace(votes[i], answer=responses[i].text, weight=score, scored=True)
        return given

    def as_json(self) -> dict[str, object]:
        """What a controller on disk keeps of it: all but the scorer's code."""
        return {"name": type(self.scorer).__name__}

    def _scores(self, question: Question, responses: Sequence[Response]) -> list[float]:
        """What the scorer says, if it makes sense."""
        if not responses:
            return []
        name = type(self.scorer).__name__
        try:
            scores = [float(score) for score in self.scorer.score(question, responses)]
        except Exception as error:
            raise ControllerError(f"{name} failed: {type(error).__name__}: {error}") from error
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
