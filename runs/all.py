"""Everything that is published, by one command.

Runs the recipes whose results are out of date: the recipe, the code or the pools have changed since.
Two at a time, one thread each. What is done is kept, so a run that was broken off goes on where it
was. Held-out recipes run with --held only.
"""

import argparse
import ast
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from pools import FURTHER, TASKS, open_pool
from published import ROOT, RUNS, accept, find_changes, names, read, read_tree

HELD = ("crowd_held", "held")
"""They were run once."""
LONG = ("promise", "crowd", "ablations", "beyond", "others")
"""They take longest, so they begin first."""
QUICK = ("transitions", "holdout", "diagnostics", "certified", "best_of_n")
"""Each takes a minute or two."""
PAGES = ("commands_page", "evidence_page", "policies_page", "picture")
"""Written or drawn from the code, or from what is published, in seconds."""
ALONE = ("best_of_n", *PAGES)
"""They need no POOLS."""


def recipes() -> list[str]:
    """Every recipe that publishes anything, the longest first."""
    found = [path.stem for path in sorted(RUNS.glob("*.py")) if publishes(read_tree(path))]
    return sorted(found, key=lambda name: (LONG.index(name) if name in LONG else len(LONG), name))


def publishes(tree: ast.Module) -> bool:
    """Whether a file calls `publish`."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(call, ast.Name) and call.id == "publish" for call in calls)


def outdated(folder: Path) -> dict[str, str]:
    """The recipes to run, and why."""
    found = dict[str, str]()
    for recipe in recipes():
        own = [name for name in names() if read(name).recipe == recipe]
        changes = {change for name in own for change in find_changes(name, folder)}
        if changes or not own:
            found[recipe] = ", ".join(sorted(changes)) or "never published"
    return found


def run(folder: Path, name: str) -> bool:
    """One recipe, in a process of its own; whether it ended well."""
    log = ROOT / "out" / "all" / f"{name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    given = [] if name in ALONE else [str(folder)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    begun = time.monotonic()
    with log.open("w") as file:
        command = [sys.executable, f"{name}.py", *given]
        process = subprocess.Popen(command, cwd=RUNS, env=alone, stdout=file, stderr=file)
        _, status, used = os.wait4(process.pid, 0)
    seconds = f"{time.monotonic() - begun:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of a core"
    print(f"{name}: {'done' if status == 0 else f'FAILED, see {log}'} ({seconds})", flush=True)
    return status == 0


def run_all(folder: Path, recipes: Sequence[str]) -> bool:
    """Two at a time, and the pages that are drawn or written from them last."""
    done = list[bool]()
    for stage in ([*recipes], PAGES):
        with ThreadPoolExecutor(2) as pair:
            done += pair.map(partial(run, folder), stage)
    return all(done)


def import_pools(folder: Path, *, held: bool) -> None:
    """Once and first, for two recipes at a time may want the same pool."""
    there = [name for name in (*TASKS, *FURTHER) if (folder / f"{name}.jsonl.gz").exists()]
    wanted = [(name, False) for name in there if held or name != "gsm8k-held"]
    wanted += [(name, True) for name in TASKS]
    with ProcessPoolExecutor(2, get_context("spawn")) as pair:
        [*pair.map(partial(import_pool, folder), wanted)]


def import_pool(folder: Path, wanted: tuple[str, bool]) -> None:
    """By its name, and whether it is read as in the paper."""
    open_pool(folder, wanted[0], redo=wanted[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "pools", type=Path, nargs="?", help="a folder with gsm8k.jsonl.gz and so on"
    )
    parser.add_argument("--quick", action="store_true", help="only what takes ten minutes in all")
    parser.add_argument("--held", action="store_true", help="the held-out recipes too, once more")
    parser.add_argument("--list", action="store_true", help="say what is out of date, run nothing")
    parser.add_argument(
        "--accept", nargs="+", metavar="NAME", help="let results stand whose recipe was reworded"
    )
    given = parser.parse_args()
    if given.accept:
        for name in given.accept:
            accept(name)
        return
    if given.pools is None:
        parser.error("POOLS is missing")
    waiting = outdated(given.pools)
    for name, why in waiting.items():
        print(f"{name}: {why}" + (" (held out: left as it is)" if name in HELD else ""))
    if given.list:
        return
    chosen = [name for name in recipes() if name in (QUICK if given.quick else waiting)]
    chosen = [name for name in chosen if given.held or name not in HELD]
    import_pools(given.pools.resolve(), held=given.held)
    before = {name: read(name).parts for name in names()}
    done = run_all(given.pools.resolve(), chosen)
    changed = [name for name in names() if read(name).parts != before.get(name)]
    print(f"results that say something else now: {', '.join(changed) or 'none'}")
    if not done:
        raise SystemExit("some recipes failed")


if __name__ == "__main__":
    main()
