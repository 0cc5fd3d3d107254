from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from aera.lab import LossLimit, Trajectories
from aera.lab.calibrating.by_mean import ByMean
from aera.lab.calibrating.calibration import Goal
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.learning.rewards import MostUtility

VALUES = np.array([[0.25, 0.15, 0.0]] * 4)
"""The gate stops at the first checkpoint from 0.3 up, at the second from 0.2, else at the last."""


@pytest.fixture
def made(trajectories_of: Callable[..., Trajectories]) -> Trajectories:
    """Votes that more responses make right, and a mean score that stays as it is."""
    track = trajectories_of([[0, 1, 1]] * 4)
    return replace(track, re2_mean=np.full((4, 3), 0.6))


@pytest.mark.parametrize(("goal", "vote"), [(LossLimit(0.02), 0.2), (MostUtility(0.1), 0.16)])
def test_in_a_mean_score_that_stays_nothing_is_lost_by_stopping_at_once(
    made: Trajectories, goal: Goal, vote: float
) -> None:
    assert goal.choose(GATE_FAMILY, VALUES, made, seed=0).setting == vote
    chosen = ByMean(goal).choose(GATE_FAMILY, VALUES, made, seed=0)
    assert chosen.setting is not None
    assert chosen.setting > 0.25
    assert (chosen.accuracy, chosen.reference) == (pytest.approx(0.6), pytest.approx(0.6))


def test_it_is_certified_where_its_goal_is() -> None:
    assert ByMean(LossLimit(alpha=0.1)).certified
    assert not ByMean(LossLimit()).certified
