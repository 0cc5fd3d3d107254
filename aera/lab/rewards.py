"""Best-of-n in the lab: when another block is worth its tokens, at a price that you state.

The price is what the mean full budget costs, in units of reward. Stopping is worth the reward of
the best response so far minus the price of the tokens spent. Rewards are real numbers, given by
the scorer that picks the response or by another judge.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from aera.gate import Gate, Gated, VoteGate, sigmoid
from aera.lab.dials import GATE, Dial
from aera.lab.evaluation import Ballot
from aera.lab.folds import fold_numbers
from aera.lab.frontier import Point
from aera.lab.labels import utilities
from aera.lab.trajectory import Columns, Floats, Trajectories, pick
from aera.lab.truths import Truths, grade
from aera.lab.votegate import fit_vote_gate
from aera.pool import Record
from aera.response import Prefix, Question, Response
from aera.reward import BestOfN, Scorer
from aera.schedule import Schedule
from aera.standing import standing
from aera.tally import Vote
from aera.task import Task

BAR = Dial("bar", (), (), np.greater_equal)
"""Stop once the highest score reaches it; its settings are scores, so a pool brings them."""


@dataclass(frozen=True)
class Gold:
    """The judge that knows: 1 where a response is right, else 0."""

    task: Task
    truths: Truths

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        answers = [self.task.read(response).answer for response in responses]
        return [grade(answer, self.truths[question.id], task=self.task) for answer in answers]


@dataclass(frozen=True, eq=False)
class Rewards:
    """What the best response so far is worth at every checkpoint, beside what a gate may see."""

    trajectories: Trajectories
    """Its grades are the rewards."""
    evidence: Floats
    """Shape (questions, checkpoints, features of the standing)."""
    scores: Floats
    """The highest score so far, shape (questions, checkpoints)."""

    @property
    def rewards(self) -> Floats:
        """Of the best response so far, shape (questions, checkpoints)."""
        assert self.trajectories.grades is not None
        return self.trajectories.grades

    def utility(self, price: float) -> Floats:
        """What stopping at each checkpoint is worth; a point picks its own."""
        tokens = self.trajectories.tokens
        return utilities(self.rewards, tokens / tokens[:, -1].mean(), price)

    def chances(self, gate: Gate) -> Floats:
        """The gate's p_continue, shape (questions, checkpoints)."""
        return sigmoid(gate.network.outputs(self.evidence))[..., 0]

    def fitted(self, price: float, rows: Columns) -> VoteGate:
        """A gate of these questions."""
        tokens = self.trajectories.tokens[rows]
        return fit_vote_gate(self.evidence[rows], self.rewards[rows], tokens, price=price)

    def tuned(
        self, price: float, rows: Columns | None = None, *, folds: int = 5, seed: int = 0
    ) -> Gated:
        """A gate of these questions (or all), at the threshold worth most on them out of fold."""
        rows = np.arange(len(self.rewards)) if rows is None else rows
        numbers = fold_numbers(len(rows), folds, seed=seed)
        chances = np.empty((len(rows), self.rewards.shape[1]))
        for fold in range(folds):
            gate = self.fitted(price, rows[numbers != fold])
            chances[numbers == fold] = self.chances(gate)[rows[numbers == fold]]
        stops = [GATE.stops(chances, threshold) for threshold in GATE.fine]
        best = _most_worth(stops, self.utility(price)[rows])
        return Gated(self.fitted(price, rows), GATE.fine[best])

    def nested(self, price: float, *, folds: int = 5, seed: int = 0) -> Point:
        """Every question stopped by a gate and a threshold that come from other questions."""

        def stops(rest: Columns) -> Columns:
            policy = self.tuned(price, rest, folds=folds, seed=seed)
            return GATE.stops(self.chances(policy.gate), policy.threshold)

        return self._elsewhere("aera", stops, folds, seed)

    def barred(self, price: float, *, folds: int = 5, seed: int = 0) -> Point:
        """The plain rival, chosen elsewhere too: stop once a score is high enough."""

        def stops(rest: Columns) -> Columns:
            each = [BAR.stops(self.scores, bar) for bar in np.unique(self.scores[rest])]
            return each[_most_worth([own[rest] for own in each], self.utility(price)[rest])]

        return self._elsewhere("bar", stops, folds, seed)

    def _elsewhere(
        self, name: str, stops: Callable[[Columns], Columns], folds: int, seed: int
    ) -> Point:
        """Each fold as what the other folds taught would stop it."""
        numbers = fold_numbers(len(self.rewards), folds, seed=seed)
        columns: Columns = np.zeros(len(numbers), np.int64)
        for fold in range(folds):
            own = numbers == fold
            columns[own] = stops(np.flatnonzero(~own))[own]
        return Point(name, columns, self.trajectories)

    def fixed(self) -> list[Point]:
        """Always the same number of responses, for every checkpoint."""
        named = enumerate(self.trajectories.schedule)
        size, trajectories = len(self.rewards), self.trajectories
        return [Point(f"fixed-{n}", np.full(size, column), trajectories) for column, n in named]


def measure_rewards(
    records: Iterable[Record], scale: BestOfN, *, schedule: Schedule, judge: Scorer | None = None
) -> Rewards:
    """Replay recorded responses; without a judge, the score itself is the reward."""
    chains = [_chain(record, scale, schedule) for record in records]
    best = [[prefix.tally.leaders.answer for prefix in chain] for chain in chains]
    scores = np.array([[prefix.tally.leaders.weight for prefix in chain] for chain in chains])
    rewards = np.array([_judged(chain, judge) for chain in chains]) if judge else scores
    trajectories = Trajectories(
        question_ids=tuple(chain[0].question.id for chain in chains),
        schedule=schedule,
        tokens=np.array([[float(p.completion_tokens) for p in chain] for chain in chains]),
        agreement=np.array([[float(text == row[-1]) for text in row] for row in best]),
        evidence={},
        grades=rewards,
    )
    evidence = np.array([[standing(prefix) for prefix in chain] for chain in chains])
    return Rewards(trajectories, evidence, scores)


def _chain(record: Record, scale: BestOfN, schedule: Schedule) -> list[Prefix]:
    unread = Ballot(record, (Vote(None),) * len(record.responses))
    return unread.first(schedule.last).weighed(scale).prefixes(schedule)


def _judged(chain: list[Prefix], judge: Scorer) -> list[float]:
    """The judge's score of the best response at each checkpoint, every response judged once."""
    last, leaders = chain[-1], [prefix.tally.leaders.answer for prefix in chain]
    known: dict[str | None, float] = {None: 0.0}
    for response in last.responses:
        if response.text in leaders and response.text not in known:
            [known[response.text]] = judge.score(last.question, [response])
    return [known[text] for text in leaders]


def _most_worth(stops: Sequence[Columns], utility: Floats) -> int:
    return int(np.argmax([pick(utility, columns).mean() for columns in stops]))
