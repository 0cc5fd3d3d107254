"""Best-of-n on the bundled pool: what the price does, and what a judge who knows the truth says.

The scorer is the bundled controller's weigher, which was taught on other questions. Needs no POOLS.
"""

from dataclasses import replace
from shutil import rmtree

import numpy as np
from pools import ROOT, publish, table

from aera import BestOfN, ChanceRight, Controller, Fixed, Weigher, get_task
from aera.lab import (
    MostUtility,
    Truths,
    VoteLearner,
    evaluate,
    fixed_points,
    import_file,
    nested,
    paired_bootstrap,
)

DEMO = ROOT / "aera" / "demo"
PRICES = (0.05, 0.2, 1.0)


def main() -> None:
    task, weigher = get_task("gsm8k"), Controller.load(DEMO / "controller").weigher
    out = ROOT / "out" / "best-of-n"
    rmtree(out, ignore_errors=True)
    pool = import_file(DEMO / "gsm8k.jsonl.gz", out, task=task).pool
    truths = Truths.open(pool.path)
    assert truths is not None
    assert isinstance(weigher, Weigher)
    scale = BestOfN(ChanceRight(weigher, task))
    by_score = VoteLearner("scores", best_of_n=scale, judge="score")
    by_truth = replace(by_score, judge="truth")
    rows, means = [], []
    for name, learner in (("the score", by_score), ("the truth", by_truth)):
        ready = learner.prepare(pool, truths)
        every = fixed_points(ready.replay(np.arange(len(ready))))
        means.append([name, *(f"{each.scores.mean():.3f}" for each in every)])
        for price in PRICES:
            fixed = max(every, key=lambda each: each.utility(price))
            [judged] = nested(replace(learner, price=price), ready, [MostUtility(price)])
            gate, bar = judged.point("aera"), judged.point("score")
            gains = [
                paired_bootstrap(gate.worth(price), other.worth(price), seed=0)
                for other in (fixed, bar)
            ]
            told = [f"{g.value:+.3f} [{g.low:+.3f}, {g.high:+.3f}]" for g in gains]
            spent = [f"{gate.responses:.1f}", f"{gate.scores.mean():.3f}"]
            rows.append([f"{name}, {price}", *spent, f"{told[0]} ({fixed.policy})", told[1]])
    points = evaluate(
        pool, [Fixed(n) for n in pool.schedule], truths=truths, weigher=weigher
    ).points
    means.append(["votes by these weights", *(f"{each.scores.mean():.3f}" for each in points[:-1])])
    header = ["judge, price", "responses", "reward", "gain over the best fixed n", "over a bar"]
    publish("best-of-n", table(header, rows))
    publish("best-of-n-means", table(["reward by n", *map(str, pool.schedule)], means))


if __name__ == "__main__":
    main()
