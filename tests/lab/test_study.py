from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import Bench, Letters

from aera import Pool, Schedule
from aera.errors import ProtocolError
from aera.lab import Truths, evaluate
from aera.lab.labels import continuation_labels
from aera.lab.study import Study, open_study


@pytest.fixture
def reopened(bench: Bench, pool_copy: Path, letters: Letters) -> Study:
    """The first questions again, with a quick encoder."""
    pool = Pool.open(pool_copy)
    return open_study(pool, bench.truths, ballots=bench.ballots[:20], encoder=letters)


def test_shuffled_truths_leave_every_bit_of_the_states(
    bench: Bench, pool_copy: Path, reopened: Study
) -> None:
    answers = [*bench.truths.answers.values()]
    wrong = Truths(dict(zip(bench.truths.answers, answers[1:] + answers[:1], strict=True)))
    for truths in (wrong, None):
        other = open_study(
            Pool.open(pool_copy), truths, ballots=bench.ballots[:20], encoder=reopened.encoder
        )
        assert other.states.scalars.tobytes() == reopened.states.scalars.tobytes()
        assert other.states.centroids.tobytes() == reopened.states.centroids.tobytes()
        for name, values in reopened.values.items():
            assert other.values[name].tobytes() == values.tobytes()
        assert other.trajectories.grades is not reopened.trajectories.grades


def test_rows_are_the_questions_of_the_pool_in_order(bench: Bench) -> None:
    study = bench.study
    assert [*study.trajectories.question_ids] == [*bench.pool.questions]
    assert len(study) == 60
    assert study.states.scalars.shape == (60, 4, 23)
    assert {values.shape for values in study.values.values()} == {(60, 4)}


def test_grades_and_costs_are_those_of_a_plain_replay(bench: Bench) -> None:
    pool = bench.pool
    plain = evaluate(
        bench.ballots, (), task=pool.task, schedule=pool.schedule, truths=bench.truths
    ).trajectories
    np.testing.assert_array_equal(bench.study.grades, plain.grades)
    np.testing.assert_array_equal(bench.study.trajectories.tokens, plain.tokens)


def test_a_sweep_is_what_replaying_the_policies_gives(bench: Bench) -> None:
    pool, dial = bench.pool, bench.study.dials["majority"]
    assert dial.make is not None
    policies = [dial.make(setting) for setting in dial.settings]
    replayed = evaluate(
        bench.ballots, policies, task=pool.task, schedule=pool.schedule, truths=bench.truths
    )
    for point, wanted in zip(bench.study.sweep("majority"), replayed.points, strict=False):
        assert (point.policy, point.accuracy) == (wanted.policy, wanted.accuracy)
        np.testing.assert_array_equal(point.columns, wanted.columns)


def test_labels_are_made_from_grades_and_tokens(bench: Bench) -> None:
    study = bench.study
    wanted = continuation_labels(study.grades, study.trajectories.tokens, cost_weight=0.1)
    np.testing.assert_array_equal(study.labels, wanted)
    assert study.labels.any()


def test_other_utilities_make_other_labels_and_leave_the_evidence(bench: Bench) -> None:
    soft = np.linspace(0.2, 0.5, 240).reshape(60, 4)
    dear = bench.study.graded_by(soft, cost_weight=0.9)
    assert not dear.labels.any()
    assert bench.study.graded_by(soft, cost_weight=0.0).labels[:, :-1].all()
    assert dear.states is bench.study.states


def test_a_shorter_schedule_may_be_studied(bench: Bench, pool_copy: Path, letters: Letters) -> None:
    short = Schedule((1, 2, 8))
    study = open_study(
        Pool.open(pool_copy),
        bench.truths,
        ballots=bench.ballots[:10],
        encoder=letters,
        schedule=short,
    )
    assert study.trajectories.schedule == short
    assert study.states.scalars.shape == (10, 3, 23)
    np.testing.assert_allclose(study.states.named("checkpoint_fraction")[0], [1 / 8, 2 / 8, 1])


def test_without_truths_nothing_can_be_learned(bench: Bench) -> None:
    blind = replace(bench.study, trajectories=replace(bench.study.trajectories, grades=None))
    with pytest.raises(ProtocolError, match="has no truths") as error:
        _ = blind.labels
    assert "\n" not in str(error.value)
