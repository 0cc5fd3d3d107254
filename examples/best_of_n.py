"""Best-of-n with a local reward model: python examples/best_of_n.py POOL"""

import asyncio
import sys
from pathlib import Path

import aera
from aera import BestOfN, ChanceRight, Controller, Pool, RecordedSampler, solve
from aera.lab import MostUtility, RewardLearner, build, nested

pool = Pool.open(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
bundled = Controller.load(Path(aera.__file__).parent / "demo" / "controller")
best_of_n = BestOfN(ChanceRight(bundled.weigher, pool.task), uses_logprobs=True)  # or your model
table = RewardLearner(best_of_n).prepare(pool)
for price in (0.05, 0.2, 1.0):  # what the full budget costs, in units of reward
    learner, goal = RewardLearner(best_of_n, price), MostUtility(price)
    [judged], utility = nested(learner, table, [goal]), goal.utility(table.trajectories)
    best = max(judged.fixed(), key=lambda point: point.pick(utility).mean())
    for point in (best, judged.point("aera")):
        worth = f"{point.scores.mean():.3f}, worth {point.pick(utility).mean():.3f}"
        print(f"price {price}: {point.policy:15} {point.responses:5.1f} responses, reward {worth}")
controller = build(RewardLearner(best_of_n, 0.2), table, MostUtility(0.2)).controller
done = asyncio.run(solve(next(iter(pool.questions.values())), RecordedSampler(pool), controller))
print(f"score {done.aggregate.support:.2f} after {done.responses} responses: {done.answer}")
