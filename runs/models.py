"""Taught on one model's answers, used on another's: does a weigher belong to a task or to a model?

A controller is trained, 2 points allowed, on GSM8K questions answered by a model of 1.5 billion
parameters and used on other questions answered by one of half a billion, and the other way round.
Neither has traces here. Five seeds of the whole training, intervals over the judged questions.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pools import SEEDS, pools_argument, publish, table, vote_table
from rivals import Outcome, gap, share

from aera.lab import (
    ASC_FAMILY,
    Columns,
    Dataset,
    Point,
    VoteLearner,
    fixed_points,
    learn_and_tune,
    limit_for,
)

LEARNER, MAX_LOSS = VoteLearner(), 0.02
LARGE, SMALL = "gsm8k", "traces/gsm8k-half"
TAUGHT_LARGE = range(400, 800)
"""GSM8K questions of the larger model; the smaller one has 0 to 299."""


@dataclass(frozen=True, eq=False)
class Questions:
    """Some questions of one model."""

    title: str
    known: Dataset
    rows: Columns

    @property
    def keys(self) -> set[str]:
        """What makes its questions one with others."""
        return {key for row in self.rows for key in self.known.questions[row].keys}


def carry(taught: Questions, judged: Questions, seed: int) -> tuple[Outcome, Outcome, bool]:
    """Train on one model's answers, then decide on the other's: all weighted votes, the policy."""
    limit = limit_for(LEARNER, MAX_LOSS)
    model, tuning = learn_and_tune(LEARNER, taught.known, taught.rows, certified=False, seed=seed)
    family = model.families(limit)["aera"]
    choice = limit.choose(family, tuning, grid=model.grid(family), seed=seed)
    seen = model.values(judged.known, judged.rows)
    point = Point("aera", choice.stops(family, seen.values[family.name]), seen)
    return Outcome.of(fixed_points(seen)[-1]), Outcome.of(point), model.weigher is not None


def row_of(taught: Questions, judged: Questions) -> list[str]:
    """One direction, mean over the seeds for every question."""
    assert taught.keys.isdisjoint(judged.keys), "a question stands on both sides"
    runs = [carry(taught, judged, seed) for seed in SEEDS]
    plain = judged.known.replay(judged.rows)
    every = Outcome.of(fixed_points(plain)[-1])
    stops = ASC_FAMILY.stops(plain.values[ASC_FAMILY.name], 0.95)
    asc = Outcome.of(Point("asc", stops, plain))
    fulls, points, weighted = zip(*runs, strict=True)
    full, done = Outcome.mean(fulls), Outcome.mean(points)
    return [
        f"{taught.title} → {judged.title}",
        f"{100 * every.scores.mean():.2f}",
        f"{100 * full.scores.mean():.2f}",
        " ".join(gap(full, every)),
        f"{sum(weighted)} of {len(runs)}",
        f"{100 * done.scores.mean():.2f} at {done.counts.mean():.1f}",
        " ".join(gap(done, full)),
        " ".join(gap(done, asc)),
        " ".join(share(done, asc)),
    ]


HEADER = ["taught → judged", "128 plain votes %", "128 weighted votes %", "gained", "weights kept"]
HEADER += ["controller % at responses", "against its own full budget", "against ASC(0.95)"]
HEADER += ["tokens, % of ASC(0.95)'s"]


def main(folder: Path) -> None:
    large, small = vote_table(folder, LARGE), vote_table(folder, SMALL)
    later = np.flatnonzero([int(each.id[-5:]) in TAUGHT_LARGE for each in large.questions])
    one = Questions("1.5B, questions 400 to 799", large, later)
    other = Questions("0.5B, questions 0 to 299", small, np.arange(len(small)))
    publish("models", table(HEADER, [row_of(one, other), row_of(other, one)]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
