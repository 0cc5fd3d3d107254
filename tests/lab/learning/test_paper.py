from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import Bench, Letters

from aera import Schedule
from aera.errors import ProtocolError, UsageError
from aera.lab import LossLimit, PaperLearner, Truths
from aera.lab.learning.paper import GROUPS, PaperModel, PaperTable, without_group
from aera.paper.features import SCALARS
from aera.policies.gate import Gated
from aera.pools.pool import HeldRecords


@pytest.fixture
def some(bench: Bench, pool_copy: Path) -> HeldRecords:
    """The first questions, and a folder of their own."""
    return replace(bench.records, records=bench.records.records[:20], folder=pool_copy)


@pytest.fixture
def prepared(bench: Bench, some: HeldRecords, letters: Letters) -> PaperTable:
    """They again, with a quick encoder."""
    return PaperLearner(letters).prepare(some, bench.truths)


def test_shuffled_truths_leave_every_bit_of_the_states(
    bench: Bench, some: HeldRecords, prepared: PaperTable, letters: Letters
) -> None:
    answers = [*bench.truths.answers.values()]
    wrong = Truths(dict(zip(bench.truths.answers, answers[1:] + answers[:1], strict=True)))
    for truths in (wrong, None):
        other = PaperLearner(letters).prepare(some, truths)
        assert other.states.scalars.tobytes() == prepared.states.scalars.tobytes()
        assert other.states.centroids.tobytes() == prepared.states.centroids.tobytes()
        for name, values in prepared.trajectories.values.items():
            assert other.trajectories.values[name].tobytes() == values.tobytes()
        assert other.trajectories.grades is not prepared.trajectories.grades


def test_other_utilities_make_other_labels_and_leave_the_evidence(bench: Bench) -> None:
    soft = np.linspace(0.2, 0.5, 240).reshape(60, 4)
    dear = bench.table.graded_by(soft, cost_weight=0.9)
    assert not dear.labels.any()
    assert bench.table.graded_by(soft, cost_weight=0.0).labels[:, :-1].all()
    assert dear.states is bench.table.states


def test_a_shorter_schedule_may_be_studied(
    bench: Bench, some: HeldRecords, letters: Letters
) -> None:
    short = Schedule((1, 2, 8))
    ten = replace(some, records=some.records[:10])
    table = PaperLearner(letters).prepare(ten, bench.truths, schedule=short)
    assert table.schedule == table.trajectories.schedule == short
    assert table.states.scalars.shape == (10, 3, 23)
    np.testing.assert_allclose(table.states.feature("checkpoint_fraction")[0], [1 / 8, 2 / 8, 1])


def test_without_truths_nothing_can_be_learned(bench: Bench) -> None:
    blind = replace(bench.table, trajectories=replace(bench.table.trajectories, grades=None))
    with pytest.raises(ProtocolError, match="no truths") as error:
        _ = blind.labels
    assert "\n" not in str(error.value)


def test_a_model_makes_the_policy_of_every_family_it_measures(
    bench: Bench, fitted: PaperModel
) -> None:
    measured = fitted.values(bench.table, np.arange(40, 60))
    assert next(iter(fitted.families(LossLimit()))) == "aera"
    assert (
        set(fitted.families(LossLimit())) == set(measured.values) == {"aera", *bench.table.families}
    )
    assert fitted.policy(0.3) == Gated(fitted.gate, 0.3)
    for family in fitted.families(LossLimit()).values():
        setting = family.settings[1]
        assert str(fitted.policy(setting, family)) == family.label(setting)


# --- ablations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [g for g in GROUPS if g != "projection"])
def test_a_group_left_out_is_constant_and_the_rest_is_untouched(group: str, bench: Bench) -> None:
    before, after = bench.table.states, without_group(bench.table, group).states
    for place, feature in enumerate(SCALARS):
        values = after.scalars[:, :, place]
        if feature.group == group:
            assert not values.any(), feature.name
        else:
            np.testing.assert_array_equal(values, before.scalars[:, :, place])
    np.testing.assert_array_equal(after.centroids, before.centroids)


def test_without_the_projection_its_32_features_are_zero(bench: Bench) -> None:
    states = without_group(bench.table, "projection").states
    evidence = states.evidence(states.project(np.arange(40)))
    assert not evidence[:, :, 23:].any()
    np.testing.assert_array_equal(states.scalars, bench.table.states.scalars)


def test_a_group_that_does_not_exist_is_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match="semantic state"):
        without_group(bench.table, "semantics")
