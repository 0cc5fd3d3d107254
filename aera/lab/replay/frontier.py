"""Point and Frontier: accuracy and spend of each policy, and what mixtures of them can reach."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from aera.arrays import Columns, Floats
from aera.errors import UsageError
from aera.lab.calibrating.families import Family
from aera.lab.replay.money import PLAIN, QUESTIONS, Prices, Terms
from aera.lab.replay.trajectory import Trajectories, by_question, pick
from aera.policies.rules import Fixed, Policy, family_of, is_fixed, label_of, setting_of
from aera.reading.task import NOTHING, Readability
from aera.voting.rules import CONFIDENT


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


STATUS = {
    Kind.CALIBRATED: "calibrated",
    Kind.HINDSIGHT: "hindsight",
}
DESCRIPTIVE = "as given; picking the best of several afterwards is post hoc"


@dataclass(frozen=True, eq=False)
class Point:
    """One policy on one pool: the checkpoint column at which each question stopped."""

    policy: str
    """Its label."""
    columns: Columns
    trajectories: Trajectories
    orders: tuple[Columns, Trajectories] | None = None
    """The same in random orders of the responses, whose mean is what counts; None: stored only."""
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
    def stored(self) -> "Point":
        """The same in the stored order alone."""
        return replace(self, orders=None)

    def mean(self, value: Callable[[Trajectories], Floats]) -> Floats:
        """A number at every stop, question by question; the mean over the orders."""
        if self.orders is None:
            return pick(value(self.trajectories), self.columns)
        columns, known = self.orders
        return by_question(pick(value(known), columns))

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
        counts: Floats = points[self.columns if self.orders is None else self.orders[0]]
        return by_question(counts)

    @cached_property
    def spent(self) -> Floats:
        """Completion tokens used, question by question."""
        return self.mean(lambda known: known.tokens)

    @property
    def at_once(self) -> bool:
        """Whether all responses are asked for in one block, as by a fixed budget."""
        return self.family == Kind.FIXED.value and self.setting is not None

    @property
    def blocks(self) -> Floats:
        """How often responses were asked for, question by question; a fixed budget asks once."""
        columns = self.columns if self.orders is None else self.orders[0]
        blocks: Floats = np.where(self.at_once, 1.0, by_question(columns.astype(np.float64)) + 1.0)
        return blocks

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

    def cost(self, prices: Prices) -> Floats:
        """Money spent, question by question."""
        lengths = self.trajectories.prompts
        return prices.charge(
            0.0 * self.blocks if lengths is None else lengths * self.blocks, self.spent
        )

    def money(self, prices: Prices) -> float:
        """Money for a thousand questions."""
        return QUESTIONS * float(self.cost(prices).mean())

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
        return STATUS.get(self.kind, DESCRIPTIVE)

    def as_json(self, terms: Terms = PLAIN) -> dict[str, Any]:
        """The point as an evaluation file holds it; percent, two decimals beyond noise."""
        names = ("accuracy", "re2_mean", "agreement", "responses", "tokens")
        savings = ("response_saving", "token_saving")
        values = {name: _round(getattr(self, name)) for name in (*names, *savings)}
        told: dict[str, Any] = {
            "policy": self.policy,
            "kind": self.kind.value,
            "family": self.family,
        }
        told |= {"setting": self.setting, "weighted": self.weighted, "in_sample": self.in_sample}
        return {**told, "status": self.status, **values, **self._extras(terms), "stops": self.stops}

    def _extras(self, terms: Terms) -> dict[str, Any]:
        """What only rewards, a price or the prices of tokens bring."""
        found: dict[str, Any] = {}
        if self.trajectories.rewarded:
            found["reward"] = round(float(self.scores.mean()), 6)
        if terms.price is not None and self.graded:
            found["utility"] = round(self.utility(terms.price), 6)
        if terms.prices is not None:
            found["money"] = round(self.money(terms.prices), 6)
        if self.orders is not None:
            names = ("accuracy", "responses", "tokens", "token_saving")
            found["stored_order"] = {name: _round(getattr(self.stored, name)) for name in names}
        return found


def replayed_points(
    policies: Sequence[Policy],
    columns: Columns,
    trajectories: Trajectories,
    *,
    chances: Mapping[int, Floats] = MappingProxyType({}),
    weighted: bool = False,
) -> list[Point]:
    """Policies that were replayed as given; `columns` has one column for each of them."""
    return [
        Point(
            label_of(policy, weighted=weighted),
            columns[:, place],
            trajectories,
            p_continue=chances.get(place),
            kind=Kind.FIXED if is_fixed(policy) else Kind.BASELINE,
            family=family_of(policy),
            setting=setting_of(policy),
            weighted=weighted,
        )
        for place, policy in enumerate(policies)
    ]


def point_of(policy: Policy, columns: Columns, trajectories: Trajectories) -> Point:
    """One policy on plain votes that was replayed as given."""
    [point] = replayed_points([policy], columns[:, None], trajectories)
    return point


def hindsight_point(label: str, columns: Columns, trajectories: Trajectories) -> Point:
    """A reference that looks at the future."""
    return Point(label, columns, trajectories, kind=Kind.HINDSIGHT, family=label)


def point_in_orders(label: str, stops: Columns, seen: Trajectories, **told: Any) -> Point:
    """A policy whose stops are known in every order of the responses, the stored one first."""
    if seen.tokens.ndim == 2:
        return Point(label, stops, seen, **told)
    mixed = stops[:, 1:] if stops.shape[1] > 1 else stops
    return Point(label, stops[:, 0], seen.stored, (mixed, seen.mixed), **told)


def fixed_points(trajectories: Trajectories, *, weighted: bool = False) -> list[Point]:
    """Every checkpoint of the schedule as a fixed budget."""
    budgets = [Fixed(checkpoint) for checkpoint in trajectories.schedule.checkpoints]
    shape = trajectories.tokens.shape[:-1]
    return [
        point_in_orders(
            label_of(budget, weighted=weighted),
            np.full(shape, column),
            trajectories,
            kind=Kind.FIXED,
            family=budget.kind,
            setting=budget.setting,
            weighted=weighted,
        )
        for column, budget in enumerate(budgets)
    ]


def sweep(family: Family, seen: Trajectories, *, weighted: bool = False) -> list[Point]:
    """Every setting that is shown of a family, read off afterwards: a descriptive frontier."""
    return [
        point_in_orders(
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


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


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
        points = {each.policy: each for each in self.points}
        kept = tuple({**points, point.policy: point}.values())
        return Frontier(kept, point.trajectories, self.readability)

    def only(self, family: str) -> "Frontier":
        """The points of one family of policies, whatever their setting."""
        kept = tuple(point for point in self.points if point.family == family)
        return Frontier(kept, self.trajectories, self.readability)

    def without_sweeps(self) -> "Frontier":
        """Leave out the settings of baselines that nobody asked for."""
        kept = (p for p in self.points if p.kind is not Kind.SWEPT or p.family == "aera")
        return Frontier(tuple(kept), self.trajectories, self.readability)

    def full_budget(self, *, weighted: bool = False) -> Point:
        """Every question at the last checkpoint, whether or not that policy was asked for.

        It is judged on the votes that the other plain, or weighted, points were judged on.
        """
        for point in self.points:
            own = point.kind is Kind.FIXED and point.weighted is weighted
            if own and not np.any(point.columns != self.trajectories.tokens.shape[1] - 1):
                return point
        alike = [
            point.trajectories
            for point in self.points
            if point.weighted is weighted and point.family not in CONFIDENT
        ]
        return fixed_points(alike[0] if alike else self.trajectories, weighted=weighted)[-1]

    def nondominated(self, spend: str = "responses") -> list[Point]:
        """The points no mixture of others beats at equal or lower spend: the upper hull."""
        ordered = sorted(self.points, key=lambda p: (getattr(p, spend), -p.quality, p.policy))
        hull: list[Point] = []
        for point in ordered:
            if hull and point.quality <= hull[-1].quality:
                continue
            while len(hull) > 1 and _slope(hull[-2], point, spend) >= _slope(
                hull[-2], hull[-1], spend
            ):
                hull.pop()
            hull.append(point)
        return hull

    def mixture(self, at: float, spend: str = "responses") -> Mixture | None:
        """The best mixture that spends at most `at` per question; None if nothing is so cheap."""
        hull = self.nondominated(spend)
        affordable = [point for point in hull if getattr(point, spend) <= at]
        if not affordable:
            return None
        low = affordable[-1]
        dearer: Sequence[Point] = [point for point in hull if getattr(point, spend) > at]
        if not dearer:
            return Mixture((low, low), 1.0)
        high = dearer[0]
        gap = getattr(high, spend) - getattr(low, spend)
        return Mixture((low, high), (getattr(high, spend) - at) / gap)


def _slope(a: Point, b: Point, spend: str) -> float:
    width = getattr(b, spend) - getattr(a, spend)
    rise = b.quality - a.quality
    return rise / width if width > 0 else float("inf")
