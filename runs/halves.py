"""The scale that a share of changed answers is read on: how often do two votes differ anyway?

Each pool's 128 responses are dealt into two halves, twenty times, and the plain votes of the halves
compared. Beside it: how often the weights of clear votes, taught by one half of the questions,
overturn the plain vote of all 128 on the other. No truth is looked at.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pools import TASKS, held, pools_argument, publish, table

from aera import Tally
from aera.lab import CrowdLearner, VotedRecord, VoteTable, learn_and_tune, winner_of

DEALS = 20
LEARNER = CrowdLearner()


def differ(records: Sequence[VotedRecord], rng: np.random.Generator) -> float:
    """Share of the questions on which two halves of the votes differ."""
    found = []
    for record in records:
        order = rng.permutation(len(record.votes))
        one, other = (
            Tally().add([record.votes[place] for place in sorted(half)]).leaders.answer
            for half in (order[::2], order[1::2])
        )
        found.append(one != other)
    return float(np.mean(found))


def row_of(name: str, known: VoteTable) -> list[str]:
    rng = np.random.default_rng(0)
    apart = [differ(known.records, rng) for _ in range(DEALS)]
    rows = np.arange(len(known))
    model, seen = learn_and_tune(LEARNER, known, rows, certified=True, seed=0)
    plain = {record.question.id: winner_of(record) for record in known.records}
    overturned = [winner_of(each) != plain[each.question.id] for each in seen.records]
    return [
        name,
        f"{len(known)}",
        f"{100 * np.mean(apart):.1f} ({100 * min(apart):.1f} to {100 * max(apart):.1f})",
        "yes" if model.weigher else "no",
        f"{100 * np.mean(overturned):.1f}",
    ]


HEADER = ["pool", "questions", "two plain votes of 64 differ, %", "weights used"]
HEADER += ["they overturn the plain vote of 128, %"]


def main(folder: Path) -> None:
    rows = [row_of(name, LEARNER.prepare(*held(folder, name))) for name in TASKS]
    publish("halves", table(HEADER, rows))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
