"""Time and memory of a pool of 10 thousand to a million responses, stage by stage.

.venv/bin/python bench/scale.py [--pool FILE.jsonl.gz] [--sizes 10000,100000,1000000] [--crew 2]

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
from pathlib import Path
from typing import Any

import aera
from aera import Pool, get_task, standard_policies
from aera.crew import parse_crew
from aera.embedding import StaticEncoder
from aera.lab import (
    Frontier,
    Report,
    Truths,
    evaluate,
    import_jsonl,
    open_study,
    summarize,
    write_report,
)
from aera.lab.learning import open_course

DEMO = Path(aera.__file__).parent / "demo" / "gsm8k.jsonl.gz"
LIMIT_MB = 4096
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


def replayed(pool: Pool, crew: str) -> Frontier:
    return evaluate(
        pool,
        standard_policies(pool.schedule),
        task=pool.task,
        schedule=pool.schedule,
        truths=Truths.open(pool.path),
        crew=parse_crew(crew),
    )


def stage_work(name: str, folder: Path, crew: str) -> Callable[[], object]:
    """One stage. Embedding includes evidence, which a second run, with the vectors there, is."""
    if name == "import":
        return lambda: import_jsonl(folder / "rows.gz", folder / "pool", task=get_task("gsm8k"))
    pool = Pool.open(folder / "pool")
    truths = Truths.open(pool.path)
    assert truths is not None
    if name == "replay":
        return lambda: replayed(pool, crew)
    if name in ("summary", "report"):
        frontier = replayed(pool, crew)
        if name == "summary":
            return lambda: summarize(frontier, pool, protocol="replay", seed=0)
        report = Report(
            summarize(frontier, pool, protocol="replay", seed=0),
            frontier,
            pool,
            pool.task,
            [*standard_policies(pool.schedule)],
            truths=truths,
            crew=parse_crew(crew),
        )
        return lambda: write_report(folder / "report.html", report)
    if name == "traits":
        return lambda: open_course(pool, truths, crew=parse_crew(crew))
    encoder = StaticEncoder.load()
    return lambda: open_study(pool, truths, encoder=encoder, crew=parse_crew(crew))


def cpu_seconds() -> float:
    """Of this process and of its workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def run_stage(name: str, folder: Path, crew: str) -> None:
    work = stage_work(name, folder, crew)
    begun, before = time.perf_counter(), cpu_seconds()
    work()
    seconds, cpu = time.perf_counter() - begun, cpu_seconds() - before
    workers = int(crew) if crew.isdecimal() else 0
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"seconds": seconds, "cpu": cpu, "mb": (own + workers * child) / 1024}))


def measured(name: str, folder: Path, crew: str) -> dict[str, Any]:
    """A stage in a process of its own, on one thread: workers are what makes it parallel."""
    command = [sys.executable, __file__, "--stage", name, "--folder", str(folder), "--crew", crew]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=Path, default=DEMO)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--crew", default="2")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--stage", choices=STAGES)
    parser.add_argument("--folder", type=Path)
    told = parser.parse_args()
    if told.stage:
        run_stage(told.stage, told.folder, told.crew)
        return
    print(f"crew {told.crew}; peak memory may be {LIMIT_MB:,} MB at most")
    print(
        f"{'responses':>10} {'stage':10} {'seconds':>9} {'CPU, s':>8} {'CPU each, µs':>13} {'peak MB':>8}"
    )
    for size in map(int, told.sizes.split(",")):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            held = write_copies(told.pool, folder / "rows.gz", size)
            for name in told.stages.split(","):
                one = measured(name, folder, told.crew)
                each = 1e6 * one["cpu"] / held
                times = f"{one['seconds']:9.1f} {one['cpu']:8.1f} {each:13.1f}"
                print(f"{held:>10,} {name:10} {times} {one['mb']:8.0f}", flush=True)


if __name__ == "__main__":
    main()
