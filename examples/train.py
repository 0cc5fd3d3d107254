"""Learn, calibrate and save a controller: python examples/train.py POOL OUT"""

import sys

from aera import Controller, Pool
from aera.lab import VoteLearner, build, limit_for, open_truths

if len(sys.argv) != 3:
    sys.exit(__doc__)
pool = Pool.open(sys.argv[1])
truths = open_truths(pool)
assert truths is not None, "nothing can be learned without right answers"
learner = VoteLearner()
table = learner.prepare(pool, truths)
built = build(learner, table, limit_for(learner, max_loss=0.02), seed=0)
print(built.controller.calibration["learned"])
print(*built.lines)
built.controller.save(sys.argv[2])

loaded = Controller.load(sys.argv[2])
print(f"{loaded.label}, learned from {len(loaded.fitted)} questions, weigher: {loaded.weigher}")
