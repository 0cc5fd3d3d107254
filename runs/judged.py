"""Judged: a pool nested, with ASC beside AERA, by split seed, 2 points allowed.

Per outer fold, AERA and ASC learn and calibrate on the other questions, on weighted and on
plain votes. Each pool and seed is kept in out/judged, by the digest of the code that made it, so a
run that was broken off goes on where it was.
"""

from functools import cache, partial
from pathlib import Path

import numpy as np
from pools import SEEDS, made_once, open_pool, vote_table
from published import code_of
from rivals import PLAIN, WEIGHTED, Outcome, Taught

from aera.lab import (
    GATE_FAMILY,
    Floats,
    VoteModel,
    deal,
    learn_and_tune,
    limit_for,
)

FULL = "full"
"""The rule that spends the full budget."""


def judge(folder: Path, name: str, seed: int) -> dict[str, Floats]:
    """Grades, tokens and responses of every question, by votes and rule, and the gates kept."""
    known = vote_table(folder, name)
    found: dict[str, Floats] = {}
    gates = []
    for fold in deal(known.groups, seed=seed):
        own = seed + fold.number
        for votes, learner in (("plain", PLAIN), ("weighted", WEIGHTED)):
            model, tuning = learn_and_tune(learner, known, fold.rest, certified=False, seed=own)
            assert isinstance(model, VoteModel)
            taught = Taught(model, tuning, model.values(known, fold.own))
            done = {FULL: taught.fixed[-1]}
            if votes == "weighted":
                limit = limit_for(learner, 0.02)
                done |= {name: taught.at(name, limit) for name in ("aera", "asc")}
                gates.append(model.families(limit_for(learner, 0.0))["aera"] is GATE_FAMILY)
            for rule, each in done.items():
                kept = found.setdefault(f"{votes} {rule}", np.zeros((3, len(known))))
                kept[:, fold.own] = each.scores, each.spent, each.counts
    return {**found, "gates": np.array(gates, dtype=float)}


class Judged:
    """A pool over the split seeds."""

    def __init__(self, folder: Path, name: str) -> None:
        open_pool(folder, name)
        place = f"judged/{code_of('judged')}/{name.replace('/', '-')}"
        self.runs = [
            made_once(f"{place}-{seed}", partial(judge, folder, name, seed)) for seed in SEEDS
        ]

    def at(self, votes: str, rule: str) -> Outcome:
        """The mean over the split seeds, question by question."""
        return Outcome.mean([Outcome(*run[f"{votes} {rule}"]) for run in self.runs])

    def gates(self) -> str:
        """In how many of all folds the gate was kept where nothing may be lost."""
        kept = np.concatenate([run["gates"] for run in self.runs])
        return f"{kept.sum():.0f} of {len(kept)}"


@cache
def judged(folder: Path, name: str) -> Judged:
    """A pool over the split seeds, made once."""
    return Judged(folder, name)
