"""Rivals: every stopping rule with the votes, the schedule and the calibration that AERA has.

What a policy did is an `Outcome`: grades, tokens and responses of every question. Tables compare
outcomes by paired bootstraps over questions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pools import interval, table
from published import Table

from aera.lab import (
    Dataset,
    Floats,
    LossLimit,
    Point,
    Trajectories,
    VoteLearner,
    VoteModel,
    answer_families,
    bootstrap_ratio,
    fixed_points,
    learn_and_tune,
    paired_bootstrap,
)

NAMES = {"asc": "ASC", "esc": "ESC", "lead": "lead", "majority": "majority", "entropy": "entropy"}
"""The rules that look at answers alone, as tables call them."""
SAME, PLAINLY, UNWEIGHTED = "same votes", "plain votes", "AERA without weights"
SURE, NOTHING = 0.95, 1e-9


WEIGHTED, PLAIN = VoteLearner(), VoteLearner(weigh=False)
ANSWERS = {family.name: family for family in answer_families()}


# --- outcomes -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a policy did on some questions, or did in the mean over several seeds."""

    scores: Floats
    spent: Floats
    counts: Floats
    setting: str = ""

    @classmethod
    def of(cls, point: Point, setting: str = "") -> "Outcome":
        """From a policy's point."""
        return cls(point.scores, point.spent, point.counts, setting)

    @classmethod
    def mean(cls, runs: "Sequence[Outcome]") -> "Outcome":
        """Question by question."""
        stacked = ([run.scores for run in runs], [run.spent for run in runs])
        return cls(*(np.mean(each, axis=0) for each in (*stacked, [run.counts for run in runs])))


@dataclass(frozen=True, eq=False)
class Taught:
    """One training, and other questions as it sees them."""

    model: VoteModel
    tuning: Trajectories
    """The questions that settings are chosen on."""
    seen: Trajectories
    """The questions to judge."""

    @property
    def stored(self) -> "Taught":
        """The same, the questions judged in their stored order alone."""
        return Taught(self.model, self.tuning, self.seen.stored)

    @property
    def fixed(self) -> list[Outcome]:
        """Every fixed budget on these votes."""
        return [*map(Outcome.of, fixed_points(self.seen))]

    def at(self, name: str, limit: LossLimit) -> Outcome:
        """One rule, its setting chosen within the limit, on the judged questions."""
        family = {**ANSWERS, **self.model.families(limit)}[name]
        choice = limit.choose(family, self.tuning, grid=self.model.grid(family))
        stops = choice.stops(family, self.seen.values[family.name])
        chosen = "full budget" if choice.setting is None else f"{family.name} {choice.setting:g}"
        return Outcome.of(Point(chosen, stops, self.seen), chosen)


def teach(
    learner: VoteLearner,
    taught: Dataset,
    judged: Dataset,
    *,
    certified: bool = False,
    seed: int = 0,
) -> Taught:
    """Learn from one pool as `aera train` does, and look at another that shares no question.

    The seed deals folds, and the orders of the responses that are learned from.
    """
    taught = replace(taught, seed=seed)
    keys = {key for each in taught.questions for key in each.keys}
    assert keys.isdisjoint(key for each in judged.questions for key in each.keys)
    rows, everyone = np.arange(len(taught)), np.arange(len(judged))
    model, tuning = learn_and_tune(learner, taught, rows, certified=certified, seed=seed)
    assert isinstance(model, VoteModel)
    return Taught(model, tuning, model.values(judged, everyone))


# --- tables ---------------------------------------------------------------------------------------


def gap(one: Outcome, other: Outcome, level: float = SURE) -> tuple[str, str]:
    """Points of accuracy between two policies, with the interval."""
    pair = paired_bootstrap(100 * one.scores, 100 * other.scores, seed=0, level=level)
    return f"{pair.value:+.2f}", interval(pair.low, pair.high)


def share(one: Outcome, other: Outcome, level: float = SURE) -> tuple[str, str]:
    """One policy's tokens in percent of another's, with the interval."""
    saved = bootstrap_ratio(one.spent, other.spent, seed=0, level=level)
    return f"{100 - saved.value:.1f}", f"[{100 - saved.high:.1f}, {100 - saved.low:.1f}]"


POLICY = ["policy", "setting", "accuracy %", "responses", "tokens, % of 128's"]
POLICY += ["against 128 plain votes", "against 128 of its own votes"]


def policy_row(label: str, done: Outcome, plain: Outcome, own: Outcome) -> list[str]:
    """One policy beside all 128 votes, plain and its own."""
    return [
        label,
        done.setting,
        f"{100 * done.scores.mean():.2f}",
        f"{done.counts.mean():.1f}",
        " ".join(share(done, plain)),
        " ".join(gap(done, plain)),
        " ".join(gap(done, own)),
    ]


def policies_table(
    ours: Outcome, rivals: Mapping[str, Outcome], *, plain: Outcome, weighted: Outcome
) -> Table:
    """All policies at one allowed loss; `plain` and `weighted` are the full budgets."""
    rows = [
        policy_row("128 plain votes", plain, plain, plain),
        policy_row("128 weighted votes", weighted, plain, weighted),
        policy_row("**AERA**", ours, plain, weighted),
    ]
    for label, done in rivals.items():
        rows.append(policy_row(label, done, plain, weighted if label.endswith(SAME) else plain))
    return table(POLICY, rows)


AGAINST = ["AERA against", "points", "95 %", "95 %, all together", "AERA's tokens, % of its"]
AGAINST += ["95 %", "95 %, all together"]


def against_table(ours: Outcome, rivals: Mapping[str, Outcome]) -> list[Table | str]:
    """AERA against each rival, alone and corrected (Bonferroni) for how many are compared."""
    together = 1 - (1 - SURE) / (2 * len(rivals))
    rows, clear = [], dict[str, list[str]]()
    for label, done in rivals.items():
        points, tokens = gap(ours, done), share(ours, done)
        both = gap(ours, done, together)[1], share(ours, done, together)[1]
        rows.append([label, *points, both[0], *tokens, both[1]])
        pair = paired_bootstrap(ours.scores, done.scores, seed=0, level=together)
        saved = bootstrap_ratio(ours.spent, done.spent, seed=0, level=together)
        for word, holds in {
            "more accurate": pair.low > NOTHING,
            "less accurate": pair.high < -NOTHING,
            "cheaper": saved.low > NOTHING,
            "dearer": saved.high < -NOTHING,
        }.items():
            clear.setdefault(word, []).extend([label] if holds else [])
    said = [f"**{word}** than {'; '.join(names) or 'none'}" for word, names in clear.items()]
    statements = f"{2 * len(rivals)} statements, {100 * together:.2f} % each"
    listed = "\n".join(f"- {line}" for line in said)
    return [table(AGAINST, rows), f"All together ({statements}), AERA is clearly\n\n{listed}"]
