"""Best-of-n with a local reward model: python examples/best_of_n.py POOL"""

import asyncio
import sys
from pathlib import Path

import aera
from aera import BestOfN, ChanceRight, Controller, Pool, RecordedSampler, solve
from aera.lab import measure_rewards

pool = Pool.open(sys.argv[1])
bundled = Controller.load(Path(aera.__file__).parent / "demo" / "controller")
scale = BestOfN(ChanceRight(bundled.weigher, pool.task), uses_logprobs=True)  # or your own model
rewards = measure_rewards(pool, scale, schedule=pool.schedule)
for price in (0.05, 0.2, 1.0):  # what the full budget costs, in units of reward
    utility, gate = rewards.utility(price), rewards.nested(price)
    best = max(rewards.fixed(), key=lambda point: point.pick(utility).mean())
    for point in (best, gate):
        worth = f"{point.scores.mean():.3f}, worth {point.pick(utility).mean():.3f}"
        print(f"price {price}: {point.policy:9} {point.responses:5.1f} responses, reward {worth}")
policy = rewards.tuned(0.2)
controller = Controller(pool.task, pool.schedule, policy, policy.gate, scale)
done = asyncio.run(solve(next(iter(pool.questions.values())), RecordedSampler(pool), controller))
print(f"score {done.aggregate.support:.2f} after {done.responses} responses: {done.answer}")
