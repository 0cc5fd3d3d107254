"""Best-of-n with a local reward model: python examples/best_of_n.py POOL"""

import asyncio
import sys
from dataclasses import replace

from aera import BestOfN, ChanceRight, Controller, Pool, RecordedSampler, solve
from aera.lab import BUNDLED, MostUtility, VoteLearner, build, nested

pool = Pool.open(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
bundled = Controller.load(BUNDLED / "controller")
best_of_n = BestOfN(ChanceRight(bundled.weigher, pool.task))  # or yours
learner = VoteLearner("scores", best_of_n=best_of_n, price=0.2)
table = learner.prepare(pool)
for price in (0.05, 0.2, 1.0):  # what the full budget costs, in units of reward
    [judged] = nested(replace(learner, price=price), table, [MostUtility(price)])
    best = max(judged.fixed(), key=lambda point: point.utility(price))
    for each in (best, judged.point("aera")):
        told = f"{each.policy:15} {each.responses:5.1f} responses, {each.utility(price):.3f}"
        print(f"price {price}: {told} in utility")
controller = build(learner, table, MostUtility(0.2)).controller
done = asyncio.run(solve(next(iter(pool.questions.values())), RecordedSampler(pool), controller))
print(f"score {done.leaders.weight:.2f} after {done.responses} responses: {done.answer}")
