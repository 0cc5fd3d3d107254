"""Gate: evidence in, chance that continuing pays out. Plain numpy."""

import hashlib
from abc import ABC, abstractmethod
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
from aera.standing import STANDING_NAMES, standing

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
            for part in ("weight", "bias", "scale", "shift")
        }
        own = ("medians", "means", "deviations", "weight", "bias", "lows", "highs")
        known = {name: getattr(self, name) for name in own if getattr(self, name) is not None}
        return {**known, **named}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Floats]) -> "Network":
        """The network that `tensors` describes."""
        depth = sum(name.startswith("layer") and name.endswith(".weight") for name in tensors)
        layers = tuple(
            Layer(
                *(tensors[f"layer{number}.{part}"] for part in ("weight", "bias", "scale", "shift"))
            )
            for number in range(depth)
        )
        return cls(
            tensors["medians"],
            tensors["means"],
            tensors["deviations"],
            layers,
            tensors["weight"],
            tensors["bias"],
            tensors.get("lows"),
            tensors.get("highs"),
        )


@dataclass(frozen=True, eq=False)
class Gate(ABC):
    """A trained network with the evidence it looks at."""

    network: Network

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """Its inputs in order."""

    @abstractmethod
    def evidence(self, prefix: Prefix) -> Floats:
        """Its inputs for one prefix."""

    def tensors(self) -> dict[str, Floats]:
        """Every array by name, as the artefact stores them."""
        return self.network.tensors()

    @cached_property
    def identity(self) -> str:
        """Changes whenever the output may change."""
        digest = hashlib.sha256(self._inputs.encode())
        for array in self.tensors().values():
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    @property
    def _inputs(self) -> str:
        """What the inputs are computed with."""
        return " ".join(self.features)

    def strays(self, prefix: Prefix) -> tuple[str, ...]:
        """The inputs that lie outside the range seen in training, with a tenth of it to spare."""
        lows, highs = self.network.lows, self.network.highs
        if lows is None or highs is None or prefix.next_checkpoint is None:
            return ()  # nothing is decided at the full budget, so nothing was learned there
        evidence = self.evidence(prefix)
        margin = SPARE * (highs - lows) + 1e-9
        outside = (evidence < lows - margin) | (evidence > highs + margin)
        return tuple(name for name, out in zip(self.features, outside, strict=True) if out)

    def p_continue(self, prefix: Prefix) -> float:
        """The estimated chance that continuing pays."""
        key = f"gate {self.identity}"
        known = prefix.memo.get(key)
        if not isinstance(known, float):
            known = float(sigmoid(self.network.outputs(self.evidence(prefix)[None]))[0, 0])
            prefix.memo[key] = known
        return known


@dataclass(frozen=True, eq=False)
class VoteGate(Gate):
    """Looks at the standing of the weighted vote; nothing is embedded."""

    features: tuple[str, ...] = STANDING_NAMES

    def __post_init__(self) -> None:
        check_features(self.features, STANDING_NAMES)

    def evidence(self, prefix: Prefix) -> Floats:
        return standing(prefix)


@dataclass(frozen=True, eq=False)
class PaperGate(Gate):
    """The paper's gate: 55 features, with the projection and the encoder they need."""

    projection: Projection
    encoder: Encoder
    features: tuple[str, ...] = NAMES

    def __post_init__(self) -> None:
        check_features(self.features, NAMES)

    def evidence(self, prefix: Prefix) -> Floats:
        return characterize(prefix, self.encoder, projection=self.projection)

    def tensors(self) -> dict[str, Floats]:
        """Every array by name, as the artefact stores them."""
        mean, components = self.projection.mean, self.projection.components
        own = {"projection.mean": mean, "projection.components": components}
        return {**self.network.tensors(), **own}

    @property
    def _inputs(self) -> str:
        return self.encoder.identity


def check_features(trained: tuple[str, ...], computed: tuple[str, ...]) -> None:
    """Refuse a network that was trained on other inputs than this version computes."""
    if trained != computed:
        wrong = next((name for name in trained if name not in computed), "their order")
        raise ControllerError(
            f"it was trained on other inputs than this version computes ({wrong}); train it again"
        )


def sigmoid(values: Floats) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)) without overflow."""
    halved: Floats = 0.5 * (1 + np.tanh(0.5 * values))
    return halved


@dataclass(frozen=True)
class Gated:
    """Continue while the gate's chance is at least the threshold."""

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
        column = int(self.gate.network.outputs(self.gate.evidence(first)[None])[0].argmax())
        goal = prefix.schedule.checkpoints[min(column, len(prefix.schedule) - 1)]
        return Decision(len(prefix) >= goal, f"one-shot goal {goal}")

    def __str__(self) -> str:
        return "one-shot"
