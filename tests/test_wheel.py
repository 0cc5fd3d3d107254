"""A wheel installs into an empty environment and runs the demo, with what is installed here."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_a_wheel_installs_into_an_empty_environment_and_runs_the_demo(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str | Path, cwd: Path = tmp_path) -> str:
        words, known = [*map(str, command)], {"capture_output": True, "text": True}
        done = subprocess.run(words, cwd=cwd, env=alone, timeout=120, check=False, **known)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return str(done.stdout)

    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=ROOT)
    [wheel] = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", "empty")
    python = tmp_path / "empty" / "bin" / "python"
    offline = ("--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", *offline, wheel)
    places = Path(run(python, "-c", "import site; print(*site.getsitepackages())").strip())
    (places / "here.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    assert str(places) in run(python, "-c", "import aera; print(aera.__file__)")
    told = run(python.with_name("aera"), "demo", "--questions", "4", "--pace", "0")
    assert "128 plain votes" in told
