"""A small study of real responses, made once, and short ways to write synthetic ones."""

import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from small_study import Bench, Letters

import aera
from aera import Schedule, get_task
from aera.embedding import StaticEncoder
from aera.evidence import Floats
from aera.lab import Trajectories, Truths, import_jsonl, read_ballots, training
from aera.lab.building import Built, build_paper_controller
from aera.lab.protocols import Demand, fit_study
from aera.lab.study import open_study
from aera.lab.training import Fit

DEMO = Path(aera.__file__).parent / "demo" / "gsm8k.jsonl.gz"
QUESTIONS, RESPONSES = 60, 32


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    with gzip.open(DEMO, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in islice(lines, QUESTIONS)]
    cut = ({**row, "responses": row["responses"][:RESPONSES]} for row in rows)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cut), "utf-8")
    pool = import_jsonl(folder / "rows.jsonl", folder / "pool", task=get_task("gsm8k"))
    ballots, truths = read_ballots(pool, pool.task), Truths.open(pool.path)
    assert truths is not None
    study = open_study(pool, truths, ballots=ballots, encoder=StaticEncoder.load())
    return Bench(pool, ballots, truths, study)


@pytest.fixture
def pool_copy(bench: Bench, tmp_path: Path) -> Path:
    """The same pool, to be damaged."""
    return Path(shutil.copytree(bench.pool.path, tmp_path / "pool"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits that end after a few epochs."""
    monkeypatch.setattr(training, "EPOCHS", 8)


@pytest.fixture(scope="session")
def fitted(bench: Bench) -> Fit:
    """A gate fitted on the first forty questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "EPOCHS", 60)
        return fit_study(bench.study, np.arange(40), np.arange(40, 60), seed=0)


@pytest.fixture(scope="session")
def built(bench: Bench) -> Built:
    """The paper's controller, built from the study with a generous demand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "EPOCHS", 20)
        return build_paper_controller(bench.study, bench.pool, demand=Demand(0.5))


@pytest.fixture(scope="session")
def trajectories_of() -> Callable[..., Trajectories]:
    """Trajectories with these grades; a response costs one token unless said otherwise."""

    def make(
        grades: Sequence[Sequence[float]] | Floats,
        tokens: Floats | None = None,
        evidence: dict[str, Floats] | None = None,
    ) -> Trajectories:
        marks = np.array(grades, dtype=np.float64)
        schedule = Schedule(tuple(4 * 2**i for i in range(marks.shape[1])))
        spent = np.tile(np.array(schedule.checkpoints, dtype=np.float64), (len(marks), 1))
        names = tuple(f"q{row}" for row in range(len(marks)))
        return Trajectories(
            names, schedule, spent if tokens is None else tokens, marks, evidence or {}, marks
        )

    return make


@pytest.fixture
def letters() -> Letters:
    return Letters()
