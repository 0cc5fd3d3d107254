"""Factories shared by the tests: short ways to write votes, prefixes, records and import files."""

import asyncio
import fcntl
import inspect
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from commands import Aera, run
from hypothesis import HealthCheck, settings

pytest_plugins = ["lab_fixtures"]
settings.register_profile(
    "aera", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("aera")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs on an event loop of its own, and never for ever."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(asyncio.wait_for(test, 300))
    return True


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
