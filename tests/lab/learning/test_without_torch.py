"""What `pip install aera` brings is enough to train; torch is for the paper's gate alone."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_study import Bench

HIDDEN = "import sys; sys.modules['torch'] = None; from aera.cli import main; main()"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """A command where there is no torch."""
    command = [sys.executable, "-c", HIDDEN, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [("--max-loss", "0.1"), ("--max-loss", "0.1", "--without-truths"), ("--policy", "asc-0.9")],
)
def test_training_needs_no_torch(bench: Bench, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run("train", bench.pool.path, "--out", tmp_path / "made", *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made" / "config.json").is_file()


@pytest.mark.parametrize("protocol", ["nested", "holdout"])
def test_evaluating_needs_no_torch(bench: Bench, protocol: str) -> None:
    done = run("evaluate", bench.pool.path, "--protocol", protocol, "--max-loss", "0.1")
    assert done.returncode == 0, done.stderr


def test_the_papers_gate_says_what_to_install(bench: Bench, tmp_path: Path) -> None:
    done = run("train", bench.pool.path, "--out", tmp_path / "made", "--paper")
    assert done.returncode == 2
    assert 'needs torch; install it with pip install "aera[paper]"' in done.stderr.replace(
        "\n", " "
    )
