"""Semantics: what the embedded responses of a prefix look like, grown block by block."""

import time
from dataclasses import dataclass
from functools import cached_property
from math import nan, sqrt

import numpy as np

from aera.arrays import Floats, Vectors
from aera.evidence.encoder import Encoder
from aera.response import Prefix


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
