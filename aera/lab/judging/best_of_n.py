"""Best-of-n evaluated: who scores, who judges, at which price, and what came out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from aera.arrays import Columns
from aera.errors import UsageError
from aera.lab.judging.bootstrap import bootstrap_ratios, paired_bootstrap
from aera.lab.judging.protocols import Judgement
from aera.lab.learning.rewards import MostUtility, RewardLearner, TruthScorer
from aera.lab.open import need_truths
from aera.lab.replay.frontier import Frontier, Point, fixed_points, hindsight_point
from aera.lab.truths import Truths
from aera.pools.pool import Records
from aera.solving.controller import Controller
from aera.voting.rules import BestOfN, ChanceRight, Scorer

PRICE = 0.2
"""What the mean full budget costs, in units of reward, where nobody says otherwise."""
TRUTH, SCORE = "truth", "score"
JUDGES = (TRUTH, SCORE)


@dataclass(frozen=True)
class Scoring:
    """Best-of-n as somebody asks for it."""

    scorer: Scorer
    price: float = PRICE
    judge: str | None = None
    """Who says what a response is worth: truth or score; None is the truth where there is one."""

    def __post_init__(self) -> None:
        MostUtility(self.price)  # refuses what makes no sense
        if self.judge not in (None, *JUDGES):
            raise UsageError(f'--judge is one of {", ".join(JUDGES)}, but got "{self.judge}"')

    @property
    def goal(self) -> MostUtility:
        """What a threshold is chosen for."""
        return MostUtility(self.price)

    def learner(self, records: Records, truths: Truths | None) -> RewardLearner:
        """What learns when to stop; the truth judges where it is asked for or known."""
        best_of_n = BestOfN(self.scorer, uses_logprobs=_uses_logprobs(self.scorer))
        if self._judge(truths) == SCORE:
            return RewardLearner(best_of_n, self.price)
        judge = TruthScorer(records.task, need_truths(records, truths))
        return RewardLearner(best_of_n, self.price, judge)

    def as_json(self, truths: Truths | None) -> dict[str, Any]:
        """What was asked for, as an evaluation file holds it."""
        named = {"scorer": type(self.scorer).__name__, "judge": self._judge(truths)}
        return {**named, "price": self.price}

    def told(self, truths: Truths | None) -> str:
        """How rewards came about, in one sentence."""
        worth = (
            "the reward is its score"
            if self._judge(truths) == SCORE
            else "the truth is the judge: 1 where it is right, else 0"
        )
        return (
            f"best-of-n: {type(self.scorer).__name__} picks the response, and {worth}; utility is "
            f"the reward minus {self.price:g} times the share of the full budget's tokens"
        )

    def _judge(self, truths: Truths | None) -> str:
        return self.judge or (SCORE if truths is None else TRUTH)


def _uses_logprobs(scorer: Scorer) -> bool:
    """Whether a scorer wants log-probabilities: it says so itself, or its weigher does."""
    if isinstance(scorer, ChanceRight):
        return scorer.weigher.uses_logprobs
    return bool(getattr(scorer, "uses_logprobs", False))


def scoring_for(
    scorer: Scorer | None,
    *,
    price: float | None = None,
    judge: str | None = None,
    controller: Controller | None = None,
) -> Scoring | None:
    """Best-of-n where a scorer is given, or a controller brings one; None where votes count."""
    if controller is not None:
        own = controller.weigher
        if scorer is not None and not isinstance(own, BestOfN):
            raise UsageError("the controller was made for votes and takes no scorer")
        if isinstance(own, BestOfN):
            scorer = own.scorer
            price = controller.calibration.get("price", price) if price is None else price
    if scorer is None:
        if price is not None or judge is not None:
            raise UsageError("--price and --judge go with --scorer: votes have no reward")
        return None
    return Scoring(scorer, PRICE if price is None else price, judge)


def with_oracle(frontier: Frontier, price: float) -> Frontier:
    """With what hindsight could have had: the checkpoint worth most, question by question."""
    worth = MostUtility(price).utility(frontier.trajectories)
    columns: Columns = np.argmax(worth, axis=1)
    return frontier.with_point(hindsight_point("oracle", columns, frontier.trajectories))


def compare_utility(point: Point, others: Sequence[Point], *, price: float, seed: int) -> list[str]:
    """What a policy is worth over the full budget, the best fixed one in hindsight, and others."""
    worth = MostUtility(price).utility(point.trajectories)
    fixed = fixed_points(point.trajectories)
    best = max(fixed, key=lambda each: float(each.pick(worth).mean()))
    named = {other.policy: (other, "") for other in (fixed[-1], *others)}
    named[best.policy] = (best, ", the best fixed budget in hindsight")
    lines = []
    for other, why in named.values():
        gap = paired_bootstrap(point.pick(worth), other.pick(worth), seed=seed)
        lines.append(
            f"{point.policy}: utility {gap.difference:+.3f} against {other.policy}{why}, 95 % "
            f"[{gap.low:+.3f}, {gap.high:+.3f}]"
        )
    return lines


def scored_sections(done: Judgement, *, price: float, seed: int) -> dict[str, Any]:
    """What was chosen, what it was worth over others, and the savings with intervals."""
    own, *others = done.points()
    points = [own, *others]
    spent = np.array([point.spent for point in points])
    savings = bootstrap_ratios(spent, done.trajectories.tokens[:, -1], seed=seed)
    return {
        "status": "confirmatory for the calibrated rows only; sweeps are post hoc",
        "outcome": compare_utility(own, others, price=price, seed=seed),
        "calibration": {
            name: [{**asdict(choice), "summary": choice.summary} for choice in choices]
            for name, choices in done.choices.items()
        },
        "savings": [
            {"policy": point.policy, "family": point.family, **asdict(saving)}
            for point, saving in zip(points, savings, strict=True)
        ],
    }
