"""Do certificates by agreement hold? Simulated pools, and how often a certified share is exceeded.

    python bench/certificates.py [--runs 10000] [--learned 500] [--seed 0]

Every population is large and known, so that the share of answers a setting changes is known too.
A run draws its certifying questions from it and tests the settings of the fine grid one after the
other, the safest first. It errs where any setting that passes changes more than was allowed. The
settings of a run see the same questions, so their losses go together: nested (whoever changes at a
safe setting changes at every bolder one), apart (each setting changes questions of its own), or as
the votes of a simulated crowd have it.

The second table is about what comes before: a rule chosen, or a gate fitted, on some questions and
certified on others; and, to see what that is worth, chosen on the questions that certify it.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import erf

import numpy as np

from aera import Schedule
from aera.lab import (
    ASC_FAMILY,
    GATE_FAMILY,
    Columns,
    Family,
    Floats,
    LossLimit,
    Trajectories,
    betting_p_values,
    fit_gate,
    fixed_sequence,
    pick,
)

QUESTIONS = 20_000
"""Of a population."""
SCHEDULE = Schedule((4, 8, 16, 32, 64, 128))
ALLOWED, ALPHAS, SIZES = (0.01, 0.02, 0.05), (0.05, 0.1), (120, 320)
SETTINGS = len(GATE_FAMILY.fine)
BARELY = 1.02
"""A share this much larger than allowed: the hardest that must not be certified."""
CHUNK = 250
"""Runs at a time."""


# --- populations ----------------------------------------------------------------------------------


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """As Markdown, ready for LOG.md."""
    for row in (head, ["---:"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")
    print()


def nested_changes(shares: Floats, rng: np.random.Generator) -> Floats:
    """One order of the questions: each setting changes the first of it; (questions, settings)."""
    place = rng.permutation(QUESTIONS)[:, None]
    return (place < np.round(shares * QUESTIONS)[None]).astype(float)


def changes_apart(shares: Floats, rng: np.random.Generator) -> Floats:
    """Each setting changes questions of its own."""
    return np.stack([nested_changes(shares[i : i + 1], rng)[:, 0] for i in range(SETTINGS)], axis=1)


def edge(allowed: float) -> Floats:
    """Too much from the first setting on."""
    return np.full(SETTINGS, BARELY * allowed)


def cliff(allowed: float) -> Floats:
    """Next to nothing, and then at once too much."""
    return np.where(np.arange(SETTINGS) < 10, 0.1 * allowed, BARELY * allowed)


def slope(allowed: float) -> Floats:
    """Bolder by small steps, from none to three times what is allowed."""
    return np.linspace(0, 3 * allowed, SETTINGS)


@dataclass(frozen=True, eq=False)
class Crowd:
    """Simulated votes: what a rule sees at every checkpoint, and whether the answer is the last."""

    trajectories: Trajectories
    evidence: Floats
    """Shares of the two leading answers, their lead, the checkpoint, and what leads it."""
    confidence: Floats

    def changes(self, family: Family, values: Floats) -> Floats:
        """1 where a setting changes the answer to a question; (questions, settings)."""
        known = self.trajectories.agreement
        stops = [family.stops(values, setting) for setting in family.fine]
        return np.stack([1 - pick(known, each) for each in stops], axis=1)


def simulate_crowd(rng: np.random.Generator, questions: int = QUESTIONS) -> Crowd:
    """Six answers a question, of any clarity, and 128 votes on them."""
    chances = rng.dirichlet(np.ones(6), questions) ** rng.uniform(0.5, 4, (questions, 1))
    edges = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)[:, None]
    votes = (rng.random((questions, SCHEDULE.last, 1)) > edges).sum(axis=2).clip(max=5)
    counts = np.stack(
        [
            np.stack([(votes[:, :checkpoint] == answer).sum(axis=1) for answer in range(6)], axis=1)
            for checkpoint in SCHEDULE
        ],
        axis=1,
    )
    winners, ordered = counts.argmax(axis=2), -np.sort(-counts, axis=2)
    first, second = ordered[..., 0].astype(float), ordered[..., 1].astype(float)
    spread = (first - second) / np.sqrt(first + second + 1)
    confidence = 0.5 + 0.5 * np.vectorize(erf)(spread / np.sqrt(2))
    count = np.broadcast_to(np.array([*SCHEDULE], float), first.shape)
    evidence = np.stack([first / count, second / count, spread, np.log(count), first], axis=2)
    names = tuple(str(i) for i in range(questions))
    agreement = (winners == winners[:, -1:]).astype(float)
    return Crowd(Trajectories(names, SCHEDULE, count, agreement, {}), evidence, confidence)


# --- certificates ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """How often something was certified, and how often wrongly."""

    runs: int
    certified: int
    wrong: int

    @property
    def cells(self) -> tuple[str, str, str]:
        """As percent, the second with two standard errors."""
        wrong = self.wrong / self.runs
        error = np.sqrt(wrong * (1 - wrong) / self.runs)
        return (
            f"{100 * self.certified / self.runs:.1f}",
            f"{100 * wrong:.2f}",
            f"{200 * error:.2f}",
        )


def certify(losses: Floats, allowed: float, alpha: float) -> Columns:
    """How many settings pass in every run; losses of shape (runs, questions, settings)."""
    runs, questions, settings = losses.shape
    columns = losses.transpose(1, 0, 2).reshape(questions, runs * settings)
    p_values = betting_p_values(columns, allowed, seed=0, alpha=alpha).reshape(runs, settings)
    return np.array([fixed_sequence(each, alpha) for each in p_values])


def count_errors(
    changes: Floats, allowed: float, alpha: float, *, questions: int, runs: int, seed: int
) -> Found:
    """Draw the certifying questions again and again."""
    too_much = changes.mean(axis=0) > allowed
    first_wrong = int(too_much.argmax()) if too_much.any() else len(too_much)
    rng, certified, wrong = np.random.default_rng(seed), 0, 0
    for start in range(0, runs, CHUNK):
        drawn = rng.integers(len(changes), size=(min(CHUNK, runs - start), questions))
        passed = certify(changes[drawn], allowed, alpha)
        certified += int((passed > 0).sum())
        wrong += int((passed > first_wrong).sum())
    return Found(runs, certified, wrong)


def judge_settings(runs: int, seed: int) -> list[tuple[str, ...]]:
    """One row per population, allowed share, level and number of questions."""
    rng = np.random.default_rng(seed)
    crowd = simulate_crowd(rng)
    asc = crowd.changes(ASC_FAMILY, crowd.confidence)
    kinds: dict[str, Callable[[float], Floats]] = {
        "edge, nested": lambda allowed: nested_changes(edge(allowed), rng),
        "cliff, nested": lambda allowed: nested_changes(cliff(allowed), rng),
        "cliff, apart": lambda allowed: changes_apart(cliff(allowed), rng),
        "slope, nested": lambda allowed: nested_changes(slope(allowed), rng),
        "votes, ASC": lambda allowed: asc,
    }
    rows = []
    for place, (name, make) in enumerate(kinds.items()):
        for allowed in ALLOWED:
            changes = make(allowed)
            for alpha in ALPHAS:
                found = [
                    count_errors(
                        changes, allowed, alpha, questions=size, runs=runs, seed=seed + place
                    )
                    for size in SIZES
                ]
                shown = [f"{sure} / {wrong} ± {error}" for sure, wrong, error in
                         (each.cells for each in found)]  # fmt: skip
                rows.append((name, f"{100 * allowed:g}", f"{alpha:g}", *shown))
                print("|", " | ".join(rows[-1]), "|", flush=True)
    return rows


# --- what comes before ----------------------------------------------------------------------------

RULES = 40
"""Rules to choose from, every one with a cliff in its changes."""


def judge_chosen(runs: int, seed: int, *, same: bool) -> Found:
    """Choose, of many rules, the one that changes least; certify it on other questions, or not.

    A rule here is a single setting that changes a little more than allowed, so that whatever is
    certified is wrong.
    """
    allowed, alpha, questions = 0.02, 0.1, 320
    rng, wrong = np.random.default_rng(seed), 0
    for _ in range(0, runs, CHUNK):
        seen, other = (rng.random((2, CHUNK, questions, RULES)) < BARELY * allowed).astype(float)
        best = seen.mean(axis=1).argmin(axis=1)
        used = seen if same else other
        chosen = used[np.arange(CHUNK), :, best][..., None]
        wrong += int((certify(chosen, allowed, alpha) > 0).sum())
    return Found(runs, wrong, wrong)


def judge_learned(runs: int, seed: int) -> Found:
    """Fit our gate, and choose it or ASC, on 320 questions; certify on 320 others."""
    rng, certified, wrong = np.random.default_rng(seed), 0, 0
    world, limit = simulate_crowd(rng), LossLimit(0.02, 0.1, by_agreement=True)
    known = world.trajectories
    tried = LossLimit(0.02, margin=0.0, by_agreement=True)
    for number in range(runs):
        taught, used = rng.integers(QUESTIONS, size=(2, 320))
        seen = replace(known, grades=known.agreement, features=world.evidence).take(taught)
        chances = fit_gate(seen).chances(world.evidence)
        families = ((GATE_FAMILY, chances), (ASC_FAMILY, world.confidence))
        every = replace(known, values={family.name: own for family, own in families})
        seen = every.take(taught)
        savings = [tried.choose(family, seen).token_saving for family, _ in families]
        family, values = families[int(np.argmax(savings))]
        choice = limit.choose(family, every.take(used), seed=number)
        certified += choice.feasible
        stops = choice.stops(family, values)
        wrong += bool((1 - pick(known.agreement, stops)).mean() > limit.max_loss)
    return Found(runs, certified, wrong)


def main() -> None:
    """Print both tables and the worst error of the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--learned", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    settings = judge_settings(given.runs, given.seed)
    sizes = [f"{size} questions: certified / wrongly %" for size in SIZES]
    print_table(["changes", "allowed %", "level", *sizes], settings)
    before = {
        "best of forty rules, certified on others": judge_chosen(
            given.runs, given.seed, same=False
        ),
        "best of forty rules, certified on the same": judge_chosen(
            given.runs, given.seed, same=True
        ),
        "gate fitted, gate or ASC chosen, certified on others": judge_learned(
            given.learned, given.seed
        ),
    }
    rows = [(name, f"{found.runs}", *found.cells) for name, found in before.items()]
    print_table(
        ["before a certificate of 2 % at 0.1", "runs", "certified %", "wrongly %", "±"], rows
    )


if __name__ == "__main__":
    main()
