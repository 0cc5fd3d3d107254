"""Evaluation: what each policy would have done on recorded responses, graded, in one pass."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from typing import Any

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Prefix, Schedule, Weighting
from aera.errors import UsageError
from aera.lab.replay.frontier import Frontier, hindsight_point, replayed_points
from aera.lab.replay.hindsight import oracle
from aera.lab.replay.trajectory import Trajectories, prompt_lengths, re2_means
from aera.lab.truths import Grader, Truths
from aera.policies.rules import Policy, confident_rule
from aera.pools.pool import Record, Records, VotedRecord, health_of, read_votes
from aera.reading.task import NOTHING, Readability, Task
from aera.solving.run import Run, replay
from aera.voting.rules import CONFIDENT, Rule, plain_vote
from aera.voting.traits import TRACE, brought
from aera.workers import SERIAL, Workers


@dataclass(frozen=True)
class ReplaySettings:
    """What a replay depends on besides the responses."""

    task: Task
    schedule: Schedule
    truths: Truths | None = None
    rule: Rule = plain_vote
    weigher: Weighting | None = None

    def read(self, part: Iterable[Record]) -> list[VotedRecord]:
        """The votes of a part, weighed where there is a weigher."""
        voted, weigher = read_votes(part, self.task), self.weigher
        return voted if weigher is None else [record.weigh(weigher) for record in voted]

    def replay(self, part: Iterable[Record], policies: Sequence[Policy] = ()) -> "Replayed":
        """Replay every policy on every question of a part."""
        voted = self.read(part)
        paths = [record.prefixes(self.schedule) for record in voted]
        answers = [[self.rule(prefix).answer for prefix in path] for path in paths]
        runs = [
            [replay(path, policy, task=self.task, rule=self.rule) for policy in policies]
            for path in paths
        ]
        health = health_of(voted)

        def measure(value: Callable[[Prefix], float]) -> Floats:
            return np.array([[value(prefix) for prefix in path] for path in paths])

        ids = tuple(record.question.id for record in voted)
        trajectories = Trajectories(
            question_ids=ids,
            schedule=self.schedule,
            tokens=measure(lambda prefix: float(prefix.completion_tokens)),
            agreement=np.array([[float(a == each[-1]) for a in each] for each in answers]),
            evidence={
                "majority_ratio": measure(lambda prefix: prefix.tally.majority),
                "entropy": measure(lambda prefix: prefix.tally.entropy),
            },
            prompts=prompt_lengths(voted),
            **self._grade(voted, answers),
        )
        return Replayed(
            trajectories,
            stop_columns(runs, self.schedule),
            gate_chances(runs, self.schedule),
            health,
        )

    def _grade(
        self, voted: Sequence[VotedRecord], answers: Sequence[Sequence[str | None]]
    ) -> dict[str, Any]:
        """Grades of the returned answers, and the paper's score, where there are truths."""
        if self.truths is None:
            return {}
        graders = [Grader(self.task, self.truths[record.question.id]) for record in voted]
        pairs = zip(graders, voted, answers, strict=True)
        last, rows = len(self.schedule.checkpoints), []
        for grader, record, each in pairs:
            said = [vote.raw if vote.redo else vote.answer for vote in record.votes]
            graded = grader.grade([*each, *said])
            kept = [not vote.redo for vote in record.votes]
            ends = np.array(self.schedule.checkpoints)
            rows.append((graded[:last], re2_means(np.array(graded[last:]), np.array(kept), ends)))
        grades, means = zip(*rows, strict=True)
        return {"grades": np.array(grades), "re2_mean": np.array(means)}

    def evaluate(
        self, records: Records, policies: Sequence[Policy], *, workers: Workers = SERIAL
    ) -> Frontier:
        """Replay every policy; one whose answer another rule selects is judged by that rule."""
        frontier = self._evaluate(records, policies, workers=workers)
        points, rules = [*frontier.points], [confident_rule(policy) for policy in policies]
        for rule in dict.fromkeys(each for each in rules if each is not None):
            own = [place for place, each in enumerate(rules) if each == rule]
            asked = [policies[place] for place in own]
            check_traced(records, str(asked[0]))
            other = replace(self, rule=CONFIDENT[rule], weigher=None)
            judged = other._evaluate(records, asked, workers=workers).points
            for place, point in zip(own, judged, strict=False):
                points[place] = point
        return replace(frontier, points=tuple(points))

    def _evaluate(
        self, records: Records, policies: Sequence[Policy], *, workers: Workers
    ) -> Frontier:
        """Replay every policy on every question, part by part, by the one rule."""
        done = [*workers.map(partial(self.replay, policies=policies), records.parts())]
        replayed = Replayed.join(done)
        trajectories = replayed.trajectories
        records.check_whole(trajectories.question_ids)
        replayed.readability.check(self.task, records.name)
        points = replayed_points(
            policies,
            replayed.columns,
            trajectories,
            chances=replayed.chances,
            weighted=self.weigher is not None,
        )
        if self.truths is not None:
            points.append(hindsight_point("oracle", oracle(trajectories), trajectories))
        return Frontier(tuple(points), trajectories, replayed.readability)


def check_traced(records: Records, label: str) -> None:
    """Refuse a policy that needs traces where the first question has none."""
    first = next(iter(records), None)
    if first is not None and not any(TRACE in brought(each) for each in first.responses):
        raise UsageError(
            f'"{label}" needs to know how sure the model was of its tokens, and the responses in '
            f'"{records.name}" have no traces'
        )


@dataclass(frozen=True, eq=False)
class Replayed:
    """What policies did on some questions."""

    trajectories: Trajectories
    columns: Columns
    """Where each policy stopped, shape (questions, policies)."""
    chances: Mapping[int, Floats]
    """What a gate said, by the place of its policy; NaN where it was not asked."""
    readability: Readability = NOTHING

    @classmethod
    def join(cls, parts: "Sequence[Replayed]") -> "Replayed":
        """The questions of several, one after the other."""
        silent = [np.full(part.trajectories.tokens.shape, nan) for part in parts]
        places = sorted({place for part in parts for place in part.chances})
        pairs = [*zip(parts, silent, strict=True)]
        return cls(
            Trajectories.concat([part.trajectories for part in parts]),
            np.concatenate([part.columns for part in parts]),
            {i: np.concatenate([part.chances.get(i, no) for part, no in pairs]) for i in places},
            Readability().join(part.readability for part in parts),
        )


def stop_columns(runs: Sequence[Sequence[Run]], schedule: Schedule) -> Columns:
    """Where each policy stopped; `runs` holds those of every policy, by question."""
    column = {checkpoint: place for place, checkpoint in enumerate(schedule.checkpoints)}
    stops = [[column[len(run.prefix.responses)] for run in own] for own in runs]
    return np.array(stops, dtype=np.int64).reshape(len(runs), -1)


def gate_chances(runs: Sequence[Sequence[Run]], schedule: Schedule) -> dict[int, Floats]:
    """What gates said, by the place of their policy, without the policies that have none."""
    shape = (len(runs[0]) if runs else 0, len(runs), len(schedule.checkpoints))
    chances = np.full(shape, nan)
    for row, own in enumerate(runs):
        for place, run in enumerate(own):
            said = [step.decision.p_continue for step in run.steps]
            chances[place, row, : len(said)] = [
                nan if chance is None else chance for chance in said
            ]
    return {place: each for place, each in enumerate(chances) if not np.isnan(each).all()}


def evaluate(
    records: Records,
    policies: Sequence[Policy],
    *,
    schedule: Schedule | None = None,
    truths: Truths | None = None,
    rule: Rule = plain_vote,
    weigher: Weighting | None = None,
    workers: Workers = SERIAL,
) -> Frontier:
    """Replay every policy on every question; with truths, grade the answers and add the oracle.

    A pool is read part by part and never held in memory.
    """
    settings = ReplaySettings(records.task, schedule or records.schedule, truths, rule, weigher)
    return settings.evaluate(records, policies, workers=workers)
