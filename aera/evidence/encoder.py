"""Turn texts into unit vectors: what an encoder is, and the static one that ships.

Whatever the encoder, a row is unit length, rounded through float16, and all zeros for a blank text.
The shipped one sums integers only, so a row is the same bits in any batch and on any processor.
"""

import hashlib
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from aera.errors import EncoderError
from aera.evidence.wordpiece import UNKNOWN, WordPieces

SHIPPED_FILE = Path(__file__).parent / "encoder.safetensors"

QUOTED_CHARACTERS = 200
CHUNK_TEXTS = 64
CHUNK_CHARACTERS = 131_072
CHUNK_TOKENS = 2_048  # vectors widened to float64 at one time

_TENSORS = {"vectors": ("I8", "i1", 2), "weights": ("U16", "<u2", 1), "vocabulary": ("U8", "u1", 1)}


class Encoder(Protocol):
    """Anything that maps texts to unit vectors."""

    @property
    def identity(self) -> str:
        """Name that changes whenever the vectors may change."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of every row."""
        ...

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per text, whatever else is in the batch; a blank text gives zeros."""
        ...


@dataclass(frozen=True, eq=False)
class StaticEncoder:
    """Mean of one stored vector per word piece: fast, exact and without a deep-learning library.

    Token `t` stands for `weights[t] * vectors[t]`, both whole numbers. Their sums stay below 2**53
    for texts of up to a thousand million tokens, so float64 holds them exactly in any order.
    """

    identity: str
    vectors: NDArray[np.int8] = field(repr=False)
    weights: NDArray[np.uint16] = field(repr=False, kw_only=True)
    words: WordPieces = field(repr=False, kw_only=True)

    @classmethod
    def load(cls, path: Path | None = None) -> "StaticEncoder":
        """Read an encoder file, by default the one that ships with the library."""
        source = SHIPPED_FILE if path is None else Path(path)
        content = _read(source)
        stored = _read_tensors(content, source)
        vectors = _tensor(stored, "vectors", source=source)
        weights = _tensor(stored, "weights", source=source)
        vocabulary = _vocabulary(_tensor(stored, "vocabulary", source=source).tobytes(), source)
        if not len(vectors) == len(weights) == len(vocabulary):
            raise EncoderError(
                f"{source} has {len(vectors)} vectors, {len(weights)} weights and"
                f" {len(vocabulary)} distinct tokens, which should be equal: build it again."
            )
        identity = "static-" + hashlib.sha256(content).hexdigest()[:16]
        return cls(identity, vectors, weights=weights, words=WordPieces(vocabulary))

    @property
    def dimensions(self) -> int:
        """Length of every row."""
        return int(self.vectors.shape[1])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per text, the same bits in any batch; a text without tokens gives zeros."""
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for start, stop in _chunks(texts):
            rows[start:stop] = unit_rows(self._sums(texts[start:stop]))
        return rows

    def _sums(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Sum of the weighted token vectors of each text, exactly."""
        tokens, counts = _count([self.words.split(text) for text in texts], len(self.vectors))
        counts *= self.weights[tokens]
        sums = np.zeros((len(texts), self.dimensions))
        for start in range(0, len(tokens), CHUNK_TOKENS):
            part = slice(start, start + CHUNK_TOKENS)
            sums += counts[:, part] @ self.vectors[tokens[part]].astype(np.float64)
        return sums


def _chunks(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Spans of texts small enough that memory does not grow with the batch."""
    start = size = 0
    for stop, text in enumerate(texts):
        if stop > start and (stop - start == CHUNK_TEXTS or size + len(text) > CHUNK_CHARACTERS):
            yield start, stop
            start, size = stop, 0
        size += len(text)
    if start < len(texts):
        yield start, len(texts)


def _count(
    tokens: Sequence[Sequence[int]], vocabulary_size: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The tokens that occur at all, and how often each occurs in each text."""
    lengths = [len(numbers) for numbers in tokens]
    flat = np.fromiter(chain.from_iterable(tokens), dtype=np.intp, count=sum(lengths))
    present = np.flatnonzero(np.bincount(flat, minlength=vocabulary_size))
    column = np.zeros(vocabulary_size, dtype=np.intp)
    column[present] = np.arange(len(present))
    cells = np.repeat(np.arange(len(tokens)) * len(present), lengths) + column[flat]
    counts = np.bincount(cells, minlength=len(tokens) * len(present))
    return present, counts.reshape(len(tokens), len(present)).astype(np.float64)


def unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows scaled to unit length and rounded through float16; zero rows stay zero."""
    peaks = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(peaks > 0, peaks, 1.0)
    # fsum rounds once, so the length does not depend on the order in which a processor adds.
    lengths = np.array([math.sqrt(math.fsum(row)) for row in (scaled * scaled).tolist()])
    unit = scaled / np.where(lengths > 0, lengths, 1.0)[:, np.newaxis]
    return unit.astype(np.float16).astype(np.float32)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EncoderError(
            f"The encoder file {path} cannot be read ({error.strerror}): give the path of an"
            " encoder.safetensors file, or none for the shipped one."
        ) from error


def _read_tensors(content: bytes, source: Path) -> Mapping[str, Mapping[str, Any]]:
    """The tensors of a safetensors file as stored, by name."""
    read: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = deserialize  # comes untyped
    try:
        return dict(read(content))
    except SafetensorError as error:
        raise EncoderError(
            f"{source} is not a whole safetensors file ({brief(str(error))}): copy or build it"
            " again."
        ) from error


def _tensor(stored: Mapping[str, Mapping[str, Any]], name: str, *, source: Path) -> NDArray[Any]:
    """One tensor, once its type and number of axes are seen to be right."""
    kind, numpy_type, axes = _TENSORS[name]
    found = stored.get(name, {"dtype": "", "shape": []})
    if found["dtype"] != kind or len(found["shape"]) != axes or 0 in found["shape"]:
        raise EncoderError(
            f"{source} has no {axes}-axis {kind} tensor {name!r}, so it is not an encoder of this"
            " library: build one with runs/distill_encoder.py."
        )
    return np.frombuffer(found["data"], dtype=numpy_type).reshape(found["shape"])


def _vocabulary(letters: bytes, source: Path) -> dict[str, int]:
    """Number of every token, from their newline-separated list."""
    try:
        tokens = letters.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise EncoderError(f"The vocabulary in {source} is not UTF-8: build it again.") from error
    if UNKNOWN not in tokens:
        raise EncoderError(f"The vocabulary in {source} lacks {UNKNOWN}: build it again.")
    return {token: number for number, token in enumerate(tokens)}


def brief(message: str) -> str:
    """A message from elsewhere, short and on one line."""
    return textwrap.shorten(message, QUOTED_CHARACTERS, placeholder=" ...").rstrip(".")
