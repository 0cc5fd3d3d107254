"""What a controller's directory holds, read and checked; what cannot be used is one sentence."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from aera.arrays import Floats
from aera.errors import TRAIN_AGAIN, AeraError, ControllerError, UsageError
from aera.evidence.encoder import Encoder
from aera.evidence.encoders import load_encoder
from aera.evidence.paper import SCALARS, Projection
from aera.evidence.votes import VOTE_FEATURE_NAMES
from aera.files import file_hash
from aera.network import Network
from aera.policies.gate import Gate, PaperGate, VoteGate
from aera.reading.equivalence import check_installed
from aera.reading.task import Task
from aera.voting.best_of_n import BestOfN, Scorer
from aera.voting.trace_weights import WEIGHTS, TraceWeights
from aera.voting.traits import TRAIT_NAMES
from aera.voting.weigher import Weigher

WEIGHER = "weigher."
"""What the weigher's arrays are called after."""


def load_tensors(file: Path, expected: str | None) -> dict[str, Floats]:
    """The arrays, if the file is the one it was saved with; none where none were saved."""
    if expected is None:
        return {}
    if not file.is_file() or file_hash(file) != expected:
        trouble = "is not the file it was saved with" if file.is_file() else "is missing"
        raise ControllerError(f'"{file}" {trouble}; copy the whole controller again')
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ControllerError(f'"{file}" cannot be read: {error}') from None


def load_gate(path: Path, tensors: Mapping[str, Floats], config: Mapping[str, Any]) -> Gate:
    """The gate whose inputs the file names."""
    features = tuple(config["features"])
    own = {name: array for name, array in tensors.items() if WEIGHER not in name}
    try:
        network = Network.from_tensors(own)
        if features[0] in VOTE_FEATURE_NAMES:
            network.outputs(np.zeros((1, len(VOTE_FEATURE_NAMES))))
            return VoteGate(network, features)
        projection = Projection(own["projection.mean"], own["projection.components"])
        blank = [np.zeros(len(SCALARS)), projection.apply(projection.mean)]
        network.outputs(np.concatenate(blank)[None])
    except (KeyError, ValueError) as error:
        raise ControllerError(
            f'"{path / "model.safetensors"}" does not hold a gate: {problem_of(error)}; '
            + TRAIN_AGAIN
        ) from None
    encoder = _load_encoder(config["encoder"], projection)
    return PaperGate(network, projection, encoder, features)


def weigher_tensors(weigher: Weigher) -> dict[str, Floats]:
    """The arrays of a weigher and of its lower ones, by the names they are kept under."""
    named = zip(_prefixes(len(weigher.lower)), (weigher, *weigher.lower), strict=True)
    return {
        prefix + name: array
        for prefix, each in named
        for name, array in each.network.tensors().items()
    }


def load_weigher(
    path: Path, tensors: Mapping[str, Floats], config: Mapping[str, Any]
) -> Weigher | None:
    """The weigher, if traits or arrays say that there is one; half of one is refused."""
    if not config.get("traits") and not any(name.startswith(WEIGHER) for name in tensors):
        return None
    inputs = [config["traits"], *config.get("lower_traits", ())]
    try:
        best, *lower = (
            _load_weigher(tensors, prefix, tuple(features))
            for prefix, features in zip(_prefixes(len(inputs) - 1), inputs, strict=True)
        )
    except (KeyError, ValueError) as error:
        raise ControllerError(
            f'"{path / "model.safetensors"}" does not hold a weigher: {problem_of(error)}; '
            + TRAIN_AGAIN
        ) from None
    return replace(best, lower=tuple(lower))


def load_weights(config: Mapping[str, Any]) -> TraceWeights | None:
    """Weights that were not learned, where it was saved with some."""
    name = config.get("weights")
    return None if name is None else WEIGHTS[name]


def _prefixes(lower: int) -> list[str]:
    return [WEIGHER, *(f"lower{number}.{WEIGHER}" for number in range(lower))]


def _load_weigher(tensors: Mapping[str, Floats], prefix: str, features: tuple[str, ...]) -> Weigher:
    own = {n.removeprefix(prefix): array for n, array in tensors.items() if n.startswith(prefix)}
    weigher = Weigher(Network.from_tensors(own), features)
    weigher.weights(np.zeros((1, len(TRAIT_NAMES))))
    return weigher


def load_best_of_n(path: Path, config: Mapping[str, Any], scorer: Scorer | None) -> BestOfN | None:
    """The scorer in its place, if there is one exactly where one is needed."""
    kept = config.get("scorer")
    if kept is None and scorer is None:
        return None
    if kept is None:
        raise ControllerError(f'the controller at "{path}" was made for votes and takes no scorer')
    if scorer is None:
        raise ControllerError(
            f'the controller at "{path}" was made for a scorer, {kept["name"]}, which is code and '
            "is not kept: give it as --scorer MODULE:NAME to aera solve, serve or evaluate, or as "
            "Controller.load(path, scorer=...)"
        )
    return BestOfN(scorer, uses_logprobs=bool(kept["uses_logprobs"]))


def check_equivalence(path: Path, task: Task) -> None:
    """Refuse a controller that compares expressions where nothing can compare them."""
    try:
        if task.equivalence:
            check_installed()
    except UsageError as error:
        raise ControllerError(
            f'the controller at "{path}" merges equal expressions, but {error}'
        ) from None


def _load_encoder(named: Mapping[str, Any], projection: Projection) -> Encoder:
    try:
        encoder = load_encoder(named["name"])
    except AeraError as error:
        raise ControllerError(f"the controller's encoder cannot be had: {error}") from None
    if encoder.identity != named["identity"] or encoder.dimensions != len(projection.mean):
        raise ControllerError(
            f"the controller was trained with the encoder {named['identity']}, but here is "
            f"{encoder.identity}; use the version it was trained with, or {TRAIN_AGAIN}"
        )
    return encoder


def problem_of(error: Exception) -> str:
    return f"the field {error} is missing" if isinstance(error, KeyError) else str(error)


def read_config(path: Path) -> Any:
    """What config.json of a controller says, as it stands there."""
    return read_json(path / "config.json")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ControllerError(
            f'there is no controller at "{path.parent}": {path.name} is missing'
        ) from None
    except (ValueError, OSError) as error:
        raise ControllerError(f'"{path}" cannot be read: {error}') from None


def read_card(path: Path) -> str:
    """The model card, where there is one; it decides nothing."""
    try:
        return (path / "README.md").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
