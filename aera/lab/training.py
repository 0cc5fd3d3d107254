"""Fit the paper's gate. The only place where torch is imported, and only inside a fit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aera.embedding import Encoder
from aera.errors import UsageError
from aera.gate import Layer, Network, PaperGate
from aera.lab.states import States
from aera.lab.trajectory import Columns, Floats

HIDDEN = (64, 32)
DROPOUT = 0.1
RATE = 1e-3
DECAY = 1e-4
EPOCHS = 300
PATIENCE = 25
BATCH = 256


@dataclass(frozen=True, eq=False)
class Examples:
    """Evidence rows with their targets: 0/1 for the gate, a column for one-shot allocation."""

    evidence: Floats
    targets: Floats


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted gate and how the fit went."""

    gate: PaperGate
    epochs: int
    loss: float
    """Loss on the questions that decided when to end."""


def fit_gate(
    states: States, labels: Floats, *, fit: Columns, stop: Columns, encoder: Encoder, seed: int
) -> Fit:
    """Fit on the `fit` questions, end when the loss on the `stop` questions no longer falls.

    The last checkpoint is no decision, so it is no example.
    """
    projection = states.project(fit)
    evidence = states.evidence(projection)[:, :-1]

    def examples(rows: Columns) -> Examples:
        flat = evidence[rows].reshape(-1, evidence.shape[2])
        return Examples(flat, labels[rows][:, :-1].reshape(-1).astype(np.float64))

    network, epochs, loss = fit_network(examples(fit), examples(stop), outputs=1, seed=seed)
    return Fit(PaperGate(network, projection, encoder), epochs, loss)


def fit_one_shot(
    states: States, targets: Columns, *, fit: Columns, stop: Columns, encoder: Encoder, seed: int
) -> Fit:
    """Fit the six-class head on the first checkpoint's evidence."""
    projection = states.project(fit)
    evidence = states.evidence(projection)[:, 0]
    train = Examples(evidence[fit], targets[fit].astype(np.float64))
    held = Examples(evidence[stop], targets[stop].astype(np.float64))
    outputs = states.scalars.shape[1]
    network, epochs, loss = fit_network(train, held, outputs=outputs, seed=seed)
    return Fit(PaperGate(network, projection, encoder), epochs, loss)


def fit_network(
    train: Examples, held: Examples, *, outputs: int, seed: int
) -> tuple[Network, int, float]:
    """Train the perceptron; returns it with the epoch it is from and its held-out loss."""
    torch = _torch()
    medians, means, deviations = statistics(train.evidence)

    def tensor(evidence: Floats) -> Any:
        filled = np.where(np.isnan(evidence), medians, evidence)
        return torch.tensor((filled - means) / deviations, dtype=torch.float32)

    with torch_alone(seed):
        model = perceptron(torch, train.evidence.shape[1], outputs, hidden=HIDDEN, dropout=DROPOUT)
        loss = _loss(torch, train.targets, outputs)
        data = (tensor(train.evidence), _targets(torch, train.targets, outputs))
        test = (tensor(held.evidence), _targets(torch, held.targets, outputs))
        epoch, best = _descend(torch, model, loss, data=data, test=test)
    network = trained_network(model, medians, means=means, deviations=deviations)
    known = np.where(np.isnan(train.evidence), medians, train.evidence)
    return replace(network, lows=known.min(axis=0), highs=known.max(axis=0)), epoch, best


def statistics(evidence: Floats) -> tuple[Floats, Floats, Floats]:
    """Medians, then means and deviations after imputation, of the training partition."""
    known = ~np.isnan(evidence).all(axis=0)
    medians: Floats = np.zeros(evidence.shape[1])
    medians[known] = np.nanmedian(evidence[:, known], axis=0)
    filled = np.where(np.isnan(evidence), medians, evidence)
    deviations = filled.std(axis=0)
    return medians, filled.mean(axis=0), np.where(deviations > 1e-12, deviations, 1.0)


@contextmanager
def torch_alone(seed: int) -> Iterator[Any]:
    """Torch with its own chance and one thread: the order of additions must not vary."""
    torch = _torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield torch
    finally:
        torch.set_num_threads(threads)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError(
            'training needs torch; install it with pip install "aera[train]"'
        ) from None
    return torch


def perceptron(
    torch: Any, inputs: int, outputs: int, *, hidden: tuple[int, int], dropout: float
) -> Any:
    """Two blocks of Linear, LayerNorm, GELU and dropout, and a linear end."""
    parts, width = [], inputs
    for wide in hidden:
        parts += [torch.nn.Linear(width, wide), torch.nn.LayerNorm(wide), torch.nn.GELU()]
        parts.append(torch.nn.Dropout(dropout))
        width = wide
    return torch.nn.Sequential(*parts, torch.nn.Linear(width, outputs))


def _targets(torch: Any, targets: Floats, outputs: int) -> Any:
    if outputs == 1:
        return torch.tensor(targets[:, None], dtype=torch.float32)
    return torch.tensor(targets, dtype=torch.long)


def _loss(torch: Any, targets: Floats, outputs: int) -> Any:
    """Cross-entropy; for the gate each class weighs as if both were equally frequent."""
    if outputs > 1:
        return torch.nn.CrossEntropyLoss()
    share = min(max(float(targets.mean()), 1e-6), 1 - 1e-6)

    def weighted(logits: Any, wanted: Any) -> Any:
        weights = wanted * (0.5 / share) + (1 - wanted) * (0.5 / (1 - share))
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, weights)

    return weighted


def _descend(torch: Any, model: Any, loss: Any, *, data: Any, test: Any) -> tuple[int, float]:
    """Adam until the held-out loss has not fallen for a while; leaves the best weights in place."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=DECAY)
    best, best_epoch, kept = float("inf"), 0, None
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for rows in torch.randperm(len(data[0])).split(BATCH):
            optimizer.zero_grad()
            loss(model(data[0][rows]), data[1][rows]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            held = float(loss(model(test[0]), test[1]))
        if held < best - 1e-6:
            best, best_epoch = held, epoch
            kept = {name: value.clone() for name, value in model.state_dict().items()}
        elif epoch - best_epoch >= PATIENCE:
            break
    if kept is not None:
        model.load_state_dict(kept)
    return best_epoch, best


def trained_network(model: Any, medians: Floats, *, means: Floats, deviations: Floats) -> Network:
    """The trained weights as numpy arrays."""
    linear = [m for m in model if m.__class__.__name__ == "Linear"]
    norms = [m for m in model if m.__class__.__name__ == "LayerNorm"]

    def array(parameter: Any) -> Floats:
        values: Floats = parameter.detach().numpy().astype(np.float64)
        return values

    layers = [
        Layer(array(a.weight), array(a.bias), array(n.weight), array(n.bias))
        for a, n in zip(linear, norms, strict=False)
    ]
    last = linear[-1]
    outputs = (array(last.weight), array(last.bias))
    return Network(medians, means, deviations, tuple(layers), *outputs)
