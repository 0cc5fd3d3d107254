"""Published: which recipe wrote which section of docs/*.md, from which sources and which data.

runs/published.json keeps a stamp for each section. A test fails where a section is not the one that
was stamped, and where its recipe has changed since. runs/all.py runs again what is out of date.
"""

import ast
import fcntl
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from aera.lab import file_hash, write_whole

ROOT = Path(__file__).parents[1]
RUNS, DOCS, STAMPS = ROOT / "runs", ROOT / "docs", ROOT / "runs" / "published.json"
SECTION = re.compile(r"<!-- begin (\S+) -->\n(.*?)<!-- end \1 -->", re.DOTALL)
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


# --- stamps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stamp:
    """What a section was made by and from."""

    recipe: str
    text: str
    source: str
    code: str = ""
    """Empty where the section was accepted and not made again."""
    data: Mapping[str, str] = field(default_factory=dict)
    """By the name of a pool."""


def read_stamps() -> dict[str, Stamp]:
    """Every stamp, by its section."""
    known = json.loads(STAMPS.read_text("utf-8"))
    return {section: Stamp(**fields) for section, fields in known.items()}


def write_stamps(stamps: Mapping[str, Stamp]) -> None:
    """All of them, a line each, so that changes can be read and merged."""
    lines = [f"{json.dumps(name)}: {json.dumps(asdict(stamps[name]))}" for name in sorted(stamps)]
    write_whole(STAMPS, "{\n" + ",\n".join(lines) + "\n}\n")


def read_sections() -> dict[str, tuple[Path, str]]:
    """Every section of the pages: where it stands, and its text."""
    pages = ((page, page.read_text("utf-8")) for page in sorted(DOCS.glob("*.md")))
    return {name: (page, text) for page, whole in pages for name, text in SECTION.findall(whole)}


def put(section: str, text: str, recipe: str, data: Mapping[str, str]) -> None:
    """Write a section between its markers, wherever those are, and stamp it."""
    with _alone():
        known = read_sections()
        if section not in known:
            raise SystemExit(f"no page in docs/ has a section {section}")
        page, old = known[section]
        begin, end = f"<!-- begin {section} -->\n", f"<!-- end {section} -->"
        whole = page.read_text("utf-8")
        write_whole(page, whole.replace(f"{begin}{old}{end}", f"{begin}{text}\n{end}"))
        known_data = {name: data[name] for name in sorted(data)}
        stamp = Stamp(recipe, digest(f"{text}\n"), source_of(recipe), code_of(recipe), known_data)
        write_stamps({**read_stamps(), section: stamp})


def accept(section: str, recipe: str | None = None) -> None:
    """Stamp a section as it stands, or forget one that is gone.

    It was not made again, so it counts as out of date until it is.
    """
    with _alone():
        stamps, sections = read_stamps(), read_sections()
        if section in sections:
            name = recipe or stamps[section].recipe
            stamps[section] = Stamp(name, digest(sections[section][1]), source_of(name))
        else:
            del stamps[section]
        write_stamps(stamps)


@contextmanager
def _alone() -> Iterator[None]:
    """Two recipes may run at once; one writes at a time."""
    with (ROOT / "out" / "published.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def find_changes(section: str, stamp: Stamp, folder: Path) -> list[str]:
    """What has changed since a section was made, in words; nothing where it is up to date."""
    known = read_sections()
    if section not in known or digest(known[section][1]) != stamp.text:
        return ["its text"]
    changes = ["its recipe"] if source_of(stamp.recipe) != stamp.source else []
    changes += ["the code"] if code_of(stamp.recipe) != stamp.code else []
    return changes + [n for n, was in stamp.data.items() if data_of(folder, n) != was]
