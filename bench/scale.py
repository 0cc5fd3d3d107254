"""Time and memory of a pool of 10 thousand to a million responses, stage by stage.

.venv/bin/python bench/scale.py [--pool FILE.jsonl.gz] [--sizes 10000,100000,1000000] [--workers 2]

The pool is the given one (else the bundled one) repeated; every copy of a response says which copy
it is, so that no two texts are equal. Whether a stage is linear shows in its CPU time, which other
work on the machine disturbs least. Each stage runs in a process of its own. Peak memory is that
process plus, where there are workers, so many times the largest of them: an upper limit.
"""

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import aera
from aera import Pool, get_task, standard_policies
from aera.lab import (
    Frontier,
    PaperLearner,
    Truths,
    VoteLearner,
    evaluate,
    import_file,
    parse_workers,
    write_report,
)

DEMO = Path(aera.__file__).parent / "demo" / "gsm8k.jsonl.gz"
LIMIT_MB = 4096
TICKS = os.sysconf("SC_CLK_TCK")
STAGES = ("import", "replay", "summary", "report", "embedding", "evidence", "traits")


def copies(source: Path) -> Iterator[str]:
    """Lines of the pool, over and over, every time with other ids and texts."""
    for number in count():
        with gzip.open(source, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                row["id"] = f"{row['id']}-{number}"
                for response in row["responses"]:
                    response["text"] = f"Copy {number}. {response['text']}"
                yield json.dumps(row) + "\n"


def write_copies(source: Path, out: Path, responses: int) -> int:
    """Write as many questions as hold so many responses; returns how many responses they hold."""
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        each = len(json.loads(next(lines))["responses"])
    questions = -(-responses // each)
    with gzip.open(out, "wt", encoding="utf-8", compresslevel=1) as file:
        file.writelines(islice(copies(source), questions))
    return questions * each


def replayed(pool: Pool, workers: str) -> Frontier:
    return evaluate(
        pool,
        standard_policies(pool.schedule),
        truths=Truths.open(pool.path),
        workers=parse_workers(workers),
    )


def stage_work(name: str, folder: Path, workers: str) -> Callable[[], object]:
    """One stage. Embedding includes evidence, which a second run, with the vectors there, is."""
    if name == "import":
        return lambda: import_file(folder / "rows.gz", folder / "pool", task=get_task("gsm8k")).pool
    pool = Pool.open(folder / "pool")
    truths = Truths.open(pool.path)
    assert truths is not None
    if name == "replay":
        return lambda: replayed(pool, workers)
    if name in ("summary", "report"):
        made = aera.evaluate(pool, workers=workers)
        if name == "summary":
            return lambda: made.summary
        return lambda: write_report(folder / "report.html", made)
    if name == "traits":
        return lambda: VoteLearner().prepare(pool, truths, workers=parse_workers(workers))
    learner = PaperLearner()
    return lambda: learner.prepare(pool, truths, workers=parse_workers(workers))


def cpu_by_process() -> dict[int, float]:
    """CPU seconds of every worker so far, by its process number."""
    found = {}
    for number in (child.pid for child in active_children() if child.pid):
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        found[number] = (int(fields[11]) + int(fields[12])) / TICKS
    return found


def cpu_since(before: dict[int, float]) -> float:
    """CPU seconds that the workers of now have used since then."""
    return sum(used - before.get(number, 0.0) for number, used in cpu_by_process().items())


def largest_kb() -> int:
    """The most memory that any of the workers ever held."""
    told = [Path(f"/proc/{child.pid}/status").read_text() for child in active_children()]
    return max((int(each.partition("VmHWM:")[2].split()[0]) for each in told), default=0)


def run_stage(name: str, folder: Path, workers: str) -> None:
    work = stage_work(name, folder, workers)
    begun, own, theirs = time.perf_counter(), time.process_time(), cpu_by_process()
    work()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - own + cpu_since(theirs)
    processes = int(workers) if workers.isdecimal() else 0
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + processes * largest_kb()
    print(json.dumps({"seconds": seconds, "cpu": cpu, "mb": held / 1024}))


def measured(name: str, folder: Path, workers: str) -> dict[str, Any]:
    """A stage in a process of its own, on one thread: workers are what makes it parallel."""
    command = [
        sys.executable,
        __file__,
        "--stage",
        name,
        "--folder",
        str(folder),
        "--workers",
        workers,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=Path, default=DEMO)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--stage", choices=STAGES)
    parser.add_argument("--folder", type=Path)
    told = parser.parse_args()
    if told.stage:
        run_stage(told.stage, told.folder, told.workers)
        return
    print(f"workers {told.workers}; peak memory may be {LIMIT_MB:,} MB at most")
    print(
        f"{'responses':>10} {'stage':10} {'seconds':>9} {'CPU, s':>8} {'CPU each, µs':>13} {'peak MB':>8}"
    )
    for size in map(int, told.sizes.split(",")):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            held = write_copies(told.pool, folder / "rows.gz", size)
            for name in told.stages.split(","):
                one = measured(name, folder, told.workers)
                each = 1e6 * one["cpu"] / held
                times = f"{one['seconds']:9.1f} {one['cpu']:8.1f} {each:13.1f}"
                print(f"{held:>10,} {name:10} {times} {one['mb']:8.0f}", flush=True)


if __name__ == "__main__":
    main()
