"""What may be asked for by name: labels by the votes they look at, and checkpoints."""

from pathlib import Path

import pytest
from small_study import Bench

import aera
from aera import ASC, Controller, Fixed, Schedule
from aera.errors import UsageError
from aera.lab.asked import ask_policies, choose_schedule
from aera.lab.build import Built
from aera.policies.gate import Gated


@pytest.fixture
def bundled() -> Controller:
    """The demo's: weights and a gate."""
    return Controller.load(Path(aera.__file__).parent / "demo" / "controller")


def test_labels_on_a_controllers_votes_are_kept_apart(bench: Bench, bundled: Controller) -> None:
    labels = "fixed-8, asc-0.9+weighted ,weighted-32,aera-0.2,asc-0.8,oracle"
    plain, own = ask_policies(labels, bench.pool.schedule, controller=bundled)
    assert plain == [Fixed(8), ASC(0.8)]
    *others, gated = own
    assert others == [ASC(0.9), Fixed(32)]
    assert isinstance(gated, Gated)
    assert (gated.gate, gated.threshold) == (bundled.gate, 0.2)


def test_a_gate_needs_a_controller_that_has_one(bench: Bench) -> None:
    plain = Controller(bench.pool.task, bench.pool.schedule, ASC(0.9))
    for controller, reason in ((None, "belongs to a --controller"), (plain, "has none")):
        with pytest.raises(UsageError, match=reason):
            ask_policies("aera-0.2", bench.pool.schedule, controller=controller)


def test_weighted_votes_need_a_controller_with_weights(bench: Bench, built: Built) -> None:
    for controller in (None, built.controller):
        with pytest.raises(UsageError, match=r'"asc-0\.9"'):
            ask_policies("asc-0.9+weighted", bench.pool.schedule, controller=controller)


def test_a_weighted_budget_is_a_checkpoint(bench: Bench, bundled: Controller) -> None:
    with pytest.raises(UsageError, match="weighted-20 is no checkpoint"):
        ask_policies("weighted-20", bench.pool.schedule, controller=bundled)


def test_scores_are_asked_for_fixed_budgets_and_gates(bench: Bench) -> None:
    schedule = bench.pool.schedule
    assert ask_policies(None, schedule, scored=True) == ([Fixed(n) for n in schedule], [])
    for label in ("asc-0.9", "first-valid", "lead-3"):
        with pytest.raises(UsageError, match="best-of-n has none"):
            ask_policies(label, schedule, scored=True)


@pytest.mark.parametrize(
    ("asked", "most", "found"),
    [
        (None, None, (4, 8, 16, 32)),
        ((2, 6), None, (2, 6)),
        (None, 20, (4, 8, 16, 20)),
        (None, 16, (4, 8, 16)),
        (None, 3, (3,)),
        ((2, 6), 20, (2, 6)),
        ((2, 6), 5, (2, 5)),
    ],
)
def test_a_schedule_is_cut_at_the_most_responses(
    asked: tuple[int, ...] | None, most: int | None, found: tuple[int, ...]
) -> None:
    own = Schedule((4, 8, 16, 32))
    chosen = choose_schedule(own, Schedule(asked) if asked else None, most=most, recorded=32)
    assert chosen.checkpoints == found


@pytest.mark.parametrize("most", [0, -1, 33])
def test_more_responses_than_were_recorded_are_refused(most: int) -> None:
    with pytest.raises(UsageError, match="from 1 to 32"):
        choose_schedule(Schedule((4, 32)), None, most=most, recorded=32)
