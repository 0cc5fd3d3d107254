"""Everything that is published, by one command.

Runs the recipes whose sections are out of date: their recipe, the code or their pools have changed
since, or their text was changed by hand. Two at a time, one thread each. What is done is stamped, so
a run that was broken off goes on where it was. Held-out recipes run with --held only.
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
from published import ROOT, RUNS, accept, find_changes, imported, read_stamps, read_tree

HELD = ("crowd_held", "held")
"""They were run once, at the commit that their page names."""
FIRST = ("small",)
"""It works with two processes, on what others read."""
LAST = ("paper",)
"""They read the sections of others."""
LONG = ("crowd_pools", "crowd", "traces", "ablations", "batch", "abroad")
"""They take longest, so they begin first."""
QUICK = ("transitions", "reference", "holdout", "diagnostics", "halves", "certified")
"""Each takes a minute or two."""
PAGES = ("commands_page", "evidence_page", "policies_page", "tasks_page", "picture")
"""Written or drawn from the code, or from what is published, in seconds."""
ARGUMENTS = {"paper": ["--quick"]}
"""Its sections are made by the others."""


def recipes() -> list[str]:
    """Every recipe that publishes a section, the longest first."""
    found = [path.stem for path in sorted(RUNS.glob("*.py")) if publishes(read_tree(path))]
    return sorted(found, key=lambda name: (LONG.index(name) if name in LONG else len(LONG), name))


def publishes(tree: ast.Module) -> bool:
    """Whether a file calls `publish`."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(call, ast.Name) and call.id == "publish" for call in calls)


def scripts(recipe: str) -> list[str]:
    """What to run for a recipe: itself, or the files that call it where it has no main."""
    if runs_alone(RUNS / f"{recipe}.py"):
        return [recipe]
    callers = [path for path in sorted(RUNS.glob("*.py")) if not publishes(read_tree(path))]
    return [path.stem for path in callers if runs_alone(path) and recipe in imported(path.stem)]


def runs_alone(path: Path) -> bool:
    """Whether a file is a program."""
    return '__name__ == "__main__"' in path.read_text("utf-8")


def outdated(folder: Path) -> dict[str, str]:
    """The recipes to run, and why."""
    stamps = read_stamps()
    found = dict[str, str]()
    for recipe in recipes():
        own = {section: stamp for section, stamp in stamps.items() if stamp.recipe == recipe}
        changes = {change for name in own for change in find_changes(name, own[name], folder)}
        if changes or not own:
            found[recipe] = ", ".join(sorted(changes)) or "never published"
    return found


def run(folder: Path, recipe: str) -> bool:
    """One recipe, in processes of its own; whether it ended well."""
    return all(run_script(folder, name) for name in scripts(recipe))


def run_script(folder: Path, name: str) -> bool:
    """One file; whether it ended well."""
    log = ROOT / "out" / "all" / f"{name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    given = [] if name in PAGES else [str(folder), *ARGUMENTS.get(name, [])]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    begun = time.monotonic()
    with log.open("w") as file:
        command = [sys.executable, f"{name}.py", *given]
        process = subprocess.Popen(command, cwd=RUNS, env=alone, stdout=file, stderr=file)
        _, status, used = os.wait4(process.pid, 0)
    seconds = f"{time.monotonic() - begun:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of a core"
    print(f"{name}: {'done' if status == 0 else f'FAILED, see {log}'} ({seconds})", flush=True)
    return status == 0


def run_all(folder: Path, names: Sequence[str]) -> bool:
    """Two at a time; what others read first, those that read the others' sections last."""
    done = list[bool]()
    for stage in (
        [name for name in names if name in FIRST],
        [name for name in names if name not in (*FIRST, *LAST, *PAGES)],
        [name for name in names if name in LAST],
        [name for name in names if name in PAGES],
    ):
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
        "--accept",
        nargs="+",
        metavar="SECTION",
        help="stamp sections as they stand, new ones as SECTION=RECIPE, and say why in the commit",
    )
    given = parser.parse_args()
    if given.accept:
        for each in given.accept:
            section, _, recipe = each.partition("=")
            accept(section, recipe or None)
        return
    if given.pools is None:
        parser.error("POOLS is missing")
    waiting = outdated(given.pools)
    for name, why in waiting.items():
        print(f"{name}: {why}" + (" (held out: left as it is)" if name in HELD else ""))
    if given.list:
        return
    names = [name for name in recipes() if name in (QUICK if given.quick else waiting)]
    names = [name for name in names if given.held or name not in HELD]
    read = imported("paper") & set(names)  # what it says of the others is out of date with them
    names += ["paper"] if read and "paper" not in names else []
    import_pools(given.pools.resolve(), held=given.held)
    before = read_stamps()
    done = run_all(given.pools.resolve(), [*names, *PAGES])
    now = read_stamps()
    changed = [name for name in now if name not in before or now[name].text != before[name].text]
    print(f"sections that say something else now: {', '.join(changed) or 'none'}")
    if not done:
        raise SystemExit("some recipes failed")


if __name__ == "__main__":
    main()
