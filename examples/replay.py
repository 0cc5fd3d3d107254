"""What policies would have cost, on recorded responses: python examples/replay.py POOL"""

import sys

from aera import ASC, ESC, Fixed, Pool
from aera.lab import evaluate, open_truths, paired_bootstrap

pool = Pool.open(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
full = Fixed(pool.schedule.last)
policies = [Fixed(pool.schedule.first), ASC(0.95), ESC(3), full]
frontier = evaluate(pool, policies, truths=open_truths(pool))
for point in frontier.points:
    gap = paired_bootstrap(100 * point.scores, 100 * frontier[full].scores, seed=0)
    interval = f"{gap.value:+.1f} points [{gap.low:+.1f}, {gap.high:+.1f}] against {full}"
    print(f"{point.policy:12} {point.accuracy:5.1f} % at {point.responses:5.1f}, {interval}")
