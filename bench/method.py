"""What the method costs: encoding, evidence, fitting, resampling, import, install.

.venv/bin/python bench/method.py POOLS        POOLS holds gsm8k.jsonl.gz

What a decision costs is measured by runs/decision_cost.py, beside what it saves.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from aera import get_task
from aera.lab import (
    Encoder,
    HeldRecords,
    PaperLearner,
    PaperTable,
    StaticEncoder,
    Truths,
    compare_all,
    crossfit,
    hold,
    import_jsonl,
    recorded_encoder,
)


def timed(name: str, limit: str, work: Callable[[], object]) -> object:
    start = time.perf_counter()
    done = work()
    print(f"{name:46} {time.perf_counter() - start:8.2f} s    (limit {limit})")
    return done


def embed_all(records: HeldRecords, encoder: Encoder) -> None:
    """The vectors of every part, kept beside the pool."""
    for part in records.parts():
        recorded_encoder(part, encoder=encoder, folder=records.folder)


def installation() -> None:
    """Import time, and the size of an empty environment with nothing but the package."""
    code = "import time; t = time.perf_counter(); import aera; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(5)]
    seconds = [float(run.stdout) for run in runs]
    print(f"import aera                                    {min(seconds):8.2f} s")
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch) / "site"
        root = Path(__file__).parents[1]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site)]
        constraints = ["--constraint", str(root / "constraints.txt")]
        subprocess.run([*command, *constraints, str(root)], check=True, stderr=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(site)], check=False)
        size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
        print(f"installed size, bytecode included              {size / 1e6:8.0f} MB   (limit 180)")


def main(pools: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        pool = import_jsonl(
            pools / "gsm8k.jsonl.gz", Path(scratch) / "gsm8k", task=get_task("gsm8k")
        )
        records, truths, encoder = hold(pool), Truths.open(pool.path), StaticEncoder.load()
        learner = PaperLearner(encoder)
        timed("encoding 102,400 responses", "60", lambda: embed_all(records, encoder))
        table = timed(
            "evidence of 800 x 6 states, embeddings cached",
            "10",
            lambda: learner.prepare(records, truths),
        )
        assert isinstance(table, PaperTable)
        timed("five-fold fit", "30", lambda: crossfit(learner, table, seed=0))
        points = np.array([point.scores for point in table.sweep("entropy")[:20]])
        timed("20,000 resamples of 20 policies", "10", lambda: compare_all(points, points, seed=0))
    installation()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
