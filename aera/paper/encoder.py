"""Encoders: texts to unit vectors, the shipped one in plain Python and in linear time."""

import hashlib
import importlib
import math
import re
import string
import textwrap
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from aera.errors import ControllerError

LONGEST_WORD = 100  # characters; BERT's own limit, which also keeps word pieces linear in the text
UNKNOWN = "[UNK]"
CACHED_WORDS = 32_768
CACHED_CHARACTERS = 8_192

_ASCII_PUNCTUATION = re.escape(string.punctuation)
_WORD = re.compile(rf"[^ \t\n\r{_ASCII_PUNCTUATION}]+|[{_ASCII_PUNCTUATION}]")
_SPECIAL = re.compile(r"[^\t\n\r\x20-\x7e]+")  # controls and everything past ASCII
# Unassigned characters (Cn) stay, so that a newer Python, which knows more of them, agrees.
_DROPPED = {"Cc", "Cf", "Co", "Cs"}
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


@lru_cache(CACHED_CHARACTERS)
def _fold(character: str) -> str:
    """What a control or non-ASCII character becomes: nothing, a space, a base letter or a mark."""
    if unicodedata.category(character) in _DROPPED or character == "\ufffd":
        return ""
    if character.isspace():
        return " "
    letters = [c.lower() for c in unicodedata.normalize("NFD", character)]
    bare = "".join(
        f" {c} " if unicodedata.category(c).startswith("P") else c
        for c in letters
        if unicodedata.category(c) != "Mn"
    )
    return f" {bare} " if _is_ideograph(character) else bare


def _is_ideograph(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _IDEOGRAPHS)


SHIPPED_FILE = Path(__file__).parent / "encoder.safetensors"

QUOTED_CHARACTERS = 200

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
    vocabulary: Mapping[str, int] = field(repr=False, kw_only=True)

    @classmethod
    def load(cls, path: Path | None = None) -> "StaticEncoder":
        """Read an encoder file, by default the one that ships with the library."""
        source = SHIPPED_FILE if path is None else Path(path)
        try:
            content = source.read_bytes()
        except OSError as error:
            raise ControllerError(
                f"The encoder file {source} cannot be read ({error.strerror}): give the path of an"
                " encoder.safetensors file, or none for the shipped one."
            ) from error
        try:
            vectors, weights, vocabulary = _read(content)
        except (SafetensorError, ValueError) as error:
            raise ControllerError(
                f"{source} is not an encoder of this library ({brief(str(error))}): copy it again,"
                " or build one with runs/distill_encoder.py."
            ) from error
        identity = "static-" + hashlib.sha256(content).hexdigest()[:16]
        return cls(identity, vectors, weights=weights, vocabulary=vocabulary)

    @property
    def dimensions(self) -> int:
        """Length of every row."""
        return int(self.vectors.shape[1])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per text, the same bits in any batch; a text without tokens gives zeros."""
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for number, text in enumerate(texts):
            rows[number] = unit_rows(self._sum(text))[0]
        return rows

    def tokens(self, text: str) -> list[int]:
        """BERT's uncased tokens of a text in order: words and marks, then greedily known pieces."""
        plain = _SPECIAL.sub(lambda found: "".join(map(_fold, found[0])), text).lower()
        words = (word[: LONGEST_WORD + 1] for word in _WORD.findall(plain))  # that is too long, too
        return list(chain.from_iterable(map(self._cut_word, words)))

    def _cut(self, word: str) -> tuple[int, ...]:
        """Longest known piece first; a word with a part that no piece covers is unknown."""
        pieces, start, end = list[int](), 0, min(len(word), self._reach)
        while start < end and len(word) <= LONGEST_WORD:
            piece = self.vocabulary.get(("##" if start else "") + word[start:end])
            if piece is None:
                end -= 1
            else:
                pieces.append(piece)
                start, end = end, min(len(word), end + self._reach)
        return tuple(pieces) if start == len(word) else (self.vocabulary[UNKNOWN],)

    @cached_property
    def _cut_word(self) -> Callable[[str], tuple[int, ...]]:
        return lru_cache(CACHED_WORDS)(self._cut)

    @cached_property
    def _reach(self) -> int:
        """Characters of the longest piece."""
        return max(map(len, self.vocabulary))

    def _sum(self, text: str) -> NDArray[np.float64]:
        """Sum of the weighted token vectors of a text, exactly; one row."""
        tokens, counts = np.unique(np.array(self.tokens(text), dtype=np.intp), return_counts=True)
        weighted = counts * self.weights[tokens].astype(float)
        total: NDArray[np.float64] = weighted @ self.vectors[tokens].astype(np.float64)
        return total[np.newaxis]


def unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows scaled to unit length and rounded through float16; zero rows stay zero."""
    peaks = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(peaks > 0, peaks, 1.0)
    # fsum rounds once, so the length does not depend on the order in which a processor adds.
    lengths = np.array([math.sqrt(math.fsum(row)) for row in (scaled * scaled).tolist()])
    unit = scaled / np.where(lengths > 0, lengths, 1.0)[:, np.newaxis]
    return unit.astype(np.float16).astype(np.float32)


def _read(content: bytes) -> tuple[NDArray[np.int8], NDArray[np.uint16], dict[str, int]]:
    """Vectors and weights, and the number of every token; ValueError where they do not fit."""
    read: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = deserialize  # comes untyped
    stored, found = dict(read(content)), []
    for name, (kind, numpy_type, axes) in _TENSORS.items():
        tensor = stored.get(name, {"dtype": "", "shape": []})
        if tensor["dtype"] != kind or len(tensor["shape"]) != axes or 0 in tensor["shape"]:
            raise ValueError(f"it has no {axes}-axis {kind} tensor {name!r}")
        found.append(np.frombuffer(tensor["data"], dtype=numpy_type).reshape(tensor["shape"]))
    vectors, weights, letters = found
    tokens = letters.tobytes().decode("utf-8").split("\n")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if UNKNOWN not in vocabulary or not len(vectors) == len(weights) == len(vocabulary):
        raise ValueError(f"its vectors, weights and distinct tokens differ, or {UNKNOWN} is none")
    return vectors, weights, vocabulary


def brief(message: str) -> str:
    """A message from elsewhere, short and on one line."""
    return textwrap.shorten(message, QUOTED_CHARACTERS, placeholder=" ...").rstrip(".")


class SentenceEncoder:
    """Vectors from a sentence-transformers model, by hub name or local folder.

    Texts go through one by one: padding to the longest of a batch would shift the last bits.
    """

    def __init__(self, name: str) -> None:
        """Load the model now, so that a wrong name fails before any work is done."""
        try:
            module = importlib.import_module("sentence_transformers")
            self._model: Any = module.SentenceTransformer(name)
        except ImportError as error:
            raise ControllerError(
                f"The encoder {name!r} needs the sentence-transformers package, which is not"
                " installed: install it, or use the shipped encoder."
            ) from error
        except (OSError, ValueError) as error:
            raise ControllerError(
                f"The sentence-transformers model {name!r} cannot be loaded ({brief(str(error))}):"
                " give the name of a model on the hub or the path of a local folder."
            ) from error
        self.dimensions = len(self._model.encode("length", show_progress_bar=False))
        self.identity = "sentence-" + name
        if Path(name).is_dir():  # what its weights hash to, since folders share names
            digest = hashlib.sha256()
            for file in sorted([*Path(name).rglob("*.safetensors"), *Path(name).rglob("*.bin")]):
                digest.update(file.read_bytes())
            self.identity = "sentence-" + digest.hexdigest()[:16]

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per text; a blank text gives zeros."""
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for number, text in enumerate(texts):
            if text.strip():
                row = self._model.encode([text], batch_size=1, show_progress_bar=False)
                rows[number] = unit_rows(np.asarray(row, dtype=np.float64))[0]
        return rows


def load_encoder(name: str | None) -> Encoder:
    """The encoder that a setting names.

    None or "static" is the shipped one, a .safetensors path another static one, anything else a
    sentence-transformers model.
    """
    if name is None or name == "static":
        return StaticEncoder.load()
    if name.endswith(".safetensors"):
        return StaticEncoder.load(Path(name))
    return SentenceEncoder(name)
