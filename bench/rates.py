"""What one core does in a second of CPU time, stage by stage: the figures of docs/scale.md.

.venv/bin/python bench/rates.py POOL        POOL is a pool directory with truths
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is loaded

import sys
import time
from collections.abc import Callable
from pathlib import Path

from aera import Pool, standard_policies
from aera.lab import (
    PaperLearner,
    StaticEncoder,
    Truths,
    VoteLearner,
    embed,
    evaluate,
    hold,
    read_votes,
)


def main(path: Path) -> None:
    pool, truths, encoder = Pool.open(path), Truths.open(path), StaticEncoder.load()
    paper = PaperLearner(encoder)
    assert truths is not None

    def rate(name: str, work: Callable[[], object]) -> None:
        begun = time.process_time()
        work()
        seconds = time.process_time() - begun
        print(f"{name:10} {pool.manifest.responses / seconds:10,.0f} /s", flush=True)

    rate("reading", lambda: [None for _ in pool])
    records = list(pool)
    texts = [response.text for record in records for response in record.responses]
    rate("votes", lambda: read_votes(records, pool.task))
    held = hold(pool)
    rate("replay", lambda: evaluate(held, standard_policies(pool.schedule)))
    rate("embedding", lambda: embed(texts, encoder=encoder, folder=None))
    paper.prepare(held, truths)  # the vectors are there from now on
    rate("evidence", lambda: paper.prepare(held, truths))
    rate("traits", lambda: VoteLearner().prepare(held, truths))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
