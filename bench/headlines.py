"""Do headlines hold? Simulated pools, and how often what is said of them is true.

    python bench/headlines.py [--pools 4000] [--seed 0]

Every pool draws its questions from known chances that stopping makes an answer better or worse, so
that the true difference is known. Counted are: intervals of the difference that hold it (the
headline's and, beside it, the percentile bootstrap's), "within 2 points" or better where the truth is
2 points or more below, and intervals of the share spent that hold it.
"""

import argparse
from collections.abc import Sequence
from math import log

import numpy as np
from tables import print_table

from aera.lab import FEW, Floats, compare_in_words, paired_bootstrap, paired_gaps, spent_share

SIZES = (5, 10, 20, 50, 100, 200, 500)
CHANGES = (
    (0.0, 0.0),
    (0.0, 0.002),
    (0.0, 0.01),
    (0.0, 0.02),
    (0.0, 0.05),
    (0.005, 0.025),
    (0.01, 0.0),
    (0.02, 0.04),
    (0.03, 0.0),
    (0.05, 0.05),
    (0.05, 0.2),
    (0.1, 0.12),
    (0.15, 0.0),
)
"""Chances that an answer gets better, and worse, by stopping."""
ALLOWED = 2.0
BOOTSTRAPPED = 200
"""Pools of each kind that the slower bootstrap is tried on."""
STOPS = (4, 8, 16, 32, 64, 128)
SPENDERS = {
    "most stop at 4": (0.9, 0.04, 0.02, 0.01, 0.01, 0.02),
    "one in fifty spends all": (0.98, 0.0, 0.0, 0.0, 0.0, 0.02),
    "spread": (0.3, 0.2, 0.15, 0.1, 0.1, 0.15),
    "few stop": (0.02, 0.03, 0.05, 0.1, 0.2, 0.6),
}
"""Chances of stopping after so many responses."""


def draw(chances: Sequence[float], questions: int, pools: int, seed: int) -> Floats:
    """Differences of grades, shape (pools, questions)."""
    better, worse = chances
    dice = np.random.default_rng(seed).random((pools, questions))
    return np.where(dice < better, 1.0, np.where(dice < better + worse, -1.0, 0.0))


def judge_differences(pools: int, seed: int) -> list[tuple[str, ...]]:
    """One row per size and kind of pool."""
    rows = []
    for questions in SIZES:
        for place, chances in enumerate(CHANGES):
            drawn = draw(chances, questions, pools, seed + 1000 * questions + place)
            truth = 100 * (chances[0] - chances[1])
            gaps = paired_gaps(drawn)
            held = np.mean([gap.low <= truth + 1e-9 and truth - 1e-9 <= gap.high for gap in gaps])
            width = np.mean([gap.high - gap.low for gap in gaps])
            words = [compare_in_words(gap, "full", ALLOWED) for gap in gaps]
            said = ["within" in each or "more accuracy" in each for each in words]
            within = np.mean(said) * (questions >= FEW)
            none = np.zeros(questions)
            short = [paired_bootstrap(100 * one, none, resamples=1000, seed=0)
                     for one in drawn[:BOOTSTRAPPED]]  # fmt: skip
            known = np.mean([each.low <= truth <= each.high for each in short])
            false = f"{100 * within:.2f}" if truth <= -ALLOWED + 1e-9 else "–"
            told = f"{100 * chances[0]:g} / {100 * chances[1]:g}"
            rows.append((str(questions), told, f"{truth:+.1f}", f"{100 * held:.1f}",
                         f"{100 * known:.1f}", f"{width:.1f}", f"{100 * within:.1f}", false))  # fmt: skip
    return rows


def judge_spending(pools: int, seed: int) -> list[tuple[str, ...]]:
    """Questions differ in length; a pool's share is that of a very large one in truth."""
    rows = []
    for questions in SIZES:
        for place, (name, chances) in enumerate(SPENDERS.items()):
            rng = np.random.default_rng(seed + 1000 * questions + place)
            held, width = 0, 0.0
            truth = 100 * float(np.dot(STOPS, chances)) / STOPS[-1]
            for _ in range(pools):
                length = rng.lognormal(log(300), 0.4, size=questions)
                spent = rng.choice(STOPS, size=questions, p=chances) * length
                share = spent_share(spent, STOPS[-1] * length)
                held += share.low <= truth <= share.high
                width += share.high - share.low
            rows.append((str(questions), name, f"{truth:.1f}", f"{100 * held / pools:.1f}",
                         f"{width / pools:.1f}"))  # fmt: skip
    return rows


def main() -> None:
    """Print both tables and the worst of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    differences = judge_differences(given.pools, given.seed)
    print_table(
        ["questions", "better / worse %", "truth", "held %", "bootstrap held %", "width",
         "within 2 or better said %", "falsely %"],
        differences,
    )  # fmt: skip
    spending = judge_spending(given.pools // 2, given.seed)
    print_table(["questions", "spending", "truth %", "held %", "width"], spending)
    false = [float(row[-1]) for row in differences if row[-1] != "–"]
    print(f"difference held at least {min(float(row[3]) for row in differences)} % of the time")
    print(f'"within 2 points" false at most {max(false)} % of the time')
    print(f"share spent held at least {min(float(row[3]) for row in spending)} % of the time")


if __name__ == "__main__":
    main()
