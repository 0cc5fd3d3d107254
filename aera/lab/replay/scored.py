"""Best-of-n over recorded responses: the best one at every checkpoint, and what it is worth."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from aera.core import Prefix, Schedule
from aera.lab.replay.frontier import Frontier, replayed_points
from aera.lab.replay.replay import Replayed, gate_chances, stop_columns
from aera.lab.replay.trajectory import Trajectories, prompt_lengths, silent
from aera.lab.truths import TruthScorer
from aera.policies.rules import Policy
from aera.pools.pool import Record, Records, health_of, read_votes
from aera.reading.task import NOTHING, Task
from aera.solving.run import replay
from aera.voting.rules import BestOfN, Scorer
from aera.workers import SERIAL, Workers


@dataclass(frozen=True)
class ScoredReplay:
    """What a replay of best-of-n depends on besides the responses."""

    task: Task
    schedule: Schedule
    best_of_n: BestOfN
    judge: Scorer | None = None
    """Who says what a response is worth; without one, the score itself is the reward."""

    @property
    def rewarded(self) -> bool:
        """Whether rewards are any real numbers; who knows the truth says right or wrong."""
        return not isinstance(self.judge, TruthScorer)

    def chain(self, record: Record) -> list[Prefix]:
        """Its prefixes, every response voting for itself; nothing has to be readable."""
        unread = silent(record).first(self.schedule.last)
        return unread.weigh(self.best_of_n).prefixes(self.schedule)

    def judge_chains(self, chains: Sequence[list[Prefix]]) -> Trajectories:
        """Reward and cost of the best response at every checkpoint."""
        best = [[prefix.tally.leaders.answer for prefix in chain] for chain in chains]
        judge = self.judge
        rewards = [
            [prefix.tally.leaders.weight for prefix in chain]
            if judge is None
            else _judge(chain, judge)
            for chain in chains
        ]
        records = [Record(chain[-1].question, chain[-1].responses) for chain in chains]
        return Trajectories(
            question_ids=tuple(record.question.id for record in records),
            schedule=self.schedule,
            tokens=np.array([[float(p.completion_tokens) for p in chain] for chain in chains]),
            agreement=np.array([[float(text == row[-1]) for text in row] for row in best]),
            evidence={},
            grades=np.array(rewards),
            prompts=prompt_lengths(records),
            rewarded=self.rewarded,
        )

    def replay(self, part: Iterable[Record], policies: Sequence[Policy] = ()) -> Replayed:
        """Replay every policy on every question of a part; only the truth has to read them."""
        records = [*part]
        chains = [self.chain(record) for record in records]
        runs = [[replay(chain, each, task=self.task) for each in policies] for chain in chains]
        return Replayed(
            self.judge_chains(chains),
            stop_columns(runs, self.schedule),
            gate_chances(runs, self.schedule),
            NOTHING if self.rewarded else health_of(read_votes(records, self.task)),
        )

    def evaluate(
        self, records: Records, policies: Sequence[Policy], *, workers: Workers = SERIAL
    ) -> Frontier:
        """Replay every policy on every question, part by part."""
        done = [*workers.map(partial(self.replay, policies=policies), records.parts())]
        replayed = Replayed.join(done)
        trajectories = replayed.trajectories
        records.check_whole(trajectories.question_ids)
        replayed.readability.check(self.task, records.name)
        points = replayed_points(policies, replayed.columns, trajectories, chances=replayed.chances)
        return Frontier(tuple(points), trajectories, replayed.readability)


def _judge(chain: list[Prefix], judge: Scorer) -> list[float]:
    """The judge's score of the best response at each checkpoint, every response judged once."""
    last, leaders = chain[-1], [prefix.tally.leaders.answer for prefix in chain]
    known: dict[str | None, float] = {None: 0.0}
    for response in last.responses:
        if response.text in leaders and response.text not in known:
            [known[response.text]] = judge.score(last.question, [response])
    return [known[text] for text in leaders]
