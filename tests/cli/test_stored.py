"""`aera evaluate` and `aera train` take a folder or URI of Parquet and give the pool's numbers."""

import json
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from small_study import Bench
from typer.testing import CliRunner

from aera.cli import app
from aera.lab import VoteLearner
from aera.lab.learning.perceptron import Perceptron
from aera.lab.learning.weigher import WeigherFit


@pytest.fixture(scope="module", params=["folder", "memory"])
def address(
    request: pytest.FixtureRequest, bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The bench's pool in three parts, under the name it has as a pool."""
    folder = tmp_path_factory.mktemp("stored") / bench.pool.name
    place = f"memory:/{folder}" if request.param == "memory" else str(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 640)
        aera("export", bench.pool.path, "--out", place)
    return place


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits that end after a few epochs."""
    import_module("aera.lab.judging.audit")  # which takes its own from there when it is loaded
    fit = WeigherFit(Perceptron((32, 32), 0.2, 1e-2, 1e-2, epochs=4, batch=32))
    for module in ("aera.lab.learning.crowd", "aera.lab.learning.votes"):
        monkeypatch.setattr(f"{module}.VoteLearner", partial(VoteLearner, weigher=fit))


def aera(*arguments: object) -> None:
    """Call a command, which must succeed."""
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def evaluated(address: object, folder: Path, *options: str) -> tuple[Any, bytes]:
    """The evaluation and its page."""
    folder.mkdir()
    out, page = folder / "out.json", folder / "page.html"
    aera("evaluate", address, *options, "--json", out, "--report", page)
    return json.loads(out.read_text()), page.read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        ("--policies", "fixed-32,asc-0.9,lead-3"),
        ("--protocol", "nested", "--max-loss", "0.1"),
    ],
)
def test_an_evaluation_is_that_of_the_pool(
    options: tuple[str, ...], bench: Bench, address: str, tmp_path: Path
) -> None:
    ours = evaluated(address, tmp_path / "ours", *options)
    assert ours[0]["points"][0]["accuracy"] is not None
    assert ours == evaluated(bench.pool.path, tmp_path / "theirs", *options)


def test_a_controller_is_that_of_the_pool(bench: Bench, address: str, tmp_path: Path) -> None:
    for place, out in ((address, "ours"), (bench.pool.path, "theirs")):
        aera("train", place, "--out", tmp_path / out, "--max-loss", 0.5)
    ours, theirs = (tmp_path / out for out in ("ours", "theirs"))
    names = sorted(file.name for file in theirs.iterdir())
    assert names == sorted(file.name for file in ours.iterdir())
    assert [(ours / n).read_bytes() for n in names] == [(theirs / n).read_bytes() for n in names]
