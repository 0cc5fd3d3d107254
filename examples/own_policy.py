"""A policy of one's own beside ASC: python examples/own_policy.py POOL"""

import sys
from dataclasses import dataclass

from aera import ASC, Decision, Pool, Prefix
from aera.lab import evaluate, open_truths


@dataclass(frozen=True)
class Streak:
    """Stop once the last votes are all for the same answer."""

    length: int

    def decide(self, prefix: Prefix) -> Decision:
        last = {vote.answer for vote in prefix.votes[-self.length :]}
        return Decision(len(last) == 1 and None not in last, f"the last {self.length} agree")


pool = Pool.open(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
for point in evaluate(pool, [Streak(4), ASC(0.95)], truths=open_truths(pool)).points:
    print(f"{point.policy:18} {point.accuracy:5.1f} % at {point.responses:.1f} responses")
