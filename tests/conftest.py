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
from commands import Aera, run

from aera import Prefix, Question, Record, Response, Schedule, Task, Vote, get_task, unfold

pytest_plugins = ["lab_fixtures"]

Answers = Sequence[str | None]
QUESTION = Question("q", "how many?")


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
def responses_of() -> Callable[[Answers], list[Response]]:
    """Responses that box these answers; a dot or None is one that says nothing."""

    def make(answers: Answers) -> list[Response]:
        silent = (None, ".")
        texts = ["no idea" if a in silent else f"so it is \\boxed{{{a}}}" for a in answers]
        return [Response(text, tokens=10 + place) for place, text in enumerate(texts)]

    return make


@pytest.fixture(scope="session")
def prefixes_of() -> Callable[..., list[Prefix]]:
    """Every prefix of a stream of answers, by default at the paper's checkpoints.

    Answers are as in "aab" or ["a", None]; a dot in a string is an abstention.
    """

    def make(answers: Answers, schedule: Schedule | None = None) -> list[Prefix]:
        votes = [Vote(None if a in (None, ".") else a) for a in answers]
        responses = [Response("", tokens=1) for _ in votes]
        schedule = schedule or Schedule().upto(len(votes))
        return list(unfold(QUESTION, responses, votes=votes, schedule=schedule))

    return make


@pytest.fixture(scope="session")
def prefix_of() -> Callable[..., Prefix]:
    """One prefix of answers or votes, whole, with more to come after it."""

    def make(votes: Sequence[Vote | str | None], schedule: Schedule | None = None) -> Prefix:
        cast = [v if isinstance(v, Vote) else Vote(None if v in (None, ".") else v) for v in votes]
        schedule = schedule or Schedule(tuple(range(1, len(cast) + 2)))
        return Prefix(QUESTION, schedule).extend([Response("", tokens=1)] * len(cast), cast)

    return make


@pytest.fixture(scope="session")
def record_of(
    responses_of: Callable[[Answers], list[Response]],
) -> Callable[[str, Answers], Record]:
    """A question with responses that box these answers."""
    return lambda name, answers: Record(
        Question(name, f"what is {name}?"), (*responses_of(answers),)
    )


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
