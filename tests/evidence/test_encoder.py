"""Behaviour of the encoders, with the shipped file and with models of other packages."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import refusal
from numpy.typing import NDArray
from safetensors.numpy import save

from aera.errors import ControllerError
from aera.paper.encoder import SHIPPED_FILE, StaticEncoder, load_encoder

TEXTS = [
    "Janet has 3 apples and buys 4 more, so she has \\boxed{7}.",
    "The train travels 60 km/h ÷ 2 h = 120 km.",
    "",
    "naïve café — 中文 テスト 👍",
    "word " * 3_000,
    *(f"Step {number}: add {number} and {number + 1}." for number in range(200)),
]
SHIPPED = StaticEncoder.load()


def small_file(**changed: NDArray[Any]) -> bytes:
    """A whole encoder of four tokens in two dimensions, with some tensors replaced."""
    tensors: dict[str, NDArray[Any]] = {
        "vectors": np.array([[1, 0], [0, 1], [3, 4], [-1, 2]], dtype=np.int8),
        "weights": np.array([1, 2, 3, 4], dtype=np.uint16),
        "vocabulary": np.frombuffer(b"[UNK]\nun\n##able\nable", dtype=np.uint8),
    }
    return save(tensors | changed)


def test_rows_are_unit_length_in_float16() -> None:
    rows = SHIPPED.encode(TEXTS)
    assert rows.dtype == np.float32
    assert np.array_equal(rows, rows.astype(np.float16))
    assert SHIPPED.encode([]).shape == (0, SHIPPED.dimensions)
    lengths = np.linalg.norm(rows, axis=1)
    assert np.allclose(np.delete(lengths, TEXTS.index("")), 1, atol=1e-3)


@pytest.mark.parametrize("size", [1, 4, 7, 64, 100])
def test_batch_size_does_not_change_a_bit(size: int) -> None:
    parts = [SHIPPED.encode(TEXTS[at : at + size]) for at in range(0, len(TEXTS), size)]
    assert np.concatenate(parts).tobytes() == SHIPPED.encode(TEXTS).tobytes()


@pytest.mark.parametrize(
    "texts",
    [
        ("seven red apples", "apples red seven"),
        ("cafe istanbul", "CAFÉ İstanbul"),
        ("a" * 1_000_000, "\U0001f9ff"),  # both unknown
    ],
)
def test_order_case_and_accents_of_words_do_not_matter(texts: tuple[str, str]) -> None:
    one, other = SHIPPED.encode(texts)
    assert np.array_equal(one, other)


def test_longest_pieces_win_and_unknown_words_fall_back(tmp_path: Path) -> None:
    (tmp_path / "small.safetensors").write_bytes(small_file())
    encoder = StaticEncoder.load(tmp_path / "small.safetensors")
    assert encoder.tokens("Unable able, unx") == [1, 2, 3, 0, 0]
    [row] = encoder.encode(["unable"])  # the weighted mean of its pieces
    assert np.allclose(row, np.array([9, 14]) / np.hypot(9, 14), atol=1e-3)


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"not a tensor file",
        SHIPPED_FILE.read_bytes()[:100_000],
        save({"embedding.weight": np.ones((3, 2), dtype=np.float32)}),
        small_file(vectors=np.ones((4, 2), dtype=np.float32)),
        small_file(vectors=np.ones((3, 2), dtype=np.int8)),
        small_file(vectors=np.ones((4, 0), dtype=np.int8)),
        small_file(vocabulary=np.frombuffer(b"a\nb\nc\nd", dtype=np.uint8)),
        small_file(vocabulary=np.array([255, 254], dtype=np.uint8)),
    ],
)
def test_unusable_file_is_refused_in_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "bad.safetensors"
    if content is not None:
        path.write_bytes(content)
    said = refusal(ControllerError, load_encoder, str(path))
    assert (str(path) in said, said[-1]) == (True, ".")


class FakeSentenceTransformer:
    """Stands in for the optional package's model."""

    def __init__(self, name: str) -> None:
        if name == "absent":
            raise OSError("no such\nmodel.")

    def encode(self, texts: str | list[str], **_: object) -> NDArray[np.float32]:
        vectors = [[len(text), 4.0] for text in ([texts] if isinstance(texts, str) else texts)]
        return np.array(vectors[0] if isinstance(texts, str) else vectors, dtype=np.float32)


def test_a_sentence_model_gives_unit_rows_and_is_named_by_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = type("Module", (), {"SentenceTransformer": FakeSentenceTransformer})
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    encoder = load_encoder("some/name")
    assert (encoder.identity, encoder.dimensions) == ("sentence-some/name", 2)
    assert np.allclose(encoder.encode(["abc", " "]), np.array([[0.6, 0.8], [0, 0]]), atol=1e-3)
    found = set()
    for weights in (b"one", b"two"):
        (tmp_path / "model.safetensors").write_bytes(weights)
        found.add(load_encoder(str(tmp_path)).identity)
    assert len(found) == 2
    assert "(no such model)" in refusal(ControllerError, load_encoder, "absent")
