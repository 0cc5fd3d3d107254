"""Do limits hold, and are they used? Random jobs over an in-process transport, on a virtual clock.

    python bench/limits.py [--cases 1000]

For each limit and 1, 16 and 256 questions at once: how often it was passed, by how much at most,
and the smallest share of it that was used while a question still wanted more.
"""

import argparse
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from limits import Job, Outcome, run_job


def used(made: Outcome) -> float:
    """The share of the limit that was spent, or may have been billed."""
    return (made.spent + made.at_risk) / made.limit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000)
    cases = parser.parse_args().cases
    patch = pytest.MonkeyPatch()
    clock = time.perf_counter
    print("limit      at once  cases  passed  farthest %  least used %  wanted more  seconds")
    for kind in ("responses", "tokens", "money", "seconds"):
        for concurrency in (1, 16, 256):
            begun, passed, farthest, least, hungry = clock(), 0, 0.0, 1.0, 0
            for seed in range(cases):
                job = Job(kind, concurrency, seed)
                with patch.context() as own:
                    made = run_job(job, own)
                hungry += made.hungry
                if kind == "seconds":
                    seconds = made.budget.seconds or 0.0
                    late = max(made.server.begun) - seconds
                    passed += late > 0 or (made.hungry and made.ended > seconds + 0.1)
                    farthest = max(farthest, made.ended - seconds if made.hungry else 0.0)
                    continue
                if job.bounded or kind == "responses":
                    passed += made.spent > made.limit + 1e-9
                farthest = max(farthest, made.spent / made.limit - 1)
                least = min(least, used(made)) if made.hungry else least
            print(
                f"{kind:10} {concurrency:7}  {cases:5}  {passed:6}  {100 * farthest:10.1f}  "
                f"{100 * least:12.1f}  {hungry:11}  {clock() - begun:7.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
