"""A small study of real responses, made once for all tests of the lab."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from foreign import brought
from foreign_questions import demo_rows

from aera import Pool, get_task
from aera.arrays import Vectors
from aera.lab import LossLimit, PaperLearner, Truths
from aera.lab.build import BUILD_SHARES, Built, build
from aera.lab.learning.paper import PaperModel, PaperTable
from aera.pools.pool import HeldRecords, Plan, hold, write_pool


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


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    pool = brought(folder, demo_rows(60, 32), task=get_task("gsm8k")).pool
    records, truths = hold(pool), Truths.open(pool.path)
    return Bench(pool, records, truths, PaperLearner().prepare(records, truths))


@pytest.fixture(scope="session")
def parted(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """Thirty of its questions in three segments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 320)
        plan = Plan(bench.pool.task, sampler={"top_p": 0.9})
        pool = write_pool(tmp_path_factory.mktemp("parted"), islice(bench.pool, 30), plan)
    Truths({name: bench.truths[name] for name in pool.questions}).save(pool.path)
    return pool


@pytest.fixture
def pool_copy(bench: Bench, tmp_path: Path) -> Path:
    """The same pool, to be damaged."""
    return Path(shutil.copytree(bench.pool.path, tmp_path / "pool"))


@pytest.fixture(scope="session")
def quick() -> PaperLearner:
    """The paper's learner with fits that end after a few epochs."""
    return PaperLearner(epochs=8)


@pytest.fixture(scope="session")
def fitted(bench: Bench) -> PaperModel:
    """A gate fitted on the first forty questions."""
    learner = PaperLearner(epochs=60)
    return learner.fit(bench.table, np.arange(40), held=np.arange(40, 60), seed=0)


@pytest.fixture(scope="session")
def built(bench: Bench) -> Built:
    """The paper's controller, built from the table with a generous limit."""
    learner = PaperLearner(epochs=20, shares=BUILD_SHARES)
    return build(learner, bench.table, LossLimit(0.5))


@pytest.fixture
def letters() -> Letters:
    return Letters()
