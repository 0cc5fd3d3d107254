"""A sample of bench/fuzz.py: whatever is read or imported, nothing but our own errors is raised."""

import logging
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    import fuzz

    return fuzz


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "aera")


def test_hostile_texts_are_read_without_a_fault(fuzz: ModuleType) -> None:
    troubles, _ = fuzz.fuzz_strings(1_000, seed=1)
    assert troubles == []


def test_hostile_texts_are_read_in_linear_time(fuzz: ModuleType) -> None:
    troubles, slowest = fuzz.read_all(fuzz.long_texts(50_000))
    assert troubles == []
    # Seconds of the processor for a text: linear is a hundredth of it, quadratic many times it.
    assert slowest[0] < 5, slowest


def test_mangled_files_come_in_or_are_refused_in_one_sentence(fuzz: ModuleType) -> None:
    troubles, counts = fuzz.fuzz_files(60, seed=1)
    assert troubles == []
    assert min(counts["imported"], counts["refused"]) > 5
