"""A pool read part by part, by whomever, gives what its records in memory give."""

from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from foreign_questions import BUNDLED
from lab_fixtures import Letters

import aera
from aera import ASC, ESC, Fixed, Pool
from aera.lab import LossLimit, PaperLearner, Truths, VoteLearner, crossfit, evaluate, nested
from aera.lab.learning.paper import RecordedEncoder
from aera.lab.report.page import page_content
from aera.pools.pool import Records, hold
from aera.workers import SERIAL, Processes, Workers

WORKERS = [SERIAL, Processes(2)]


@pytest.fixture
def pool(parted: Pool, tmp_path: Path) -> Pool:
    """Thirty questions in three segments, in a folder of their own."""
    made = Pool.open(Path(copytree(parted.path, tmp_path / "pool")))
    assert len(made.segments) == 3
    return made


@pytest.fixture
def truths(pool: Pool) -> Truths | None:
    return Truths.open(pool.path)


@pytest.mark.parametrize("workers", WORKERS)
def test_votes_and_replay(pool: Pool, truths: Any, workers: Workers) -> None:
    held = hold(pool)
    assert list(held) == [record.read(pool.task) for record in pool]
    policies = [Fixed(4), ASC(0.95), ESC(5)]
    alone = evaluate(held, policies, truths=truths)
    for records in (pool, held):
        found = evaluate(records, policies, truths=truths, workers=workers)
        assert [p.as_json() for p in found.points] == [p.as_json() for p in alone.points]
        assert found.trajectories.question_ids == alone.trajectories.question_ids


@pytest.mark.parametrize("workers", WORKERS)
def test_embeddings_evidence_and_fits(
    pool: Pool, truths: Any, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = PaperLearner(Letters())
    alone = learner.prepare(hold(pool), truths)
    for file in pool.path.glob("embeddings-*"):
        file.unlink()
    found = learner.prepare(pool, truths, workers=workers)
    np.testing.assert_array_equal(found.states.scalars, alone.states.scalars)
    np.testing.assert_array_equal(found.states.centroids, alone.states.centroids)
    for name in alone.families:
        one, other = (each.trajectories.values[name] for each in (found, alone))
        np.testing.assert_array_equal(one, other)
    assert len([*pool.path.glob("embeddings-*.npy")]) == 3
    one, other = (crossfit(learner, found, folds=2, workers=each) for each in (workers, SERIAL))
    np.testing.assert_array_equal(one.p_continue, other.p_continue)
    monkeypatch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 320)  # of which the pool was made
    again = Letters()
    for part in hold(pool).parts():
        RecordedEncoder(part, again, pool.folder)
    PaperLearner(again).prepare(hold(pool), truths)
    assert again.asked == [], "memory and disk share the same embeddings"


@pytest.mark.parametrize("workers", WORKERS)
def test_traits_and_vote_features(pool: Pool, truths: Any, workers: Workers) -> None:
    alone = VoteLearner().prepare(hold(pool), truths)
    found = VoteLearner().prepare(pool, truths, workers=workers)
    np.testing.assert_array_equal(found.traits, alone.traits)
    np.testing.assert_array_equal(found.grades, alone.grades)
    pairs, rows = ((alone, SERIAL), (found, workers)), np.arange(20)
    ours, theirs = found.replay(rows), alone.replay(rows)
    np.testing.assert_array_equal(*map(np.asarray, (ours.features, theirs.features)))
    texts = {response.text for record in found.records for response in record.responses}
    assert texts == {""}, "texts are not kept"
    judged = [nested(VoteLearner(), data, [LossLimit(0.1)], workers=each) for data, each in pairs]
    one, two = ([point.as_json() for point in each.points()] for [each] in judged)
    assert one == two


@pytest.mark.parametrize("workers", [1, 2])
def test_a_report_of_a_weighing_controller(pool: Pool, workers: int) -> None:
    known: Any = {"schedule": pool.schedule, "controller": BUNDLED}

    def told(records: Records, workers: int) -> dict[str, Any]:
        plain = [ASC(0.9), Fixed(4)]
        return page_content(aera.evaluate(records, plain, **known, workers=workers))

    alone, spread = told(hold(pool), 1), told(pool, workers)
    assert {**spread, "pool": None} == {**alone, "pool": None}
    own = alone["points"][0]
    assert own["policy"] == BUNDLED.label
    assert own["reasons"][0].startswith("p_continue below 0.")
    first = alone["questions"][0]
    assert first["weights"][0][0] % 1 != 0, "the votes are the weighted ones"
    assert first["p_continue"][0] is not None
