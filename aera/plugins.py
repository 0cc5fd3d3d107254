"""Plugins: objects of the user's own, named as MODULE:NAME on the command line."""

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from aera.errors import UsageError


def load_named(named: str, what: str) -> Any:
    """The object behind MODULE:NAME, from the working directory or the environment."""
    module, _, name = named.partition(":")
    if not module or not name:
        raise UsageError(f'a {what} is named as MODULE:NAME, but got "{named}"')
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    loaded = attempt(partial(import_module, module), f'the module "{module}" cannot be imported')
    if not hasattr(loaded, name):
        raise UsageError(f'the module "{module}" has no "{name}"')
    return getattr(loaded, name)


def attempt(work: Callable[[], Any], trouble: str) -> Any:
    """What somebody else's code gives; whatever it raises is one sentence."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - it is not our code, and may raise anything
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{trouble}: {said}") from None
