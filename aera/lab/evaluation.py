"""Replay: what each policy would have done on recorded responses, in one pass over a pool."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import nan

import numpy as np

from aera.aggregation import Rule, plain_vote
from aera.crew import ALONE, Crew
from aera.equivalence import question_reader
from aera.errors import PoolError
from aera.lab.frontier import Frontier, Point
from aera.lab.hindsight import oracle
from aera.lab.shards import Shard, Shards
from aera.lab.trajectory import Columns, Floats, Trajectories
from aera.lab.truths import Truths, grade
from aera.parts import Segment, cut
from aera.policy import Policy
from aera.pool import Pool, Record
from aera.response import Prefix, unfold
from aera.run import Run, Scale
from aera.schedule import Schedule
from aera.tally import Vote
from aera.task import Task

OBSERVED: dict[str, Callable[[Prefix], float]] = {
    "majority_ratio": lambda prefix: prefix.tally.majority,
    "entropy": lambda prefix: prefix.tally.entropy,
}


@dataclass(frozen=True)
class Ballot:
    """A question, its responses and the votes read from them: the raw material of replay."""

    record: Record
    votes: tuple[Vote, ...]

    def weighed(self, weigher: Scale) -> "Ballot":
        """The same with weights."""
        question, responses = self.record.question, self.record.responses
        return replace(self, votes=tuple(weigher.weigh(question, responses, self.votes)))

    def prefixes(self, schedule: Schedule) -> list[Prefix]:
        """The prefix at every checkpoint; a question with too few responses is refused."""
        own = self.first(schedule.last)
        record = own.record
        return list(unfold(record.question, record.responses, votes=own.votes, schedule=schedule))

    def first(self, count: int) -> "Ballot":
        """The same with its first responses only; a question with fewer is refused."""
        question, responses = self.record.question, self.record.responses
        if len(responses) < count:
            raise PoolError(
                f"question {question.id} has {len(responses)} responses, but the schedule goes to "
                f"{count}; sample more or give a shorter --schedule"
            )
        return Ballot(replace(self.record, responses=responses[:count]), self.votes[:count])


Source = Pool | Shards | Sequence[Ballot]
"""What is replayed: ballots in memory, or a pool whose votes are read part by part."""
Part = Segment | Shard | Sequence[Ballot | Record]


def _size(item: Ballot | Record) -> int:
    return len((item.record if isinstance(item, Ballot) else item).responses)


def parts_of(source: Source | Iterable[Record]) -> list[Part]:
    """Whole questions to be worked on together."""
    if isinstance(source, Shards):
        return [*source.parts]
    items: Pool | Iterable[Ballot | Record] = source
    return [*cut(items, _size)]


def ballots_of(part: Part, task: Task) -> list[Ballot]:
    """The ballots of a part, their votes read where they are not."""
    return [
        item
        if isinstance(item, Ballot)
        else Ballot(item, tuple(map(question_reader(task).read, item.responses)))
        for item in part
    ]


def check_whole(source: Source | Iterable[Record], question_ids: Iterable[str]) -> None:
    """A pool read part by part must have been all there."""
    if isinstance(source, Pool | Shards):
        source.check_whole(question_ids)


def read_ballots(records: Iterable[Record], task: Task, *, crew: Crew = ALONE) -> list[Ballot]:
    """Read every vote once; all policies share the result."""
    read = crew.map(partial(ballots_of, task=task), parts_of(records))
    ballots = [ballot for part in read for ballot in part]
    check_whole(records, (ballot.record.question.id for ballot in ballots))
    return ballots


@dataclass(frozen=True)
class Terms:
    """What a replay depends on besides the responses."""

    task: Task
    schedule: Schedule
    truths: Truths | None = None
    rule: Rule = plain_vote
    weigher: Scale | None = None

    def ballots(self, part: Part) -> list[Ballot]:
        """The ballots of a part, weighed where there is a weigher."""
        ballots = ballots_of(part, self.task)
        weigher = self.weigher
        return ballots if weigher is None else [ballot.weighed(weigher) for ballot in ballots]

    def replay(self, part: Part, policies: Sequence[Policy]) -> "Replayed":
        """Replay every policy on every question of a part."""
        sheet, column = _Sheet(self), {c: place for place, c in enumerate(self.schedule)}
        ballots = self.ballots(part)
        columns = np.empty((len(ballots), len(policies)), dtype=np.int64)
        chances = np.full((len(policies), len(ballots), len(column)), np.nan)
        for row, ballot in enumerate(ballots):
            prefixes = sheet.add(ballot)
            for place, policy in enumerate(policies):
                run = replay(prefixes, policy, task=self.task)
                columns[row, place] = column[len(run.prefix)]
                said = [step.decision.p_continue for step in run.steps]
                chances[place, row, : len(said)] = [nan if c is None else c for c in said]
        spoken = [place for place, own in enumerate(chances) if not np.isnan(own).all()]
        return Replayed(sheet.trajectories(), columns, {place: chances[place] for place in spoken})

    def evaluate(
        self, source: Source, policies: Sequence[Policy], *, crew: Crew = ALONE
    ) -> Frontier:
        """Replay every policy on every question, part by part, by whoever is in the crew."""
        done = [*crew.map(partial(self.replay, policies=policies), parts_of(source))]
        replayed = Replayed.joined(done)
        trajectories = replayed.trajectories
        check_whole(source, trajectories.question_ids)
        points = [
            Point(str(policy), replayed.columns[:, i], trajectories, replayed.chances.get(i))
            for i, policy in enumerate(policies)
        ]
        if self.truths is not None:
            points.append(Point("oracle", oracle(trajectories), trajectories))
        return Frontier(tuple(points), trajectories)


@dataclass(frozen=True, eq=False)
class Replayed:
    """What policies did on some questions."""

    trajectories: Trajectories
    columns: Columns
    """Where each policy stopped, shape (questions, policies)."""
    chances: Mapping[int, Floats]
    """What a gate said, by the place of its policy; NaN where it was not asked."""

    @classmethod
    def joined(cls, parts: "Sequence[Replayed]") -> "Replayed":
        """The questions of several, one after the other."""
        chances = {
            place: np.concatenate(
                [
                    part.chances.get(place, np.full(part.trajectories.tokens.shape, nan))
                    for part in parts
                ]
            )
            for place in sorted({place for part in parts for place in part.chances})
        }
        return cls(
            Trajectories.joined([part.trajectories for part in parts]),
            np.concatenate([part.columns for part in parts]),
            chances,
        )


def evaluate(
    source: Source,
    policies: Sequence[Policy],
    *,
    task: Task,
    schedule: Schedule,
    truths: Truths | None = None,
    rule: Rule = plain_vote,
    crew: Crew = ALONE,
) -> Frontier:
    """Replay every policy on every question; with truths, grade the answers and add the oracle.

    A pool in place of its ballots is read part by part and never held in memory.
    """
    return Terms(task, schedule, truths, rule).evaluate(source, policies, crew=crew)


def replay(
    prefixes: Sequence[Prefix], policy: Policy, *, task: Task, rule: Rule = plain_vote
) -> Run:
    """Show prepared prefixes to one policy until it stops."""
    first = prefixes[0]
    run = Run(first.question, policy, task=task, schedule=first.schedule, rule=rule)
    for prefix in prefixes:
        run.see(prefix)
        if run.stopped:
            break
    return run


class _Sheet:
    """Gathers one row per question while the pool streams by."""

    def __init__(self, terms: Terms) -> None:
        self._task, self._schedule = terms.task, terms.schedule
        self._truths, self._rule = terms.truths, terms.rule
        self._ids: list[str] = []
        self._rows: dict[str, list[list[float]]] = {}

    def add(self, ballot: Ballot) -> list[Prefix]:
        """Record one question; returns its prefixes."""
        prefixes = ballot.prefixes(self._schedule)
        answers = [self._rule(prefix).answer for prefix in prefixes]
        self._ids.append(ballot.record.question.id)
        self._row("tokens", [float(prefix.completion_tokens) for prefix in prefixes])
        self._row("agreement", [float(answer == answers[-1]) for answer in answers])
        for name, measure in OBSERVED.items():
            self._row(name, [measure(prefix) for prefix in prefixes])
        if self._truths is not None:
            truth = self._truths[ballot.record.question.id]
            grader = Grader(self._task, truth)
            self._row("grades", [grader(answer) for answer in answers])
            self._row("re2_mean", list(re2_means(ballot.votes, grader, self._schedule)))
        return prefixes

    def _row(self, name: str, values: list[float]) -> None:
        self._rows.setdefault(name, []).append(values)

    def trajectories(self) -> Trajectories:
        arrays: dict[str, Floats] = {name: np.array(rows) for name, rows in self._rows.items()}
        return Trajectories(
            question_ids=tuple(self._ids),
            schedule=self._schedule,
            tokens=arrays["tokens"],
            agreement=arrays["agreement"],
            evidence={name: arrays[name] for name in OBSERVED},
            grades=arrays.get("grades"),
            re2_mean=arrays.get("re2_mean"),
        )


class Grader:
    """Grades answers to one question, each distinct answer once."""

    def __init__(self, task: Task, truth: str) -> None:
        self._task, self._truth = task, truth
        self._known: dict[str | None, float] = {None: 0.0}

    def __call__(self, answer: str | None) -> float:
        if answer not in self._known:
            self._known[answer] = grade(answer, self._truth, task=self._task)
        return self._known[answer]


def re2_means(votes: Sequence[Vote], grader: Grader, schedule: Schedule) -> Floats:
    """The Re2 mean score of each prefix: the average grade of the responses that are no redo.

    Where every response is a redo, all of them count, by what they boxed.
    """
    grades = np.array([grader(vote.raw if vote.redo else vote.answer) for vote in votes])
    kept = np.array([not vote.redo for vote in votes])
    ends = np.array(schedule.checkpoints) - 1
    right, valid = np.cumsum(grades * kept)[ends], np.cumsum(kept)[ends]
    everything = np.cumsum(grades)[ends] / (ends + 1)
    means: Floats = np.where(valid > 0, right / np.maximum(valid, 1), everything)
    return means
