"""Evaluation: what each policy would have done on recorded responses, graded, in one pass."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from typing import Any

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Schedule
from aera.errors import UsageError
from aera.lab.replay.frontier import Frontier, hindsight_point, replayed_points
from aera.lab.replay.hindsight import oracle
from aera.lab.replay.trajectory import Trajectories
from aera.lab.truths import Grader, Truths
from aera.policies.labels import confident_rule
from aera.policies.rules import Policy
from aera.pools.pool import Record, Records, VotedRecord, health_of, read_votes
from aera.reading.task import NOTHING, Readability, Task
from aera.solving.replay import OBSERVED, Replay, replay_records
from aera.solving.run import Run
from aera.voting.rules import CONFIDENT, Rule, plain_vote
from aera.voting.traits import TRACE, brought
from aera.voting.weigher import Weighting
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
        seen = replay_records(
            voted, policies, task=self.task, schedule=self.schedule, rule=self.rule
        )
        health = health_of(voted)
        ids = tuple(record.question.id for record in voted)
        trajectories = Trajectories(
            question_ids=ids,
            schedule=self.schedule,
            tokens=np.array([each.tokens for each in seen]),
            agreement=np.array(
                [[float(a == each.answers[-1]) for a in each.answers] for each in seen]
            ),
            evidence={name: np.array([each.observed[name] for each in seen]) for name in OBSERVED},
            prompts=prompt_lengths(voted),
            **self._grade(voted, seen),
        )
        return Replayed(
            trajectories,
            stop_columns([each.runs for each in seen], self.schedule),
            gate_chances([each.runs for each in seen], self.schedule),
            health,
        )

    def _grade(self, voted: Sequence[VotedRecord], seen: Sequence[Replay]) -> dict[str, Any]:
        """Grades of the returned answers, and the paper's score, where there are truths."""
        if self.truths is None:
            return {}
        graders = [Grader(self.task, self.truths[record.question.id]) for record in voted]
        pairs = zip(graders, voted, seen, strict=True)
        last, rows = len(self.schedule.checkpoints), []
        for grader, record, each in pairs:
            said = [vote.raw if vote.redo else vote.answer for vote in record.votes]
            graded = grader.grade([*each.answers, *said])
            kept = [not vote.redo for vote in record.votes]
            rows.append((graded[:last], re2_means(graded[last:], kept, self.schedule)))
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
            Trajectories.join([part.trajectories for part in parts]),
            np.concatenate([part.columns for part in parts]),
            {i: np.concatenate([part.chances.get(i, no) for part, no in pairs]) for i in places},
            Readability().join(part.readability for part in parts),
        )


def prompt_lengths(records: Sequence[Record]) -> Floats:
    """Tokens of each question's prompt: the most that any of its responses recorded."""
    lengths = [max((r.prompt_tokens for r in each.responses), default=0) for each in records]
    return np.array(lengths, dtype=np.float64)


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


def re2_means(grades: Sequence[float], kept: Sequence[bool], schedule: Schedule) -> Floats:
    """The Re2 mean score of each prefix: the average grade of the responses that are no redo.

    Where every response is a redo, all of them count, by what they boxed.
    """
    values, no_redo = np.array(grades), np.array(kept)
    ends = np.array(schedule.checkpoints) - 1
    right, valid = np.cumsum(values * no_redo)[ends], np.cumsum(no_redo)[ends]
    everything = np.cumsum(values)[ends] / (ends + 1)
    means: Floats = np.where(valid > 0, right / np.maximum(valid, 1), everything)
    return means
