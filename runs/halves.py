"""The scale that a share of changed answers is read on: how often do two votes differ anyway?

Each pool's 128 responses are dealt into two halves, twenty times, and the plain votes of the halves
compared. Beside it: how often the weights of clear votes, taught by the other folds, overturn the
plain vote of all 128. No truth is looked at but in the last two columns.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pools import TASKS, held, pools_argument, publish, table

from aera.lab import crossfit
from aera.lab.learning.crowd import CrowdLearner, winner_of
from aera.lab.learning.votes import VoteTable
from aera.pools.record import VotedRecord
from aera.tally import Tally

DEALS = 20
LEARNER = CrowdLearner()


def differ(records: Sequence[VotedRecord], rng: np.random.Generator) -> float:
    """Share of the questions on which two halves of the votes differ."""
    found = []
    for record in records:
        order = rng.permutation(len(record.votes))
        halves = (order[::2], order[1::2])
        one, other = (
            Tally().add([record.votes[place] for place in sorted(half)]).leaders.answer
            for half in halves
        )
        found.append(one != other)
    return float(np.mean(found))


def row_of(name: str, known: VoteTable) -> list[str]:
    rng = np.random.default_rng(0)
    apart = [differ(known.records, rng) for _ in range(DEALS)]
    judged = crossfit(LEARNER, known, seed=0)
    plain = known.replay(np.arange(len(known)), None).trajectories.known_grades[:, -1]
    pairs = zip(known.records, judged.measured.records, strict=True)
    overturned = [winner_of(one) != winner_of(other) for one, other in pairs]
    used = sum(getattr(model, "weigher", None) is not None for model in judged.models)
    return [
        name,
        f"{len(known)}",
        f"{100 * np.mean(apart):.1f} ({100 * min(apart):.1f} to {100 * max(apart):.1f})",
        f"{used} of {len(judged.models)}",
        f"{100 * np.mean(overturned):.1f}",
        f"{100 * plain.mean():.2f}",
        f"{100 * judged.trajectories.known_grades[:, -1].mean():.2f}",
    ]


HEADER = ["pool", "questions", "two plain votes of 64 differ, %", "weights used"]
HEADER += ["weights overturn the plain vote of 128, %", "128 plain votes %", "128 weighted votes %"]


def main(folder: Path) -> None:
    rows = [row_of(name, LEARNER.prepare(*held(folder, name))) for name in TASKS]
    publish("halves", table(HEADER, rows))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
