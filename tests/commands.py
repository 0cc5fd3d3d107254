"""The command line as tests call it: within this process, which is quick, or as one of its own."""

import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aera.cli import app, main

Done = subprocess.CompletedProcess[str]
Aera = Callable[..., Done]
FOREIGN = ("AERA_", "OPENAI_")
"""Variables that would change what a command does."""


def command(*words: object) -> list[str]:
    """`aera` as a process, which takes a second to start and can be killed."""
    return [sys.executable, "-m", "aera", *map(str, words)]


def said(*words: object) -> str:
    """What a command prints that succeeds; an error of ours is raised."""
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def run(folder: Path, *words: object, stdin: str = "", **variables: str) -> Done:
    """What `aera` says and how it ends when it is called from this folder."""
    line, known = ["aera", *map(str, words)], {*sys.modules}
    out, error = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr("sys.argv", ["__main__.py", *line[1:]])
        patch.setattr(sys.modules["__main__"], "__package__", "aera")  # as `python -m aera`
        patch.setattr(logging.getLogger(), "handlers", [])  # warnings go to standard error
        patch.setattr("sys.path", [*sys.path])
        patch.setattr("sys.stdin", io.StringIO(stdin))
        with (
            chdir(folder),
            redirect_stdout(out),
            redirect_stderr(error),
            pytest.raises(SystemExit) as ended,
        ):
            main()
    forget_modules(known, folder)
    for each in (out, error):
        each.seek(0)
    return Done(line, int(ended.value.code or 0), out.read(), error.read())


def refusal(kind: type[Exception], work: Callable[..., object], *given: Any, **known: Any) -> str:
    """The one sentence with which a piece of work is refused."""
    with pytest.raises(kind) as caught:
        work(*given, **known)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused(done: Done, code: int) -> str:
    """The one line with which a call ended, after what it was about to ask."""
    assert done.returncode == code, done
    assert done.stdout == ""
    told = [line for line in done.stderr.splitlines() if not line.startswith("asking ")]
    assert len(told) == 1, done.stderr
    assert told[0].startswith("aera: ")
    return told[0]


def forget_modules(known: set[str], folder: Path) -> None:
    """Scorers and tasks of a folder that goes: others have such names too."""
    for name in {*sys.modules} - known:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
