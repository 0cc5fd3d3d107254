"""Judged: a pool nested, with ASC beside AERA, by split seed and allowed loss.

Per outer fold, AERA and ASC learn and calibrate on the other questions, on weighted and on
plain votes. Each pool and seed is kept in out/judged, by the digest of the code that made it, so a
run that was broken off goes on where it was.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from pools import SEEDS, made_once, open_pool, vote_table
from published import code_of
from rivals import PLAIN, WEIGHTED, Outcome, Taught

from aera.lab import (
    GATE_FAMILY,
    Columns,
    Dataset,
    Floats,
    VoteModel,
    deal,
    learn_and_tune,
    limit_for,
)

LOSSES = (0.0, 0.02)
FULL = "full"
"""The rule that spends the full budget."""


def judge(votes: str, known: Dataset, seed: int) -> dict[str, Floats]:
    """Grades, tokens and responses of every question, by votes, rule and allowed loss."""
    learner = WEIGHTED if votes == "weighted" else PLAIN
    found: dict[str, Floats] = {}

    def keep(name: str, rows: Columns, done: Outcome) -> None:
        own = found.setdefault(name, np.zeros((3, len(known))))
        own[:, rows] = done.scores, done.spent, done.counts

    gates: dict[str, list[float]] = {}
    for fold in deal(known.groups, seed=seed):
        own = seed + fold.number
        model, tuning = learn_and_tune(learner, known, fold.rest, certified=False, seed=own)
        assert isinstance(model, VoteModel)
        taught = Taught(model, tuning, model.values(known, fold.own))
        keep(f"{votes} {FULL}", fold.own, taught.fixed[-1])
        for loss in LOSSES:
            limit = limit_for(learner, loss)
            for name in ("aera", "asc"):
                keep(f"{votes} {name} {loss:g}", fold.own, taught.at(name, limit))
            chosen = model.families(limit)["aera"] is GATE_FAMILY
            gates.setdefault(f"{votes} gates {loss:g}", []).append(float(chosen))
    return {**found, **{name: np.array(each) for name, each in gates.items()}}


def judge_seed(folder: Path, name: str, seed: int) -> dict[str, Floats]:
    """One nested run of a pool, from out/ where it was made by the same code."""
    open_pool(folder, name)

    def make() -> dict[str, Floats]:
        known = vote_table(folder, name)
        return {**judge("weighted", known, seed), **judge("plain", known, seed)}

    return made_once(f"judged/{code_of('judged')}/{name.replace('/', '-')}-{seed}", make)


class Judged:
    """A pool over the split seeds."""

    def __init__(self, folder: Path, name: str) -> None:
        self.runs = [judge_seed(folder, name, seed) for seed in SEEDS]

    def seeds(self, votes: str, rule: str, loss: float = 0.02) -> list[Outcome]:
        """One outcome per split seed."""
        key = f"{votes} {rule}" if rule == FULL else f"{votes} {rule} {loss:g}"
        return [Outcome(*run[key]) for run in self.runs]

    def at(self, votes: str, rule: str, loss: float = 0.02) -> Outcome:
        """The mean over the split seeds, question by question."""
        return replace(Outcome.mean(self.seeds(votes, rule, loss)), setting="by fold")

    def gates(self, loss: float) -> str:
        """In how many of all folds the gate was kept, and did not step aside for ASC."""
        kept = np.concatenate([run[f"weighted gates {loss:g}"] for run in self.runs])
        return f"{kept.sum():.0f} of {len(kept)}"


@cache
def judged(folder: Path, name: str) -> Judged:
    """A pool over the split seeds, made once."""
    return Judged(folder, name)
