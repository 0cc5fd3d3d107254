"""What `aera solve` and `aera sample` print, as transcripts in golden/lines/*.txt.

A transcript holds shell commands behind "$ ", and below each what it wrote: standard output,
standard error behind "! ", and its exit code in brackets if that is not 0. Commands run one after
the other in a folder that holds golden/lines/*.jsonl; $URL is the stand-in, $CONTROLLER the bundled
controller. JSON lines are spread out and sorted by question. How to write transcripts anew is in
golden/files.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden.files import HERE, WRITE, compare, plain, pretty, tidy
from golden.standin import standin

LINES = HERE / "lines"
NAMES = sorted(path.stem for path in LINES.glob("*.txt"))
CONTROLLER = HERE.parents[1] / "aera" / "demo" / "controller"
FOREIGN = ("AERA_", "OPENAI_")
"""Variables that would change what a command does."""
PROGRESS = re.compile(r"\d[\d,]*/[\d,]+ ")
"""Lines that come every so many seconds."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with standin() as url:
        yield url


def run(command: str, folder: Path, url: str) -> list[str]:
    """The lines that a command writes, as they are compared."""
    own = {name: told for name, told in os.environ.items() if not name.startswith(FOREIGN)}
    more = {"URL": f"{url}/v1", "CONTROLLER": str(CONTROLLER), "PYTHON": sys.executable}
    shell = f'aera() {{ "{sys.executable}" -m aera "$@"; }}; {command}'
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=folder,
        env={**own, **more, "COLUMNS": "100", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    out, error = (
        text.replace(str(folder), "FOLDER").replace(str(CONTROLLER), "CONTROLLER").splitlines()
        for text in (done.stdout, done.stderr)
    )
    rows = [json.loads(line) for line in out if line.startswith("{")]
    rows.sort(key=lambda row: str(row.get("question_id")))
    lines = [pretty(tidy(row)) for row in rows]
    lines += [tidy_text(line) for line in out if not line.startswith("{")]
    lines += [f"! {tidy_text(line)}".rstrip() for line in error if not PROGRESS.match(line)]
    return lines + ([f"[{done.returncode}]"] if done.returncode else [])


def tidy_text(line: str) -> str:
    """A line without times."""
    return re.sub(r"\b\d+(\.\d+)? (s|seconds|minutes)\b", "TIME", plain(line))


@pytest.mark.parametrize("name", NAMES)
def test_a_transcript_is_what_it_was(tmp_path: Path, url: str, name: str) -> None:
    for given in LINES.glob("*.*"):
        if given.suffix != ".txt":
            shutil.copy(given, tmp_path)
    golden, now = (LINES / f"{name}.txt").read_text(), []
    for line in golden.splitlines():
        if line.startswith("$ "):
            now += [line, *run(line[2:], tmp_path, url), ""]
    text = "\n".join(now).strip() + "\n"
    if WRITE:
        (LINES / f"{name}.txt").write_text(text)
        return
    compare(name, golden, text)
