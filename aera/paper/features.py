"""Semantics: what the embedded responses of a prefix look like, grown block by block."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log1p, nan, sqrt

import numpy as np

from aera.arrays import Floats, Vectors
from aera.core import Prefix
from aera.paper.encoder import Encoder
from aera.policies.features import Feature


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


def encoder_milliseconds(prefix: Prefix) -> float:
    """What embedding the responses of a prefix took, block by block."""
    total = 0.0
    at: Prefix | None = prefix
    while at is not None:
        total += sum(_times(at))
        at = at.previous
    return total


def semantics(prefix: Prefix, encoder: Encoder) -> Semantics:
    """The semantic state of a prefix; each response is embedded once, however many ask."""

    def embed(state: Semantics, at: Prefix) -> Semantics:
        block = slice(at.start, len(at))
        begun = time.perf_counter()
        vectors = encoder.encode([response.text for response in at.responses[block]])
        _times(at).append(1000 * (time.perf_counter() - begun))
        return state.extend(vectors, [vote.answer for vote in at.votes[block]])

    empty = Semantics.empty(encoder.dimensions)
    return prefix.grow((Semantics, encoder.identity), empty, embed)


def _times(prefix: Prefix) -> list[float]:
    """How long each embedding of this prefix's block took."""
    return prefix.remember(encoder_milliseconds, lambda _: list[float]())


# --- the table ------------------------------------------------------------------------------------

Measure = Callable[[Prefix, Semantics], float]
PROJECTED = 32


def _change(value: Callable[[Prefix], float]) -> Measure:
    """The change of a quantity since the checkpoint before, 0 at the first."""

    def change(prefix: Prefix, _: Semantics) -> float:
        return value(prefix) - value(prefix.previous) if prefix.previous else 0.0

    return change


def _majority(prefix: Prefix) -> float:
    return prefix.tally.majority


def _entropy(prefix: Prefix) -> float:
    return prefix.tally.entropy


def _redo_rate(prefix: Prefix) -> float:
    return prefix.redos / len(prefix)


def _next_fraction(prefix: Prefix, _: Semantics) -> float:
    return (prefix.next_checkpoint or prefix.schedule.last) / prefix.schedule.last


def _tokens_spread(prefix: Prefix, _: Semantics) -> float:
    return float(np.std([response.tokens for response in prefix.responses]))


def _top_changed(prefix: Prefix, _: Semantics) -> float:
    before = prefix.previous
    return float(before is not None and before.tally.leaders.answer != prefix.tally.leaders.answer)


def _row(
    name: str, group: str, meaning: str, measure: Measure, *, neutral: float | None = None
) -> tuple[Feature, Measure]:
    return Feature(name, group, neutral, meaning), measure


BUDGET, ANSWERS, TEMPORAL = "budget and cost", "answer distribution", "temporal change"
REDO, SEMANTIC, PROJECTION = "re-solving", "semantic state", "projection"

_SCALARS: tuple[tuple[Feature, Measure], ...] = (
    _row(
        "checkpoint_fraction",
        BUDGET,
        "responses so far over the full budget",
        lambda p, s: len(p) / p.schedule.last,
    ),
    _row("next_fraction", BUDGET, "the next checkpoint over the full budget", _next_fraction),
    _row(
        "tokens_so_far",
        BUDGET,
        "log(1 + completion tokens spent)",
        lambda p, s: log1p(p.completion_tokens),
    ),
    _row(
        "tokens_per_response",
        BUDGET,
        "mean completion tokens of a response",
        lambda p, s: p.completion_tokens / len(p),
    ),
    _row("tokens_spread", BUDGET, "standard deviation of completion tokens", _tokens_spread),
    _row(
        "majority_ratio",
        ANSWERS,
        "share of the leading answer among valid votes, 0 without one",
        lambda p, s: _majority(p),
    ),
    _row(
        "entropy",
        ANSWERS,
        "entropy of the valid votes over its maximum, 0 when unanimous",
        lambda p, s: _entropy(p),
    ),
    _row(
        "unique_ratio",
        ANSWERS,
        "distinct answers over responses",
        lambda p, s: len(p.tally) / len(p),
    ),
    _row("top_two_gap", ANSWERS, "gap of the two largest shares", lambda p, s: p.tally.gap),
    _row(
        "majority_change",
        TEMPORAL,
        "change of majority_ratio since the last checkpoint",
        _change(_majority),
        neutral=0.0,
    ),
    _row(
        "entropy_change",
        TEMPORAL,
        "change of entropy since the last checkpoint",
        _change(_entropy),
        neutral=0.0,
    ),
    _row(
        "redo_change",
        TEMPORAL,
        "change of redo_rate since the last checkpoint",
        _change(_redo_rate),
        neutral=0.0,
    ),
    _row(
        "top_changed",
        TEMPORAL,
        "1 if the leading answer changed since the last checkpoint",
        _top_changed,
        neutral=0.0,
    ),
    _row(
        "top_persistence",
        TEMPORAL,
        "checkpoints in a row with this leading answer",
        lambda p, s: float(p.persistence),
        neutral=1.0,
    ),
    _row(
        "redo_rate",
        REDO,
        "share of all responses that ask to redo the question",
        lambda p, s: _redo_rate(p),
    ),
    _row(
        "semantic_consensus",
        SEMANTIC,
        "mean cosine over all pairs of responses",
        lambda p, s: s.consensus,
    ),
    _row(
        "similarity_std",
        SEMANTIC,
        "standard deviation of the pairwise cosine",
        lambda p, s: s.spread,
    ),
    _row(
        "similarity_min",
        SEMANTIC,
        "smallest pairwise cosine",
        lambda p, s: s.least if s.pairs else nan,
    ),
    _row(
        "similarity_max",
        SEMANTIC,
        "largest pairwise cosine",
        lambda p, s: s.most if s.pairs else nan,
    ),
    _row("dispersion", SEMANTIC, "mean distance from the centroid", lambda p, s: s.dispersion),
    _row(
        "centroid_shift",
        SEMANTIC,
        "cosine distance the centroid moved since the last checkpoint",
        lambda p, s: s.shift if p.previous else 0.0,
        neutral=0.0,
    ),
    _row(
        "block_novelty",
        SEMANTIC,
        "mean distance of new responses from their nearest earlier one",
        lambda p, s: s.novelty if p.previous else 0.0,
        neutral=0.0,
    ),
    _row(
        "answer_separation",
        SEMANTIC,
        "mean cosine inside the leading answer minus that to all others",
        lambda p, s: s.separation(p.tally.leaders.answer),
    ),
)

SCALARS: tuple[Feature, ...] = tuple(feature for feature, _ in _SCALARS)
FEATURES: tuple[Feature, ...] = (
    *SCALARS,
    *(
        Feature(f"projection_{i:02}", PROJECTION, None, f"coordinate {i} of the projected centroid")
        for i in range(PROJECTED)
    ),
)
NAMES: tuple[str, ...] = tuple(feature.name for feature in FEATURES)


def scalars(prefix: Prefix, encoder: Encoder) -> Floats:
    """The 23 features that need no projection; NaN where a quantity does not exist."""
    state = semantics(prefix, encoder)
    return np.array([measure(prefix, state) for _, measure in _SCALARS])


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
