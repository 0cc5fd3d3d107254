"""The paper's learner: its labels, its evidence, its perceptron, and what they make together."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import refusal
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lab_fixtures import Bench, Letters

from aera import Pool, Schedule
from aera.arrays import Floats
from aera.errors import ProtocolError, UsageError
from aera.lab import LossLimit, PaperLearner, Truths, policy_at
from aera.lab.learning import paper
from aera.lab.learning.fit import standardize
from aera.network import Network
from aera.paper.features import SCALARS
from aera.pools.pool import HeldRecords

FIT, HELD = np.arange(40), np.arange(40, 60)


# --- labels ---------------------------------------------------------------------------------------


SHAPE = (4, 5)
BINARY = arrays(np.float64, SHAPE, elements=st.sampled_from([0.0, 1.0]))
GRADED = arrays(np.float64, SHAPE, elements=st.integers(0, 8).map(lambda n: n / 8))
COSTS = arrays(np.float64, SHAPE, elements=st.integers(1, 900)).map(lambda c: c.cumsum(axis=1))
WEIGHT = st.floats(0, 0.999)


def brute_gain(grades: Floats, costs: Floats, weight: float, *, c: int) -> float:
    """Eq. 1 for one question, the best over all later checkpoints."""
    return max(
        grades[t] - grades[c] - weight * (costs[t] - costs[c]) / costs[-1]
        for t in range(c + 1, len(grades))
    )


def recoverable(grades: Floats) -> list[list[bool]]:
    """Wrong now and right later: what the labels are when grades are 0 or 1 (Eq. 3)."""
    return [[row[c] == 0 and row[c + 1 :].any() for c in range(len(row))] for row in grades]


@given(GRADED, COSTS, st.floats(0, 3), st.floats(-0.5, 0.5))
def test_a_label_says_that_some_later_checkpoint_gains_more_than_the_margin(
    grades: Floats, costs: Floats, weight: float, margin: float
) -> None:
    labels = paper.continuation_labels(grades, costs, cost_weight=weight, margin=margin)
    for q in range(4):
        gains = [brute_gain(grades[q], costs[q], weight, c=c) for c in range(4)]
        assume(all(abs(gain - margin) > 1e-9 for gain in gains))
        assert labels[q].tolist() == [*(gain > margin for gain in gains), False]


@given(BINARY, COSTS, WEIGHT)
def test_with_right_and_wrong_only_the_label_is_recoverability_whatever_tokens_cost(
    grades: Floats, costs: Floats, weight: float
) -> None:
    labels = paper.continuation_labels(grades, costs, cost_weight=weight)
    assert labels.tolist() == recoverable(grades)


def test_equal_utilities_are_no_gain_and_free_responses_divide_nothing_by_zero() -> None:
    grades, costs = np.array([[0.3, 0.1 + 0.2, 0.3]]), np.array([[1.0, 2.0, 3.0]])
    assert not paper.continuation_labels(grades, costs, cost_weight=0.0).any()
    labels = paper.continuation_labels(np.array([[0.0, 1.0]]), np.zeros((1, 2)))
    assert labels.tolist() == [[True, False]]


@given(GRADED, COSTS, st.floats(0, 3))
def test_one_shot_aims_at_the_cheapest_checkpoint_of_highest_utility(
    grades: Floats, costs: Floats, weight: float
) -> None:
    targets = paper.one_shot_targets(grades, costs, cost_weight=weight)
    for row, cost, target in zip(grades, costs, targets, strict=True):
        utility = [g - weight * k / cost[-1] for g, k in zip(row, cost, strict=True)]
        best = max(utility)
        assert target == next(i for i, u in enumerate(utility) if u >= best - 1e-12)


# --- embeddings beside the pool -------------------------------------------------------------------


@pytest.fixture
def pool(pool_copy: Path) -> Pool:
    return Pool.open(pool_copy)


def test_every_response_is_embedded_once_for_all_studies_of_a_pool(
    bench: Bench, pool: Pool, letters: Letters
) -> None:
    texts = [response.text for record in bench.records for response in record.responses]
    records = replace(bench.records, folder=pool.path)
    for _ in range(2):
        PaperLearner(letters).prepare(records, bench.truths)
        recorded = paper.RecordedEncoder(bench.records, letters, pool.path)
        np.testing.assert_array_equal(recorded.encode(texts[:60]), Letters().encode(texts[:60]))
        assert (recorded.identity, recorded.dimensions) == ("letters", 8)
    assert letters.asked == texts


def test_other_questions_of_a_pool_and_texts_nobody_recorded_get_vectors_of_their_own(
    bench: Bench, pool: Pool, letters: Letters
) -> None:
    paper.RecordedEncoder(bench.records.records[:20], letters, pool.path)
    other = paper.RecordedEncoder(bench.records.records[20:40], letters, pool.path)
    texts = [response.text for response in bench.records.records[20].responses]
    for asked in (texts, [texts[0], "e"]):
        np.testing.assert_array_equal(other.encode(asked), Letters().encode(asked))
    assert letters.asked[-2:] == [texts[0], "e"]


@pytest.mark.parametrize("content", [b"", b"junk", b"\x93NUMPY"])
def test_damaged_embeddings_are_made_again(
    content: bytes, bench: Bench, pool: Pool, letters: Letters
) -> None:
    paper.RecordedEncoder(bench.records.records[:3], letters, pool.path)
    [file] = pool.path.glob("embeddings-letters*")
    file.write_bytes(content)
    paper.RecordedEncoder(bench.records.records[:3], letters, pool.path)
    assert len(letters.asked) == 2 * 3 * 32


def test_a_pool_that_cannot_be_written_to_is_no_obstacle(
    bench: Bench, pool: Pool, letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(np, "save", refuse)
    recorded = paper.RecordedEncoder(bench.records.records[:2], letters, pool.path)
    assert recorded.encode(["a"]).shape == (1, 8)
    assert not [*pool.path.glob("embeddings-letters*")]


# --- evidence in bulk -----------------------------------------------------------------------------


def test_fewer_centroids_than_directions_still_give_55_features() -> None:
    states = paper.States(np.zeros((2, 1, 23)), np.random.default_rng(0).normal(size=(2, 1, 40)))
    evidence = states.evidence(states.project(np.arange(2)))
    assert evidence.shape == (2, 1, 55)
    np.testing.assert_allclose(evidence[:, :, 23 + 1 :], 0, atol=1e-9)
    assert np.abs(evidence[:, :, 23]).min() > 1


def test_questions_without_a_text_do_not_spoil_the_projection() -> None:
    centroids = np.random.default_rng(0).normal(size=(3, 2, 40))
    centroids[1] = np.nan
    states = paper.States(np.zeros((3, 2, 23)), centroids)
    evidence = states.evidence(states.project(np.arange(3)))
    assert np.isfinite(evidence[[0, 2]]).all()
    assert np.isnan(evidence[1, :, 23:]).all()
    silent = paper.States(states.scalars, np.full((3, 2, 40), np.nan))
    assert not silent.project(np.arange(3)).components.any()


# --- the perceptron -------------------------------------------------------------------------------


def examples(count: int = 200, *, inputs: int = 6, seed: int = 0) -> paper.Examples:
    """Rows whose first column decides; one in twenty values is missing."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, inputs))
    targets = (rows[:, 0] + 0.3 * rng.normal(size=count) > 0.8).astype(np.float64)
    return np.where(rng.random(rows.shape) < 0.05, np.nan, rows), targets


fit_network = partial(paper.fit_network, outputs=1, epochs=8, seed=0)


def same(one: Network, other: Network) -> bool:
    pairs = zip(one.tensors().values(), other.tensors().values(), strict=True)
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


def test_a_fit_leaves_the_callers_random_numbers_and_threads_alone() -> None:
    torch.manual_seed(11)
    wanted, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(11)
    fit_network(examples(), examples(80, seed=1), seed=3)
    assert torch.equal(torch.rand(3), wanted)
    assert torch.get_num_threads() == threads


def test_the_network_has_the_papers_shape(bench: Bench, quick: PaperLearner) -> None:
    network = quick.fit(bench.table, FIT, held=HELD, seed=0).gate.network
    shapes = [each.weight.shape for each in (*network.layers, network)]
    assert shapes == [(64, 55), (32, 64), (1, 32)]


def test_it_ends_once_the_held_out_loss_no_longer_falls() -> None:
    noise = (examples()[0], np.random.default_rng(0).permutation(examples()[1]))
    _, epoch, loss = fit_network(noise, examples(80, seed=1), epochs=200)
    assert 1 <= epoch < 100
    assert np.isfinite(loss)


@pytest.mark.parametrize("target", [0.0, 1.0])
@pytest.mark.parametrize("both", [True, False])
def test_labels_of_one_class_do_not_break_the_fit(target: float, both: bool) -> None:
    train, held = examples(), examples(40, seed=1)
    alike = [(rows, np.full(len(targets), target)) for rows, targets in (train, held)]
    network, _, loss = fit_network(alike[0], alike[1] if both else held)
    assert np.isfinite(network.outputs(held[0])).all()
    assert np.isfinite(loss)


def test_a_feature_that_is_always_missing_or_constant_is_harmless() -> None:
    rows: Floats = examples()[0].copy()
    rows[:, 1], rows[:, 2] = np.nan, 4.0
    _, scale = standardize(rows)
    found = [[scale[name][n] for name in ("medians", "means", "deviations")] for n in (1, 2)]
    assert found == [[0, 0, 1], [4, 4, 1]]


# --- tables and models ----------------------------------------------------------------------------


@pytest.fixture
def some(bench: Bench, pool_copy: Path) -> HeldRecords:
    """The first questions, and a folder of their own."""
    return replace(bench.records, records=bench.records.records[:20], folder=pool_copy)


def test_shuffled_truths_leave_every_bit_of_the_states(
    bench: Bench, some: HeldRecords, letters: Letters
) -> None:
    prepared = PaperLearner(letters).prepare(some, bench.truths)
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


def test_a_short_schedule_may_be_studied(bench: Bench, some: HeldRecords, letters: Letters) -> None:
    short = Schedule((1, 2, 8))
    ten = replace(some, records=some.records[:10])
    table = PaperLearner(letters).prepare(ten, bench.truths, schedule=short)
    assert table.schedule == table.trajectories.schedule == short
    assert table.states.scalars.shape == (10, 3, 23)
    np.testing.assert_allclose(table.states.feature("checkpoint_fraction")[0], [1 / 8, 2 / 8, 1])


def test_without_truths_nothing_can_be_learned(bench: Bench) -> None:
    blind = replace(bench.table, trajectories=replace(bench.table.trajectories, grades=None))
    assert "no truths" in refusal(ProtocolError, lambda: blind.labels)


def test_a_model_makes_the_policy_of_every_family(bench: Bench, fitted: paper.PaperModel) -> None:
    families, seen = fitted.families(LossLimit()), fitted.values(bench.table, np.arange(40, 60))
    assert [*families] == ["aera", *bench.table.families]
    assert set(families) == set(seen.values)
    for family in families.values():
        setting = family.settings[1]
        assert str(policy_at(family, setting, fitted.gate)) == family.label(setting)


# --- ablations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [g for g in paper.GROUPS if g != "projection"])
def test_a_group_left_out_is_constant_and_the_rest_is_untouched(group: str, bench: Bench) -> None:
    before, after = bench.table.states, paper.without_group(bench.table, group).states
    for place, feature in enumerate(SCALARS):
        values = after.scalars[:, :, place]
        if feature.group == group:
            assert not values.any(), feature.name
        else:
            np.testing.assert_array_equal(values, before.scalars[:, :, place])
    np.testing.assert_array_equal(after.centroids, before.centroids)


def test_without_the_projection_its_32_features_are_zero(bench: Bench) -> None:
    states = paper.without_group(bench.table, "projection").states
    evidence = states.evidence(states.project(np.arange(40)))
    assert not evidence[:, :, 23:].any()
    np.testing.assert_array_equal(states.scalars, bench.table.states.scalars)


def test_a_group_that_does_not_exist_is_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match="semantic state"):
        paper.without_group(bench.table, "semantics")
