"""Semantics: what the embedded responses of a prefix look like, grown block by block."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, log1p, nan, sqrt
from typing import Any, cast

import numpy as np

from aera.arrays import Floats, Vectors
from aera.core import Prefix
from aera.errors import TRAIN_AGAIN, AeraError, ControllerError
from aera.network import Network, check_features, sigmoid
from aera.paper.encoder import Encoder, load_encoder
from aera.policies.gate import Gate
from aera.policies.rules import Rule
from aera.trace import Feature


@dataclass(frozen=True, eq=False)
class Semantics:
    """What the embedded responses of a prefix look like; grows block by block.

    Responses without text have no direction and are left out.
    """

    vectors: Vectors
    answers: tuple[str | None, ...]
    pairs: int
    total: float
    squares: float
    least: float
    most: float
    novelty: float
    shift: float

    @classmethod
    def empty(cls, dimensions: int) -> "Semantics":
        """Nothing embedded yet."""
        vectors = np.zeros((0, dimensions), dtype=np.float32)
        return cls(vectors, (), 0, 0.0, 0.0, np.inf, -np.inf, nan, nan)

    def extend(self, vectors: Vectors, answers: list[str | None]) -> "Semantics":
        """One block later; every new pair of responses is compared once."""
        spoken = [i for i, row in enumerate(vectors) if row.any()]
        block, said = vectors[spoken], [answers[i] for i in spoken]
        across = (block @ self.vectors.T).astype(np.float64)
        within = (block @ block.T).astype(np.float64)[np.triu_indices(len(block), 1)]
        new = np.concatenate([across.ravel(), within])
        everything = np.concatenate([self.vectors, block])
        return Semantics(
            vectors=everything,
            answers=(*self.answers, *said),
            pairs=self.pairs + len(new),
            total=self.total + float(new.sum()),
            squares=self.squares + float((new * new).sum()),
            least=min(self.least, float(new.min(initial=np.inf))),
            most=max(self.most, float(new.max(initial=-np.inf))),
            novelty=float(1 - across.max(axis=1).mean()) if across.size else nan,
            shift=_distance(_mean(self.vectors), _mean(everything)),
        )

    @cached_property
    def centroid(self) -> Floats:
        """The mean direction, NaN where nothing was said."""
        return _mean(self.vectors)

    @property
    def consensus(self) -> float:
        """Mean cosine over all pairs."""
        return self.total / self.pairs if self.pairs else nan

    @property
    def spread(self) -> float:
        """Standard deviation of the cosine over all pairs."""
        if not self.pairs:
            return nan
        return sqrt(max(0.0, self.squares / self.pairs - self.consensus**2))

    @property
    def dispersion(self) -> float:
        """Mean cosine distance from the centroid."""
        length = float(np.linalg.norm(self.centroid))
        if not len(self.vectors) or not length:
            return nan
        # The mean of the dot products with the centroid is the squared length of the centroid.
        return 1 - length

    def separation(self, leader: str | None) -> float:
        """How much closer the leader's responses are to each other than to the others."""
        ours = np.array([answer is not None and answer == leader for answer in self.answers], bool)
        count, others = int(ours.sum()), int((~ours).sum())
        if count < 2 or not others:
            return nan
        inside = self.vectors[ours].astype(np.float64).sum(axis=0)
        outside = self.vectors[~ours].astype(np.float64).sum(axis=0)
        own = float((self.vectors[ours].astype(np.float64) ** 2).sum())
        within = (float(inside @ inside) - own) / (count * (count - 1))
        return within - float(inside @ outside) / (count * others)


def _mean(vectors: Vectors) -> Floats:
    if not len(vectors):
        return np.full(vectors.shape[1], nan)
    mean: Floats = vectors.astype(np.float64).mean(axis=0)
    return mean


def _distance(before: Floats, now: Floats) -> float:
    """Cosine distance between two centroids, NaN where one is missing."""
    lengths = float(np.linalg.norm(before) * np.linalg.norm(now))
    return 1 - float(before @ now) / lengths if lengths > 0 else nan


def semantics(prefix: Prefix, encoder: Encoder) -> Semantics:
    """The semantic state of a prefix; each response is embedded once, however many ask."""

    def embed(state: Semantics, at: Prefix) -> Semantics:
        block = slice(at.start, len(at))
        begun = time.perf_counter()
        vectors = encoder.encode([response.text for response in at.responses[block]])
        took = 1000 * (time.perf_counter() - begun)
        at.memo["encoder_ms"] = cast(float, at.memo.get("encoder_ms", 0.0)) + took
        return state.extend(vectors, [vote.answer for vote in at.votes[block]])

    empty = Semantics.empty(encoder.dimensions)
    return prefix.grow((Semantics, encoder.identity), empty, embed)


# --- the table ------------------------------------------------------------------------------------

BUDGET, ANSWERS, TEMPORAL = "budget and cost", "answer distribution", "temporal change"
REDO, SEMANTIC, PROJECTION = "re-solving", "semantic state", "projection"
_TABLE: dict[str, dict[str, str]] = {
    BUDGET: {
        "checkpoint_fraction": "responses so far over the full budget",
        "next_fraction": "the next checkpoint over the full budget",
        "tokens_so_far": "log(1 + completion tokens spent)",
        "tokens_per_response": "mean completion tokens of a response",
        "tokens_spread": "standard deviation of completion tokens",
    },
    ANSWERS: {
        "majority_ratio": "share of the leading answer among valid votes, 0 without one",
        "entropy": "entropy of the valid votes over its maximum, 0 when unanimous",
        "unique_ratio": "distinct answers over responses",
        "top_two_gap": "gap of the two largest shares",
    },
    TEMPORAL: {
        "majority_change": "change of majority_ratio since the last checkpoint",
        "entropy_change": "change of entropy since the last checkpoint",
        "redo_change": "change of redo_rate since the last checkpoint",
        "top_changed": "1 if the leading answer changed since the last checkpoint",
        "top_persistence": "checkpoints in a row with this leading answer",
    },
    REDO: {"redo_rate": "share of all responses that ask to redo the question"},
    SEMANTIC: {
        "semantic_consensus": "mean cosine over all pairs of responses",
        "similarity_std": "standard deviation of the pairwise cosine",
        "similarity_min": "smallest pairwise cosine",
        "similarity_max": "largest pairwise cosine",
        "dispersion": "mean distance from the centroid",
        "centroid_shift": "cosine distance the centroid moved since the last checkpoint",
        "block_novelty": "mean distance of new responses from their nearest earlier one",
        "answer_separation": "mean cosine inside the leading answer minus that to all others",
    },
}
_NEUTRAL = dict.fromkeys([*_TABLE[TEMPORAL], "centroid_shift", "block_novelty"], 0.0)
_NEUTRAL["top_persistence"] = 1.0
SCALARS = tuple(
    Feature(name, meaning, group, _NEUTRAL.get(name))
    for group, meanings in _TABLE.items()
    for name, meaning in meanings.items()
)
_PROJECTED = (
    Feature(f"projection_{i:02}", f"coordinate {i} of the projected centroid", PROJECTION)
    for i in range(32)
)
FEATURES: tuple[Feature, ...] = (*SCALARS, *_PROJECTED)
NAMES: tuple[str, ...] = tuple(feature.name for feature in FEATURES)


def _measure(prefix: Prefix, state: Semantics) -> dict[str, float]:
    """The 23 by name; a change is 0 at the first checkpoint."""
    tally, size, last = prefix.tally, len(prefix), prefix.schedule.last
    before, leader = prefix.previous, tally.leaders.answer
    redo_rate = prefix.redos / size
    return {
        "checkpoint_fraction": size / last,
        "next_fraction": (prefix.next_checkpoint or last) / last,
        "tokens_so_far": log1p(prefix.completion_tokens),
        "tokens_per_response": prefix.completion_tokens / size,
        "tokens_spread": float(np.std([response.tokens for response in prefix.responses])),
        "majority_ratio": tally.majority,
        "entropy": tally.entropy,
        "unique_ratio": len(tally) / size,
        "top_two_gap": tally.gap,
        "majority_change": tally.majority - before.tally.majority if before else 0.0,
        "entropy_change": tally.entropy - before.tally.entropy if before else 0.0,
        "redo_change": redo_rate - before.redos / len(before) if before else 0.0,
        "top_changed": float(before is not None and before.tally.leaders.answer != leader),
        "top_persistence": float(prefix.persistence),
        "redo_rate": redo_rate,
        "semantic_consensus": state.consensus,
        "similarity_std": state.spread,
        "similarity_min": state.least if state.pairs else nan,
        "similarity_max": state.most if state.pairs else nan,
        "dispersion": state.dispersion,
        "centroid_shift": state.shift if before else 0.0,
        "block_novelty": state.novelty if before else 0.0,
        "answer_separation": state.separation(leader),
    }


def scalars(prefix: Prefix, encoder: Encoder) -> Floats:
    """The 23 features that need no projection; NaN where a quantity does not exist."""
    found = _measure(prefix, semantics(prefix, encoder))
    return np.array([found[feature.name] for feature in SCALARS])


@dataclass(frozen=True, eq=False)
class Projection:
    """A frozen linear map of the centroid, fitted without labels on training questions."""

    mean: Floats
    components: Floats
    """Shape (32, dimensions of the encoder)."""

    def apply(self, centroids: Floats) -> Floats:
        """Coordinates of one centroid or of an array of them."""
        projected: Floats = (centroids - self.mean) @ self.components.T
        return projected


def characterize(prefix: Prefix, encoder: Encoder, *, projection: Projection) -> Floats:
    """The evidence of a prefix: 55 numbers in the order of FEATURES."""
    state = semantics(prefix, encoder)
    return np.concatenate([scalars(prefix, encoder), projection.apply(state.centroid)])


def describe_texts(chains: Sequence[Sequence[Prefix]], encoder: Encoder) -> tuple[Floats, Floats]:
    """The scalar features and the centroids of every prefix, by question and checkpoint."""
    rows = [[scalars(prefix, encoder) for prefix in chain] for chain in chains]
    centres = [[semantics(prefix, encoder).centroid for prefix in chain] for chain in chains]
    return np.array(rows), np.array(centres)


# --- policies that look at them -------------------------------------------------------------------


def consensus(encoder: Encoder, prefix: Prefix) -> float:
    """Mean cosine over all pairs of responses."""
    return semantics(prefix, encoder).consensus if len(prefix.tally) else -inf


@dataclass(frozen=True)
class Consensus(Rule):
    """Stop when the mean cosine over all pairs of responses has risen this high."""

    kind, reason = "consensus", "semantic consensus"
    encoder: Encoder
    share: float

    @property
    def setting(self) -> float:
        return self.share

    def reached(self, prefix: Prefix) -> bool:
        return consensus(self.encoder, prefix) >= self.share


@dataclass(frozen=True, eq=False)
class PaperGate(Gate):
    """The paper's gate: 55 features, with the projection and the encoder they need."""

    projection: Projection
    encoder: Encoder
    features: tuple[str, ...] = field(default=NAMES, kw_only=True)

    def __post_init__(self) -> None:
        check_features(self.features, NAMES)

    def evidence(self, prefix: Prefix) -> Floats:
        return characterize(prefix, self.encoder, projection=self.projection)

    def chances(self, evidence: Floats) -> Floats:
        told: Floats = sigmoid(self.network.outputs(evidence))[..., 0]
        return told

    def tensors(self) -> dict[str, Floats]:
        """Every array by name, as the artefact stores them."""
        mean, components = self.projection.mean, self.projection.components
        own = {"projection.mean": mean, "projection.components": components}
        return {**self.network.tensors(), **own}

    @property
    def encoder_identity(self) -> str:
        return self.encoder.identity


def load_paper_gate(
    network: Network,
    tensors: Mapping[str, Floats],
    features: tuple[str, ...],
    encoder: Mapping[str, Any],
) -> PaperGate:
    """The gate that a file describes, with the encoder that it was taught on."""
    projection = Projection(tensors["projection.mean"], tensors["projection.components"])
    blank = [np.zeros(len(SCALARS)), projection.apply(projection.mean)]
    network.outputs(np.concatenate(blank)[None])
    try:
        found = load_encoder(encoder["name"])
    except AeraError as error:
        raise ControllerError(f"the controller's encoder cannot be had: {error}") from None
    if found.identity != encoder["identity"] or found.dimensions != len(projection.mean):
        raise ControllerError(
            f"the controller was trained with the encoder {encoder['identity']}, but here is "
            f"{found.identity}; use the version it was trained with, or {TRAIN_AGAIN}"
        )
    return PaperGate(network, projection, found, features=features)
