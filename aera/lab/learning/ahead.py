"""Fit the chance that later blocks will be wanted, from partial prefixes of recorded responses.

A question whose policy stopped at some checkpoint wanted every block up to it. What had arrived
while they were under way is drawn as a server would deliver it: blocks begin together, and short
responses come first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aera.arrays import Columns, Floats
from aera.evidence.votes import vote_features
from aera.lab.learning.perceptron import statistics
from aera.lab.learning.vote_gate import logistic
from aera.network import Network
from aera.policies.ahead import Ahead
from aera.pools.record import VotedRecord
from aera.response import Prefix
from aera.schedule import Schedule


@dataclass(frozen=True)
class AheadFit:
    """How it is fitted."""

    looks: int = 3
    """How often each question is looked at in each of its blocks, and with how many under way."""
    ridge: float = 15.0

    def fit(
        self, records: Sequence[VotedRecord], stops: Columns, schedule: Schedule, *, seed: int = 0
    ) -> Ahead | None:
        """From votes as a policy weighed them, and the column at which it stopped each question.

        None where nothing can begin ahead or be learned of it: one checkpoint, or no lengths.
        """
        past = schedule.checkpoints[:-1]
        if not past:
            return None
        chance = np.random.default_rng(seed)
        seen = [
            (vote_features(prefix), column, stop)
            for record, stop in zip(records, stops, strict=True)
            for prefix, column in self._look(record, int(stop), schedule, chance)
        ]
        if not seen:
            return None
        evidence = np.array([features for features, _, _ in seen])
        decided = np.array([column for _, column, _ in seen])
        stopped = np.array([stop for _, _, stop in seen])
        medians, means, deviations = statistics(evidence)
        scaled = (evidence - means) / deviations
        inputs = np.column_stack([scaled, np.ones(len(scaled))])
        fitted = [
            logistic(inputs, stopped > column, (decided <= column).astype(float), ridge=self.ridge)
            for column in range(len(past))
        ]
        weights = np.array(fitted)
        network = Network(medians, means, deviations, (), weights[:, :-1], weights[:, -1])
        return Ahead(past, _start(stops, len(past)), network)

    def _look(
        self, record: VotedRecord, stop: int, schedule: Schedule, chance: np.random.Generator
    ) -> Iterator[tuple[Prefix, int]]:
        """What had arrived at some moments, with the column of the block that was waited for."""
        decided = Prefix(record.question, schedule)
        ends = schedule.checkpoints
        for column in range(min(stop, len(ends) - 2) + 1):
            start = len(decided)
            if start:
                yield decided, column
            for _ in range(self.looks):
                under_way = ends[int(chance.integers(column, len(ends)))]
                lengths = [each.tokens for each in record.responses[start:under_way]]
                moment = chance.uniform(0, max(lengths[: ends[column] - start]))
                came = [start + i for i, length in enumerate(lengths) if length <= moment]
                if came:
                    yield _extend(decided, record, came), column
            decided = _extend(decided, record, range(start, ends[column]))


def _extend(decided: Prefix, record: VotedRecord, places: Sequence[int]) -> Prefix:
    return decided.extend(
        [record.responses[place] for place in places], [record.votes[place] for place in places]
    )


def _start(stops: Columns, checkpoints: int) -> Floats:
    """How many questions went on past each checkpoint, one of each kind added."""
    went = [np.count_nonzero(stops > column) for column in range(checkpoints)]
    return (np.array(went) + 1) / (len(stops) + 2)
