"""The documentation is run: blocks are executed, links are followed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aera import Controller, get_task, standard_policies
from aera.lab import Truths, evaluate, import_jsonl, read_ballots

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "LOG.md",
    *(ROOT / "docs").rglob("*.md"),
]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run_block(language: str, text: str, cwd: Path) -> None:
    commands = [[sys.executable, "-c", text]]
    if language == "console":
        lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
        commands = [[sys.executable, "-m", *shlex.split(line)] for line in lines]
    for command in commands:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    (tmp_path / "aera").symlink_to(ROOT / "aera")
    for language, text in BLOCK.findall(page.read_text("utf-8")):
        run_block(language, text, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = [link.split("#")[0] for link in LINK.findall(page.read_text("utf-8"))]
    missing = [t for t in targets if t and "://" not in t and not (page.parent / t).exists()]
    assert not missing


def test_the_tree_in_the_readme_names_every_module() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    modules = [path.name for path in (ROOT / "aera").rglob("*.py") if path.stem != "__init__"]
    assert not [name for name in modules if name not in readme]


def test_contributing_stays_under_forty_lines() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines()) < 40


def test_the_evidence_page_is_what_the_table_says() -> None:
    code = "from evidence_page import PAGE, render; assert PAGE.read_text('utf-8') == render()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "runs", check=True)


def test_the_table_in_the_readme_is_what_the_demo_prints(tmp_path: Path) -> None:
    pool = import_jsonl(
        ROOT / "aera/demo/gsm8k.jsonl.gz", tmp_path / "demo", task=get_task("gsm8k")
    )
    ballots = read_ballots(pool, pool.task)
    bundled = Controller.load(ROOT / "aera/demo/controller")
    policies = [*standard_policies(pool.schedule), bundled.policy]
    truths = Truths.open(pool.path)
    frontier = evaluate(ballots, policies, task=pool.task, schedule=pool.schedule, truths=truths)
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^  (\S+) +([\d.]+) +([\d.]+) +([\d,]+) +([\d.]+)  ", readme, re.MULTILINE)
    assert len(rows) == 5
    for label, *cells in rows:
        p = frontier[label]
        shown = [f"{p.accuracy:.2f}", f"{p.responses:.2f}", f"{p.tokens:,.0f}"]
        assert cells == [*shown, f"{p.token_saving:.1f}"]
