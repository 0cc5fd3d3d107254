from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import Bench, Letters

from aera.lab import PaperLearner
from aera.lab.learning.states import RecordedEncoder, States
from aera.paper.features import characterize
from aera.pools.pool import Pool, VotedRecord


def embeddings(pool: Pool) -> list[Path]:
    return sorted(pool.path.glob("embeddings-letters*"))


@pytest.fixture
def pool(pool_copy: Path) -> Pool:
    return Pool.open(pool_copy)


def texts_of(bench: Bench) -> list[str]:
    return [response.text for record in bench.records for response in record.responses]


def embedded(pool: Pool, records: Iterable[VotedRecord], letters: Letters) -> RecordedEncoder:
    return RecordedEncoder(records, letters, pool.path)


# --- embeddings beside the pool -------------------------------------------------------------------


def test_every_response_is_embedded_once_for_all_studies_of_a_pool(
    bench: Bench, pool: Pool, letters: Letters
) -> None:
    records = replace(bench.records, folder=pool.path)
    for _ in range(2):
        PaperLearner(letters).prepare(records, bench.truths)
    assert letters.asked == texts_of(bench)


def test_recorded_vectors_are_those_of_the_encoder_and_kept_for_the_next_study(
    bench: Bench, pool: Pool, letters: Letters
) -> None:
    texts = texts_of(bench)[100:160]
    for _ in range(2):
        recorded = embedded(pool, bench.records, letters)
        np.testing.assert_array_equal(recorded.encode(texts), Letters().encode(texts))
        assert (recorded.identity, recorded.dimensions) == ("letters", 8)
    assert letters.asked == texts_of(bench)


def test_other_questions_of_the_same_pool_do_not_get_each_others_vectors(
    bench: Bench, pool: Pool, letters: Letters
) -> None:
    embedded(pool, bench.records.records[:20], letters)
    other = embedded(pool, bench.records.records[20:40], letters)
    texts = [r.text for r in bench.records.records[20].responses]
    np.testing.assert_array_equal(other.encode(texts), Letters().encode(texts))


def test_a_text_nobody_recorded_goes_to_the_encoder(
    bench: Bench, pool: Pool, letters: Letters
) -> None:
    recorded = embedded(pool, bench.records.records[:1], letters)
    asked = [texts_of(bench)[0], "e"]
    np.testing.assert_array_equal(recorded.encode(asked), Letters().encode(asked))
    assert letters.asked[-2:] == asked


@pytest.mark.parametrize("content", [b"", b"junk", b"\x93NUMPY"])
def test_damaged_embeddings_are_made_again(
    content: bytes, bench: Bench, pool: Pool, letters: Letters
) -> None:
    embedded(pool, bench.records.records[:3], letters)
    embeddings(pool)[0].write_bytes(content)
    letters.asked.clear()
    embedded(pool, bench.records.records[:3], letters)
    assert len(letters.asked) == 3 * 32


def test_a_pool_that_cannot_be_written_to_is_no_obstacle(
    bench: Bench, pool: Pool, letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(np, "save", refuse)
    assert embedded(pool, bench.records.records[:2], letters).encode(["a"]).shape == (1, 8)
    assert embeddings(pool) == []


# --- evidence in bulk -----------------------------------------------------------------------------


def test_bulk_evidence_is_the_live_evidence(bench: Bench) -> None:
    states, encoder = bench.table.states, PaperLearner().encoder
    projection = states.project(np.arange(30))
    evidence = states.evidence(projection)
    for row in (0, 17, 59):
        prefixes = bench.records.records[row].prefixes(bench.pool.schedule)
        live = [characterize(p, encoder, projection=projection) for p in prefixes]
        np.testing.assert_allclose(evidence[row], live, atol=1e-9)


def test_the_projection_is_learned_from_the_given_questions_only(bench: Bench) -> None:
    states, rows = bench.table.states, np.arange(30)
    changed = states.centroids.copy()
    changed[30:] = 7.0
    before, after = states.project(rows), States(states.scalars, changed).project(rows)
    np.testing.assert_array_equal(before.components, after.components)
    np.testing.assert_array_equal(before.mean, after.mean)


def test_the_projection_keeps_the_32_widest_orthogonal_directions(bench: Bench) -> None:
    states, rows = bench.table.states, np.arange(60)
    projection = states.project(rows)
    coordinates = projection.apply(states.centroids.reshape(-1, states.centroids.shape[2]))
    np.testing.assert_allclose(
        projection.components @ projection.components.T, np.eye(32), atol=1e-9
    )
    variances = coordinates.var(axis=0)
    assert (np.diff(variances) <= 1e-12).all()
    assert np.corrcoef(coordinates[:, :5].T) == pytest.approx(np.eye(5), abs=1e-6)


def test_fewer_centroids_than_directions_still_give_55_features() -> None:
    states = States(np.zeros((2, 1, 23)), np.random.default_rng(0).normal(size=(2, 1, 40)))
    evidence = states.evidence(states.project(np.arange(2)))
    assert evidence.shape == (2, 1, 55)
    np.testing.assert_allclose(evidence[:, :, 23 + 1 :], 0, atol=1e-9)
    assert np.abs(evidence[:, :, 23]).min() > 1


def test_questions_without_a_text_do_not_spoil_the_projection() -> None:
    centroids = np.random.default_rng(0).normal(size=(3, 2, 40))
    centroids[1] = np.nan
    states = States(np.zeros((3, 2, 23)), centroids)
    evidence = states.evidence(states.project(np.arange(3)))
    assert np.isfinite(evidence[[0, 2]]).all()
    assert np.isnan(evidence[1, :, 23:]).all()
    silent = States(states.scalars, np.full((3, 2, 40), np.nan))
    assert not silent.project(np.arange(3)).components.any()
