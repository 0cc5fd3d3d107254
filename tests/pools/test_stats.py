"""The interval and the alarm of audits."""

from itertools import islice

import numpy as np
import pytest

from aera.pools.stats import RUN_LENGTH, Detector, interval

LIMIT = 0.02


def noticed_after(outcomes: np.ndarray) -> int | None:
    """Audits until the alarm."""
    detector = Detector(LIMIT)
    for seen, changed in enumerate(outcomes, 1):
        detector.see(bool(changed))
        if detector.alarmed:
            return seen
    return None


def test_a_change_after_a_thousand_calm_audits_is_noticed_within_300() -> None:
    random = np.random.default_rng(0)
    chances = np.repeat([LIMIT / 2, 4 * LIMIT], [1_000, 300])
    found = [noticed_after(random.random(1_300) < chances) for _ in range(40)]
    assert sum(each is not None and each > 1_000 for each in found) >= 36


def test_nothing_is_noticed_where_nothing_changes() -> None:
    random = np.random.default_rng(1)
    found = [noticed_after(random.random(2_000) < LIMIT / 2) for _ in range(20)]
    assert found.count(None) >= 19


def test_an_alarm_stays_and_its_numbers_do_not_grow_without_bound() -> None:
    detector = Detector(0.5)
    for changed in [True] * 3_000 + [False] * 3_000:
        detector.see(changed)
    assert detector.alarmed
    assert 0 <= detector.level < RUN_LENGTH


def test_a_few_changes_are_too_many_where_none_was_promised() -> None:
    detector = Detector(0.0)
    raised = [detector.see(changed) for changed in [False] * 5_000 + [True] * 3]
    assert (raised.count(True), any(raised[:5_000])) == (1, False)


@pytest.mark.parametrize("chances", [(0.02, 0.02), (0.2, 0.005), (0.01, 0.08)])
def test_the_interval_has_the_running_mean_after_every_audit(chances: tuple[float, float]) -> None:
    random = np.random.default_rng(2)
    each = np.repeat(chances, 300)
    means = np.cumsum(each) / np.arange(1, 601)
    missed = 0
    for _ in range(40):
        changed = np.cumsum(random.random(600) < each)
        counts = zip(changed.tolist(), range(1, 601), strict=True)
        bounds = np.array([interval(*pair) for pair in islice(counts, 9, None, 10)])
        seen = means[9::10]
        missed += not ((bounds[:, 0] <= seen) & (seen <= bounds[:, 1])).all()
    assert missed <= 4


def test_the_interval_has_the_share_and_narrows() -> None:
    assert interval(0, 0) == (0.0, 1.0)
    for changed, audits in ((0, 1), (1, 1), (0, 100), (3, 300), (50, 50), (20, 1_000)):
        low, high = interval(changed, audits)
        assert 0 <= low <= changed / audits <= high <= 1
    assert interval(0, 100)[1] < 0.08
    assert interval(20, 1_000)[0] > 0.008
