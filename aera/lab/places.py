"""A place for results: taken only where it is free, and filled whole or not at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aera.errors import UsageError


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `out` when the block ends well and vanishes otherwise."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f'"{out}" exists already; choose another place or remove it first')
    partial = out.absolute().with_name(f".{out.absolute().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if out.exists():
            out.rmdir()
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def whole_file(out: Path) -> Iterator[Path]:
    """A file to write, likewise."""
    if out.exists():
        raise UsageError(f'"{out}" exists already; choose another place or remove it first')
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial")
    try:
        yield partial
        partial.rename(out)
    finally:
        partial.unlink(missing_ok=True)
