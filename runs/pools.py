"""What the recipes share: the four pools as tables, and the page their tables go to."""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from aera import Pool, get_task
from aera.lab import PaperLearner, Truths, VoteLearner, import_jsonl
from aera.lab.learning.paper import PaperTable
from aera.lab.learning.votes import VoteTable
from aera.pools.record import HeldRecords, hold
from aera.reading.presets import with_redo

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "results.md"
TASKS = {"gsm8k": "gsm8k", "svamp": "gsm8k", "csqa": "commonsense", "math": "math"}
SEEDS = range(5)


def pools_argument(text: str) -> Path:
    """The folder with the pools, from the command line."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("pools", type=Path, help="a folder with gsm8k.jsonl.gz and its siblings")
    folder: Path = parser.parse_args().pools
    return folder


def open_pool(folder: Path, name: str, *, redo: bool = False) -> Pool:
    """A pool, imported into out/ on first use; with the redo test where the paper is repeated.

    Only math was asked with the note that allows a redo, so only there the prompt has it.
    """
    out = ROOT / "out" / "pools" / (f"{name}-redo" if redo else name)
    if not out.exists():
        task = get_task(TASKS[name])
        noted = with_redo(task) if name == "math" else replace(task, redo=True)
        import_jsonl(folder / f"{name}.jsonl.gz", out, task=noted if redo else task)
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
def vote_table(folder: Path, name: str) -> VoteTable:
    """A pool with the traits and grades of its responses."""
    print(f"{name}, traits ...", file=sys.stderr)
    return VoteLearner().prepare(*held(folder, name))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, words: bool = False) -> str:
    """A Markdown table; numbers stand on the right, words on the left."""
    lines = [header, ["---", *["---" if words else "---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def publish(section: str, text: str) -> None:
    """Put a section into the page that has its markers, between them, and show it."""
    print(text)
    begin, end = f"<!-- begin {section} -->", f"<!-- end {section} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    for page in sorted(DOCS.glob("*.md")):
        written = page.read_text("utf-8")
        if pattern.search(written):
            page.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", written), "utf-8")
            return
    raise SystemExit(f"no page in docs has a section {section}")


def interval(low: float, high: float) -> str:
    """[low, high] in points."""
    return f"[{low:+.2f}, {high:+.2f}]"
