"""Gate: evidence in, chance that continuing recovers a better answer out. Plain numpy."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import erf, sqrt

import numpy as np
from numpy.typing import NDArray

from aera.embedding import Encoder
from aera.errors import ControllerError
from aera.evidence import NAMES, Floats, Projection, characterize
from aera.policy import Decision, check_share
from aera.response import Prefix

LAYER_NORM_EPSILON = 1e-5
SPARE = 0.1
"""How far beyond its training range an input may go, as a share of that range."""

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
    layers: tuple[Layer, Layer]
    weight: Floats
    """Shape (outputs, 32): one output for the gate, one per checkpoint for one-shot allocation."""
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
            for part in ("weight", "bias", "scale", "shift")
        }
        own = ("medians", "means", "deviations", "weight", "bias", "lows", "highs")
        known = {name: getattr(self, name) for name in own if getattr(self, name) is not None}
        return {**known, **named}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Floats]) -> "Network":
        """The network that `tensors` describes."""
        layers = [
            Layer(
                *(tensors[f"layer{number}.{part}"] for part in ("weight", "bias", "scale", "shift"))
            )
            for number in range(2)
        ]
        return cls(
            tensors["medians"],
            tensors["means"],
            tensors["deviations"],
            (layers[0], layers[1]),
            tensors["weight"],
            tensors["bias"],
            tensors.get("lows"),
            tensors.get("highs"),
        )


@dataclass(frozen=True, eq=False)
class Gate:
    """A trained gate with all it needs: network, projection, encoder, and its inputs in order."""

    network: Network
    projection: Projection
    encoder: Encoder
    features: tuple[str, ...] = NAMES

    def __post_init__(self) -> None:
        if self.features != NAMES:
            wrong = next((n for n in self.features if n not in NAMES), "their order")
            raise ControllerError(
                f"the gate was trained on other inputs than this version computes ({wrong}); "
                "train it again"
            )

    @cached_property
    def identity(self) -> str:
        """Changes whenever the output may change."""
        digest = hashlib.sha256(self.encoder.identity.encode())
        arrays = [
            *self.network.tensors().values(),
            self.projection.mean,
            self.projection.components,
        ]
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def strays(self, prefix: Prefix) -> tuple[str, ...]:
        """The inputs that lie outside the range seen in training, with a tenth of it to spare."""
        lows, highs = self.network.lows, self.network.highs
        if lows is None or highs is None or prefix.next_checkpoint is None:
            return ()  # nothing is decided at the full budget, so nothing was learned there
        evidence = characterize(prefix, self.encoder, projection=self.projection)
        margin = SPARE * (highs - lows) + 1e-9
        outside = (evidence < lows - margin) | (evidence > highs + margin)
        return tuple(name for name, out in zip(self.features, outside, strict=True) if out)

    def p_continue(self, prefix: Prefix) -> float:
        """The estimated chance that continuing recovers a better answer."""
        key = f"gate {self.identity}"
        known = prefix.memo.get(key)
        if not isinstance(known, float):
            evidence = characterize(prefix, self.encoder, projection=self.projection)
            known = float(sigmoid(self.network.outputs(evidence[None]))[0, 0])
            prefix.memo[key] = known
        return known


def sigmoid(values: Floats) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)) without overflow."""
    halved: Floats = 0.5 * (1 + np.tanh(0.5 * values))
    return halved


@dataclass(frozen=True)
class Gated:
    """The paper's policy: continue while the gate's chance is at least the threshold."""

    gate: Gate
    threshold: float

    def __post_init__(self) -> None:
        check_share("aera", self.threshold)

    def decide(self, prefix: Prefix) -> Decision:
        chance = self.gate.p_continue(prefix)
        if chance < self.threshold:
            return Decision(True, "little left to gain", chance)
        return Decision(False, "continuing may pay", chance)

    def __str__(self) -> str:
        return f"aera-{self.threshold:.2f}"


OUTSIDE = "evidence outside the training range"


@dataclass(frozen=True)
class Guarded:
    """A gate's policy that does not trust the gate where it has never been: it continues."""

    policy: Gated

    def decide(self, prefix: Prefix) -> Decision:
        decision = self.policy.decide(prefix)
        if decision.stop and self.policy.gate.strays(prefix):
            return Decision(False, OUTSIDE, decision.p_continue)
        return decision

    def __str__(self) -> str:
        return str(self.policy)


@dataclass(frozen=True)
class OneShot:
    """Predict the final checkpoint once, from the first prefix, and never look again."""

    gate: Gate

    def decide(self, prefix: Prefix) -> Decision:
        first = prefix
        while first.previous is not None:
            first = first.previous
        evidence = characterize(first, self.gate.encoder, projection=self.gate.projection)
        column = int(self.gate.network.outputs(evidence[None])[0].argmax())
        goal = prefix.schedule.checkpoints[min(column, len(prefix.schedule) - 1)]
        return Decision(len(prefix) >= goal, f"one-shot goal {goal}")

    def __str__(self) -> str:
        return "one-shot"
