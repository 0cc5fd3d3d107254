"""What the recipes share: the pools as tables, and the pages their tables go to."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
from published import Table, code_of, data_of, put, source_of

from aera import Pool, Task, get_task
from aera.lab import (
    Dataset,
    Floats,
    HeldRecords,
    PaperLearner,
    PaperTable,
    Truths,
    VoteLearner,
    hold,
    import_file,
    with_redo,
)

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "results.md"
TASKS = {"gsm8k": "gsm8k", "svamp": "gsm8k", "csqa": "commonsense", "math": "math"}
FURTHER = {
    "gsm8k-held": "gsm8k",
    "traces/gsm8k": "gsm8k",
    "traces/gsm8k-half": "gsm8k",
    "traces/csqa": "commonsense",
    "traces/math500": "math",
    "others/gpqa-phi4": "gpqa",
    "others/math500-phi4": "math",
    "others/aime-phi4": "aime",
    "others/aime-gptoss20b": "aime",
    "others/contest-qwen3-0.6b": "aime",
    "others/contest-qwen3-1.7b": "aime",
}
"""The pools beside the four, by their file in POOLS."""
SEEDS = range(5)
READ: dict[str, str] = {}
"""The pools that were opened, with the digests of their files."""


def pools_argument(text: str) -> Path:
    """The folder with the pools, from the command line."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("pools", type=Path, help="a folder with gsm8k.jsonl.gz and its siblings")
    folder: Path = parser.parse_args().pools
    return folder


def open_pool(folder: Path, name: str, *, redo: bool = False) -> Pool:
    """A pool, imported into out/ once; with the redo test where the paper is repeated.

    Only math was asked with the note that allows a redo, so only there the prompt has it.
    """
    task = get_task({**TASKS, **FURTHER}[name])
    noted = with_redo(task) if name == "math" else replace(task, redo=True)
    return open_as(folder, name, noted if redo else task)


def open_as(folder: Path, name: str, task: Task) -> Pool:
    """A pool read by this task, imported again where its file or the task has changed."""
    READ[name] = data_of(folder, name)
    out = ROOT / "out" / "pools" / (name.replace("/", "-") + ("-redo" if task.redo else ""))
    kept = out.with_name(f"{out.name}.digest")
    known = kept.exists() and kept.read_text("utf-8") == READ[name]
    if not known or Pool.open(out).task != task:
        rmtree(out, ignore_errors=True)
        import_file(folder / f"{name}.jsonl.gz", out, task=task)
        kept.write_text(READ[name], "utf-8")
    return Pool.open(out)


@cache
def held(folder: Path, name: str, *, redo: bool = False) -> tuple[HeldRecords, Truths]:
    """The votes of a pool, with its truths."""
    pool = open_pool(folder, name, redo=redo)
    truths = Truths.open(pool.path)
    assert truths is not None
    return replace(hold(pool), name=name), truths


@cache
def paper_table(folder: Path, name: str, *, redo: bool = True) -> PaperTable:
    """A pool with its evidence, read as in the paper; embeddings are cached beside it."""
    print(f"{name} ...", file=sys.stderr)
    return PaperLearner().prepare(*held(folder, name, redo=redo))


@cache
def vote_table(folder: Path, name: str) -> Dataset:
    """A pool with the traits and grades of its responses."""
    print(f"{name}, traits ...", file=sys.stderr)
    return VoteLearner().prepare(*held(folder, name))


def made_once(name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Floats]:
    """Arrays under out/, made where the same code has not yet: a run that was broken off goes on."""
    recipe = Path(sys._getframe(1).f_code.co_filename).stem
    place = ROOT / "out" / f"{source_of(recipe)}-{code_of(recipe)}" / f"{name}.npz"
    if not place.exists():
        made = make()
        place.parent.mkdir(parents=True, exist_ok=True)
        np.savez(place, **made)
        print(name, file=sys.stderr)
    with np.load(place) as found:
        return dict(found)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Rows of anything as a table of what is shown."""
    return Table([*header], [[str(cell) for cell in row] for row in rows])


def publish(name: str, *parts: Table | str) -> None:
    """Keep what was found under its name, fill the pages that show it, and print it."""
    print(*(part if isinstance(part, str) else part.markdown() for part in parts), sep="\n\n")
    recipe = Path(sys._getframe(1).f_code.co_filename).stem  # whoever calls has made it
    put(name, parts, recipe, READ)


def interval(low: float, high: float) -> str:
    """[low, high] in points."""
    return f"[{low:+.2f}, {high:+.2f}]"
