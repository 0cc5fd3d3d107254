"""Published: what recipes found, in runs/published/NAME.json, and the pages that show it.

A file has the tables of one result, the recipe that made it, and digests of code and data. A page
shows some columns and rows of it between two markers, and a test fails where it shows anything else:

    <!-- begin held; columns 3 5; rows AERA|ASC -->
    <!-- end held -->

`; turned` makes columns of rows. `python runs/published.py` fills the pages; runs/all.py runs again what is out of date.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from aera.lab import file_hash, write_whole

ROOT = Path(__file__).parents[1]
RUNS, DOCS, FOUND = ROOT / "runs", ROOT / "docs", ROOT / "runs" / "published"
SECTION = re.compile(
    r"(?P<begin><!-- begin (?P<name>[\w-]+)(?P<wish>[^>]*?) -->\n)(.*?)(?P<end><!-- end (?P=name) -->)",
    re.DOTALL,
)
WISH = re.compile(r"(table|columns|rows) (.*)")
APART = ("adapters", "cli", "gateway", "web", "lab/report")
"""Rooms of aera/ that no figure comes from."""


def shorten(digest: str) -> str:
    """Enough of a digest to tell versions apart."""
    return digest[:12]


def digest(text: str) -> str:
    """Of a text."""
    return shorten(sha256(text.encode()).hexdigest())


# --- sources --------------------------------------------------------------------------------------


def outline(node: Any) -> Any:
    """A syntax tree without its layout, its docstrings, and what is empty in some versions only."""
    if isinstance(node, list):
        return [outline(each) for each in node if not _is_text(each)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return [type(node).__name__, *((name, outline(value)) for name, value in fields)]


def _is_text(node: Any) -> bool:
    alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return alone and isinstance(node.value.value, str)


@cache
def read_tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"))


@cache
def shape_of(path: Path) -> str:
    """What a file does, as a text; comments and formatting do not count."""
    return repr(outline(read_tree(path)))


def source_of(recipe: str) -> str:
    """The digest of a recipe's own file."""
    return digest(shape_of(RUNS / f"{recipe}.py"))


def imported(recipe: str) -> set[str]:
    """The files in runs/ that a recipe uses, itself among them."""
    found, waiting = set[str](), {recipe}
    while waiting:
        found |= waiting
        names = {name for each in waiting for name in _imports(RUNS / f"{each}.py")}
        waiting = {name for name in names if (RUNS / f"{name}.py").exists()} - found
    return found


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(read_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@cache
def code_of(recipe: str) -> str:
    """The digest of all that a recipe runs: what it imports from runs/ but this, and aera/."""
    package = ROOT / "aera"
    rooms = tuple(str(package / room) for room in APART)
    modules = [path for path in package.rglob("*.py") if not str(path).startswith(rooms)]
    used = sorted(imported(recipe) - {Path(__file__).stem})
    files = [*sorted(modules), *(RUNS / f"{name}.py" for name in used)]
    return digest(f"[{', '.join(map(shape_of, files))}]")


def data_of(folder: Path, name: str) -> str:
    """The digest of a pool's file, and of its traces where it has any."""
    files = [folder / f"{name}{end}" for end in (".jsonl.gz", ".npz")]
    return digest("".join(file_hash(path) for path in files if path.exists()))


# --- what was found -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Rows of cells as they are shown, the first of each its name."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def by_name(self) -> dict[str, list[str]]:
        """The cells of every row after its name."""
        return {name: cells for name, *cells in self.rows}

    def markdown(self, columns: Sequence[int] = (), rows: str = "", *, words: bool = False) -> str:
        """These columns, counted after the first, of the rows whose name a pattern finds."""
        shown = [0, *(columns or range(1, len(self.header)))]
        chosen = [self.header, *(row for row in self.rows if re.search(rows, row[0]))]
        first, *rest = ([line[place] for place in shown] for line in chosen)
        lines = [first, ["---", *["---" if words else "---:"] * (len(shown) - 1)], *rest]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass(frozen=True)
class Found:
    """A result: its tables and sentences, and what it was made by and from."""

    recipe: str
    source: str
    code: str = ""
    """Empty where the result stands and its recipe has changed since, in words only."""
    data: Mapping[str, str] = field(default_factory=dict)
    """By the name of a pool."""
    parts: Sequence[Table | str] = ()

    @property
    def tables(self) -> list[Table]:
        return [part for part in self.parts if isinstance(part, Table)]


def names() -> list[str]:
    """Every result there is."""
    return sorted(path.stem for path in FOUND.glob("*.json"))


def read(name: str) -> Found:
    """A result by its name."""
    path = FOUND / f"{name}.json"
    if not path.exists():
        raise SystemExit(f"{path.name} is not published; its recipe writes it")
    known = json.loads(path.read_text("utf-8"))
    known["parts"] = [part if isinstance(part, str) else Table(**part) for part in known["parts"]]
    return Found(**known)


def write(name: str, found: Found) -> None:
    """Keep a result."""
    FOUND.mkdir(exist_ok=True)
    text = json.dumps(asdict(found), ensure_ascii=False, indent=1)
    write_whole(FOUND / f"{name}.json", f"{text}\n")


def put(name: str, parts: Sequence[Table | str], recipe: str, data: Mapping[str, str]) -> None:
    """Keep what a recipe found, and show it wherever a page does."""
    write(
        name, Found(recipe, source_of(recipe), code_of(recipe), dict(sorted(data.items())), parts)
    )
    fill_pages()


def accept(name: str) -> None:
    """Let a result stand though its recipe has changed; it is out of date until it is made again."""
    found = read(name)
    write(name, Found(found.recipe, source_of(found.recipe), "", found.data, found.parts))


def find_changes(name: str, folder: Path) -> list[str]:
    """What has changed since a result was made, in words; nothing where it is up to date."""
    found = read(name)
    changes = ["its recipe"] if source_of(found.recipe) != found.source else []
    changes += ["the code"] if code_of(found.recipe) != found.code else []
    return changes + [n for n, was in found.data.items() if data_of(folder, n) != was]


# --- pages ----------------------------------------------------------------------------------------


def show(name: str, wish: str) -> str:
    """What a page shows of a result: one table, or all of it where nothing is wished for."""
    found, wished = read(name), dict(WISH.findall(wish.replace(";", "\n")))
    if not wished:
        parts = [part if isinstance(part, str) else part.markdown() for part in found.parts]
        return "\n\n".join(parts)
    columns = [int(each) for each in wished.get("columns", "").split()]
    shown, rows = found.tables[int(wished.get("table", "1")) - 1], wished.get("rows", "").strip()
    if "; turned" in wish:
        chosen = [shown.header, *(row for row in shown.rows if re.search(rows, row[0]))]
        [_, *header], *turned = ([*line] for line in zip(*chosen, strict=True))
        return Table(["", *header], turned).markdown()
    return shown.markdown(columns, rows)


def fill(text: str) -> str:
    """A page with every section as its result says."""

    def section(match: re.Match[str]) -> str:
        return f"{match['begin']}{show(match['name'], match['wish'])}\n{match['end']}"

    return SECTION.sub(section, text)


def fill_pages() -> None:
    """Every page that shows a result."""
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text("utf-8")
        if fill(text) != text:
            write_whole(page, fill(text))


if __name__ == "__main__":
    fill_pages()
