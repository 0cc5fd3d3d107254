"""Intervals for headlines: they hold for few questions, and where hardly any of them differ.

A percentile bootstrap can only reorder what it has seen: with no differing question it says [0, 0],
with few it is too narrow. These are closed forms without chance, checked in bench/headlines.py.
"""

from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np

from aera.arrays import Floats

LEVEL = 0.95
FEW = 50
"""Fewer questions are too few to say anything of an accuracy: even if not one answer changes, a
difference of nine points cannot be ruled out."""
STEPS = 60
"""Halvings of [-1, 1]: beyond what a double can hold."""


@dataclass(frozen=True)
class Gap:
    """Mean difference of grades between two policies on the same questions, in points."""

    difference: float
    low: float
    high: float
    better: int
    """Questions on which the first scored higher."""
    worse: int
    questions: int


def paired_gap(scores: Floats, reference: Floats, *, level: float = LEVEL) -> Gap:
    """Interval of mean(scores - reference), grades in [0, 1], both of shape (questions,)."""
    return paired_gaps((scores - reference)[None], level=level)[0]


def paired_gaps(differences: Floats, *, level: float = LEVEL) -> list[Gap]:
    """One Gap per row of differences in [-1, 1], shape (pairs, questions).

    Tango's score interval (1998) for the difference of paired shares, with the continuity
    correction of half a question. A difference of 0.3 counts as 0.3 of a changed question, which
    makes the variance larger than it is, never smaller.
    """
    questions = differences.shape[1]
    gained = np.maximum(differences, 0.0).sum(axis=1)
    lost = np.maximum(-differences, 0.0).sum(axis=1)
    z = _quantile(level)
    columns = (
        100 * differences.mean(axis=1),
        100 * _lowest(gained, lost, questions, z),
        -100 * _lowest(lost, gained, questions, z),
        (differences > 0).sum(axis=1),
        (differences < 0).sum(axis=1),
    )
    return [
        Gap(float(mean), float(low), float(high), int(better), int(worse), questions)
        for mean, low, high, better, worse in zip(*columns, strict=True)
    ]


def _quantile(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


def _lowest(gained: Floats, lost: Floats, questions: int, z: float) -> Floats:
    """The smallest difference that the score test does not reject, by halving."""
    low, high = np.full(len(gained), -1.0), (gained - lost) / questions
    for _ in range(STEPS):
        middle = (low + high) / 2
        rejected = _score(middle, gained, lost, questions) > z
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


def share_interval(share: float, questions: int, *, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval of a share in [0, 1] that was counted over so many questions."""
    z = _quantile(level)
    middle = (share + z**2 / (2 * questions)) / (1 + z**2 / questions)
    spread = share * (1 - share) / questions + z**2 / (4 * questions**2)
    half = z * sqrt(spread) / (1 + z**2 / questions)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


@dataclass(frozen=True)
class Spent:
    """The share of a full budget that was spent, in percent."""

    percent: float
    low: float
    high: float


def spent_share(spent: Floats, full: Floats, *, level: float = LEVEL) -> Spent:
    """Interval of sum(spent) / sum(full), paired by question.

    Taylor's on the logit scale with Student's t; each end as if there were one more question, which
    spent everything (upper) or as little as any (lower). Rare dear questions make the plain one,
    and the percentile bootstrap, too narrow.
    """
    usual = float(full.mean())
    least = min(float(spent.min()), usual)
    share = float(spent.sum() / full.sum())
    low = _end(np.append(spent, least), np.append(full, usual), -_quantile(level))
    high = _end(np.append(spent, usual), np.append(full, usual), _quantile(level))
    return Spent(100 * share, 100 * min(low, share), 100 * max(high, share))


def _end(spent: Floats, full: Floats, z: float) -> float:
    """One end of the interval; a share of 0 or 1 has no logit and stays."""
    count = len(spent)
    share = float(spent.sum() / full.sum())
    if not 0 < share < 1:
        return share
    error = float(np.std(spent - share * full, ddof=1)) / (sqrt(count) * float(full.mean()))
    student = z + (z**3 + z) / (4 * (count - 1))
    logit = log(share / (1 - share)) + student * error / (share * (1 - share))
    return 1 / (1 + exp(-max(-700.0, min(700.0, logit))))
