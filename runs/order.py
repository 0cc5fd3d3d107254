"""The order asked against the order of arrival: the first four votes of 128 under way at once.

Plain votes; a response arrives when its tokens are generated, so short ones come first. Nothing is
fitted or chosen.
"""

from pathlib import Path

import numpy as np
from pools import TASKS, held, interval, pools_argument, publish, table

from aera import Tally
from aera.lab import Floats, Grader, paired_bootstrap

FIRST = 4


def grade(folder: Path, name: str) -> Floats:
    """Whether the vote is right on every question, in the order asked and in that of arrival."""
    records, truths = held(folder, name)
    rows = []
    for record in records:
        votes, lengths = record.votes, [each.tokens for each in record.responses]
        soonest = sorted(range(len(votes)), key=lengths.__getitem__)[:FIRST]
        chosen = (votes[:FIRST], [votes[place] for place in soonest])
        said = [Tally().add(each).leaders.answer for each in chosen]
        rows.append(Grader(records.task, truths[record.question.id]).grade(said))
    return np.array(rows)


def row_of(folder: Path, name: str) -> list[str]:
    asked, arrived = 100 * grade(folder, name).T
    gap = paired_bootstrap(arrived, asked, seed=0)
    found = f"{gap.difference:+.2f} {interval(gap.low, gap.high)}"
    return [name, f"{len(asked)}", f"{asked.mean():.2f}", f"{arrived.mean():.2f}", found]


HEADER = ["pool", "questions", "first four asked for, right %", "first four to arrive, right %"]
HEADER += ["difference"]


def main(folder: Path) -> None:
    publish("order", table(HEADER, [row_of(folder, name) for name in TASKS]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
