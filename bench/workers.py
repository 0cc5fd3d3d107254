"""How much faster two workers are than one, stage by stage, as a ratio within one run.

.venv/bin/python bench/workers.py POOL [--rounds 3] [--ray] [--stages ...]   POOL is a pool directory

Rounds alternate between one worker and two, so that other work on the machine meets both alike; the
median of the rounds' ratios counts. Where two cores are not to be had, time says little: for
processes the table also has the CPU seconds that two workers took for one of a single worker. Near
1, two free cores would need half the time.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
from children import cpu_by_process, cpu_since

from aera import Pool, standard_policies
from aera.evidence.encoder import StaticEncoder
from aera.lab import PaperLearner, Truths, VoteLearner, evaluate
from aera.lab.learning.states import embed
from aera.pools.record import Record, hold
from aera.workers import Processes, RayWorkers, Workers


def embed_part(part: Iterable[Record], *, encoder: StaticEncoder) -> int:
    """The vectors of a part, made afresh: there is no folder to find them in."""
    texts = [response.text for record in part for response in record.responses]
    return len(embed(texts, encoder=encoder, folder=None))


def stages(pool: Pool) -> dict[str, Callable[[Workers], object]]:
    truths, encoder = Truths.open(pool.path), StaticEncoder.load()
    assert truths is not None
    paper, voting = PaperLearner(encoder), VoteLearner()
    paper.prepare(pool, truths)  # the vectors are there from now on
    replay = partial(evaluate, pool, standard_policies(pool.schedule), truths=truths)
    embedding = partial(embed_part, encoder=encoder)
    return {
        "votes": lambda workers: hold(pool, workers=workers),
        "replay": lambda workers: replay(workers=workers),
        "embedding": lambda workers: [*workers.map(embedding, pool.parts())],
        "evidence": lambda workers: paper.prepare(pool, truths, workers=workers),
        "traits": lambda workers: voting.prepare(pool, truths, workers=workers),
    }


def clocked(work: Callable[[Workers], object], workers: Workers) -> tuple[float, float]:
    """Seconds, and those of CPU that processes took."""
    begun, before = time.perf_counter(), cpu_by_process()
    work(workers)
    return time.perf_counter() - begun, cpu_since(before)


def ray_workers(count: int) -> AbstractContextManager[object]:
    import ray

    return ray.init(
        num_cpus=count, log_to_driver=False, logging_level="ERROR", include_dashboard=False
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pool", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--stages", default="votes,replay,embedding,evidence,traits")
    told = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    pool = Pool.open(told.pool)
    every = stages(pool)
    work = {name: every[name] for name in told.stages.split(",")}
    found: dict[str, dict[int, list[tuple[float, float]]]] = {n: {1: [], 2: []} for n in work}
    for _ in range(told.rounds):
        for count in (1, 2):
            workers: Workers = RayWorkers() if told.ray else Processes(count)
            with ray_workers(count) if told.ray else nullcontext():
                [*workers.map(abs, range(4 * count))]  # Ray's workers start now, not on the clock
                for name, each in work.items():
                    found[name][count].append(clocked(each, workers))
    print(f"{pool.manifest.responses:,} responses, {'Ray' if told.ray else 'processes'}")
    print(f"{'stage':10} {'one, s':>8} {'two, s':>8} {'ratios':>20} {'median':>7} {'CPU':>6}")
    for name, times in found.items():
        ones, twos = (np.array(times[count]) for count in (1, 2))
        ratios = ones[:, 0] / twos[:, 0]
        shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
        one, two = np.median(ones[:, 0]), np.median(twos[:, 0])
        cpu = "" if told.ray else f"{twos[:, 1].sum() / ones[:, 1].sum():6.2f}"
        print(f"{name:10} {one:8.1f} {two:8.1f} {shown:>20} {np.median(ratios):7.2f} {cpu}")


if __name__ == "__main__":
    main()
