"""What the method costs: encoding, evidence, fitting, resampling, one decision, import, install.

.venv/bin/python bench/method.py POOLS        POOLS holds gsm8k.jsonl.gz
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

import aera
from aera import Controller, Pool, get_task
from aera.evidence.encoder import Encoder, StaticEncoder
from aera.lab import PaperLearner, Truths, crossfit, import_jsonl
from aera.lab.judging.bootstrap import compare_all
from aera.lab.learning.paper import PaperTable
from aera.lab.learning.states import RecordedEncoder, recorded_encoder
from aera.policies.gate import Gated
from aera.pools.record import HeldRecords, hold
from aera.response import Prefix, Question
from aera.voting.traits import describe_question


def timed(name: str, limit: str, work: Callable[[], object]) -> object:
    start = time.perf_counter()
    done = work()
    print(f"{name:46} {time.perf_counter() - start:8.2f} s    (limit {limit})")
    return done


def embed_all(records: HeldRecords, encoder: Encoder) -> None:
    """The vectors of every part, kept beside the pool."""
    for part in records.parts():
        recorded_encoder(part, encoder=encoder, folder=records.folder)


def decisions(table: PaperTable, pool: Pool, encoder: StaticEncoder) -> None:
    """One decision at checkpoint 4, with the embeddings ready and without."""
    fit, held = np.array_split(np.arange(len(table)), 2)
    gate = PaperLearner(encoder).fit(table, fit, held=held, seed=0).gate
    record = next(iter(pool))
    block = record.responses[:4]
    votes = [pool.task.read(response) for response in block]
    texts = [response.text for response in block]
    ready = RecordedEncoder(encoder, texts, encoder.encode(texts).astype(np.float16))

    def decide(with_encoder: Encoder) -> float:
        policy = Gated(replace(gate, encoder=with_encoder), 0.3)
        times = []
        for _ in range(200):
            prefix = Prefix(record.question, pool.schedule).extend(block, votes)
            start = time.perf_counter()
            policy.decide(prefix)
            times.append(1000 * (time.perf_counter() - start))
        return float(np.median(times))

    print(f"one decision, embeddings ready                 {decide(ready):8.2f} ms   (limit 2)")
    print(f"one decision, four responses to embed          {decide(encoder):8.2f} ms   (limit 10)")


def learned_decisions(pool: Pool) -> None:
    """One decision of the bundled controller at checkpoint 4, reading and weighing included."""
    controller = Controller.load(Path(aera.__file__).parent / "demo" / "controller")
    record = next(iter(pool))
    block = record.responses[:4]
    weighing, deciding = [], []
    for _ in range(200):
        run, lookout = controller.start(record.question), controller.make_lookout()
        lookout.see(Question("first", "only shows how questions are asked"))
        describe_question.cache_clear()
        start = time.perf_counter()
        lookout.see(record.question)
        run.feed(block)
        deciding.append(1000 * (time.perf_counter() - start))
        votes = [pool.task.read(response) for response in block]
        start = time.perf_counter()
        if controller.weigher:
            controller.weigher.weigh(record.question, block, votes)
        weighing.append(1000 * (time.perf_counter() - start))
    print(
        f"learned votes: one decision with all its work  {np.median(deciding):8.2f} ms   (limit 10)"
    )
    print(f"  of which weighing four responses             {np.median(weighing):8.2f} ms")


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
        decisions(table, pool, encoder)
        learned_decisions(pool)
    installation()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
