"""Without training: what the rules that need none lose and cost on every pool, over their settings.

Each rule is replayed on 20 random orders of the responses to every question (seeded), and on the
stored one beside them. A loss is against the vote of all responses in the same order. The default of
`solve` and `serve` is the cheapest that loses at most 0.3 points in the mean over pools, and 1.5 in
any pool of 250 questions or more. gsm8k-held is left out: nothing is chosen on it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import comb, lgamma, log
from pathlib import Path

import numpy as np
from pools import FURTHER, TASKS, held, pools_argument, publish, table
from published import Table

from aera import Schedule
from aera.lab import Columns, Floats, grade_all

ORDERS = 20
MEAN, WORST, LARGE = -0.3, -1.5, 250
"""Points that may be lost in the mean, in any large pool, and from how many questions it is large."""
NAMES = [name for name in (*TASKS, *FURTHER) if name != "gsm8k-held"]


@dataclass(frozen=True, eq=False)
class Counted:
    """What the rules look at, by question and checkpoint, and what stopping there gives."""

    lead: Floats
    rival: Floats
    answers: Floats
    """Distinct ones."""
    scores: Floats
    tokens: Floats
    seen: Floats
    """Responses at every checkpoint."""


# --- the rules: each a number that grows with certainty -------------------------------------------


def by_counts(value: Callable[[int, int], float], at: Counted) -> Floats:
    """A function of two counts, looked up; a response that leads nobody has 0 of both."""
    pairs, places = np.unique(
        np.stack([at.lead, at.rival], axis=-1).reshape(-1, 2), axis=0, return_inverse=True
    )
    found = np.array([value(int(first), int(second)) for first, second in pairs])
    return found[places].reshape(at.lead.shape)


def log_density(first: int, second: int) -> float:
    """Log of the density at a half of Beta(first + 1, second + 1)."""
    whole = lgamma(first + second + 2) - lgamma(first + 1) - lgamma(second + 1)
    return float(whole + (first + second) * log(0.5))


def chance_ahead(first: int, second: int) -> float:
    """P(p > 1/2) under Beta(first + 1, second + 1)."""
    trials = first + second + 1
    return float(1 - sum(comb(trials, k) for k in range(second + 1)) / 2**trials)


def asc(at: Counted) -> Floats:
    """Adaptive-Consistency: the chance that the leader is ahead in truth."""
    return by_counts(chance_ahead, at)


def lead(at: Counted) -> Floats:
    """Votes of the leader beyond those of the runner-up."""
    return at.lead - at.rival


def ppr(at: Counted) -> Floats:
    """PPR-1v1 (Jain 2022): -log of the posterior at a half, times the rivals; stop at -log(error)."""
    return -by_counts(log_density, at) - np.log(np.maximum(1, at.answers - 1))


def horizon(at: Counted) -> Floats:
    """How sure it is that the leader stays ahead until the end of the budget, as a z-value."""
    said, left = at.lead + at.rival, at.seen[-1] - at.seen
    still = left * said / at.seen
    p = (at.lead + 1) / (said + 2)
    spread = still * p * (1 - p) * (said + 2 + still) / (said + 3) + 0.05
    ahead: Floats = (at.lead - at.rival + still * (2 * p - 1)) / (2 * np.sqrt(spread))
    return np.clip(ahead, -4.0, 6.0)


@dataclass(frozen=True)
class Tried:
    """One rule with its settings."""

    name: str
    value: Callable[[Counted], Floats]
    settings: tuple[float, ...]
    at: Callable[[float], float] = float
    """The value that a setting stops at."""


RULES = (
    Tried(
        "asc", asc, (0.6, 0.7, 0.75, 0.8, 0.825, 0.85, 0.875, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99)
    ),
    Tried("lead", lead, tuple(map(float, range(1, 11)))),
    Tried(
        "ppr-1v1",
        ppr,
        (1.5, 1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02, 0.01),
        lambda error: -log(error),
    ),
    Tried("horizon-z", horizon, tuple(each / 100 for each in range(50, 401, 25))),
)


# --- the pools ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Coded:
    """The responses of a pool: which answer each gave (-1 for none), whether right, its tokens."""

    answers: Columns
    right: Floats
    tokens: Floats
    checkpoints: tuple[int, ...]


@cache
def coded(folder: Path, name: str) -> Coded:
    """A pool with its votes as numbers."""
    print(f"{name} ...", file=sys.stderr)
    records, truths = held(folder, name)
    count = min(len(record.responses) for record in records)
    answers, right, tokens = [], [], []
    for record in records:
        said = [vote.answer for vote in record.votes[:count]]
        known = {answer: place for place, answer in enumerate(dict.fromkeys(filter(None, said)))}
        answers.append([known.get(each, -1) if each is not None else -1 for each in said])
        right.append(grade_all(said, truths[record.question.id], task=records.task))
        tokens.append([float(each.tokens) for each in record.responses[:count]])
    schedule = Schedule.doubling(count).checkpoints
    return Coded(np.array(answers), np.array(right), np.array(tokens), schedule)


def counted(pool: Coded, order: Columns) -> Counted:
    """What the rules look at when the responses come in these orders."""
    answers, right, tokens = (
        np.take_along_axis(each, order, axis=1) for each in (pool.answers, pool.right, pool.tokens)
    )
    rows = []
    for said, graded in zip(answers, right, strict=True):
        # Renumbered by when each is first seen: the smallest number wins a tie.
        kinds, first = np.unique(said[said >= 0], return_index=True)
        place = np.full(max(1, len(said)), 0)
        place[kinds[np.argsort(first)]] = np.arange(len(kinds))
        own = np.where(said >= 0, place[said], -1)
        grade = np.zeros(max(1, len(kinds)))
        grade[own[own >= 0]] = graded[own >= 0]
        rows.append([_leaders(own[:point], grade) for point in pool.checkpoints])
    lead, rival, answers_seen, scores = np.moveaxis(np.array(rows), 2, 0)
    seen: Floats = np.array(pool.checkpoints, dtype=np.float64)
    spent: Floats = np.cumsum(tokens.astype(np.float64), axis=1)[:, np.array(pool.checkpoints) - 1]
    return Counted(lead, rival, answers_seen, scores, spent, seen)


def _leaders(own: Columns, grade: Floats) -> tuple[float, float, float, float]:
    """The two largest counts, how many answers there are, and whether the leader is right."""
    counts = np.bincount(own[own >= 0], minlength=1)
    best = int(counts.argmax())
    rival = np.delete(counts, best).max(initial=0)
    right = grade[best] if counts[best] else 0.0
    return float(counts[best]), float(rival), float(np.count_nonzero(counts)), float(right)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Points against the full vote and tokens in % of it, in the mean over orders and as stored."""

    points: float
    tokens: float
    stored: float


@cache
def replayed(folder: Path, name: str) -> dict[str, Outcome]:
    """Every rule at every setting on one pool."""
    pool, rng = coded(folder, name), np.random.default_rng(0)
    stored = np.broadcast_to(np.arange(pool.answers.shape[1]), pool.answers.shape)
    orders = [stored, *(rng.permuted(stored, axis=1) for _ in range(ORDERS))]
    found: dict[str, list[tuple[float, float]]] = {}
    for order in orders:
        at = counted(pool, order)
        for rule in RULES:
            values = rule.value(at)
            for setting in rule.settings:
                ready = values >= rule.at(setting) - 1e-12
                ready[:, -1] = True
                stop = ready.argmax(axis=1)[:, None]
                score, tokens = (
                    np.take_along_axis(each, stop, axis=1).mean() for each in (at.scores, at.tokens)
                )
                gap = 100 * (score - at.scores[:, -1].mean())
                spent = 100 * tokens / at.tokens[:, -1].mean()
                found.setdefault(f"{rule.name}-{setting:g}", []).append((gap, spent))
    means = {label: np.mean(each[1:], axis=0).tolist() for label, each in found.items()}
    return {
        label: Outcome(points, tokens, found[label][0][0])
        for label, (points, tokens) in means.items()
    }


# --- the tables -----------------------------------------------------------------------------------


def summary(folder: Path) -> dict[str, tuple[float, float, float, float, bool]]:
    """By rule and setting: points in the mean, in the worst large pool, stored; tokens; allowed."""
    by_pool = {name: replayed(folder, name) for name in NAMES}
    large = [name for name in NAMES if len(coded(folder, name).answers) >= LARGE]
    found = {}
    for label in by_pool[NAMES[0]]:
        each = [by_pool[name][label] for name in NAMES]
        mean, tokens, stored = (
            float(np.mean([getattr(one, field) for one in each]))
            for field in ("points", "tokens", "stored")
        )
        worst = min(by_pool[name][label].points for name in large)
        found[label] = (mean, worst, stored, tokens, mean >= MEAN and worst >= WORST)
    return found


def settings_table(folder: Path) -> Table:
    """Every rule at every setting."""
    header = ["rule", "points, mean over pools", f"worst pool of {LARGE} or more"]
    header += ["stored order, mean", "tokens, % of all votes", "allowed"]
    rows = [
        [label, *(f"{each:+.2f}" for each in points), f"{tokens:.1f}", "yes" if fine else ""]
        for label, (*points, tokens, fine) in summary(folder).items()
    ]
    return table(header, rows)


def pools_table(folder: Path) -> Table:
    """On every pool: points for tokens in %, of every rule at every setting."""
    found = {name: replayed(folder, name) for name in NAMES}
    return table(
        ["rule", *(f"{name} ({len(coded(folder, name).answers)})" for name in NAMES)],
        [
            [
                label,
                *(f"{found[n][label].points:+.1f} for {found[n][label].tokens:.0f}" for n in NAMES),
            ]
            for label in found[NAMES[0]]
        ],
    )


def choice(folder: Path) -> str:
    """The cheapest that is allowed, and the cheapest of every rule."""
    fine = {label: each[3] for label, each in summary(folder).items() if each[4]}
    best = {
        rule.name: min(own, key=own.__getitem__)
        for rule in RULES
        if (own := {label: cost for label, cost in fine.items() if label.startswith(rule.name)})
    }
    told = ", ".join(f"{label} ({fine[label]:.1f} %)" for label in best.values())
    return f"The cheapest that is allowed: {min(fine, key=fine.__getitem__)}. Of each rule: {told}."


def main(folder: Path) -> None:
    publish("untrained", settings_table(folder), pools_table(folder), choice(folder))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
