"""Factories shared by the tests: short ways to write votes, prefixes, records and import files."""

import asyncio
import inspect
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


@pytest.fixture
def aera(tmp_path: Path) -> Aera:
    """The command line, called from an empty folder."""
    return partial(run, tmp_path)
