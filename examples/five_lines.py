"""Evaluate recorded responses and train on them: python examples/five_lines.py POOL OUT"""

import sys

import aera

if len(sys.argv) != 3:
    sys.exit(__doc__)
pool = aera.open_pool(sys.argv[1])
result = aera.evaluate(pool)  # what each policy would have spent and lost
print(result)
print(result.rows()[0])  # pandas.DataFrame(result.rows()), or polars
controller = aera.train(pool, max_loss=0.02)  # learned and calibrated
print(controller)
controller.save(sys.argv[2])
