"""Learn best-of-n: when another block is worth its tokens, at a price that you state.

The price is what the mean full budget costs, in units of reward. Stopping is worth the reward of
the best response so far minus the price of the tokens spent. Rewards are real numbers, given by
the scorer that picks the response or by another judge.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Question, Response, Schedule
from aera.errors import UsageError
from aera.lab.calibrating.calibration import Choice
from aera.lab.calibrating.families import GATE_FAMILY, Family
from aera.lab.learning.folds import group_questions
from aera.lab.learning.labels import utilities
from aera.lab.learning.learner import Measured, Split, check_enough
from aera.lab.learning.vote_gate import VoteGateFit, VoteStates
from aera.lab.replay.scored import ScoredReplay
from aera.lab.replay.trajectory import Trajectories, pick
from aera.lab.truths import Truths, grade
from aera.policies.features import describe_votes
from aera.policies.gate import Gated, VoteGate
from aera.pools.pool import Record, Records
from aera.reading.task import NOTHING, Readability, Task
from aera.voting.rules import BestOfN, Scorer
from aera.workers import SERIAL, Track, Workers, map_tracked, quiet

SCORE_FAMILY = Family("score", (), (), np.greater_equal)
"""Stop once the highest score reaches a bar; its settings are the scores of a pool."""


@dataclass(frozen=True)
class TruthScorer:
    """The judge that knows: 1 where a response is right, else 0."""

    task: Task
    truths: Truths

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        answers = [self.task.read(response).answer for response in responses]
        return [grade(answer, self.truths[question.id], task=self.task) for answer in answers]


@dataclass(frozen=True)
class UtilityChoice(Choice):
    """The setting that was worth most, and what it was worth."""

    price: float = 0.0
    utility: float = 0.0
    """Reward minus the price of the tokens; at the full budget, `reference` minus the price."""

    @property
    def summary(self) -> str:
        """One sentence for people."""
        return (
            f"{self.family} {self.setting:g}: worth most at a price of {self.price:g} on "
            f"{self.questions} questions, reward {self.accuracy:.3f} against {self.reference:.3f} "
            f"at the full budget, saving {100 * self.token_saving:.1f} % of the tokens"
        )


@dataclass(frozen=True)
class MostUtility:
    """The setting worth most on the questions it is chosen on: reward minus the price of tokens."""

    price: float
    certified: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.price < inf:
            raise UsageError(f"the price of the full budget is 0 or more, but got {self.price}")

    def utility(self, trajectories: Trajectories) -> Floats:
        """What stopping at each checkpoint is worth; a point picks its own."""
        tokens = trajectories.tokens
        share = tokens / max(1e-12, float(tokens[:, -1].mean()))
        return utilities(trajectories.known_grades, share, self.price)

    def choose(
        self, family: Family, values: Floats, trajectories: Trajectories, *, seed: int = 0
    ) -> Choice:
        """The setting worth most; a family without settings takes the values seen here."""
        grid = family.fine or tuple(np.unique(values).tolist())
        stops = [family.stops(values, setting) for setting in grid]
        worth = self.utility(trajectories)
        means = [float(pick(worth, columns).mean()) for columns in stops]
        best = int(np.argmax(means))
        rewards, tokens = trajectories.known_grades, trajectories.tokens
        full = max(1e-12, float(tokens[:, -1].sum()))
        return UtilityChoice(
            family=family.name,
            setting=grid[best],
            max_loss=0.0,
            alpha=None,
            questions=len(values),
            accuracy=float(pick(rewards, stops[best]).mean()),
            reference=float(rewards[:, -1].mean()),
            token_saving=1 - float(pick(tokens, stops[best]).sum()) / full,
            needed=None,
            price=self.price,
            utility=means[best],
        )


@dataclass(frozen=True, eq=False)
class RewardTable:
    """What the best response so far is worth at every checkpoint, beside what a gate may see."""

    name: str
    task: Task
    questions: tuple[Question, ...]
    trajectories: Trajectories
    """Its grades are the rewards."""
    evidence: Floats
    """Shape (questions, checkpoints, features of the vote)."""
    scores: Floats
    """The highest score so far, shape (questions, checkpoints)."""
    readability: Readability = NOTHING
    """Nothing has to be read where responses are scored."""

    def __len__(self) -> int:
        return len(self.questions)

    @cached_property
    def groups(self) -> Columns:
        """A number per row, the same for questions that no split may part."""
        return group_questions(self.questions)

    @property
    def schedule(self) -> Schedule:
        """Its checkpoints."""
        return self.trajectories.schedule

    @property
    def rewards(self) -> Floats:
        """Of the best response so far, shape (questions, checkpoints)."""
        return self.trajectories.known_grades


@dataclass(frozen=True, eq=False)
class RewardModel:
    """A gate for best-of-n at one price; beside it a bar on the score."""

    gate: VoteGate
    weigher: BestOfN
    own: Measured
    price: float

    @property
    def families(self) -> Mapping[str, Family]:
        """The gate and the bar on the score."""
        return {GATE_FAMILY.name: GATE_FAMILY, SCORE_FAMILY.name: SCORE_FAMILY}

    @property
    def learned(self) -> str:
        """How it was learned, in one sentence."""
        return f"a gate for best-of-n at a price of {self.price:g} for the full budget"

    def values(self, table: RewardTable, rows: Columns) -> Measured:
        """Other questions as this gate and the bar see them."""
        return _measure(table, rows, self.gate.chances(table.evidence[rows]))

    def policy(self, setting: float, family: Family | None = None) -> Gated:
        """The gate at one threshold."""
        if family is SCORE_FAMILY:
            raise UsageError("a bar on the score is only shown beside the gate; it is no policy")
        return Gated(self.gate, setting)


def _measure(table: RewardTable, rows: Columns, p_continue: Floats) -> Measured:
    values = {GATE_FAMILY.name: p_continue, SCORE_FAMILY.name: table.scores[rows]}
    return Measured(table.trajectories.subset(rows), values)


@dataclass(frozen=True)
class RewardLearner:
    """A gate that stops best-of-n when another block is not worth its price."""

    best_of_n: BestOfN
    price: float = 0.2
    judge: Scorer | None = None
    """Who says what a response is worth; without one, the score itself is the reward."""
    gate: VoteGateFit = field(default_factory=VoteGateFit)
    margin: None = None
    weighted: bool = False
    """A score is no weight: the best response counts, and equal ones do not add up."""

    def replaying(self, task: Task, schedule: Schedule) -> ScoredReplay:
        """Best-of-n at these checkpoints, each response worth what the judge says."""
        rewarded = not isinstance(self.judge, TruthScorer)
        return ScoredReplay(task, schedule, self.best_of_n, self.judge, rewarded)

    def prepare(
        self,
        records: Records,
        truths: Truths | None = None,
        *,
        schedule: Schedule | None = None,
        workers: Workers = SERIAL,
        track: Track = quiet,
    ) -> RewardTable:
        """Score every response once and replay the best one at every checkpoint."""
        checkpoints = schedule or records.schedule
        work = partial(_measure_part, settings=self.replaying(records.task, checkpoints))
        parts = map_tracked(workers, work, records.parts(), name="scoring", track=track)
        questions = tuple(question for part in parts for question in part.questions)
        records.check_whole(question.id for question in questions)
        return RewardTable(
            name=records.name,
            task=records.task,
            questions=questions,
            trajectories=Trajectories.join([part.trajectories for part in parts]),
            evidence=np.concatenate([part.evidence for part in parts]),
            scores=np.concatenate([part.scores for part in parts]),
        )

    def split(self, table: RewardTable, rows: Columns, *, certified: bool, seed: int) -> Split:
        """All questions teach, and each calibrates out of fold."""
        return Split(rows, rows[:0], rows[:0])

    def fit(
        self, table: RewardTable, rows: Columns, *, held: Columns | None = None, seed: int
    ) -> RewardModel:
        """A gate of these questions, at this price."""
        check_enough(table)
        known = VoteStates(table.evidence, table.rewards, table.trajectories.tokens).subset(rows)
        fit = replace(self.gate, price=self.price)
        own = _measure(table, rows, fit.out_of_fold(known, groups=table.groups[rows], seed=seed))
        return RewardModel(fit.fit(known), self.best_of_n, own, self.price)


def _measure_part(part: Iterable[Record], *, settings: ScoredReplay) -> RewardTable:
    """One part: the best response at every checkpoint, its score and its reward."""
    chains = [settings.chain(record) for record in part]
    return RewardTable(
        name="",
        task=settings.task,
        questions=tuple(chain[0].question for chain in chains),
        trajectories=settings.judge_chains(chains),
        evidence=describe_votes(chains),
        scores=np.array([[p.tally.leaders.weight for p in chain] for chain in chains]),
    )
