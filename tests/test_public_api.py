"""The public names are a list, and the list is true."""

import inspect
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import aera
from aera import lab
from aera.cli.lab import evaluate, train


def public_names(package: ModuleType) -> set[str]:
    kept = {name for name, value in vars(package).items() if not isinstance(value, ModuleType)}
    return {name for name in kept if not name.startswith("_")}


def test_the_list_of_public_names_is_sorted_and_complete() -> None:
    listed, lazy = aera.__all__, {"evaluate", "train"}
    assert set(listed) == public_names(aera) - {"TYPE_CHECKING", "Any", "import_module"} | lazy
    assert listed == sorted(
        set(listed), key=lambda name: (not name.isupper(), name.islower(), name)
    )


@pytest.mark.parametrize("package", [aera, lab], ids=lambda package: package.__name__)
def test_every_public_name_is_documented(package: ModuleType) -> None:
    assert not [name for name in public_names(package) if not getattr(package, name).__doc__]


def test_importing_aera_pulls_in_neither_torch_nor_the_lab() -> None:
    code = "import sys, aera; print([m for m in sys.modules if m in ('torch', 'aera.lab')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("command", "function", "apart"),
    [
        (evaluate, aera.evaluate, {"json_file", "report", "figures", "whole"}),
        (train, aera.train, {"out", "prices"}),
    ],
    ids=["evaluate", "train"],
)
def test_python_takes_what_the_command_takes(command: Any, function: Any, apart: set[str]) -> None:
    plural = {"baseline": "baselines"}
    asked = {plural.get(name, name) for name in inspect.signature(command).parameters} - apart
    assert asked == set(inspect.signature(function).parameters) - {"tell"}
