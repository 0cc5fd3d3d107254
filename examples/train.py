"""Learn, calibrate and save a controller: python examples/train.py POOL OUT"""

import sys

from aera import Controller, Pool
from aera.lab import Demand, Truths, build_controller, read_ballots
from aera.lab.learning import open_course

pool = Pool.open(sys.argv[1])
truths = Truths.open(pool.path)
assert truths is not None, "nothing can be learned without right answers"
course = open_course(pool, truths, ballots=read_ballots(pool, pool.task))
built = build_controller(course, demand=Demand(max_loss=0.02), seed=0)
print(built.story)
print(built.choice.verdict)
built.controller.save(sys.argv[2], card=built.card)

loaded = Controller.load(sys.argv[2])
print(f"{loaded.policy}, learned from {len(loaded.fitted)} questions, weigher: {loaded.weigher}")
