"""Encoders that can take the shipped one's place: a server, or a sentence-transformers model."""

import hashlib
import http.client
import importlib
import json
import math
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aera.errors import EncoderError
from aera.evidence.encoder import Encoder, StaticEncoder, brief, unit_rows


def _fill(
    texts: Sequence[str], dimensions: int, *, batch: int, embed: Callable[[list[str]], Any]
) -> NDArray[np.float32]:
    """Embed the texts that are not blank, `batch` at a time; blank ones stay zero."""
    rows = np.zeros((len(texts), dimensions), dtype=np.float32)
    spoken = [number for number, text in enumerate(texts) if text.strip()]
    for start in range(0, len(spoken), batch):
        part = spoken[start : start + batch]
        rows[part] = unit_rows(
            np.asarray(embed([texts[number] for number in part]), dtype=np.float64)
        )
    return rows


@dataclass(frozen=True)
class HTTPEncoder:
    """Vectors from a server that speaks the OpenAI embeddings protocol.

    Rounding hides most of the noise of a server that computes in batches, but only the server can
    make a row fully independent of its batch: set `batch=1` where that matters.
    """

    base_url: str
    model: str
    api_key_env: str = field(default="OPENAI_API_KEY", kw_only=True)
    dimensions: int = field(kw_only=True)
    batch: int = field(default=64, kw_only=True)
    timeout: float = field(default=60.0, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse settings that no request could be made with."""
        if not (_is_web_address(self.base_url) and self.model):
            raise EncoderError(
                f"An HTTP encoder needs an http(s) address and a model name, not"
                f" {self.base_url!r} and {self.model!r}: give them as https://host/v1#model."
            )
        if self.dimensions < 1 or self.batch < 1 or self.timeout <= 0:
            raise EncoderError(
                f"The HTTP encoder for {self.base_url} needs dimensions, batch and timeout above"
                f" zero, not {self.dimensions}, {self.batch} and {self.timeout}: correct them."
            )

    @classmethod
    def connect(cls, base_url: str, model: str) -> "HTTPEncoder":
        """Ask the server for one vector to learn how long its vectors are."""
        probe = cls(base_url, model, dimensions=1)
        return cls(base_url, model, dimensions=len(probe._vectors(["length"])[0]))

    @property
    def identity(self) -> str:
        """The model's name; a server does not say more."""
        return "http-" + self.model

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per text; blank texts are not sent and give zeros."""
        return _fill(texts, self.dimensions, batch=self.batch, embed=self._rows)

    def _rows(self, texts: list[str]) -> list[list[float]]:
        """Vectors of the expected length, in the order of the texts."""
        vectors = self._vectors(texts)
        for vector in vectors:
            if len(vector) != self.dimensions:
                raise EncoderError(
                    f"{self._place} sent vectors of {len(vector)} numbers where"
                    f" {self.dimensions} were expected: correct the dimensions or the model."
                )
        return vectors

    def _vectors(self, texts: list[str]) -> list[list[float]]:
        """The server's vectors, put back into the order of the texts."""
        answer = self._post({"model": self.model, "input": texts})
        try:
            found = {int(item["index"]): _numbers(item["embedding"]) for item in answer["data"]}
            return [found[number] for number in range(len(texts))]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise EncoderError(
                f"{self._place} did not send one vector of finite numbers for each of"
                f" {len(texts)} texts: check that it serves the OpenAI embeddings protocol."
            ) from error

    def _post(self, body: dict[str, Any]) -> Any:
        answer = self._fetch(json.dumps(body).encode())
        try:
            return json.loads(answer)
        except ValueError as error:
            raise EncoderError(
                f"{self._place} answered with something that is not JSON: check the address."
            ) from error

    def _fetch(self, body: bytes) -> bytes:
        request = urllib.request.Request(self._address, data=body, headers=self._headers())
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            with error:
                raise EncoderError(self._refusal(error)) from error
        except (OSError, http.client.HTTPException) as error:
            raise EncoderError(
                f"{self._place} cannot be reached ({brief(str(error) or repr(error))}): check"
                " the address and that the server is up."
            ) from error

    def _refusal(self, error: urllib.error.HTTPError) -> str:
        try:
            said = error.read(2_000).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):  # the status alone still says what happened
            said = error.reason
        return (
            f"{self._place} answered {error.code} ({brief(said)}): check the model's name, the"
            f" length of the texts and the key in {self.api_key_env}."
        )

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        key = os.environ.get(self.api_key_env, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise EncoderError(
                f"The key in {self.api_key_env} holds characters that an HTTP header cannot carry:"
                " set it again."
            )
        return headers | {"Authorization": f"Bearer {key}"} if key else headers

    @property
    def _address(self) -> str:
        return self.base_url.rstrip("/") + "/embeddings"

    @property
    def _place(self) -> str:
        return f"The embeddings server {self._address}"


def _is_web_address(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def _numbers(values: list[Any]) -> list[float]:
    numbers = [float(value) for value in values]
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError("not finite")
    return numbers


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
        return _fill(texts, self.dimensions, batch=1, embed=self._rows)

    def _rows(self, texts: list[str]) -> Any:
        return self._model.encode(texts, batch_size=1, show_progress_bar=False)


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

    None or "static" is the shipped one, a .safetensors path another static one,
    "https://host/v1#model" a server, anything else a sentence-transformers model.
    """
    if name is None or name == "static":
        return StaticEncoder.load()
    if name.startswith(("http://", "https://")):
        base_url, _, model = name.partition("#")
        return HTTPEncoder.connect(base_url, model)
    if name.endswith(".safetensors"):
        return StaticEncoder.load(Path(name))
    return SentenceEncoder(name)
