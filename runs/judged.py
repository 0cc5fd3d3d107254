"""Judged: a pool nested, with every rival, by split seed and allowed loss.

Per outer fold, AERA and its rivals learn and calibrate on the other questions, on weighted and on
plain votes. Each pool and seed is kept in out/judged, by the digest of the code that made it, so a
run that was broken off goes on where it was.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pools import ROOT, SEEDS, open_pool, vote_table
from published import code_of
from rivals import PLAIN, WEIGHTED, Outcome

from aera.lab import Floats, Judgement, limit_for, nested

LOSSES = (0.0, 0.005, 0.01, 0.02, 0.03)
FULL = "full"
"""The rule that spends the full budget."""


def _arrays(votes: str, found: list[Judgement]) -> dict[str, Floats]:
    """What is kept: grades, tokens and responses, by votes, rule and allowed loss."""
    full = found[0].fixed()[-1]
    kept = {f"{votes} {FULL}": np.array([full.scores, full.spent, full.counts])}
    for loss, each in zip(LOSSES, found, strict=True):
        for name in each.stops:
            point = each.point(name)
            kept[f"{votes} {name} {loss:g}"] = np.array([point.scores, point.spent, point.counts])
        gates = [choice.family == "aera" for choice in each.choices["aera"]]
        kept[f"{votes} gates {loss:g}"] = np.array(gates, float)
    return kept


def judge_seed(folder: Path, name: str, seed: int) -> dict[str, Floats]:
    """One nested run of a pool, from out/ where it was made by the same code."""
    kind = code_of("judged")
    path = ROOT / "out" / "judged" / kind / f"{name.replace('/', '-')}-{seed}.npz"
    open_pool(folder, name)
    if not path.exists():
        known, made = vote_table(folder, name), dict[str, Any]()
        for votes, learner in (("weighted", WEIGHTED), ("plain", PLAIN)):
            limits = [limit_for(learner, loss) for loss in LOSSES]
            made |= _arrays(votes, nested(learner, known, limits, seed=seed))
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **made)
        print(f"{name}, seed {seed}", flush=True)
    with np.load(path) as kept:
        return dict(kept)


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
