"""Trajectories, Point and Frontier: what each policy reaches and spends, and mixtures of them.

Trajectories hold grade, cost and evidence of every question at every checkpoint. Rows are
questions, columns checkpoints. This is hindsight: no policy ever sees it.

Money: a question's prompt is billed once for every block that is asked for, as by a server that
takes `n`. Its length is the largest that any response to the question recorded. A fixed budget is
one block; every other policy asks for one block per checkpoint up to its stop.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.core import Schedule
from aera.errors import ProtocolError, UsageError
from aera.files import Json
from aera.lab.calibrating.families import Family
from aera.policies.rules import Fixed, Policy, family_of, is_fixed, label_of, setting_of
from aera.pools.pool import Record, VotedRecord
from aera.reading.task import NOTHING, Readability
from aera.voting.rules import CONFIDENT

TRANSITIONS = {
    "stable wrong": (0, 0),
    "recovery": (0, 1),
    "collapse": (1, 0),
    "stable right": (1, 1),
}
SHAPES = (
    "always right",
    "always wrong",
    "monotonic recovery",
    "oscillatory recovered",
    "monotonic collapse",
    "oscillatory failure",
)


def pick(values: Floats, columns: Columns) -> Floats:
    """The value of every row at its own column; the last axis are the columns."""
    picked: Floats = np.take_along_axis(values, columns[..., None], -1)[..., 0]
    return picked


def by_question(values: Floats) -> Floats:
    """One number for each question: the mean over its orders, where there are several."""
    mean: Floats = values if values.ndim == 1 else values.mean(axis=1)
    return mean


@dataclass(frozen=True, eq=False)
class Trajectories:
    """What replaying a pool shows. `grades` and `re2_mean` are None where there are no truths.

    Arrays are (questions, checkpoints), or (questions, orders, checkpoints) where the responses of
    every question were replayed in several orders: the stored one first, then random ones.
    """

    question_ids: tuple[str, ...]
    schedule: Schedule
    tokens: Floats
    """Completion tokens spent by each checkpoint."""
    agreement: Floats
    """1 where the answer equals the one at the full budget (no answer equals no answer)."""
    evidence: Mapping[str, Floats]
    """Observable quantities by name, as the transition table compares them."""
    grades: Floats | None = None
    re2_mean: Floats | None = None
    prompts: Floats | None = None
    """Tokens of each question's prompt, the most that a response recorded; 0 where none did."""
    rewarded: bool = False
    """Whether grades are rewards, any real numbers, and not 1 for right and 0 for wrong."""
    values: Mapping[str, Floats] = field(default_factory=dict)
    """What every family of policies looks at, by its name."""
    features: Floats | None = None
    """What a gate on votes looks at, with one axis more."""
    voted: tuple[VotedRecord, ...] = ()
    """The questions with their votes, where somebody may want to look at them."""
    weights: Floats | None = None
    """What these votes weighed."""

    @property
    def records(self) -> tuple[VotedRecord, ...]:
        """The questions with their votes as they weighed."""
        weights = () if self.weights is None else self.weights
        return tuple(map(VotedRecord.with_weights, self.voted, weights))

    def take(self, rows: Columns) -> "Trajectories":
        """The same for some of the questions."""
        own: dict[str, Any] = {name: each[rows] for name, each in _by_row(self).items()}
        return replace(
            self._each(lambda values: values[rows]),
            question_ids=tuple(self.question_ids[row] for row in rows),
            voted=tuple(self.voted[row] for row in rows) if self.voted else (),
            **own,
        )

    @classmethod
    def concat(cls, parts: "Sequence[Trajectories]") -> "Trajectories":
        """The questions of several, one after the other."""
        own: dict[str, Any] = {
            name: np.concatenate([_by_row(part)[name] for part in parts])
            for name in _by_row(parts[0])
        }
        return replace(
            _together(parts, np.concatenate),
            question_ids=tuple(key for part in parts for key in part.question_ids),
            voted=tuple(record for part in parts for record in part.voted),
            **own,
        )

    @cached_property
    def stored(self) -> "Trajectories":
        """The same in the stored order alone."""
        return self if self.tokens.ndim == 2 else self._each(lambda values: values[:, 0])

    @cached_property
    def mixed(self) -> "Trajectories":
        """The same in the random orders, or in the stored one where there are no others."""
        if self.tokens.ndim == 2:
            return self._each(lambda values: values[:, None])
        return self._each(lambda values: values[:, 1:] if values.shape[1] > 1 else values)

    def with_evidence(self, name: str, values: Floats) -> "Trajectories":
        """One more observable quantity."""
        return replace(self, evidence={**self.evidence, name: values})

    def up_to(self, checkpoint: int) -> "Trajectories":
        """The same as if no checkpoint beyond this one existed, but for what is agreed with."""
        last = self.schedule.checkpoints.index(checkpoint) + 1
        cut = replace(self, features=None)._each(lambda values: values[..., :last])
        return replace(cut, schedule=Schedule(self.schedule.checkpoints[:last]))

    def _each(self, change: Callable[[Floats], Floats]) -> "Trajectories":
        """The same with every array changed, prompts aside."""
        return _together([self], lambda own: change(own[0]))

    @property
    def by_mean(self) -> "Trajectories":
        """The same graded by the paper's score: the mean of the responses that are no redo."""
        if self.re2_mean is None:
            raise ProtocolError("there are no truths, so responses have no mean grade")
        return replace(self, grades=self.re2_mean)

    def by(self, metric: str) -> "Trajectories":
        """The same graded in the vote, or in the paper's score, "re2_mean"."""
        return self if metric == "vote" else self.by_mean

    @property
    def known_grades(self) -> Floats:
        """The grades, which learning, calibrating and judging cannot do without."""
        if self.grades is None:
            raise ProtocolError("there are no truths, so nothing can be learned or judged")
        return self.grades

    @property
    def right(self) -> Flags:
        """Whether the answer is right: a grade of at least one half."""
        return self.known_grades >= 0.5

    def shapes(self) -> dict[str, int]:
        """How many questions follow each whole-trajectory shape."""
        names = [shape(row) for row in self.right]
        return {name: names.count(name) for name in SHAPES}

    def changes(self, name: str) -> Floats:
        """Change of an observable from each checkpoint to the next."""
        return np.diff(self.evidence[name], axis=1)

    def transitions(self) -> list[Json]:
        """The paper's table: adjacent transitions with the mean change of the evidence.

        A row has its `name`, its `count`, and `changes` by the name of what changed.
        """
        before, after = self.right[:, :-1], self.right[:, 1:]
        rows = []
        for name, (was, became) in TRANSITIONS.items():
            where = (before == was) & (after == became)
            means = {key: _mean(self.changes(key)[where]) for key in self.evidence}
            rows.append({"name": name, "count": int(where.sum()), "changes": means})
        return rows


def _together(
    parts: Sequence[Trajectories], merge: Callable[[list[Floats]], Floats]
) -> Trajectories:
    """The first of several, every array of it made of those of all, prompts aside."""
    made: Json = {
        name: merge([getattr(part, name) for part in parts])
        for name in ("tokens", "agreement", "grades", "re2_mean", "features")
        if getattr(parts[0], name) is not None
    }
    for name in ("evidence", "values"):
        each = [getattr(part, name) for part in parts]
        made[name] = {key: merge([own[key] for own in each]) for key in each[0]}
    return replace(parts[0], **made)


def _by_row(seen: Trajectories) -> dict[str, Floats]:
    """What it knows of each question, whatever the checkpoint."""
    known = {"prompts": seen.prompts, "weights": seen.weights}
    return {name: values for name, values in known.items() if values is not None}


def _mean(values: Floats) -> float:
    """Of the values that exist; NaN where none does."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def shape(right: Flags) -> str:
    """Which of the six shapes a row of right and wrong answers has."""
    changes = int(np.count_nonzero(right[1:] != right[:-1]))
    if changes == 0:
        return "always right" if right[0] else "always wrong"
    if changes == 1:
        return "monotonic recovery" if right[-1] else "monotonic collapse"
    return "oscillatory recovered" if right[-1] else "oscillatory failure"


def prompt_lengths(records: Sequence[Record]) -> Floats:
    """Tokens of each question's prompt: the most that any of its responses recorded."""
    lengths = [max((r.prompt_tokens for r in each.responses), default=0) for each in records]
    return np.array(lengths, dtype=np.float64)


def re2_means(grades: Floats, kept: Flags, ends: Columns) -> Floats:
    """The Re2 mean score of each prefix: the average grade of the responses that are no redo.

    Where every response is a redo, all of them count, by what they boxed.
    """
    right = np.cumsum(grades * kept, axis=-1)[..., ends - 1]
    valid = np.cumsum(kept, axis=-1)[..., ends - 1]
    everything = np.cumsum(grades, axis=-1)[..., ends - 1] / ends
    means: Floats = np.where(valid > 0, right / np.maximum(valid, 1), everything)
    return means


# --- points and frontiers -------------------------------------------------------------------------


class Kind(StrEnum):
    """How a policy came to be judged here, which decides what may be said of it."""

    FIXED = "fixed"
    """The same number of responses for every question."""
    BASELINE = "baseline"
    """A rule with a setting that somebody gave."""
    SWEPT = "swept"
    """One of many settings, read off afterwards: descriptive."""
    CALIBRATED = "calibrated"
    """Its setting was chosen on other questions."""
    CONTROLLER = "controller"
    """A controller that was finished before."""
    HINDSIGHT = "hindsight"
    """It looks at the future."""


DESCRIPTIVE = "as given; picking the best of several afterwards is post hoc"
TOLD = ("policy", "kind", "family", "setting", "weighted", "in_sample", "status")
FIGURES = (
    *("accuracy", "re2_mean", "agreement", "responses", "tokens"),
    *("response_saving", "token_saving"),
)
"""What an evaluation file holds of a point."""
MILLION = 1_000_000
QUESTIONS = 1_000
"""Money is told for so many questions."""


@dataclass(frozen=True)
class Prices:
    """What a million prompt tokens and a million completion tokens cost."""

    prompt: float
    completion: float

    def __post_init__(self) -> None:
        for name, price in vars(self).items():
            if not 0 <= price < inf:
                raise UsageError(f"the price of {name} tokens is 0 or more, but got {price}")


def write_money(amount: float) -> str:
    """Two decimals; below one, four digits."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4g}"


@dataclass(frozen=True, eq=False)
class Point:
    """One policy on one pool: the checkpoint column at which each question stopped."""

    policy: str
    """Its label."""
    ends: Columns
    """The column, by question, or by question and order: the stored one first, then random ones."""
    seen: Trajectories
    """In as many orders; the mean of the random ones is what counts."""
    p_continue: Floats | None = None
    """What its gate said at every checkpoint, NaN where it was not asked; None without a gate."""
    kind: Kind = Kind.BASELINE
    family: str = ""
    """The policies that differ in their setting only: fixed, asc, esc, aera and so on."""
    setting: float | None = None
    weighted: bool = False
    """Whether its votes carry learned weights."""
    in_sample: bool = False
    """Whether it has seen some of these questions in training."""

    def pick(self, values: Floats) -> Floats:
        """The value of every question at its own stop."""
        return pick(values, self.columns)

    @property
    def columns(self) -> Columns:
        """Where each question stopped in the stored order."""
        return self.ends if self.ends.ndim == 1 else self.ends[:, 0]

    @property
    def trajectories(self) -> Trajectories:
        """The questions in the stored order."""
        return self.seen.stored

    @property
    def stored(self) -> "Point":
        """The same in the stored order alone."""
        return replace(self, ends=self.columns, seen=self.trajectories)

    @property
    def counted(self) -> Columns:
        """Where questions stopped in the orders that count."""
        return self.ends[:, 1:] if self.ends.ndim > 1 and self.ends.shape[1] > 1 else self.ends

    def mean(self, value: Callable[[Trajectories], Floats]) -> Floats:
        """A number at every stop, question by question; the mean over the orders."""
        known = self.seen if self.ends.ndim == 1 else self.seen.mixed
        return by_question(pick(value(known), self.counted))

    @cached_property
    def scores(self) -> Floats:
        """The grade of the returned answer, question by question."""
        return self.mean(lambda known: known.known_grades)

    @cached_property
    def agreements(self) -> Floats:
        """1 where the returned answer is that of the full budget, question by question."""
        return self.mean(lambda known: known.agreement)

    @cached_property
    def counts(self) -> Floats:
        """Responses used, question by question."""
        points = np.array(self.trajectories.schedule.checkpoints, dtype=np.float64)
        counts: Floats = points[self.counted]
        return by_question(counts)

    @cached_property
    def spent(self) -> Floats:
        """Completion tokens used, question by question."""
        return self.mean(lambda known: known.tokens)

    @property
    def blocks(self) -> Floats:
        """How often responses were asked for, question by question; a fixed budget asks once."""
        if self.family == Kind.FIXED.value and self.setting is not None:
            return np.ones(len(self.columns))
        return by_question(self.counted.astype(np.float64)) + 1.0

    @property
    def graded(self) -> bool:
        """Whether returned answers were graded or rewarded."""
        return self.trajectories.grades is not None

    @property
    def accuracy(self) -> float | None:
        """Percent of returned answers that are right; None without truths, and for rewards."""
        right = self.graded and not self.trajectories.rewarded
        return 100 * float(self.scores.mean()) if right else None

    @property
    def reward(self) -> float | None:
        """Mean reward of the returned responses; None where answers are right or wrong."""
        return float(self.scores.mean()) if self.trajectories.rewarded else None

    @property
    def quality(self) -> float:
        """What points are compared by: 100 times the mean grade or reward, 0 without either."""
        return 100 * float(self.scores.mean()) if self.graded else 0.0

    def utility(self, price: float) -> float:
        """Mean grade or reward minus the price of the tokens; the mean full budget costs it all."""
        return float(self.worth(price).mean())

    def worth(self, price: float) -> Floats:
        """The same, question by question."""
        full = float(self.trajectories.tokens[:, -1].mean())
        worth: Floats = self.scores - (price * self.spent / full if full else 0.0)
        return worth

    def money(self, prices: Prices) -> float:
        """Money for a thousand questions."""
        lengths = self.trajectories.prompts
        prompts = 0.0 if lengths is None else lengths * self.blocks
        spent = (prices.prompt * prompts + prices.completion * self.spent) / MILLION
        return QUESTIONS * float(spent.mean())

    @property
    def re2_mean(self) -> float | None:
        """The paper's score in percent: rewards stopping on agreement, so it is no headline."""
        if self.trajectories.re2_mean is None:
            return None
        return 100 * float(self.mean(lambda known: known.by_mean.known_grades).mean())

    @property
    def agreement(self) -> float:
        """Percent of answers equal to those at the full budget."""
        return 100 * float(self.agreements.mean())

    @property
    def responses(self) -> float:
        """Mean responses per question."""
        return float(self.counts.mean())

    @property
    def tokens(self) -> float:
        """Mean completion tokens per question."""
        return float(self.spent.mean())

    @property
    def response_saving(self) -> float:
        """Percent of responses saved against the full budget."""
        return 100 * (1 - self.responses / self.trajectories.schedule.checkpoints[-1])

    @property
    def token_saving(self) -> float:
        """Percent of completion tokens saved against the full budget."""
        full = float(self.trajectories.tokens[:, -1].sum())
        return 100 * (1 - float(self.spent.sum()) / full) if full else 0.0

    @property
    def stops(self) -> dict[str, int]:
        """How many questions stopped at each checkpoint, in the stored order."""
        points = self.trajectories.schedule.checkpoints
        tally = np.bincount(self.columns, minlength=len(points))
        return {str(checkpoint): int(n) for checkpoint, n in zip(points, tally, strict=True)}

    @property
    def status(self) -> str:
        """How it was chosen: calibrated elsewhere, in hindsight, or as given."""
        own = self.kind in (Kind.CALIBRATED, Kind.HINDSIGHT)
        return self.kind.value if own else DESCRIPTIVE

    def as_json(self, *, price: float | None = None, prices: Prices | None = None) -> Json:
        """The point as an evaluation file holds it; percent, two decimals beyond noise.

        With the `price` of the mean full budget also its utility, with `prices` its money.
        """
        told = {name: getattr(self, name) for name in TOLD} | {"kind": self.kind.value}
        told |= {name: _round(getattr(self, name)) for name in FIGURES}
        if self.trajectories.rewarded:
            told["reward"] = _round(self.reward, 6)
        if price is not None and self.graded:
            told["utility"] = round(self.utility(price), 6)
        if prices is not None:
            told["money"] = round(self.money(prices), 6)
        if self.ends.ndim > 1:
            names = ("accuracy", "responses", "tokens", "token_saving")
            told["stored_order"] = {name: _round(getattr(self.stored, name)) for name in names}
        return {**told, "stops": self.stops}


def point_of(
    policy: Policy, stops: Columns, seen: Trajectories, *, weighted: bool = False, **told: Any
) -> Point:
    """One policy that was replayed as given."""
    kind = Kind.FIXED if is_fixed(policy) else Kind.BASELINE
    told |= {"kind": kind, "family": family_of(policy), "setting": setting_of(policy)}
    label = label_of(policy, weighted=weighted)
    return Point(label, stops, seen, weighted=weighted, **told)


def fixed_points(trajectories: Trajectories, *, weighted: bool = False) -> list[Point]:
    """Every checkpoint of the schedule as a fixed budget."""
    shape = trajectories.tokens.shape[:-1]
    return [
        point_of(Fixed(checkpoint), np.full(shape, column), trajectories, weighted=weighted)
        for column, checkpoint in enumerate(trajectories.schedule)
    ]


def hindsight_point(label: str, columns: Columns, trajectories: Trajectories) -> Point:
    """A reference that looks at the future."""
    return Point(label, columns, trajectories, kind=Kind.HINDSIGHT, family=label)


def oracle_point(trajectories: Trajectories) -> Point:
    """The cheapest checkpoint with the best grade, question by question."""
    columns: Columns = np.argmax(trajectories.known_grades, axis=-1)
    return hindsight_point("oracle", columns, trajectories)


def shuffle(columns: Columns, folds: Columns, *, seed: int) -> Columns:
    """The same stops dealt to other questions of the same fold, so that only routing is lost."""
    rng = np.random.default_rng(seed)
    dealt = columns.copy()
    for fold in np.unique(folds):
        members = np.flatnonzero(folds == fold)
        dealt[members] = columns[rng.permutation(members)]
    return dealt


def sweep(family: Family, seen: Trajectories, *, weighted: bool = False) -> list[Point]:
    """Every setting that is shown of a family, read off afterwards: a descriptive frontier."""
    return [
        Point(
            family.label(setting),
            family.stops(seen.values[family.name], setting),
            seen,
            kind=Kind.SWEPT,
            family=family.name,
            setting=setting,
            weighted=weighted,
        )
        for setting in family.settings
    ]


def _round(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Two points dealt at random in fixed shares: the best reachable at a mean spend."""

    parts: tuple[Point, Point]
    share: float
    """Of the first part; the rest goes to the second."""

    @property
    def scores(self) -> Floats:
        """Expected grade, question by question."""
        return self.share * self.parts[0].scores + (1 - self.share) * self.parts[1].scores

    @property
    def accuracy(self) -> float:
        """Percent right, in expectation."""
        return 100 * float(self.scores.mean())


@dataclass(frozen=True, eq=False)
class Frontier:
    """All points of one evaluation."""

    points: tuple[Point, ...]
    trajectories: Trajectories
    readability: Readability = NOTHING
    """Which share of the responses could be read."""

    @classmethod
    def concat(cls, parts: "Sequence[Frontier]") -> "Frontier":
        """The same policies on the questions of several, one after the other."""
        seen, points = Trajectories.concat([part.trajectories for part in parts]), []
        for own in zip(*(part.points for part in parts), strict=True):
            ends = np.concatenate([point.ends for point in own])
            said = np.concatenate([point.p_continue for point in own])
            p_continue = None if np.isnan(said).all() else said
            points.append(replace(own[0], ends=ends, seen=seen, p_continue=p_continue))
        return cls(tuple(points), seen, Readability().join(part.readability for part in parts))

    def __getitem__(self, policy: object) -> Point:
        """The point of a policy or of its label."""
        for point in self.points:
            if point.policy == str(policy):
                return point
        known = ", ".join(point.policy for point in self.points)
        raise UsageError(f'no point is called "{policy}"; there are {known}')

    def with_point(self, point: Point) -> "Frontier":
        """The same with one more point, or another in the place of the one that is called like it.

        The new point's trajectories become those that are shown; the others keep their own.
        """
        points = {each.policy: each for each in (*self.points, point)}
        return Frontier(tuple(points.values()), point.trajectories, self.readability)

    def only(self, family: str) -> "Frontier":
        """The points of one family of policies, whatever their setting."""
        return replace(self, points=tuple(p for p in self.points if p.family == family))

    def without_sweeps(self) -> "Frontier":
        """Leave out the settings of baselines that nobody asked for."""
        kept = (p for p in self.points if p.kind is not Kind.SWEPT or p.family == "aera")
        return replace(self, points=tuple(kept))

    def full_budget(self, *, weighted: bool = False) -> Point:
        """Every question at the last checkpoint, whether or not that policy was asked for.

        It is judged on the votes that the other plain, or weighted, points were judged on.
        """
        alike = [point for point in self.points if point.weighted is weighted]
        for point in alike:
            if point.kind is Kind.FIXED and point.setting == self.trajectories.schedule.last:
                return point
        own = (point.trajectories for point in alike if point.family not in CONFIDENT)
        return fixed_points(next(own, self.trajectories), weighted=weighted)[-1]

    def nondominated(self, spend: str = "responses") -> list[Point]:
        """The points no mixture of others beats at equal or lower spend: the upper hull."""

        def slope(a: Point, b: Point) -> float:
            width = getattr(b, spend) - getattr(a, spend)
            return (b.quality - a.quality) / width if width > 0 else inf

        ordered = sorted(self.points, key=lambda p: (getattr(p, spend), -p.quality, p.policy))
        hull: list[Point] = []
        for point in ordered:
            if hull and point.quality <= hull[-1].quality:
                continue
            while len(hull) > 1 and slope(hull[-2], point) >= slope(hull[-2], hull[-1]):
                hull.pop()
            hull.append(point)
        return hull

    def mixture(self, at: float, spend: str = "responses") -> Mixture | None:
        """The best mixture that spends at most `at` per question; None if nothing is so cheap."""
        hull = self.nondominated(spend)
        affordable = [point for point in hull if getattr(point, spend) <= at]
        if not affordable:
            return None
        low, high = affordable[-1], next(iter(hull[len(affordable) :]), None)
        if high is None:
            return Mixture((low, low), 1.0)
        gap = getattr(high, spend) - getattr(low, spend)
        return Mixture((low, high), (getattr(high, spend) - at) / gap)
