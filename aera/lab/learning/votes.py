"""Our learner: votes that weigh, and a gate on the features of the weighted vote.

Everything a choice rests on is out of fold within the questions given: weights are kept only where
they gain (measured again where that is unclear), the gate only where it saves more than ASC on the
same votes. Calibration and judgement belong to other questions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import nan

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Question, Schedule
from aera.errors import ProtocolError
from aera.lab.calibrating.calibration import LossLimit
from aera.lab.calibrating.families import ASC_FAMILY, GATE_FAMILY, Family, answer_families
from aera.lab.learning.folds import group_questions
from aera.lab.learning.learner import Measured, Split, check_enough, split_certified
from aera.lab.learning.vote_gate import VoteGateFit, VoteStates
from aera.lab.learning.weigher import Responses, WeigherFit
from aera.lab.replay.replay import ReplaySettings
from aera.lab.replay.trajectory import Trajectories
from aera.lab.truths import Grader, Truths
from aera.policies.features import describe_votes
from aera.policies.gate import Gated, VoteGate
from aera.policies.rules import Policy, measure_all
from aera.pools.pool import HeldRecords, Record, Records, VotedRecord, health_of, read_votes
from aera.reading.task import NOTHING, Readability, Task
from aera.voting.rules import Rule, plain_vote
from aera.voting.traits import traits
from aera.voting.weigher import Weigher
from aera.workers import SERIAL, Track, Workers, map_tracked, quiet

LOSSES = tuple(step / 200 for step in range(11))
"""Where the gate and ASC are compared, 0 to 5 points: the savings at a few small losses are luck,
and whoever was lucky there is then set too boldly."""
MEASURES = 3
"""How often the gain of the weights is measured, each time on other folds, where it is unclear."""
ANEW = 1000
"""From the seed of one measurement to that of the next: beyond the seeds of its folds."""


@dataclass(frozen=True, eq=False)
class ReplayedVotes:
    """How the vote stands at every checkpoint under some weights."""

    trajectories: Trajectories
    evidence: Floats
    """Shape (questions, checkpoints, features of the vote)."""
    measures: Mapping[str, Floats]
    """What ASC, ESC and thresholds look at, by their family."""
    records: tuple[VotedRecord, ...]
    """The questions with their weights."""

    @property
    def confidence(self) -> Floats:
        """What ASC looks at."""
        return self.measures[ASC_FAMILY.name]

    @property
    def states(self) -> VoteStates:
        """What a gate learns from."""
        known = self.trajectories
        return VoteStates(self.evidence, known.known_grades, known.tokens)

    def measured(self, p_continue: Floats | None = None) -> Measured:
        """The questions as ASC sees them, and a gate that says this."""
        gate = {} if p_continue is None else {GATE_FAMILY.name: p_continue}
        return Measured(self.trajectories, {**gate, **self.measures}, self.records)

    @classmethod
    def join(cls, parts: "Sequence[ReplayedVotes]") -> "ReplayedVotes":
        """The questions of several, one after the other."""
        return cls(
            Trajectories.join([part.trajectories for part in parts]),
            np.concatenate([part.evidence for part in parts]),
            {
                name: np.concatenate([part.measures[name] for part in parts])
                for name in parts[0].measures
            },
            tuple(record for part in parts for record in part.records),
        )


@dataclass(frozen=True, eq=False)
class VoteTable:
    """Questions with the traits of every response and the grade of its answer."""

    name: str
    task: Task
    schedule: Schedule
    records: tuple[VotedRecord, ...]
    """Without their texts, which have been read."""
    responses: Responses
    truths: Truths | None
    readability: Readability = NOTHING
    rule: Rule = plain_vote
    """Which answer a prefix returns; one that counts raw boxes leaves nothing to weights."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def questions(self) -> tuple[Question, ...]:
        """One per row."""
        return tuple(record.question for record in self.records)

    @cached_property
    def groups(self) -> Columns:
        """A number per row, the same for questions that no split may part."""
        return group_questions(self.questions)

    def weigh(self, rows: Columns, weights: Floats | None) -> list[VotedRecord]:
        """The records of these rows with other weights; None leaves them plain."""
        chosen = [self.records[row] for row in rows]
        if weights is None:
            return chosen
        pairs = zip(chosen, weights, strict=True)
        return [record.with_weights(own) for record, own in pairs]

    def replay(
        self, rows: Columns, weights: Floats | None, *, workers: Workers = SERIAL
    ) -> ReplayedVotes:
        """Replay these rows with these weights."""
        records = HeldRecords(self.weigh(rows, weights), self.task, self.schedule)
        settings = ReplaySettings(self.task, self.schedule, self.truths, self.rule)
        return ReplayedVotes.join([*workers.map(partial(_stand, settings), records.parts())])

    def replay_by(self, weigher: Weigher | None, rows: Columns) -> ReplayedVotes:
        """Replay these rows with the weights of this weigher."""
        weights = weigher.weights(self.responses.traits[rows]) if weigher else None
        return self.replay(rows, weights)


def _stand(settings: ReplaySettings, part: Sequence[VotedRecord]) -> ReplayedVotes:
    chains = [record.prefixes(settings.schedule) for record in part]
    families = [family for family in answer_families() if family.measure]
    measured = measure_all([family.measure for family in families if family.measure], chains)
    found = {family.name: np.array(own) for family, own in zip(families, measured, strict=True)}
    trajectories = settings.replay(part).trajectories
    return ReplayedVotes(trajectories, describe_votes(chains), found, tuple(part))


@dataclass(frozen=True, eq=False)
class VoteModel:
    """A weigher, where it gains, and a gate; ASC in its place where that saves more."""

    weigher: Weigher | None
    gate: VoteGate
    family: Family
    """The gate's, or ASC's where the gate stepped aside."""
    own: Measured
    """The same questions out of fold: every one weighed and judged by models of others."""
    gain: float
    """Points the weigher gained there, mean over the checkpoints."""
    borrowed: bool = False
    """Whether the weights were taught elsewhere."""

    @property
    def families(self) -> Mapping[str, Family]:
        """`aera` is the family that was learned, `gate` and `asc` are both, for comparison."""
        return {"aera": self.family, "gate": GATE_FAMILY, "asc": ASC_FAMILY}

    @property
    def learned(self) -> str:
        """What was kept, what was left out, and why; all of it measured out of fold."""
        which = "weights taught elsewhere" if self.borrowed else "learned weights"
        votes = (
            f"{which} gain {self.gain:+.1f} points and are used"
            if self.weigher
            else f"{which} ({self.gain:+.1f} points) do not clearly gain, so votes are plain"
        )
        gate, asc = (mean_saving(self.own, family) for family in (GATE_FAMILY, ASC_FAMILY))
        chosen = "the gate" if self.family is GATE_FAMILY else "ASC"
        both = f"at equal losses the gate saves {gate:.0%} of the tokens and ASC {asc:.0%}"
        return f"{votes}; {both}, so {chosen} is what was calibrated"

    def values(self, table: VoteTable, rows: Columns) -> Measured:
        """Other questions as this weigher and this gate see them."""
        replayed = table.replay_by(self.weigher, rows)
        return replayed.measured(self.gate.chances(replayed.evidence))

    def policy(self, setting: float, family: Family | None = None) -> Policy:
        """The gate at one threshold, or ASC at one confidence."""
        make = (family or self.family).make
        return make(setting) if make else Gated(self.gate, setting)


def mean_saving(measured: Measured, family: Family) -> float:
    """Tokens saved, mean over a few allowed losses, as measured."""
    limits = [LossLimit(loss, margin=0.0) for loss in LOSSES]
    return float(np.mean([measured.choose(family, limit, seed=0).token_saving for limit in limits]))


def describe_pool(
    records: Records,
    truths: Truths | None,
    *,
    schedule: Schedule | None = None,
    workers: Workers = SERIAL,
    track: Track = quiet,
) -> VoteTable:
    """The traits of the first responses to every question, and their grades by the truths."""
    checkpoints = schedule or records.schedule
    work = partial(_describe, truths=truths, task=records.task, responses=checkpoints.last)
    parts = map_tracked(workers, work, records.parts(), name="traits", track=track)
    voted = tuple(record for part, _, _ in parts for record in part)
    records.check_whole(record.question.id for record in voted)
    responses = Responses(
        np.concatenate([seen.traits for _, seen, _ in parts]),
        np.concatenate([seen.voted for _, seen, _ in parts]),
        np.concatenate([seen.grades for _, seen, _ in parts]),
    )
    health = Readability().join(each for _, _, each in parts)
    return VoteTable(records.name, records.task, checkpoints, voted, responses, truths, health)


@dataclass(frozen=True)
class VoteLearner:
    """Weights from the traits of single responses, a linear gate on the weighted vote."""

    weigher: WeigherFit = field(default_factory=WeigherFit)
    gate: VoteGateFit = field(default_factory=VoteGateFit)
    shares: tuple[float, float] = (0.5, 0.5)
    """Questions for learning and for a certificate."""
    margin: float = 1.0
    """On few questions the cheapest setting that seemed to lose little loses more on others."""
    workers: Workers = SERIAL
    """Who works on the parts of one fit."""
    weighted: bool = True
    given: Weigher | None = None
    """Weights that were taught elsewhere, tried in the place of new ones."""
    rule: Rule = plain_vote

    def prepare(
        self,
        records: Records,
        truths: Truths | None,
        *,
        schedule: Schedule | None = None,
        workers: Workers = SERIAL,
        track: Track = quiet,
    ) -> VoteTable:
        """Read the traits of the first responses to every question, and grade their answers."""
        if truths is None:
            raise ProtocolError(f'"{records.name}" has no truths to learn weights from')
        table = describe_pool(records, truths, schedule=schedule, workers=workers, track=track)
        return replace(table, rule=self.rule)

    def split(self, table: VoteTable, rows: Columns, *, certified: bool, seed: int) -> Split:
        """A certificate needs questions that nothing was learned from; else all of them teach."""
        return split_certified(table, rows, self.shares, certified=certified, seed=seed)

    def fit(
        self, table: VoteTable, rows: Columns, *, held: Columns | None = None, seed: int
    ) -> VoteModel:
        """Weigher, gate and family from these questions alone; nothing is held out."""
        check_enough(table)
        responses = table.responses.subset(rows)
        groups = table.groups[rows]
        plain = table.replay(rows, None, workers=self.workers)
        weighted = self._weigh(table, rows, seed=seed)
        gains = [_gains(weighted, plain)]
        while self.given is None and len(gains) < MEASURES and 0 < _clarity(gains) < 2:
            again = self._weigh(table, rows, seed=seed + ANEW * len(gains))
            gains.append(_gains(again, plain))
        keeps = _clarity(gains) > 1
        seen = weighted if keeps else plain
        own = seen.measured(self.gate.out_of_fold(seen.states, groups=groups, seed=seed))
        better = mean_saving(own, GATE_FAMILY) >= mean_saving(own, ASC_FAMILY)
        return VoteModel(
            weigher=(self.given or self.weigher.fit_tiers(responses, seed=seed)) if keeps else None,
            gate=self.gate.fit(seen.states),
            family=GATE_FAMILY if better else ASC_FAMILY,
            own=own,
            gain=100 * float(np.mean(gains)),
            borrowed=self.given is not None,
        )

    def _weigh(self, table: VoteTable, rows: Columns, *, seed: int) -> ReplayedVotes:
        """These questions with weights out of fold, or by somebody who never saw them."""
        learned, groups = table.responses.subset(rows), table.groups[rows]
        if self.given is not None:
            return table.replay(rows, self.given.weights(learned.traits), workers=self.workers)
        weights = self.weigher.out_of_fold(learned, groups=groups, seed=seed, workers=self.workers)
        return table.replay(rows, weights, workers=self.workers)


def _gains(weighted: ReplayedVotes, plain: ReplayedVotes) -> Floats:
    """What weights gain on each question, mean over the checkpoints."""
    difference = weighted.trajectories.known_grades - plain.trajectories.known_grades
    gains: Floats = difference.mean(axis=1)
    return gains


def _clarity(gains: Sequence[Floats]) -> float:
    """The mean gain of some measurements, in standard errors over the questions.

    Folds dealt otherwise move it by almost as much as other questions would, so a gain around the
    one standard error that is asked for is measured again.
    """
    each = np.mean(gains, axis=0)
    error = each.std() / np.sqrt(len(each))
    return float(each.mean() / max(1e-12, error))


def _describe(
    part: Iterable[Record], *, truths: Truths | None, task: Task, responses: int
) -> tuple[list[VotedRecord], Responses, Readability]:
    """The traits and grades of one part; texts stay behind."""
    voted = [record.first(responses) for record in read_votes(part, task)]
    grades = [
        [nan] * len(record.votes)
        if truths is None
        else Grader(task, truths[record.question.id]).grade(vote.answer for vote in record.votes)
        for record in voted
    ]
    answered = [[vote.answer is not None for vote in record.votes] for record in voted]
    seen = Responses(_traits(voted), np.array(answered), np.array(grades))
    return [record.without_texts() for record in voted], seen, health_of(voted)


def _traits(voted: Sequence[VotedRecord]) -> Floats:
    return np.array([traits(each.question, each.responses, each.votes) for each in voted])
