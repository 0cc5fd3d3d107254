"""Estimates over questions: a figure, its interval and its p, all three by one method.

Grades are compared by a score test and spent shares on the logit scale: closed forms that hold for
few questions, and where hardly any of them differ (bench/headlines.py). A percentile bootstrap can
only reorder what it has seen; it is for rewards, which are no shares, and for mixtures. Questions
are the unit of chance everywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Floats
from aera.files import Json

Ints = NDArray[np.int64]

LEVEL = 0.95
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
FEW = 50
"""Fewer questions are too few to say anything of an accuracy: even if not one answer changes, a
difference of nine points cannot be ruled out."""
RESAMPLES = 20_000
STEPS = 60
"""Halvings of [-1, 1]: beyond what a double can hold."""
CHUNK = 1_000_000
"""Entries of one chunk of draws; bounds the memory to some tens of megabytes."""
TOLERANCE = 1e-9
"""Sums of fractional grades differ in the last bits with the order of addition; these are ties."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval: a difference between two policies, or a share of what is spent.

    The interval leaves out 0 where p is below 1 minus its level, for both come from one method.
    """

    value: float
    low: float
    high: float
    questions: int
    p: float | None = None
    """Two-sided, of no difference; None for a share."""
    better: int = 0
    """Questions on which the first policy scored higher."""
    worse: int = 0

    def as_json(self, name: str) -> Json:
        """As files hold it, the figure under a name of its own."""
        told = {name: self.value, "low": self.low, "high": self.high}
        if self.p is not None:
            told |= {"p": self.p, "better": self.better, "worse": self.worse}
        return {**told, "questions": self.questions}


# --- grades ---------------------------------------------------------------------------------------


def paired_gap(scores: Floats, reference: Floats) -> Estimate:
    """100 * mean(scores - reference), grades in [0, 1], both of shape (questions,)."""
    return paired_gaps((scores - reference)[None])[0]


def paired_gaps(differences: Floats) -> list[Estimate]:
    """In points, one per row of differences in [-1, 1], shape (pairs, questions).

    Tango's score interval (1998) for the difference of paired shares, with the continuity
    correction of half a question, and the p of the same test, which is McNemar's. A difference of
    0.3 counts as 0.3 of a changed question, which makes the variance larger than it is.
    """
    questions = differences.shape[1]
    gained = np.maximum(differences, 0.0).sum(axis=1)
    lost = np.maximum(-differences, 0.0).sum(axis=1)
    none = np.zeros(len(differences))
    above = np.maximum(_score(none, gained, lost, questions), _score(none, lost, gained, questions))
    columns = (
        100 * differences.mean(axis=1),
        100 * _lowest(gained, lost, questions),
        -100 * _lowest(lost, gained, questions),
        [min(1.0, 2 * NormalDist().cdf(-each)) for each in above],
        (differences > 0).sum(axis=1),
        (differences < 0).sum(axis=1),
    )
    return [
        Estimate(float(mean), float(low), float(high), questions, p, int(better), int(worse))
        for mean, low, high, p, better, worse in zip(*columns, strict=True)
    ]


def _lowest(gained: Floats, lost: Floats, questions: int) -> Floats:
    """The smallest difference that the score test does not reject, by halving."""
    low, high = np.full(len(gained), -1.0), (gained - lost) / questions
    for _ in range(STEPS):
        middle = (low + high) / 2
        rejected = _score(middle, gained, lost, questions) > Z
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return low


def _score(difference: Floats, gained: Floats, lost: Floats, questions: int) -> Floats:
    """How many standard errors the sample lies above a difference, half a question taken off.

    The standard error is that of the likeliest share of lost questions under that difference.
    """
    slope = (2 * questions - gained + lost) * difference - gained - lost
    rest = lost * difference * (1 - difference)
    root = np.sqrt(np.maximum(slope**2 + 8 * questions * rest, 0.0))
    share = (root - slope) / (4 * questions)
    variance = questions * (2 * share + difference * (1 - difference))
    above = gained - lost - questions * difference - 0.5
    scores: Floats = above / np.sqrt(np.maximum(variance, 1e-300))
    return scores


def share_interval(share: float, questions: int) -> tuple[float, float]:
    """Wilson's interval of a share in [0, 1] that was counted over so many questions."""
    middle = (share + Z**2 / (2 * questions)) / (1 + Z**2 / questions)
    spread = share * (1 - share) / questions + Z**2 / (4 * questions**2)
    half = Z * sqrt(spread) / (1 + Z**2 / questions)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


# --- what is spent --------------------------------------------------------------------------------


def spent_share(spent: Floats, full: Floats) -> Estimate:
    """100 * sum(spent) / sum(full), paired by question.

    Taylor's on the logit scale with Student's t; each end as if there were one more question, which
    spent everything (upper) or as little as any (lower). Rare dear questions make the plain one,
    and the percentile bootstrap, too narrow.
    """
    usual = float(full.mean())
    least = min(float(spent.min()), usual)
    share = float(spent.sum() / full.sum()) if usual else 1.0
    low = _end(np.append(spent, least), np.append(full, usual), -Z)
    high = _end(np.append(spent, usual), np.append(full, usual), Z)
    return Estimate(100 * share, 100 * min(low, share), 100 * max(high, share), len(spent))


def saved_share(spent: Floats, full: Floats) -> Estimate:
    """The rest of what `spent_share` tells."""
    told = spent_share(spent, full)
    return Estimate(100 - told.value, 100 - told.high, 100 - told.low, told.questions)


def _end(spent: Floats, full: Floats, z: float) -> float:
    """One end of the interval; a share of 0 or 1 has no logit and stays."""
    count, total = len(spent), float(full.sum())
    share = float(spent.sum()) / total if total else 1.0
    if not 0 < share < 1:
        return share
    error = float(np.std(spent - share * full, ddof=1)) / (sqrt(count) * float(full.mean()))
    student = z + (z**3 + z) / (4 * (count - 1))
    logit = log(share / (1 - share)) + student * error / (share * (1 - share))
    return 1 / (1 + exp(-max(-700.0, min(700.0, logit))))


# --- by resampling --------------------------------------------------------------------------------


def paired_bootstrap(
    scores: Floats,
    reference: Floats,
    *,
    resamples: int = RESAMPLES,
    seed: int,
    level: float = LEVEL,
) -> Estimate:
    """Mean(scores - reference) in the unit of the scores, both of shape (questions,)."""
    each = (scores - reference)[None]
    return paired_bootstraps(each, resamples=resamples, seed=seed, level=level)[0]


def paired_bootstraps(
    differences: Floats, *, resamples: int = RESAMPLES, seed: int, level: float = LEVEL
) -> list[Estimate]:
    """One per row of differences, shape (pairs, questions).

    All share one set of resamples, and each gets what it would get alone with that seed.
    """
    means = _resampled_sums(differences, resamples, seed) / differences.shape[1]
    return [
        Estimate(
            float(each.mean()),
            *_percentiles(resampled, level),
            len(each),
            _two_sided(resampled),
            int((each > 0).sum()),
            int((each < 0).sum()),
        )
        for each, resampled in zip(differences, means.T, strict=True)
    ]


def bootstrap_ratio(
    numerator: Floats, denominator: Floats, *, seed: int, level: float = LEVEL
) -> Estimate:
    """100 * (1 - sum(numerator) / sum(denominator)), paired by question."""
    sums = _resampled_sums(np.stack([numerator, denominator]), RESAMPLES, seed)
    low, high = _percentiles(100 * (1 - sums[:, 0] / sums[:, 1]), level)
    percent = 100 * (1 - numerator.sum() / denominator.sum())
    return Estimate(float(percent), low, high, len(numerator))


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


def _percentiles(resampled: Floats, level: float) -> tuple[float, float]:
    tail = (1 - level) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return float(low), float(high)


def _two_sided(resampled: Floats) -> float:
    """Twice the smaller tail at zero, counting the sample itself as a resample: p is never 0."""
    below = int((resampled <= TOLERANCE).sum())
    above = int((resampled >= -TOLERANCE).sum())
    return min(1.0, 2 * (1 + min(below, above)) / (1 + len(resampled)))


# --- the same stops, dealt at random --------------------------------------------------------------


def matched_random(
    grades: Floats, stops: Ints, *, folds: Ints, permutations: int = RESAMPLES, seed: int
) -> dict[str, float]:
    """Does the policy stop the right questions, or only often enough?

    `grades` is (questions, checkpoints), `stops` the column at which each question stopped. Stops
    are permuted within each fold, so every permutation spends exactly what the policy spent there.
    Told are the mean grade so dealt, the observed one, and p, one-sided and never 0: how often
    chance does at least as well.
    """
    groups = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
    rng = np.random.default_rng(seed)
    sizes = _chunks(permutations, len(stops))
    chance = np.concatenate([_deal(grades, stops, groups, rows, rng) for rows in sizes])
    observed = float(grades[np.arange(len(stops)), stops].mean())
    p = (1 + int((chance >= observed - TOLERANCE).sum())) / (1 + permutations)
    return {"mean": float(chance.mean()), "observed": observed, "p": p}


def _deal(
    grades: Floats, stops: Ints, groups: list[Ints], rows: int, rng: np.random.Generator
) -> Floats:
    """Mean grade under `rows` random deals of the stops, each within its group of questions."""
    total = np.zeros(rows)
    for group in groups:
        deals = rng.permuted(np.tile(stops[group], (rows, 1)), axis=1)
        # Flat positions are several times faster than a pair of index arrays.
        total += grades[group].take(deals + np.arange(len(group)) * grades.shape[1]).sum(axis=1)
    return total / len(stops)
