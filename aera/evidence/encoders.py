"""Encoders that can take the shipped one's place: those of sentence-transformers."""

import hashlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aera.errors import EncoderError
from aera.evidence.encoder import Encoder, StaticEncoder, brief, unit_rows


@dataclass(frozen=True)
class SentenceEncoder:
    """Vectors from a sentence-transformers model, by hub name or local folder.

    Texts go through one by one: padding to the longest of a batch would shift the last bits.
    """

    name: str
    dimensions: int = field(init=False)
    identity: str = field(init=False)
    _model: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Load the model now, so that a wrong name fails before any work is done."""
        model = _sentence_model(self.name)
        length = len(model.encode("length", show_progress_bar=False))
        object.__setattr__(self, "_model", model)
        object.__setattr__(self, "dimensions", length)
        object.__setattr__(self, "identity", _sentence_identity(self.name))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per text; a blank text gives zeros."""
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for number, text in enumerate(texts):
            if text.strip():
                row = self._model.encode([text], batch_size=1, show_progress_bar=False)
                rows[number] = unit_rows(np.asarray(row, dtype=np.float64))[0]
        return rows


def _sentence_model(name: str) -> Any:
    try:
        module = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise EncoderError(
            f"The encoder {name!r} needs the sentence-transformers package, which is not"
            " installed: install it, or use the shipped encoder."
        ) from error
    try:
        return module.SentenceTransformer(name)
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"The sentence-transformers model {name!r} cannot be loaded ({brief(str(error))}):"
            " give the name of a model on the hub or the path of a local folder."
        ) from error


def _sentence_identity(name: str) -> str:
    """The hub name, or for a folder what its weights hash to, since folders share names."""
    if not Path(name).is_dir():
        return "sentence-" + name
    digest = hashlib.sha256()
    for file in sorted([*Path(name).rglob("*.safetensors"), *Path(name).rglob("*.bin")]):
        digest.update(file.read_bytes())
    return "sentence-" + digest.hexdigest()[:16]


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
