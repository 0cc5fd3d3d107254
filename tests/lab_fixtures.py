"""A small study of real responses, made once, and short ways to write synthetic ones."""

import gzip
import json
import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from small_study import Bench, Letters

import aera
from aera import Pool, get_task
from aera.lab import LossLimit, PaperLearner, Truths, import_file
from aera.lab.build import BUILD_SHARES, Built, build
from aera.lab.learning.paper import PaperModel, Perceptron
from aera.pools.pool import Plan, hold, write_pool

DEMO = Path(aera.__file__).parent / "demo" / "gsm8k.jsonl.gz"
QUESTIONS, RESPONSES = 60, 32


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    with gzip.open(DEMO, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in islice(lines, QUESTIONS)]
    cut = ({**row, "responses": row["responses"][:RESPONSES]} for row in rows)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cut), "utf-8")
    pool = import_file(folder / "rows.jsonl", folder / "pool", task=get_task("gsm8k")).pool
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
    return PaperLearner(perceptron=Perceptron(epochs=8))


@pytest.fixture(scope="session")
def fitted(bench: Bench) -> PaperModel:
    """A gate fitted on the first forty questions."""
    learner = PaperLearner(perceptron=Perceptron(epochs=60))
    return learner.fit(bench.table, np.arange(40), held=np.arange(40, 60), seed=0)


@pytest.fixture(scope="session")
def built(bench: Bench) -> Built:
    """The paper's controller, built from the table with a generous limit."""
    learner = PaperLearner(perceptron=Perceptron(epochs=20), shares=BUILD_SHARES)
    return build(learner, bench.table, LossLimit(0.5))


@pytest.fixture
def letters() -> Letters:
    return Letters()
