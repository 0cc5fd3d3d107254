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
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import FOREIGN, Done, run
from golden.files import HERE, WRITE, compare, plain, pretty, tidy
from golden.standin import standin

LINES = HERE / "lines"
NAMES = sorted(path.stem for path in LINES.glob("*.txt"))
CONTROLLER = HERE.parents[1] / "aera" / "demo" / "controller"
PROGRESS = re.compile(r"\d[\d,]*/[\d,]+ ")
"""Lines that come every so many seconds."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with standin() as url:
        yield url


def called(line: str, folder: Path, url: str) -> Done:
    """A line of a transcript, done: a command of ours here, whatever else by a shell."""
    variables = {"URL": url, "CONTROLLER": str(CONTROLLER), "PYTHON": sys.executable}
    shown = {"COLUMNS": "100", "NO_COLOR": "1"}
    piped = re.fullmatch(r"(?:cat (\S+) \| )?aera (.*)", line)
    if piped:
        words = shlex.split(re.sub(r"\$([A-Z]+)", lambda found: variables[found[1]], piped[2]))
        stdin = (folder / piped[1]).read_text() if piped[1] else ""
        return run(folder, *words, stdin=stdin, **shown)
    own = {name: told for name, told in os.environ.items() if not name.startswith(FOREIGN)}
    given: Any = {"env": {**own, **variables, **shown}, "capture_output": True, "text": True}
    return subprocess.run(["bash", "-c", line], cwd=folder, timeout=180, check=False, **given)


def printed(line: str, folder: Path, url: str) -> list[str]:
    """The lines that a command writes, as they are compared."""
    done = called(line, folder, url)
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
def test_a_transcript_is_what_it_was(
    tmp_path: Path, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aera.sampling.client.random.uniform", lambda low, high: 0.0)
    for given in LINES.glob("*.*"):
        if given.suffix != ".txt":
            shutil.copy(given, tmp_path)
    golden, now = (LINES / f"{name}.txt").read_text(), []
    for line in golden.splitlines():
        if line.startswith("$ "):
            now += [line, *printed(line[2:], tmp_path, url), ""]
    text = "\n".join(now).strip() + "\n"
    if WRITE:
        (LINES / f"{name}.txt").write_text(text)
        return
    compare(name, golden, text)
