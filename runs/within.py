"""Tried, not built: does it help to compare a response with the others to its question?

Beside the weigher there is a second one, whose traits are what each response differs by from the
mean of those to its question so far, and the two chances are averaged. Two weighers that differ in
their seed alone are averaged as a check. Out of fold; intervals over questions. POOLS has the four
pools and the folder `traces`. It prints a table for LOG.md and publishes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pools import interval, pools_argument, table, vote_table
from traced import LEARNER, traced_table

from aera.lab import (
    TRACE_NAMES,
    Floats,
    Fold,
    Responses,
    VoteTable,
    columns_of,
    out_of_fold,
    paired_bootstrap,
)

TRACED, OTHERS = ("gsm8k", "csqa", "math500", "gsm8k-half"), ("gsm8k", "svamp", "csqa", "math")
SEEDS = range(3)
FROM = 2
"""The checkpoint of 16 responses."""
COMPARED = (
    *("mean_logprob", "logprob", "log_tokens", "token_length", "log_lines", "log_numbers"),
    *("words_given", "numbers_new", *TRACE_NAMES),
)


def compared(own: Responses) -> Responses:
    """Traits less their mean over the responses to the question so far."""
    columns, values = columns_of(COMPARED), own.traits.copy()
    seen = values[..., columns]
    known = np.cumsum(~np.isnan(seen), axis=1)
    values[..., columns] = seen - np.cumsum(np.nan_to_num(seen), axis=1) / np.maximum(1, known)
    return replace(own, traits=values)


def weights(known: VoteTable, own: Responses, seed: int, other: int = 0) -> Floats:
    """Out of fold; `other` changes the seed of the fit and not the folds."""

    def judge(fold: Fold) -> Floats:
        weigher = LEARNER.weigher.fit(own.subset(fold.rest), seed=seed + fold.number + other)
        return weigher.weights(own.traits[fold.own])

    return out_of_fold(judge, known.groups, seed=seed)


def rows_of(name: str, known: VoteTable) -> list[list[str]]:
    rows, own = np.arange(len(known)), known.responses
    within = compared(own)

    def accuracy(given: Sequence[Floats]) -> Floats:
        grades = [known.replay(rows, each).trajectories.known_grades for each in given]
        mean: Floats = 100 * np.mean(grades, axis=0)
        return mean

    alone = [weights(known, own, seed) for seed in SEEDS]
    again = [weights(known, own, seed, other=100) for seed in SEEDS]
    apart = [weights(known, within, seed) for seed in SEEDS]
    plain = accuracy(alone)
    shown = [[f"{name} as it is", _along(plain), ""]]
    tried = {
        "two seeds": [(a + b) / 2 for a, b in zip(alone, again, strict=True)],
        "compared": apart,
        "both": [(a + b) / 2 for a, b in zip(alone, apart, strict=True)],
    }
    for label, given in tried.items():
        found = accuracy(given)
        gap = paired_bootstrap(found[:, FROM:].mean(axis=1), plain[:, FROM:].mean(axis=1), seed=0)
        cells = f"{gap.difference:+.2f} {interval(gap.low, gap.high)}"
        shown.append([f"{name} {label}", _along(found), cells])
    return shown


def _along(grades: Floats) -> str:
    return " ".join(f"{each:.1f}" for each in grades.mean(axis=0))


def main(folder: Path) -> None:
    for name in TRACED:
        rows = rows_of(f"traces/{name}", traced_table(folder / "traces", name))
        print(table(["pool", "4 to 128", "16 to 128, difference"], rows), flush=True)
    for name in OTHERS:
        rows = rows_of(name, vote_table(folder, name))
        print(table(["pool", "4 to 128", "16 to 128, difference"], rows), flush=True)


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
