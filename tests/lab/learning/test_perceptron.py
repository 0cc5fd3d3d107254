from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small_study import Bench

from aera.arrays import Floats
from aera.lab import PaperLearner
from aera.lab.learning import perceptron
from aera.lab.learning.fit import statistics
from aera.lab.learning.perceptron import Examples, Perceptron
from aera.lab.learning.states import States
from aera.network import Network, sigmoid

QUICK = Perceptron(epochs=8)
FIT, HELD = np.arange(40), np.arange(40, 60)


def examples(count: int = 200, *, inputs: int = 6, seed: int = 0) -> Examples:
    """Rows whose first column decides; one in twenty values is missing."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, inputs))
    targets = (rows[:, 0] + 0.3 * rng.normal(size=count) > 0.8).astype(np.float64)
    return np.where(rng.random(rows.shape) < 0.05, np.nan, rows), targets


def fit_network(
    train: Examples, held: Examples, *, seed: int, settings: Perceptron = QUICK
) -> tuple[Network, int, float]:
    return perceptron.fit_network(train, held, outputs=1, settings=settings, seed=seed)


def same(one: Network, other: Network) -> bool:
    pairs = zip(one.tensors().values(), other.tensors().values(), strict=True)
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


# --- the same again -------------------------------------------------------------------------------


def test_a_seed_gives_the_same_bits_twice_and_another_seed_others() -> None:
    train, held = examples(), examples(80, seed=1)
    first, again, other = (fit_network(train, held, seed=s)[0] for s in (3, 3, 4))
    assert same(first, again)
    assert not same(first, other)


def test_a_fit_leaves_the_callers_random_numbers_and_threads_alone() -> None:
    torch.manual_seed(11)
    wanted, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(11)
    fit_network(examples(), examples(80, seed=1), seed=3)
    assert torch.equal(torch.rand(3), wanted)
    assert torch.get_num_threads() == threads


# --- what is learned from what --------------------------------------------------------------------


def test_the_numpy_network_is_the_torch_model_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[Any] = []
    freeze = perceptron.extract_network

    def watched(torch: Any, model: Any, *known: Any, **more: Any) -> Network:
        models.append(model)
        return freeze(torch, model, *known, **more)

    monkeypatch.setattr(perceptron, "extract_network", watched)
    train, held = examples(), examples(80, seed=1)
    network, *_ = fit_network(train, held, seed=0)
    rows = np.where(np.isnan(held[0]), network.medians, held[0])
    with torch.no_grad():
        standard = torch.from_numpy((rows - network.means) / network.deviations)
        wanted = models[0].double().eval()(standard).numpy()
    np.testing.assert_allclose(network.outputs(held[0]), wanted, atol=1e-6)


def test_statistics_come_from_the_training_rows_only() -> None:
    train, held = examples(), examples(80, seed=1)
    network, *_ = fit_network(train, held, seed=0)
    moved = (held[0] * 100 + 50, held[1])
    other, *_ = fit_network(train, moved, seed=0)
    filled = np.where(np.isnan(train[0]), np.nanmedian(train[0], axis=0), train[0])
    np.testing.assert_array_equal(network.medians, np.nanmedian(train[0], axis=0))
    np.testing.assert_allclose(network.means, filled.mean(axis=0))
    np.testing.assert_allclose(network.deviations, filled.std(axis=0))
    for name in ("medians", "means", "deviations"):
        np.testing.assert_array_equal(getattr(network, name), getattr(other, name))


def test_held_out_rows_decide_the_duration_and_nothing_else() -> None:
    train, once = examples(), Perceptron(epochs=1)
    one, *_ = fit_network(train, examples(80, seed=1), settings=once, seed=0)
    other, *_ = fit_network(train, examples(30, seed=9), settings=once, seed=0)
    assert same(one, other)


def test_both_classes_weigh_the_same_by_their_share_in_training() -> None:
    train, held = examples(), examples(80, seed=1)
    network, _, loss = fit_network(train, held, seed=0)
    share = train[1].mean()
    assert share != held[1].mean()
    chance = sigmoid(network.outputs(held[0]))[:, 0]
    right = held[1] * np.log(chance) / share
    wrong = (1 - held[1]) * np.log(1 - chance) / (1 - share)
    assert loss == pytest.approx(-0.5 * float((right + wrong).mean()), abs=1e-5)


def test_a_gate_is_fitted_on_its_own_questions_and_never_on_the_last_checkpoint(
    bench: Bench, quick: PaperLearner
) -> None:
    table, rows, held = bench.table, np.arange(30), np.arange(30, 45)
    spoiled = [table.states.scalars.copy(), table.states.centroids.copy()]
    for values in spoiled:
        values[45:] = 1e3
    spoiled[0][:, -1] = 1e3
    wild = table.labels.copy()
    wild[45:], wild[:, -1] = True, True
    turned = replace(table, states=States(*spoiled))
    vars(turned)["labels"] = wild  # in the place of those that would be made
    with_all, without = (quick.fit(each, rows, held=held, seed=0) for each in (table, turned))
    assert same(with_all.gate.network, without.gate.network)


def test_one_shot_learns_from_the_first_checkpoint_only(bench: Bench) -> None:
    learner, table = PaperLearner(perceptron=QUICK, one_shot=True), bench.table
    later = table.states.scalars.copy()
    later[:, 1:] = 1e3
    turned = replace(table, states=States(later, table.states.centroids))
    one, other = (learner.fit(each, FIT, held=HELD, seed=0).one_shot for each in (table, turned))
    assert one is not None
    assert other is not None
    assert same(one.network, other.network)
    assert one.network.weight.shape == (4, 32)


def test_a_one_shot_head_beside_it_leaves_the_gate_as_it_is(
    bench: Bench, quick: PaperLearner
) -> None:
    alone, beside = (
        replace(quick, one_shot=asked).fit(bench.table, FIT, held=HELD, seed=0)
        for asked in (False, True)
    )
    assert alone.one_shot is None
    assert alone.gate.identity == beside.gate.identity


def test_the_network_has_the_papers_shape(bench: Bench, quick: PaperLearner) -> None:
    gate = quick.fit(bench.table, FIT, held=HELD, seed=0).gate
    shapes = [layer.weight.shape for layer in gate.network.layers]
    assert shapes == [(64, 55), (32, 64)]
    assert gate.network.weight.shape == (1, 32)
    assert PaperLearner().perceptron.dropout == 0.1


# --- it learns, and it ends -----------------------------------------------------------------------


def test_it_learns_what_can_be_learned() -> None:
    longer, test = Perceptron(epochs=60), examples(500, seed=2)
    network, *_ = fit_network(examples(600), examples(200, seed=1), settings=longer, seed=0)
    chance = sigmoid(network.outputs(test[0]))[:, 0]
    order = np.argsort(chance)
    top = test[1][order[-100:]].mean()
    assert top > 0.6
    assert test[1][order[:300]].mean() < 0.05


def test_it_ends_once_the_held_out_loss_no_longer_falls() -> None:
    impatient = Perceptron(epochs=200, patience=3)
    noise = (examples()[0], np.random.default_rng(0).permutation(examples()[1]))
    _, epoch, loss = fit_network(noise, examples(80, seed=1), settings=impatient, seed=0)
    assert 1 <= epoch < 100
    assert np.isfinite(loss)


# --- odd data -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [0.0, 1.0])
@pytest.mark.parametrize("both", [True, False])
def test_labels_of_one_class_do_not_break_the_fit(target: float, both: bool) -> None:
    train, held = examples(), examples(40, seed=1)
    alike = [(rows, np.full(len(targets), target)) for rows, targets in (train, held)]
    network, _, loss = fit_network(alike[0], alike[1] if both else held, seed=0)
    assert np.isfinite(network.outputs(held[0])).all()
    assert np.isfinite(loss)


def test_a_feature_that_is_always_missing_or_constant_is_harmless() -> None:
    rows: Floats = examples()[0].copy()
    rows[:, 1], rows[:, 2] = np.nan, 4.0
    medians, means, deviations = statistics(rows)
    assert (medians[1], means[1], deviations[1]) == (0, 0, 1)
    assert (medians[2], means[2], deviations[2]) == (4, 4, 1)
