"""Network: a small frozen multilayer perceptron with its preprocessing, in plain numpy."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import erf, sqrt

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Floats
from aera.errors import TRAIN_AGAIN, ControllerError

LAYER_NORM_EPSILON = 1e-5

PARTS = ("weight", "bias", "scale", "shift")
"""The arrays of a layer."""
_erf = np.frompyfunc(erf, 1, 1)


def gelu(values: Floats) -> Floats:
    """The exact GELU."""
    bell = np.asarray(_erf(values / sqrt(2)), dtype=np.float64)
    curve: Floats = 0.5 * values * (1 + bell)
    return curve


@dataclass(frozen=True, eq=False)
class Layer:
    """Linear, LayerNorm, GELU."""

    weight: Floats
    bias: Floats
    scale: Floats
    shift: Floats

    def apply(self, values: Floats) -> Floats:
        """Rows in, rows out."""
        linear = values @ self.weight.T + self.bias
        centred = linear - linear.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        return gelu(centred / np.sqrt(variance + LAYER_NORM_EPSILON) * self.scale + self.shift)


@dataclass(frozen=True, eq=False)
class Network:
    """Frozen preprocessing and the multilayer perceptron behind it."""

    medians: Floats
    means: Floats
    deviations: Floats
    layers: tuple[Layer, ...]
    """Two in the paper's gate, none in a linear one."""
    weight: Floats
    """Shape (outputs, width): one output for a gate, one per checkpoint for one-shot allocation."""
    bias: Floats
    lows: Floats | None = None
    """Smallest value of each input in training; with `highs`, the range the gate knows."""
    highs: Floats | None = None

    def outputs(self, evidence: Floats) -> Floats:
        """Raw outputs for rows of evidence, missing values replaced by training medians."""
        filled = np.where(np.isnan(evidence), self.medians, evidence)
        values: Floats = (filled - self.means) / self.deviations
        for layer in self.layers:
            values = layer.apply(values)
        raw: Floats = values @ self.weight.T + self.bias
        return raw

    def tensors(self) -> dict[str, Floats]:
        """Every array by name, as the artefact stores them."""
        named = {
            f"layer{number}.{part}": getattr(layer, part)
            for number, layer in enumerate(self.layers)
            for part in PARTS
        }
        own = ("medians", "means", "deviations", "weight", "bias", "lows", "highs")
        known = {name: getattr(self, name) for name in own if getattr(self, name) is not None}
        return {**known, **named}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Floats]) -> "Network":
        """The network that `tensors` describes."""
        depth = sum(name.startswith("layer") and name.endswith(".weight") for name in tensors)
        layers = tuple(
            Layer(*(tensors[f"layer{number}.{part}"] for part in PARTS)) for number in range(depth)
        )
        needed = {
            name: tensors[name] for name in ("medians", "means", "deviations", "weight", "bias")
        }
        return cls(layers=layers, lows=tensors.get("lows"), highs=tensors.get("highs"), **needed)


def check_features(trained: tuple[str, ...], computed: tuple[str, ...]) -> None:
    """Refuse a network that was trained on other inputs than this version computes."""
    if trained != computed:
        wrong = next((name for name in trained if name not in computed), "their order")
        raise ControllerError(
            f"it was trained on other inputs than this version computes ({wrong}); {TRAIN_AGAIN}"
        )


def sigmoid(values: Floats) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)) without overflow."""
    halved: Floats = 0.5 * (1 + np.tanh(0.5 * values))
    return halved
