"""What token traces add to the weights: three pools, out of fold, five split seeds.

POOLS has the folder `traces`. Beside each other: the 36 traits of today's weigher, and the same with
the sixteen numbers of a trace. The area under the curve is of right against wrong responses to the
same question. Intervals over questions.
"""

from pathlib import Path

import numpy as np
from pools import SEEDS, interval, pools_argument, publish, table
from traced import LEARNER, traced_table

from aera.lab import TRACE, Columns, Floats, Fold, VoteTable, out_of_fold, paired_bootstrap

NAMES = ("gsm8k", "csqa", "math500")
FROM = 2
"""The checkpoint of 16 responses."""


def weights(known: VoteTable, without: tuple[str, ...], seed: int) -> Floats:
    """Out of fold, with some groups of traits left out."""

    def judge(fold: Fold) -> Floats:
        taught = known.responses.subset(fold.rest)
        weigher = LEARNER.weigher.fit(taught, seed=seed + fold.number, without=without)
        return weigher.weights(known.responses.traits[fold.own])

    return out_of_fold(judge, known.groups, seed=seed)


def curve(known: VoteTable, given: Floats) -> Floats:
    """The area under the curve of every question that has right and wrong responses, else NaN."""
    areas = []
    for own, voted, grades in zip(
        given, known.responses.voted, known.responses.grades, strict=True
    ):
        right, wrong = own[voted & (grades > 0.5)], own[voted & (grades <= 0.5)]
        higher = (right[:, None] > wrong) + 0.5 * (right[:, None] == wrong)
        areas.append(higher.mean() if higher.size else np.nan)
    return np.array(areas)


def votes(known: VoteTable, rows: Columns, given: Floats | None) -> Floats:
    return known.replay(rows, given).trajectories.known_grades


def row_of(folder: Path, name: str) -> tuple[list[str], float]:
    """One pool: mean over the seeds for every question."""
    known = traced_table(folder, name)
    rows = np.arange(len(known))
    made = {kind: [weights(known, kind, seed) for seed in SEEDS] for kind in ((TRACE,), ())}
    areas = {k: np.mean([curve(known, own) for own in w], axis=0) for k, w in made.items()}
    grades = {k: np.mean([votes(known, rows, own) for own in w], axis=0) for k, w in made.items()}
    fair = ~np.isnan(areas[()])
    apart = paired_bootstrap(areas[()][fair], areas[TRACE,][fair], seed=0)
    late = {kind: 100 * each[:, FROM:].mean(axis=1) for kind, each in grades.items()}
    gain = paired_bootstrap(late[()], late[TRACE,], seed=0)
    plain = 100 * votes(known, rows, None)
    cells = [
        name,
        f"{len(known)}",
        f"{areas[TRACE,][fair].mean():.3f}",
        f"{areas[()][fair].mean():.3f}",
        f"{apart.difference:+.3f} [{apart.low:+.3f}, {apart.high:+.3f}]",
        f"{plain[:, FROM:].mean():.2f}",
        f"{late[TRACE,].mean():.2f}",
        f"{late[()].mean():.2f}",
        f"{gain.difference:+.2f} {interval(gain.low, gain.high)}",
        " ".join(f"{100 * each:.1f}" for each in grades[()].mean(axis=0)),
    ]
    return cells, gain.difference


HEADER = ["pool", "questions", "curve, 36 traits", "with traces", "difference"]
HEADER += [
    "mean of 16, 32, 64 and 128 votes: plain %",
    "36 traits %",
    "with traces %",
    "difference",
]
HEADER += ["with traces, at 4 to 128"]


def main(folder: Path) -> None:
    found = [row_of(folder / "traces", name) for name in NAMES]
    mean = np.mean([gain for _, gain in found])
    shown = table(HEADER, [cells for cells, _ in found])
    publish("traces", f"{shown}\n\nMean of the three: {mean:+.2f} points.")


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
