"""Fit small multilayer perceptrons. The only place where torch is imported, and only in a fit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aera.arrays import Floats
from aera.errors import UsageError
from aera.lab.learning.fit import statistics
from aera.network import Layer, Network


@dataclass(frozen=True)
class Perceptron:
    """Hyper-parameters of a network and its fit; by default the paper's."""

    hidden: tuple[int, int] = (64, 32)
    dropout: float = 0.1
    rate: float = 1e-3
    decay: float = 1e-4
    epochs: int = 300
    patience: int = 25
    """Epochs without a lower held-out loss after which a fit ends."""
    batch: int = 256


Examples = tuple[Floats, Floats]
"""Evidence rows with their targets: 0/1 for the gate, a column for one-shot allocation."""


def fit_network(
    train: Examples, held: Examples, *, outputs: int, settings: Perceptron, seed: int
) -> tuple[Network, int, float]:
    """Train a perceptron; returns it with the epoch it is from and its held-out loss."""
    torch = _torch()
    medians, means, deviations = statistics(train[0])

    def tensors(examples: Examples) -> tuple[Any, Any]:
        evidence, targets = examples
        filled = np.where(np.isnan(evidence), medians, evidence)
        scaled = torch.tensor((filled - means) / deviations, dtype=torch.float32)
        if outputs == 1:
            return scaled, torch.tensor(targets[:, None], dtype=torch.float32)
        return scaled, torch.tensor(targets, dtype=torch.long)

    with _alone(torch, seed):
        model = _perceptron(torch, train[0].shape[1], outputs, settings)
        loss = _loss(torch, train[1], outputs)
        epoch, best = _descend(torch, model, loss, tensors(train), tensors(held), settings)
    known = np.where(np.isnan(train[0]), medians, train[0])
    network = extract_network(torch, model, medians, means=means, deviations=deviations)
    return replace(network, lows=known.min(axis=0), highs=known.max(axis=0)), epoch, best


@contextmanager
def _alone(torch: Any, seed: int) -> Iterator[None]:
    """Torch with its own chance and one thread: the order of additions must not vary."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError(
            'the paper\'s gate needs torch; install it with pip install "aera[paper]"'
        ) from None
    return torch


def _perceptron(torch: Any, inputs: int, outputs: int, settings: Perceptron) -> Any:
    """Two blocks of Linear, LayerNorm, GELU and dropout, and a linear end."""
    parts, width = [], inputs
    for wide in settings.hidden:
        parts += [torch.nn.Linear(width, wide), torch.nn.LayerNorm(wide), torch.nn.GELU()]
        parts.append(torch.nn.Dropout(settings.dropout))
        width = wide
    return torch.nn.Sequential(*parts, torch.nn.Linear(width, outputs))


def _loss(torch: Any, targets: Floats, outputs: int) -> Any:
    """Cross-entropy; for the gate each class weighs as if both were equally frequent."""
    if outputs > 1:
        return torch.nn.CrossEntropyLoss()
    share = min(max(float(targets.mean()), 1e-6), 1 - 1e-6)

    def weighted(logits: Any, wanted: Any) -> Any:
        weights = wanted * (0.5 / share) + (1 - wanted) * (0.5 / (1 - share))
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, weights)

    return weighted


def _descend(
    torch: Any, model: Any, loss: Any, data: Any, test: Any, settings: Perceptron
) -> tuple[int, float]:
    """Adam until the held-out loss has not fallen for a while; leaves the best weights in place."""
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.rate, weight_decay=settings.decay)
    best, best_epoch, kept = float("inf"), 0, None
    for epoch in range(1, settings.epochs + 1):
        model.train()
        for rows in torch.randperm(len(data[0])).split(settings.batch):
            optimizer.zero_grad()
            loss(model(data[0][rows]), data[1][rows]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            held = float(loss(model(test[0]), test[1]))
        if held < best - 1e-6:
            best, best_epoch = held, epoch
            kept = {name: value.clone() for name, value in model.state_dict().items()}
        elif epoch - best_epoch >= settings.patience:
            break
    if kept is not None:
        model.load_state_dict(kept)
    return best_epoch, best


def extract_network(
    torch: Any, model: Any, medians: Floats, *, means: Floats, deviations: Floats
) -> Network:
    """The trained weights as numpy arrays."""
    linear = [part for part in model if isinstance(part, torch.nn.Linear)]
    norms = [part for part in model if isinstance(part, torch.nn.LayerNorm)]

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
