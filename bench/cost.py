"""What a hundred million responses would take: a simulation of parts, workers and their deaths.

.venv/bin/python bench/cost.py [--responses 100000000] [--deaths 0.1] [--spread 0.2]

Assumptions, all of them arguments: a core does each stage at its measured rate (docs/scale.md); a
part is a segment of 16,384 responses and goes to the next free core; cores differ by a lognormal
`spread`; a worker dies `deaths` times per core-hour, after which its part is begun again by
another once `notice` seconds have passed; all cores together read no faster than `disk` MB/s. The
price is that of busy and idle cores alike until the last part is done.
"""

import argparse
import heapq

import numpy as np

PART = 16_384
BYTES = 130
"""Of one response in a sealed segment."""
RATES = {
    "reading": 50_000.0,
    "votes": 160_000.0,
    "embedding": 6_500.0,
    "evidence": 25_000.0,
    "traits": 3_200.0,
}
"""Responses per second and core, as bench/rates.py finds them."""


def simulated(
    parts: int, cores: int, part_seconds: float, told: argparse.Namespace, rng: np.random.Generator
) -> tuple[float, int]:
    """Seconds until the last part is done, and how many parts had to be begun again."""
    speed = rng.lognormal(-(told.spread**2) / 2, told.spread, cores)  # 1 in the mean
    # However many cores there are, they share the disk.
    reading = cores * PART * BYTES / (told.disk * 1e6)
    free = [(0.0, core) for core in range(cores)]
    heapq.heapify(free)
    waiting, again, end = parts, 0, 0.0
    while waiting:
        now, core = heapq.heappop(free)
        seconds = max(part_seconds / speed[core], reading)
        death = rng.exponential(3600 / told.deaths) if told.deaths else np.inf
        if death < seconds:
            again += 1
            heapq.heappush(free, (now + death + told.notice, core))
            continue
        waiting -= 1
        end = max(end, now + seconds)
        heapq.heappush(free, (now + seconds, core))
    return end, again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--responses", type=int, default=100_000_000)
    parser.add_argument("--deaths", type=float, default=0.1, help="per core and hour")
    parser.add_argument("--notice", type=float, default=30.0, help="seconds until a death is seen")
    parser.add_argument("--spread", type=float, default=0.2, help="of the speed of cores")
    parser.add_argument("--disk", type=float, default=1_000.0, help="MB/s for all cores together")
    parser.add_argument("--price", type=float, default=0.04, help="of a core for an hour")
    parser.add_argument("--tokens", type=float, default=300.0, help="of one response")
    parser.add_argument("--token-price", type=float, default=0.2, help="of a million tokens")
    for name, rate in RATES.items():
        parser.add_argument(f"--{name}", type=float, default=rate, help="a second and core")
    told = parser.parse_args()
    parts = -(-told.responses // PART)
    per_response = sum(1 / getattr(told, name) for name in RATES)
    part_seconds = PART * per_response
    print(f"{told.responses:,} responses in {parts:,} parts of {part_seconds:.1f} core-seconds")
    print(
        f"sampling them: {told.responses * told.tokens / 1e6 * told.token_price:,.0f} for the tokens"
    )
    print(f"{'cores':>6} {'hours':>8} {'price':>8} {'begun again':>12} {'of ideal':>9}")
    for cores in (2, 16, 64, 256, 1024):
        seconds, again = simulated(parts, cores, part_seconds, told, np.random.default_rng(0))
        ideal = parts * part_seconds / cores
        price = cores * seconds / 3600 * told.price
        print(f"{cores:6} {seconds / 3600:8.2f} {price:8.2f} {again:12} {ideal / seconds:8.0%}")


if __name__ == "__main__":
    main()
