"""Point and Frontier: accuracy and spend of each policy, and what mixtures of them can reach."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from aera.errors import UsageError
from aera.lab.trajectory import Columns, Floats, Trajectories, pick


@dataclass(frozen=True, eq=False)
class Point:
    """One policy on one pool: the checkpoint column at which each question stopped."""

    policy: str
    columns: Columns
    trajectories: Trajectories
    p_continue: Floats | None = None
    """What its gate said at every checkpoint, NaN where it was not asked; None without a gate."""

    def pick(self, values: Floats) -> Floats:
        """The value of every question at its own stop."""
        return pick(values, self.columns)

    @cached_property
    def scores(self) -> Floats:
        """The grade of the returned answer, question by question."""
        assert self.trajectories.grades is not None
        return self.pick(self.trajectories.grades)

    @cached_property
    def counts(self) -> Floats:
        """Responses used, question by question."""
        return np.array(self.trajectories.schedule.checkpoints, dtype=np.float64)[self.columns]

    @cached_property
    def spent(self) -> Floats:
        """Completion tokens used, question by question."""
        return self.pick(self.trajectories.tokens)

    @property
    def graded(self) -> bool:
        """Whether the pool had truths."""
        return self.trajectories.grades is not None

    @property
    def accuracy(self) -> float | None:
        """Percent of returned answers that are right."""
        return 100 * float(self.scores.mean()) if self.graded else None

    @property
    def re2_mean(self) -> float | None:
        """The paper's score in percent: rewards stopping on agreement, so it is no headline."""
        means = self.trajectories.re2_mean
        return None if means is None else 100 * float(self.pick(means).mean())

    @property
    def agreement(self) -> float:
        """Percent of answers equal to those at the full budget."""
        return 100 * float(self.pick(self.trajectories.agreement).mean())

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
        return 100 * (1 - self.responses / self.trajectories.schedule.last)

    @property
    def token_saving(self) -> float:
        """Percent of completion tokens saved against the full budget."""
        full = float(self.trajectories.tokens[:, -1].sum())
        return 100 * (1 - float(self.spent.sum()) / full) if full else 0.0

    @property
    def stops(self) -> dict[str, int]:
        """How many questions stopped at each checkpoint."""
        schedule = self.trajectories.schedule
        tally = np.bincount(self.columns, minlength=len(schedule))
        return {str(checkpoint): int(n) for checkpoint, n in zip(schedule, tally, strict=True)}

    @property
    def status(self) -> str:
        """How it was chosen: calibrated elsewhere, in hindsight, or as given."""
        if self.policy.endswith("-calibrated"):
            return "calibrated"
        if self.policy in ("oracle", "matched-random"):
            return "hindsight"
        return "as given; picking the best of several afterwards is post hoc"

    def as_json(self) -> dict[str, Any]:
        """The point as an evaluation file holds it; percent, two decimals beyond noise."""
        names = ("accuracy", "re2_mean", "agreement", "responses", "tokens")
        savings = ("response_saving", "token_saving")
        values = {name: _rounded(getattr(self, name)) for name in (*names, *savings)}
        return {"policy": self.policy, "status": self.status, **values, "stops": self.stops}


def _rounded(value: float | None) -> float | None:
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
        return Frontier(tuple({**points, point.policy: point}.values()), point.trajectories)

    def only(self, prefix: str) -> "Frontier":
        """The points whose label starts like this: the sweep of one kind of policy."""
        kept = tuple(point for point in self.points if point.policy.startswith(prefix))
        return Frontier(kept, self.trajectories)

    def without_sweeps(self, standard: Sequence[object]) -> "Frontier":
        """Leave out the settings of baselines that are not on the standard list."""
        kept = {str(policy) for policy in standard}
        swept = ("asc-", "esc-", "lead-", "majority-", "entropy-", "consensus-")
        points = tuple(
            point
            for point in self.points
            if point.policy in kept
            or point.policy.endswith("-calibrated")
            or not point.policy.startswith(swept)
        )
        return Frontier(points, self.trajectories)

    def nondominated(self, spend: str = "responses") -> list[Point]:
        """The points no mixture of others beats at equal or lower spend: the upper hull."""
        ordered = sorted(
            self.points, key=lambda p: (getattr(p, spend), -(p.accuracy or 0.0), p.policy)
        )
        hull: list[Point] = []
        for point in ordered:
            if hull and (point.accuracy or 0.0) <= (hull[-1].accuracy or 0.0):
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
    rise = (b.accuracy or 0.0) - (a.accuracy or 0.0)
    return rise / width if width > 0 else float("inf")
