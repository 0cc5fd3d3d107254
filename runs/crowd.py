"""Without truths: weights of clear votes, certified to change few answers. gsm8k, five split seeds.

Truths judge and do nothing else. Per outer fold 320 questions teach and refuse, 320 others
certify at 0.1, and the 160 of the fold are judged. Rules that learn nothing are certified on the
same 320, on plain votes. Each seed is kept in out/ once it is done, so a run that was broken
off goes on where it was; delete that folder to begin anew.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from pools import SEEDS, held, made_once, pools_argument, publish, table
from rivals import Outcome, gap, share

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
    deal,
    fixed_points,
    nested,
)

NAME, ALPHA = "gsm8k", 0.1
LIMITS = tuple(LossLimit(percent / 100, ALPHA, by_agreement=True) for percent in range(1, 6))
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


def run(folder: Path, seed: int) -> Kept:
    """One seed: every policy at every limit."""
    asc, done = answer_families()[0], dict[str, Kept]()
    judged = nested(LEARNER, known(folder), LIMITS, seed=seed)
    for limit, each in zip(LIMITS, judged, strict=True):
        found = outcome(each.point("aera"), each.fixed()[-1], each.choices["aera"])
        done[f"crowd {limit.max_loss}"] = found
        for family in answer_families():
            title = f"plain {family.name} {limit.max_loss}"
            done[title] = certify_plain(folder, family, limit, seed)
        found = certify_plain(folder, asc, limit, seed, everyone=True)
        done[f"plain asc, all {limit.max_loss}"] = found
    return {f"{title}/{key}": each for title, own in done.items() for key, each in own.items()}


def row_of(folder: Path, runs: Sequence[Kept], name: str, loss: float) -> list[str]:
    """The mean over the seeds of every question; intervals over questions."""
    scores, spent, changed, own, certified = (
        np.array([each[f"{name} {loss}/{key}"] for each in runs])
        for key in ("scores", "spent", "changed", "own", "certified")
    )
    full = Outcome.of(fixed_points(plain_votes(folder))[-1])
    done = replace(full, scores=scores.mean(axis=0), spent=spent.mean(axis=0))
    return [
        f"{100 * loss:g} % {TITLES[name]}",
        f"{100 * done.scores.mean():.2f}",
        " ".join(gap(done, full)),
        " ".join(share(done, full)),
        f"{100 * changed.mean():.2f}",
        " ".join(gap(done, replace(full, scores=own.mean(axis=0)))),
        f"{certified.sum():.0f} of {certified.size}",
        f"{certified.all(axis=1).sum()} of {len(certified)}",
    ]


HEADER = ["at most changed, policy", "accuracy %", "against Fixed-128", "tokens, % of Fixed-128's"]
HEADER += ["changed, %", "against its own full budget", "certified", "seeds with all certified"]


def main(folder: Path) -> None:
    runs = [made_once(f"crowd/{NAME}-{seed}", partial(run, folder, seed)) for seed in SEEDS]
    rows = [row_of(folder, runs, name, 0.02) for name in TITLES]
    shown = ("crowd", "plain asc")
    rest = [limit.max_loss for limit in LIMITS if limit.max_loss != 0.02]
    rows += [row_of(folder, runs, name, loss) for loss in rest for name in shown]
    publish("crowd", table(HEADER, rows))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
