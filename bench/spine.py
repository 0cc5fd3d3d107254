"""Reading, replay and import speed, and whether the readers are linear in the text.

.venv/bin/python bench/spine.py POOLS        POOLS holds gsm8k.jsonl.gz
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from aera import (
    ASC,
    ESC,
    Bounded,
    Entropy,
    FirstValid,
    Fixed,
    Lead,
    Majority,
    Policy,
    Pool,
    Response,
    get_task,
)
from aera.lab import TASKS, HeldRecords, Truths, evaluate, import_jsonl, read_votes

ADVERSARIAL = {
    "prose": "The total is 9 times 2, which is 18 dollars. ",
    "boxes": "\\boxed{",
    "closed boxes": "\\boxed{4}",
    "phrases": "the answer is ",
    "numbers": "1,",
    "braces": "{{}",
    "thinking": "<think></think>",
    "hashes": "#### ",
}


def timed(work: Callable[[], object]) -> float:
    """CPU seconds, the best of five: other work on the machine only ever adds."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def twenty_policies() -> list[Policy]:
    fixed = [Fixed(c) for c in (4, 8, 16, 32, 64, 128)]
    asc = [ASC(c) for c in (0.8, 0.9, 0.95, 0.99)]
    others = [ESC(3), ESC(5), Lead(3), FirstValid(), Majority(0.7), Majority(0.9), Entropy(0.3)]
    bounded = [Bounded(ASC(0.9), minimum=8), Bounded(ESC(3), maximum=64), Bounded(Fixed(4))]
    return [*fixed, *asc, *others, *bounded]


def linearity() -> None:
    print("\n10 x the text costs (CPU time, limit 15 x):")
    for name, fragment in ADVERSARIAL.items():
        worst = 0.0
        for task in TASKS.values():
            short = Response(fragment * (10_000 // len(fragment)))
            long = Response(fragment * (100_000 // len(fragment)))
            read = task.read
            base = timed(lambda read=read, r=short: [read(r) for _ in range(20)])
            ten = timed(lambda read=read, r=long: [read(r) for _ in range(20)])
            worst = max(worst, ten / max(base, 1e-4))
        print(f"  {name:14} {worst:5.1f} x")


def main(pools: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "gsm8k"
        start = time.perf_counter()
        import_jsonl(pools / "gsm8k.jsonl.gz", out, task=get_task("gsm8k"))
        print(f"import of gsm8k        {time.perf_counter() - start:6.2f} s   (limit 20)")
        pool = Pool.open(out)
        start = time.perf_counter()
        records = list(pool)
        print(f"load                   {time.perf_counter() - start:6.2f} s")
        start = time.perf_counter()
        voted = read_votes(records, pool.task)
        seconds = time.perf_counter() - start
        count = sum(len(record.responses) for record in records)
        print(f"votes read             {count / seconds:8,.0f} /s   (limit 50,000)")
        policies, truths = twenty_policies(), Truths.open(out)
        start = time.perf_counter()
        evaluate(HeldRecords(voted, pool.task, pool.schedule), policies, truths=truths)
        print(
            f"{len(policies)} policies replayed   {time.perf_counter() - start:6.2f} s   (limit 3)"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory            {peak:6.0f} MB  (limit 1,500)")
    linearity()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
