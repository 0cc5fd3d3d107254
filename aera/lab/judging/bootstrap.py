"""Paired comparisons by question: bootstrap intervals and the matched-random reference.

Questions are the unit of chance everywhere: a resample draws whole questions with replacement, and
all policies are summed over the same draw, so that what a question does to every policy cancels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Floats

__all__ = [
    "Interval",
    "MatchedRandom",
    "Saving",
    "bootstrap_ratio",
    "bootstrap_ratios",
    "compare_all",
    "compare_pairs",
    "matched_random",
    "paired_bootstrap",
]

Ints = NDArray[np.int64]

# Entries of one chunk of draws; bounds the memory to some tens of megabytes whatever is asked.
CHUNK = 1_000_000
# Sums of fractional grades differ in the last bits with the order of addition; these are ties.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Interval:
    """Mean difference between two policies on the same questions, with a percentile interval."""

    difference: float
    """Mean of first minus second, in the unit of the scores."""
    low: float
    high: float
    p: float
    """Two-sided bootstrap p-value of no difference; never 0."""
    higher: int
    """Questions on which the first scored higher."""
    lower: int
    equal: int


@dataclass(frozen=True)
class Saving:
    """Share of a total that was not spent, in percent, with a percentile interval."""

    percent: float
    low: float
    high: float


@dataclass(frozen=True)
class MatchedRandom:
    """A policy against random stopping with the same stops in each fold."""

    mean: float
    """Mean grade when the stops are dealt to questions at random."""
    observed: float
    """Mean grade of the policy itself."""
    p: float
    """One-sided: how often chance does at least as well; never 0."""


def paired_bootstrap(
    scores: Floats,
    reference: Floats,
    *,
    resamples: int = 20_000,
    seed: int,
    level: float = 0.95,
) -> Interval:
    """Interval of mean(scores - reference), both of shape (questions,)."""
    table = compare_all(scores[None], reference[None], resamples=resamples, seed=seed, level=level)
    return table[0][0]


def compare_all(
    scores: Floats,
    references: Floats,
    *,
    resamples: int = 20_000,
    seed: int,
    level: float = 0.95,
) -> list[list[Interval]]:
    """Every policy against every reference: result[policy][reference].

    Both arrays have a row per policy and a column per question. All pairs share one set of
    resamples, and each pair gets the interval it would get alone with the same seed.
    """
    count = len(scores)
    pairs = [(i, count + j) for i in range(count) for j in range(len(references))]
    both = np.vstack([scores, references])
    found = compare_pairs(both, pairs, resamples=resamples, seed=seed, level=level)
    return [found[i * len(references) : (i + 1) * len(references)] for i in range(count)]


def compare_pairs(
    scores: Floats,
    pairs: Sequence[tuple[int, int]],
    *,
    resamples: int = 20_000,
    seed: int,
    level: float = 0.95,
) -> list[Interval]:
    """Some rows of `scores` (policies, questions) against others, all from shared resamples."""
    means = _resampled_sums(scores, resamples, seed) / scores.shape[1]
    return [_interval(scores[i] - scores[j], means[:, i] - means[:, j], level) for i, j in pairs]


def bootstrap_ratio(
    numerator: Floats,
    denominator: Floats,
    *,
    resamples: int = 20_000,
    seed: int,
    level: float = 0.95,
) -> Saving:
    """Interval of 100 * (1 - sum(numerator) / sum(denominator)), paired by question."""
    return bootstrap_ratios(
        numerator[None], denominator, resamples=resamples, seed=seed, level=level
    )[0]


def bootstrap_ratios(
    numerators: Floats,
    denominator: Floats,
    *,
    resamples: int = 20_000,
    seed: int,
    level: float = 0.95,
) -> list[Saving]:
    """One Saving per row of numerators, shape (policies, questions), from shared resamples."""
    sums = _resampled_sums(np.vstack([numerators, denominator]), resamples, seed)
    low, high = _percentiles(100 * (1 - sums[:, :-1] / sums[:, -1:]), level)
    percent = 100 * (1 - numerators.sum(axis=1) / denominator.sum())
    return [Saving(*map(float, row)) for row in zip(percent, low, high, strict=True)]


def matched_random(
    grades: Floats,
    stops: Ints,
    *,
    folds: Ints,
    permutations: int = 20_000,
    seed: int,
) -> MatchedRandom:
    """Does the policy stop the right questions, or only often enough?

    `grades` is (questions, checkpoints), `stops` the column at which each question stopped. Stops
    are permuted within each fold, so every permutation spends exactly what the policy spent there.
    """
    groups = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
    rng = np.random.default_rng(seed)
    chance = np.concatenate(
        [
            _deal(grades, stops, groups=groups, rows=rows, rng=rng)
            for rows in _chunks(permutations, len(stops))
        ]
    )
    observed = float(grades[np.arange(len(stops)), stops].mean())
    as_good = int((chance >= observed - TOLERANCE).sum())
    return MatchedRandom(float(chance.mean()), observed, (1 + as_good) / (1 + permutations))


def _deal(
    grades: Floats, stops: Ints, *, groups: list[Ints], rows: int, rng: np.random.Generator
) -> Floats:
    """Mean grade under `rows` random deals of the stops, each within its group of questions."""
    total = np.zeros(rows)
    for group in groups:
        deals = rng.permuted(np.tile(stops[group], (rows, 1)), axis=1)
        # Flat positions are several times faster than a pair of index arrays.
        total += grades[group].take(deals + np.arange(len(group)) * grades.shape[1]).sum(axis=1)
    return total / len(stops)


def _resampled_sums(rows: Floats, resamples: int, seed: int) -> Floats:
    """Sums over resampled questions, shape (resamples, rows).

    The draws depend on the seed and the number of questions only, never on the rows, so that two
    calls with one seed are paired.
    """
    questions = rows.shape[1]
    rng = np.random.default_rng(seed)
    columns = np.ascontiguousarray(rows.T, dtype=np.float64)
    return np.concatenate(
        [_counts(size, questions, rng) @ columns for size in _chunks(resamples, questions)]
    )


def _counts(rows: int, questions: int, rng: np.random.Generator) -> Floats:
    """How often each question is drawn, shape (rows, questions); every row sums to `questions`."""
    drawn = rng.integers(questions, size=(rows, questions))
    drawn += np.arange(rows)[:, None] * questions
    counts = np.bincount(drawn.ravel(), minlength=rows * questions)
    return counts.reshape(rows, questions).astype(np.float64)


def _chunks(rows: int, width: int) -> Iterator[int]:
    """Sizes that add up to `rows`, each of at most CHUNK entries."""
    step = max(1, CHUNK // max(1, width))
    for start in range(0, rows, step):
        yield min(step, rows - start)


def _interval(differences: Floats, resampled: Floats, level: float) -> Interval:
    low, high = _percentiles(resampled, level)
    return Interval(
        difference=float(differences.mean()),
        low=float(low),
        high=float(high),
        p=_two_sided(resampled),
        higher=int((differences > 0).sum()),
        lower=int((differences < 0).sum()),
        equal=int((differences == 0).sum()),
    )


def _percentiles(resampled: Floats, level: float) -> Floats:
    """Low and high ends over the first axis."""
    tail = (1 - level) / 2
    ends: Floats = np.quantile(resampled, [tail, 1 - tail], axis=0)
    return ends


def _two_sided(resampled: Floats) -> float:
    """Twice the smaller tail at zero, counting the sample itself as a resample: p is never 0."""
    below = int((resampled <= TOLERANCE).sum())
    above = int((resampled >= -TOLERANCE).sum())
    return min(1.0, 2 * (1 + min(below, above)) / (1 + len(resampled)))
