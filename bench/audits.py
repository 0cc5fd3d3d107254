"""What audits can promise: the alarm's delay and run length, and the interval's coverage.

.venv/bin/python bench/audits.py [SEED]     a minute or two on one core
"""

import sys
from collections.abc import Callable
from itertools import count
from statistics import mean, median

import numpy as np

from aera.gateway.audit import ALPHA, RUN_LENGTH, Detector, covers, interval

LIMIT = 0.02
CALM, PATIENCE = 1_000, 300
"""Audits before the change, and after it until it must be noticed."""
DRIFTS: dict[str, Callable[[int], float]] = {
    "2 %": lambda seen: 0.02,
    "1 %, 8 % from 300 on": lambda seen: 0.01 if seen < 300 else 0.08,
    "20 %, 0.5 % from 200 on": lambda seen: 0.2 if seen < 200 else 0.005,
    "up and down, 0 to 10 %": lambda seen: 0.05 + 0.05 * float(np.sin(seen / 100)),
}


def delay(random: np.random.Generator, before: float, after: float) -> float:
    """Audits from the change to the alarm; less than 0 is a false alarm."""
    detector = Detector(LIMIT)
    for seen in count(1):
        detector.see(bool(random.random() < (before if seen <= CALM else after)))
        if detector.alarmed:
            return seen - CALM
        if seen >= CALM + 20 * PATIENCE:
            return float("inf")
    raise AssertionError


def run_length(random: np.random.Generator, share: float, longest: int) -> int:
    """Audits until a false alarm, at most `longest`."""
    detector = Detector(LIMIT)
    for seen, drawn in enumerate(random.random(longest), 1):
        detector.see(bool(drawn < share))
        if detector.alarmed:
            return seen
    return longest


def missed(random: np.random.Generator, chance: Callable[[int], float], audits: int) -> bool:
    """Whether the interval ever leaves out the running mean, looked at after every audit."""
    changed, total = 0, 0.0
    for seen in range(audits):
        share = chance(seen)
        changed, total = changed + bool(random.random() < share), total + share
        if not covers(changed, seen + 1, total / (seen + 1)):
            return True
    return False


def main(seed: int) -> None:
    random = np.random.default_rng(seed)
    for before, after in ((LIMIT / 2, 4 * LIMIT), (0.0075, 4 * LIMIT), (LIMIT / 2, 2 * LIMIT)):
        delays = [delay(random, before, after) for _ in range(400)]
        noticed = mean(0 < each <= PATIENCE for each in delays)
        false = mean(each <= 0 for each in delays)
        print(
            f"{before:.2%} to {after:.2%} after {CALM} audits: within {PATIENCE} in {noticed:.1%}, "
            f"median {median(delays):.0f}, false alarms before {false:.1%}",
            flush=True,
        )
    for share in (LIMIT, LIMIT / 2):
        lengths = [run_length(random, share, 10 * RUN_LENGTH) for _ in range(60)]
        print(
            f"share {share:.2%} throughout: mean run length at least {mean(lengths):,.0f} "
            f"({mean(each == 10 * RUN_LENGTH for each in lengths):.0%} cut at {10 * RUN_LENGTH:,})",
            flush=True,
        )
    for name, chance in DRIFTS.items():
        share = mean(missed(random, chance, 2_000) for _ in range(200))
        print(f"{name}: interval misses in {share:.1%} of streams, at most {ALPHA:.0%}", flush=True)
    for audits, changed in ((100, 0), (300, 3), (1_000, 10), (1_000, 20), (10_000, 200)):
        low, high = interval(changed, audits)
        print(f"{changed} of {audits:,}: {low:.2%} to {high:.2%}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
