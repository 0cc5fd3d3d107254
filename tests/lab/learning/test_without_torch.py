"""What `pip install aera` brings is enough to train; torch is for the paper's gate alone."""

import subprocess
import sys
from pathlib import Path

import pytest
from lab_fixtures import Bench

HIDDEN = "import sys; sys.modules['torch'] = None; from aera.cli import main; main()"


def run(tmp_path: Path, bench: Bench, words: str) -> subprocess.CompletedProcess[str]:
    """A command about a pool, where there is no torch; what it makes goes to MADE."""
    places = {"POOL": str(bench.pool.path), "MADE": str(tmp_path / "made")}
    called = [sys.executable, "-c", HIDDEN, *(places.get(word, word) for word in words.split())]
    return subprocess.run(called, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        "train POOL --out MADE --max-loss 0.1",
        "train POOL --out MADE --max-loss 0.1 --without-truths",
        "train POOL --out MADE --policy asc-0.9",
        "evaluate POOL --protocol nested --max-loss 0.1",
        "evaluate POOL --protocol holdout --max-loss 0.1",
    ],
)
def test_training_and_evaluating_need_no_torch(bench: Bench, tmp_path: Path, words: str) -> None:
    done = run(tmp_path, bench, words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made" / "config.json").is_file() == words.startswith("train")


def test_the_papers_gate_says_what_to_install(bench: Bench, tmp_path: Path) -> None:
    done = run(tmp_path, bench, "train POOL --out MADE --paper")
    assert done.returncode == 2
    assert 'install it with pip install "aera[paper]"' in " ".join(done.stderr.split())
