"""States: the evidence of every question at every checkpoint, and the embeddings behind it."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Columns, Floats, Vectors
from aera.paper.encoder import Encoder
from aera.paper.features import SCALARS, Projection
from aera.pools.pool import Record

Halves = NDArray[np.float16]

ENCODED_AT_ONCE = 2_048


class RecordedEncoder:
    """An encoder that already knows the texts of a pool and asks the real one for all others.

    Their vectors are read from a file in the pool's folder, or made and put there.
    """

    def __init__(self, records: Iterable[Record], encoder: Encoder, folder: Path | None) -> None:
        texts = [response.text for record in records for response in record.responses]
        self.identity, self.dimensions = encoder.identity, encoder.dimensions
        self._encoder = encoder
        self._rows = {text: row for row, text in enumerate(texts)}
        self._vectors = _embed(texts, encoder, folder)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The recorded rows, or fresh ones where any text is new."""
        rows = [self._rows[text] for text in texts if text in self._rows]
        if len(rows) < len(texts):
            return self._encoder.encode(texts)
        found: Vectors = self._vectors[rows].astype(np.float32)
        return found


def _embed(texts: Sequence[str], encoder: Encoder, folder: Path | None) -> Halves:
    file = None if folder is None else _cache_file(folder, texts, encoder=encoder)
    vectors = None if file is None else _read_cache(file, (len(texts), encoder.dimensions))
    if vectors is None:
        vectors = np.empty((len(texts), encoder.dimensions), dtype=np.float16)
        for start in range(0, len(texts), ENCODED_AT_ONCE):
            some = slice(start, start + ENCODED_AT_ONCE)
            vectors[some] = encoder.encode(texts[some])
        if file is not None:
            _save(file, vectors)
    return vectors


def _cache_file(folder: Path, texts: Sequence[str], *, encoder: Encoder) -> Path:
    """Named after the encoder and after the texts themselves, so neither can go stale."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8) + content)
    name = "".join(c if c.isalnum() or c in "-." else "_" for c in encoder.identity)
    return folder / f"embeddings-{name}-{digest.hexdigest()[:12]}.npy"


def _read_cache(file: Path, shape: tuple[int, int]) -> Halves | None:
    try:
        vectors = np.load(file)
    except (OSError, ValueError, EOFError):
        return None
    return vectors if vectors.shape == shape and vectors.dtype == np.float16 else None


def _save(file: Path, vectors: Halves) -> None:
    # Two workers may embed the same part when one of them is taken for dead.
    half = file.with_suffix(f".{os.getpid()}.partial.npy")
    try:
        np.save(half, vectors)
        half.replace(file)
    except OSError:
        # A read-only pool is no reason to stop: the vectors are in memory.
        with suppress(OSError):
            half.unlink()


@dataclass(frozen=True, eq=False)
class States:
    """Evidence before projection. Rows are questions, columns checkpoints."""

    scalars: Floats
    """Shape (questions, checkpoints, 23)."""
    centroids: Floats
    """Shape (questions, checkpoints, dimensions of the encoder)."""

    def feature(self, name: str) -> Floats:
        """One scalar feature, shape (questions, checkpoints)."""
        place = [feature.name for feature in SCALARS].index(name)
        values: Floats = self.scalars[:, :, place]
        return values

    def evidence(self, projection: Projection) -> Floats:
        """All 55 features, shape (questions, checkpoints, 55)."""
        return np.concatenate([self.scalars, projection.apply(self.centroids)], axis=2)

    def project(self, rows: Columns, *, dimensions: int = 32) -> Projection:
        """Principal directions of the centroids of these questions; no label is looked at."""
        seen = self.centroids[rows].reshape(-1, self.centroids.shape[2])
        seen = seen[~np.isnan(seen).any(axis=1)]
        if not len(seen):  # nobody said anything
            return Projection(np.zeros(seen.shape[1]), np.zeros((dimensions, seen.shape[1])))
        mean: Floats = seen.mean(axis=0)
        centred = seen - mean
        directions = np.linalg.eigh(centred.T @ centred)[1].T[::-1][:dimensions]
        # A direction and its opposite are the same; the largest entry decides which one is kept.
        leading = np.abs(directions).argmax(axis=1)
        directions = directions * np.sign(directions[np.arange(len(directions)), leading])[:, None]
        components: Floats = np.zeros((dimensions, seen.shape[1]))
        components[: len(directions)] = directions
        return Projection(mean, components)
