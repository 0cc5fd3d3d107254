"""What the lab's fixtures are made of."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aera import Pool
from aera.arrays import Vectors
from aera.lab import Truths
from aera.lab.learning.paper import PaperTable
from aera.pools.pool import HeldRecords


@dataclass(frozen=True)
class Bench:
    """Sixty questions of the bundled pool with 32 responses each, and what is known of them."""

    pool: Pool
    records: HeldRecords
    truths: Truths
    table: PaperTable


class Letters:
    """A quick encoder: how often each of eight letters occurs, made a unit vector."""

    identity = "letters"
    dimensions = 8

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.asked.extend(texts)
        counts = np.array([[t.count(c) for c in "aeinorst"] for t in texts], dtype=np.float64)
        lengths = np.linalg.norm(counts, axis=1, keepdims=True)
        unit = counts / np.where(lengths > 0, lengths, 1.0)
        return unit.astype(np.float16).astype(np.float32)
