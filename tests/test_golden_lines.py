"""What `aera solve` and `aera sample` print, as transcripts in golden/lines/*.txt.

A transcript holds shell commands behind "$ ", and below each what it wrote: standard output, standard error behind
"! ", and its exit code in brackets if that is not 0. Commands run one after the other in a folder that holds
golden/lines/*.jsonl and so on; $URL is the stand-in, $CONTROLLER the bundled controller. JSON lines are spread out and
sorted by question. How to write transcripts anew is in golden/files.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden.files import HERE, WRITE, compare, plain, pretty
from golden.standin import standin

LINES = HERE / "lines"
NAMES = sorted(path.stem for path in LINES.glob("*.txt"))
CONTROLLER = HERE.parents[1] / "aera" / "demo" / "controller"
GONE = {"hurry", "unused"}
"""Fields of prefetching, which is being taken out."""
MOVING = {"seconds", "milliseconds", "gate_ms", "encoder_ms"}
"""Times; only what they are called is compared."""
PROGRESS = re.compile(r"\d[\d,]*/[\d,]+ ")
"""Lines that come every so many seconds."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with standin() as url:
        yield url


def run(command: str, folder: Path, url: str) -> list[str]:
    """The lines that a command writes, as they are compared."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AERA_", "OPENAI_"))}
    more = {"URL": f"{url}/v1", "CONTROLLER": str(CONTROLLER), "PYTHON": sys.executable, "COLUMNS": "100", "NO_COLOR": "1"}
    shell = f'aera() {{ "{sys.executable}" -m aera "$@"; }}; {command}'
    done = subprocess.run(
        ["bash", "-c", shell], cwd=folder, env={**own, **more}, capture_output=True, text=True, timeout=60, check=False
    )
    told = {"out": done.stdout, "error": done.stderr}
    for each in told:
        for place, name in ((folder, "FOLDER"), (CONTROLLER, "CONTROLLER")):
            told[each] = told[each].replace(str(place), name)
    rows = sorted(filter(is_json, told["out"].splitlines()), key=lambda row: str(json.loads(row).get("question_id")))
    lines = [line for row in rows for line in pretty(tidy(json.loads(row))).splitlines()]
    lines += [tidy_text(line) for line in told["out"].splitlines() if not is_json(line)]
    lines += [f"! {tidy_text(line)}".rstrip() for line in told["error"].splitlines() if not PROGRESS.match(line)]
    return lines + ([f"[{done.returncode}]"] if done.returncode else [])


def is_json(line: str) -> bool:
    return line.startswith("{")


def tidy_text(line: str) -> str:
    """A line without times; what goes to a terminal only is not here."""
    return re.sub(r"\b\d+(\.\d+)? (s|seconds|minutes)\b", "TIME", plain(line))


def tidy(value: Any) -> Any:
    """A value of a line without times, and without what is being taken out."""
    if isinstance(value, dict):
        return {key: key.upper() if key in MOVING else tidy(value[key]) for key in sorted(value) if key not in GONE}
    if isinstance(value, list):
        return [tidy(each) for each in value]
    if isinstance(value, str):
        return plain(value)
    return round(value, 6) if isinstance(value, float) else value


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
