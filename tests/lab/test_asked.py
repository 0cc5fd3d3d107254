"""What may be asked for by name: labels by the votes they look at, and checkpoints."""

import pytest
from foreign_questions import BUNDLED
from lab_fixtures import Bench

from aera import ASC, Controller, Fixed, Schedule
from aera.errors import UsageError
from aera.lab.asked import ask_policies, choose_schedule
from aera.lab.build import Built
from aera.policies.rules import Bounded


def test_labels_on_a_controllers_votes_are_kept_apart(bench: Bench) -> None:
    labels = "fixed-8, asc-0.9+weighted ,weighted-32,aera-0.2,aera-0.2+min8,asc-0.8,oracle"
    plain, own = ask_policies(labels, bench.pool.schedule, controller=BUNDLED)
    assert plain == [Fixed(8), ASC(0.8)]
    *others, gated, bounded = own
    assert others == [ASC(0.9), Fixed(32)]
    assert (gated.gate, gated.threshold) == (BUNDLED.gate, 0.2)
    assert bounded == Bounded(gated, 8, need_vote=False)


def test_what_a_controller_has_not_is_refused(bench: Bench, built: Built) -> None:
    schedule = bench.pool.schedule
    plain = Controller(bench.pool.task, schedule, ASC(0.9))
    for label, controller, reason in (
        ("aera-0.2", None, "belongs to a --controller"),
        ("aera-0.2", plain, "needs a gate"),
        ("asc-0.9+weighted", None, r'"asc-0\.9"'),
        ("asc-0.9+weighted", built.controller, r'"asc-0\.9"'),
        ("weighted-20", BUNDLED, "weighted-20 is no checkpoint"),
    ):
        with pytest.raises(UsageError, match=reason):
            ask_policies(label, schedule, controller=controller)


@pytest.mark.parametrize(
    ("asked", "most", "found"),
    [
        (None, None, (4, 8, 16, 32)),
        ("2,6", None, (2, 6)),
        (None, 20, (4, 8, 16, 20)),
        (None, 16, (4, 8, 16)),
        (None, 3, (3,)),
        (Schedule((2, 6)), 20, (2, 6)),
        (Schedule((2, 6)), 5, (2, 5)),
    ],
)
def test_a_schedule_is_cut_at_the_most_responses(
    asked: Schedule | str | None, most: int | None, found: tuple[int, ...]
) -> None:
    own = Schedule((4, 8, 16, 32))
    assert choose_schedule(own, asked, most=most, recorded=32).checkpoints == found
    for wrong in (0, -1, 33):
        with pytest.raises(UsageError, match="from 1 to 32"):
            choose_schedule(own, asked, most=wrong, recorded=32)
