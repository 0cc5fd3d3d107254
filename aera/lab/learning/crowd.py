"""Learning without truths: weights taught by clear votes, ASC on them calibrated by agreement.

The teacher is the crowd: on questions whose full vote is clear its winner is called right, and the
same weigher is fitted on that. What it then says of other questions is kept only where the crowd
supports it: taught by one half of the responses to some questions, its weights must not lead the
other half's vote on other questions away from their first half. Everything is calibrated by
agreement with the full budget, so no truth is looked at; where there are truths they are for
whoever judges.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.core import Schedule, Tally
from aera.lab.calibrating.calibration import unseen_error
from aera.lab.calibrating.families import ASC_FAMILY, Family, answer_families
from aera.lab.learning.folds import Fold, out_of_fold
from aera.lab.learning.learner import Measured, Split, check_enough, split_certified
from aera.lab.learning.votes import VoteLearner, VoteTable, describe_pool
from aera.lab.learning.weigher import Responses, WeigherFit
from aera.lab.truths import Grader, Truths
from aera.policies.rules import Policy
from aera.pools.pool import Records, VotedRecord
from aera.voting.weigher import Weigher
from aera.workers import SERIAL, Track, Workers, quiet

CLEAR = 0.6
"""Share of the questions, those with the clearest votes, that teach."""
HARM = 0.05
"""Agreement that weights may cost between the halves of the responses; more and they are refused.

None to 0.05 where weights gained or did no harm in truth, 0.1 and more where they did most.
"""
UNSURE = 0.02
"""Standard error of that cost above which nothing is known.

Two hundred questions bring it below, or fifty on which nothing changes.
Harm costs 4 to 13 points and what gains up to 5, so a looser measurement cannot tell them apart.
"""
DECIDING = 15
"""Labelled questions on which plain and weighted votes differ, from which on labels decide."""


@dataclass(frozen=True)
class Support:
    """Whether the crowd supports some weights: halves of the responses, one against the other."""

    plain: float
    """Share of questions on which the plain votes of both halves agree."""
    weighted: float
    """The same with the second half weighted."""
    error: float = 0.0
    """Standard error of their difference, which knows of changes not yet seen."""

    @classmethod
    def of(
        cls,
        first: Sequence[str | None],
        plain: Sequence[str | None],
        weighted: Sequence[str | None],
    ) -> "Support":
        """From what the votes of the halves say of every question."""
        agrees = np.array([one == other for one, other in zip(first, plain, strict=True)])
        still = np.array([one == other for one, other in zip(first, weighted, strict=True)])
        error = unseen_error(agrees.astype(float) - still)
        return cls(agrees.mean(), still.mean(), float(error))

    @property
    def holds(self) -> bool:
        """Whether the weights may be used."""
        return self.error <= UNSURE and self.plain - self.weighted <= HARM

    @property
    def summary(self) -> str:
        """What was found, to be said after the weights."""
        found = f"{100 * (self.weighted - self.plain):+.1f} ± {100 * self.error:.1f} points"
        if self.error > UNSURE:
            return f"{found} of agreement between halves, too few questions to say"
        allowed = f"{'within' if self.holds else 'beyond'} the {100 * HARM:g} allowed"
        return f"{found} of agreement between halves, {allowed}"


@dataclass(frozen=True)
class Labelled:
    """What the right answers say where plain and weighted votes differ."""

    differ: int
    plain: float
    """Of those, the questions that plain votes answer rightly."""
    weighted: float

    @property
    def holds(self) -> bool:
        """Whether the weights may be used."""
        return self.weighted >= self.plain

    @property
    def summary(self) -> str:
        """What was found, to be said after the weights."""
        return (
            f"right on {self.weighted:g} of the {self.differ} labelled questions where they "
            f"differ from plain votes, which are right on {self.plain:g}"
        )


@dataclass(frozen=True, eq=False)
class CrowdModel:
    """What some questions taught without their truths: a weigher, where it is supported."""

    weigher: Weigher | None
    own: Measured
    """The same questions out of fold: every one weighed by models of others."""
    support: Support | Labelled
    borrowed: bool = False
    """Whether the weights were taught elsewhere."""
    gate: None = None

    @property
    def families(self) -> Mapping[str, Family]:
        """Every rule on answers is calibrated alike, so that tables compare like with like."""
        return {"aera": ASC_FAMILY, **{family.name: family for family in answer_families()}}

    @property
    def learned(self) -> str:
        """What was kept, what was left out, and why."""
        whose = "weights taught elsewhere" if self.borrowed else "weights taught by the clear votes"
        votes = f"{whose} ({self.support.summary}) are {'used' if self.weigher else 'refused'}"
        return f"without truths: {votes}; ASC is what was calibrated"

    def values(self, table: VoteTable, rows: Columns) -> Measured:
        """Other questions as this weigher sees them."""
        return table.replay_by(self.weigher, rows).measured()

    def policy(self, setting: float, family: Family | None = None) -> Policy:
        """ASC at one confidence, or another rule on answers at its setting."""
        make = (family or ASC_FAMILY).make
        assert make is not None, "every family of this model needs only answers"
        return make(setting)


@dataclass(frozen=True)
class CrowdLearner:
    """The learner for pools without truths."""

    weigher: WeigherFit = field(default_factory=WeigherFit)
    shares: tuple[float, float] = (0.5, 0.5)
    """Questions for learning and for a certificate."""
    margin: float = 1.0
    workers: Workers = SERIAL
    weighted: bool = True
    """Whether weights are tried at all."""
    given: Weigher | None = None
    """Weights from elsewhere, tried in the place of those that the crowd would teach."""
    labels: Truths | None = None
    """The right answers to a few questions: they decide on weights where enough of them differ."""

    def prepare(
        self,
        records: Records,
        truths: Truths | None,
        *,
        schedule: Schedule | None = None,
        workers: Workers = SERIAL,
        track: Track = quiet,
    ) -> VoteTable:
        """The traits of every response; truths, where there are any, are only passed on."""
        table = describe_pool(records, truths, schedule=schedule, workers=workers, track=track)
        return graded_by_crowd(table)

    def split(self, table: VoteTable, rows: Columns, *, certified: bool, seed: int) -> Split:
        """A certificate needs questions that nothing was learned from; else all of them teach."""
        return split_certified(table, rows, self.shares, certified=certified, seed=seed)

    def fit(
        self, table: VoteTable, rows: Columns, *, held: Columns | None = None, seed: int
    ) -> CrowdModel:
        """The weigher from these questions alone."""
        check_enough(table)
        clear = clear_rows(table, rows)
        responses = table.responses.subset(rows)
        weigh = partial(self._weights, table.groups[rows], responses, responses, clear, seed=seed)
        weights = weigh() if self.weighted and self.labels is not None else None
        support: Support | Labelled = NEVER
        if self.weighted:
            told = None if weights is None else self._ask_labels(table, rows, weights)
            support = told or self._support(table, rows, clear, seed=seed)
        keeps = self.weighted and support.holds
        weights = (weigh() if weights is None else weights) if keeps else None
        taught = table.responses.subset(rows[clear])
        return CrowdModel(
            weigher=(self.given or self.weigher.fit_tiers(taught, seed=seed)) if keeps else None,
            own=table.replay(rows, weights, workers=self.workers).measured(),
            support=support,
            borrowed=self.given is not None,
        )

    def _ask_labels(self, table: VoteTable, rows: Columns, weights: Floats) -> "Labelled | None":
        """What labels say of these weights; None where too few of them decide anything."""
        assert self.labels is not None
        right = np.zeros(2)
        differ = 0
        pairs = zip(table.weigh(rows, None), table.weigh(rows, weights), strict=True)
        for answers, name in (([*map(winner_of, pair)], pair[0].question.id) for pair in pairs):
            if name in self.labels.answers and answers[0] != answers[1]:
                right += Grader(table.task, self.labels[name]).grade(answers)
                differ += 1
        return None if differ < DECIDING else Labelled(differ, float(right[0]), float(right[1]))

    def _weights(
        self, groups: Columns, taught: Responses, weighed: Responses, clear: Flags, *, seed: int
    ) -> Floats:
        """The weights of questions, each taught by the clear ones among the others."""
        if self.given is not None:
            return self.given.weights(weighed.traits)
        work = partial(self._fold, taught, weighed, clear, seed=seed)
        return out_of_fold(work, groups, seed=seed, workers=self.workers)

    def _fold(
        self, taught: Responses, weighed: Responses, clear: Flags, fold: Fold, *, seed: int
    ) -> Floats:
        teachers = taught.subset(fold.rest[clear[fold.rest]])
        return self.weigher.fit(teachers, seed=seed + fold.number).weights(weighed.traits[fold.own])

    def _support(self, table: VoteTable, rows: Columns, clear: Flags, *, seed: int) -> Support:
        """One half of the responses teaches; what becomes of the vote of the other half?"""
        first, second = (half_of(table, rows, start) for start in (0, 1))
        weights = self._weights(table.groups[rows], first.taught, second.taught, clear, seed=seed)
        return Support.of(first.winners(), second.winners(), second.winners(weights))


NEVER = Support(1.0, 0.0, 1.0)
"""Weights that were never tried."""


def learn_votes(
    truths: Truths | None,
    weigher: Weigher | None = None,
    *,
    labels: Truths | None = None,
    workers: Workers = SERIAL,
) -> "VoteLearner | CrowdLearner":
    """What learns from truths, or where there are none, from the crowd."""
    if truths is None:
        return CrowdLearner(given=weigher, labels=labels, workers=workers)
    return VoteLearner(given=weigher, workers=workers)


# --- the crowd ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Half:
    """Every other response to some questions."""

    records: tuple[VotedRecord, ...]
    taught: Responses

    def winners(self, weights: Floats | None = None) -> list[str | None]:
        """What each question's vote says."""
        chosen = (
            self.records
            if weights is None
            else [each.with_weights(own) for each, own in zip(self.records, weights, strict=True)]
        )
        return [winner_of(each) for each in chosen]


def half_of(table: VoteTable, rows: Columns, start: int) -> Half:
    """Every second response to these questions, graded by the vote of this half."""
    records = tuple(
        replace(each, responses=each.responses[start::2], votes=each.votes[start::2])
        for each in (table.records[row] for row in rows)
    )
    known = table.responses.subset(rows)
    taught = Responses(known.traits[:, start::2], known.voted[:, start::2], crowd_says(records))
    return Half(records, taught)


def winner_of(record: VotedRecord) -> str | None:
    """What the vote of all its responses says."""
    return Tally().add(record.votes).leaders.answer


def crowd_says(records: "tuple[VotedRecord, ...]") -> Floats:
    """1 for every response that says what the vote says; shape (questions, responses)."""
    winners = [winner_of(each) for each in records]
    return np.array(
        [
            [float(vote.answer is not None and vote.answer == winner) for vote in record.votes]
            for record, winner in zip(records, winners, strict=True)
        ]
    )


def graded_by_crowd(table: VoteTable) -> VoteTable:
    """The same questions, graded by their own full votes in the place of truths."""
    return replace(table, responses=replace(table.responses, grades=crowd_says(table.records)))


def clear_rows(table: VoteTable, rows: Columns) -> Flags:
    """Those of these questions whose full vote is clearest, by the winner's share of it."""
    grades, voted = table.responses.grades[rows], table.responses.voted[rows]
    shares = (grades * voted).sum(axis=1) / np.maximum(1, voted.sum(axis=1))
    clear: Flags = shares >= np.quantile(shares, 1 - CLEAR)
    return clear
