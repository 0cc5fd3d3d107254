"""What one core does in a second of CPU time, stage by stage: the figures of docs/scale.md.

.venv/bin/python bench/rates.py POOL        POOL is a pool directory with truths
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is loaded

import sys
import time
from collections.abc import Callable
from pathlib import Path

from aera import Pool, StaticEncoder, standard_policies
from aera.lab import Truths, evaluate, open_study, read_ballots
from aera.lab.states import embedded
from aera.lab.weighing import mark


def main(path: Path) -> None:
    pool, truths, encoder = Pool.open(path), Truths.open(path), StaticEncoder.load()
    assert truths is not None

    def rate(name: str, work: Callable[[], object]) -> None:
        begun = time.process_time()
        work()
        seconds = time.process_time() - begun
        print(f"{name:10} {pool.manifest.responses / seconds:10,.0f} /s", flush=True)

    rate("reading", lambda: [None for _ in pool])
    records = list(pool)
    texts = [response.text for record in records for response in record.responses]
    rate("votes", lambda: read_ballots(records, pool.task))
    ballots = read_ballots(records, pool.task)
    rate(
        "replay",
        lambda: evaluate(
            ballots, standard_policies(pool.schedule), task=pool.task, schedule=pool.schedule
        ),
    )
    rate("embedding", lambda: embedded(texts, encoder=encoder, folder=Path("/nowhere")))
    open_study(pool, truths, ballots=ballots, encoder=encoder)
    rate("evidence", lambda: open_study(pool, truths, ballots=ballots, encoder=encoder))
    last = pool.schedule.last
    rate("traits", lambda: mark(ballots, truths, task=pool.task, responses=last))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
