"""Without truths: weights of clear votes, certified to change few answers. gsm8k, five split seeds.

Truths judge and do nothing else. Per outer fold 320 questions teach and refuse, 320 others
certify at 0.1, and the 160 of the fold are judged. Rules that learn nothing are certified on the
same 320, on plain votes. Each seed is kept in out/crowd once it is done, so a run that was broken
off goes on where it was; delete that folder to begin anew.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pools import ROOT, SEEDS, held, interval, pools_argument, publish, table

from aera.lab import (
    Choice,
    Dataset,
    Family,
    Floats,
    LossLimit,
    Point,
    Trajectories,
    VoteLearner,
    answer_families,
    bootstrap_ratio,
    deal,
    fixed_points,
    nested,
    paired_bootstrap,
)

NAME, ALPHA = "gsm8k", 0.1
LIMITS = tuple(LossLimit(percent / 100, ALPHA, by_agreement=True) for percent in range(1, 6))
DONE = ROOT / "out" / "crowd"
LEARNER = VoteLearner("majority")
PLAIN = VoteLearner("majority", weigh=False)
TITLES = {
    "crowd": "**AERA: weights of clear votes**",
    "plain asc": "plain votes: ASC",
    "plain asc, all": "plain votes: ASC, certified on all 640",
    "plain esc": "plain votes: ESC",
    "plain lead": "plain votes: lead",
    "plain majority": "plain votes: majority",
    "plain entropy": "plain votes: entropy",
}

Kept = dict[str, Floats]


@cache
def known(folder: Path) -> Dataset:
    """The pool; its truths go to whoever judges."""
    print(f"{NAME}, traits ...", flush=True)
    return LEARNER.prepare(*held(folder, NAME))


@cache
def plain_votes(folder: Path) -> Trajectories:
    """The full table of plain votes."""
    return known(folder).replay(np.arange(len(known(folder))))


def outcome(point: Point, full: Point, choices: Sequence[Choice]) -> Kept:
    """What is kept of one policy: every question, and every certificate."""
    return {
        "scores": point.scores,
        "spent": point.spent,
        "changed": 1 - point.agreements,
        "own": full.scores,
        "certified": np.array([choice.feasible for choice in choices], float),
    }


def certify_plain(
    folder: Path, family: Family, limit: LossLimit, seed: int, *, everyone: bool = False
) -> Kept:
    """A rule that learns nothing, certified on the questions that certify the learners."""
    ready, found = known(folder), plain_votes(folder)
    values, choices = found.values[family.name], []
    stops = np.empty(values.shape[:-1], np.int64)
    for fold in deal(ready.groups, seed=seed):
        own_seed = seed + fold.number
        split = PLAIN.split(ready, fold.rest, certified=True, seed=own_seed)
        rows = fold.rest if everyone else split.tune
        grid = family.settings_by_cost(values[split.fit], found.tokens[split.fit])
        choice = limit.choose(family, found.take(rows), grid=grid, seed=own_seed)
        stops[fold.own] = choice.stops(family, values[fold.own])
        choices.append(choice)
    point = Point(family.name, stops, found)
    return outcome(point, fixed_points(found)[-1], choices)


def run(folder: Path, seed: int) -> Mapping[str, Floats]:
    """One seed: every policy at every limit."""
    path = DONE / f"{NAME}-{seed}.npz"
    if not path.exists():
        done: dict[str, Kept] = {}
        judged = nested(LEARNER, known(folder), LIMITS, seed=seed)
        for limit, each in zip(LIMITS, judged, strict=True):
            kept = outcome(each.point("aera"), each.fixed()[-1], each.choices["aera"])
            done[f"crowd {limit.max_loss}"] = kept
        for limit in LIMITS:
            for family in answer_families():
                title = f"plain {family.name} {limit.max_loss}"
                done[title] = certify_plain(folder, family, limit, seed)
            asc = answer_families()[0]
            kept = certify_plain(folder, asc, limit, seed, everyone=True)
            done[f"plain asc, all {limit.max_loss}"] = kept
        path.parent.mkdir(parents=True, exist_ok=True)
        flat: dict[str, Any] = {
            f"{title}/{key}": each for title, kept in done.items() for key, each in kept.items()
        }
        np.savez(path, **flat)
        print(f"seed {seed}", flush=True)
    with np.load(path) as kept_before:
        return dict(kept_before)


def row_of(folder: Path, runs: Sequence[Mapping[str, Floats]], name: str, loss: float) -> list[str]:
    """The mean over the seeds of every question; intervals over questions."""
    found = {
        key: np.array([each[f"{name} {loss}/{key}"] for each in runs])
        for key in ("scores", "spent", "changed", "own", "certified")
    }
    every = fixed_points(plain_votes(folder))[-1]
    full, tokens = every.scores, every.spent
    scores, spent = found["scores"].mean(axis=0), found["spent"].mean(axis=0)
    gain = paired_bootstrap(100 * scores, 100 * full, seed=0)
    lost = paired_bootstrap(100 * scores, 100 * found["own"].mean(axis=0), seed=0)
    saved = bootstrap_ratio(spent, tokens, seed=0)
    certified = found["certified"]
    return [
        f"{100 * loss:g} % {TITLES[name]}",
        f"{100 * scores.mean():.2f}",
        f"{gain.value:+.2f} {interval(gain.low, gain.high)}",
        f"{100 - saved.value:.1f} [{100 - saved.high:.1f}, {100 - saved.low:.1f}]",
        f"{100 * found['changed'].mean():.2f}",
        f"{lost.value:+.2f} {interval(lost.low, lost.high)}",
        f"{certified.sum():.0f} of {certified.size}",
        f"{certified.all(axis=1).sum()} of {len(certified)}",
    ]


HEADER = ["at most changed, policy", "accuracy %", "against Fixed-128", "tokens, % of Fixed-128's"]
HEADER += ["changed, %", "against its own full budget", "certified", "seeds with all certified"]


def main(folder: Path) -> None:
    runs = [run(folder, seed) for seed in SEEDS]
    rows = [row_of(folder, runs, name, 0.02) for name in TITLES]
    shown = ("crowd", "plain asc")
    rest = [limit.max_loss for limit in LIMITS if limit.max_loss != 0.02]
    rows += [row_of(folder, runs, name, loss) for loss in rest for name in shown]
    publish("crowd", table(HEADER, rows))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
