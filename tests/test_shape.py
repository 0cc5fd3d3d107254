"""The shape of the code: the border around the truth, layers without cycles, a bounded whole."""

import ast
import inspect
import io
import subprocess
import sys
import tokenize
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import aera
from aera import lab
from aera.cli.lab import evaluate, train

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "aera").rglob("*.py"))
BUDGET = {
    "modules": 95,
    "code lines": 18_706,
    "classes": 171,
    "longest import chain": 12,
    "lines of tests": 13_991,
    "words of README and docs": 18_626,
}
GENERATED = ("commands.md", "policies.md", "evidence.md")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
BLANK = ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in MODULES}
# Parsed while the tests are collected: until 3.11.8 Python's parser stumbles over a second thread
# that parses at the same moment, and threads of Ray do.
TREES = {path: ast.parse(path.read_text("utf-8")) for path in MODULES}


def imports(tree: ast.Module, *, top_only: bool = False) -> set[str]:
    """The aera modules a file imports, also those hidden inside functions."""
    nodes = tree.body if top_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & NAMES
            found |= inner or {node.module}
    return {name for name in found if name.split(".")[0] == "aera"}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_only_the_lab_and_the_commands_know_the_lab(path: Path) -> None:
    reached = {name for name in imports(TREES[path]) if name.startswith("aera.lab")}
    if path == ROOT / "aera" / "__init__.py":
        assert reached == {"aera.lab.api"}, "named for type checkers, loaded when it is first used"
        return
    if path.parent.name == "cli":
        reached = {n for n in imports(TREES[path], top_only=True) if n.startswith("aera.lab")}
    assert module_name(path).startswith("aera.lab") or not reached


def test_a_hidden_import_of_the_lab_is_seen() -> None:
    planted = ast.parse("def peek():\n    from aera.lab.truths import Truths\n")
    assert imports(planted) == {"aera.lab.truths"}


def test_the_modules_import_each_other_without_a_cycle() -> None:
    graph = {module_name(path): imports(TREES[path], top_only=True) & NAMES for path in MODULES}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"import cycle: {error.args[1]}")


def count_code(path: Path) -> int:
    """Lines with code on them: no comments, no docstrings, no blank ones."""
    source = path.read_text("utf-8")
    told, prose = set[int](), set[int]()
    for node in ast.walk(TREES.get(path) or ast.parse(source)):
        documented = isinstance(node, ast.Module | ast.ClassDef | FUNCTIONS)
        if documented and ast.get_docstring(node, clean=False) is not None:
            prose.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if tokenize.tok_name[token.type] not in BLANK:
            told.update(range(token.start[0], token.end[0] + 1))
    return len(told - prose)


def find_longest_chain() -> int:
    """Modules one behind the other, each importing the next, imports inside functions counted."""
    graph = {module_name(path): imports(TREES[path]) & NAMES - {"aera"} for path in MODULES}
    depths: dict[str, int] = {}

    def depth(name: str, above: tuple[str, ...]) -> int:
        if name in above:
            return 0
        if name not in depths:
            below = graph[name] - {name}
            depths[name] = 1 + max((depth(each, (*above, name)) for each in below), default=0)
        return depths[name]

    return max(depth(name, ()) for name in graph)


def count_words() -> int:
    """Words of README and docs; the pages that are generated from the code are left out."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sum(len(p.read_text("utf-8").split()) for p in pages if p.name not in GENERATED)


def test_the_whole_stays_within_its_budget() -> None:
    # Ceilings of the whole, never of one file. They are lowered with what goes, and never raised:
    # who adds a module takes one away.
    classes = sum(isinstance(n, ast.ClassDef) for tree in TREES.values() for n in ast.walk(tree))
    measured = {
        "modules": len(MODULES),
        "code lines": sum(map(count_code, MODULES)),
        "classes": classes,
        "longest import chain": find_longest_chain(),
        "lines of tests": sum(map(count_code, (ROOT / "tests").rglob("*.py"))),
        "words of README and docs": count_words(),
    }
    above = {name: n for name, n in measured.items() if n > BUDGET[name]}
    assert not above, f"{above} where {BUDGET} is the budget"


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc", "manager"}
    assert not [path for path in MODULES if path.stem in drawers]


FRONT = {"aera", "aera.lab", "aera.adapters.vllm"}
"""What recipes and benches import, beside each other."""
BEHIND = {"runs/commands_page.py"}  # the page of the commands is made of the commands


def written(folder: str) -> dict[str, ast.Module]:
    """The files of a folder by their path, parsed."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return {str(f.relative_to(ROOT)): ast.parse(f.read_text("utf-8")) for f in files}


RECIPES = {**written("runs"), **written("bench")}
TESTS = written("tests")


@pytest.mark.parametrize("path", [path for path in RECIPES if path not in BEHIND])
def test_recipes_and_benches_import_from_the_front_only(path: str) -> None:
    deep = [
        node.module if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(RECIPES[path])
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
    ]
    assert {name for name in deep if name and name.split(".")[0] == "aera"} <= FRONT


def test_no_test_imports_a_private_name() -> None:
    private = [
        f"{path}: {node.module}.{alias.name}"
        for path, tree in TESTS.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "aera"
        for alias in node.names
        if any(part.startswith("_") for part in f"{node.module}.{alias.name}".split("."))
    ]
    assert not private


# --- public names ---------------------------------------------------------------------------------


def public_names(package: ModuleType) -> set[str]:
    kept = {name for name, value in vars(package).items() if not isinstance(value, ModuleType)}
    return {name for name in kept if not name.startswith("_")}


def test_the_list_of_public_names_is_sorted_and_complete() -> None:
    listed, lazy = aera.__all__, {"evaluate", "train"}
    assert set(listed) == public_names(aera) - {"TYPE_CHECKING", "Any", "import_module"} | lazy
    assert listed == sorted(
        set(listed), key=lambda name: (not name.isupper(), name.islower(), name)
    )


@pytest.mark.parametrize("package", [aera, lab], ids=lambda package: package.__name__)
def test_every_public_name_is_documented(package: ModuleType) -> None:
    assert not [name for name in public_names(package) if not getattr(package, name).__doc__]


def test_importing_aera_pulls_in_neither_torch_nor_the_lab() -> None:
    code = "import sys, aera; print([m for m in sys.modules if m in ('torch', 'aera.lab')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("command", "function", "apart"),
    [
        (evaluate, aera.evaluate, {"json_file", "report", "figures", "whole"}),
        (train, aera.train, {"out", "prices"}),
    ],
    ids=["evaluate", "train"],
)
def test_python_takes_what_the_command_takes(command: Any, function: Any, apart: set[str]) -> None:
    plural = {"baseline": "baselines"}
    asked = {plural.get(name, name) for name in inspect.signature(command).parameters} - apart
    assert asked == set(inspect.signature(function).parameters) - {"tell"}
