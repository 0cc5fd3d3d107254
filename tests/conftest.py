"""Factories shared by the tests: short ways to write votes, prefixes, records and import files."""

import fcntl
import gzip
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import streams
from commands import Aera, run
from hypothesis import HealthCheck, settings
from streams import Answers

from aera import Record, Task, get_task

pytest_plugins = ["lab_fixtures"]
settings.register_profile(
    "aera", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("aera")


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """once(name, make): a folder that the first process to ask has made, and all share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        place = shared / f"once-{name}"
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                made = tmp_path_factory.mktemp(name)
                make(made)
                made.rename(place)
        return place

    return folder


@pytest.fixture
def aera(tmp_path: Path) -> Aera:
    """The command line, called from an empty folder."""
    return partial(run, tmp_path)


@pytest.fixture(scope="session")
def numeric() -> Task:
    """The plainest task: a number in a box."""
    return get_task("numeric")


@pytest.fixture(scope="session")
def record_of() -> Callable[[str, Answers], Record]:
    return streams.record_of


@pytest.fixture(scope="session")
def row_of() -> Callable[..., dict[str, Any]]:
    """One line of a file to import; a truth of None leaves the answer out."""

    def make(name: str, answers: Answers, truth: str | None = "1") -> dict[str, Any]:
        responses = [{"text": f"\\boxed{{{a}}}" if a else "hm", "tokens": 7} for a in answers]
        told = {} if truth is None else {"answer": truth}
        return {"id": name, "question": "?", "task": "numeric", **told, "responses": responses}

    return make


@pytest.fixture(scope="session")
def write_rows() -> Callable[..., Path]:
    """Write rows, or raw text for damaged ones, as a file to import."""

    def write(path: Path, rows: Sequence[dict[str, Any] | str]) -> Path:
        text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)
        data = text.encode("utf-8")
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path

    return write
