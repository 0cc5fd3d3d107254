"""Calibrate in the paper's score: the mean grade of the responses seen, in the vote's place."""

from dataclasses import dataclass

from aera.arrays import Floats
from aera.lab.calibrating.calibration import Choice, Goal
from aera.lab.calibrating.families import Family
from aera.lab.replay.trajectory import Trajectories


@dataclass(frozen=True)
class ByMean:
    """A goal whose losses are those of the mean score. For comparison: the score is flattered."""

    goal: Goal

    @property
    def certified(self) -> bool:
        """Whether it needs questions that nothing was learned from."""
        return self.goal.certified

    def choose(
        self, family: Family, values: Floats, trajectories: Trajectories, *, seed: int
    ) -> Choice:
        """The setting that serves the goal in the mean score."""
        return self.goal.choose(family, values, trajectories.by_mean, seed=seed)
