"""Open recorded responses by their address, whatever they are stored as."""

from dataclasses import replace
from pathlib import Path

from aera.pools.parquet import ParquetPool, locate, table_files
from aera.pools.pool import Pool, is_open


def open_pool(address: str | Path, *, equivalence: bool = False) -> Pool | ParquetPool:
    """A pool directory, also a log that is being written, or a pool as Parquet at any address.

    With `equivalence`, its task asks math-verify which expressions are the same.
    """
    place = locate(address)
    opened: Pool | ParquetPool
    if isinstance(place, str) or _holds_tables(place):
        opened = ParquetPool.open(place)
    else:
        opened = Pool.open(place)
    if not equivalence:
        return opened
    manifest = replace(opened.manifest, task=replace(opened.task, equivalence=True))
    return opened.with_manifest(manifest)


def _holds_tables(path: Path) -> bool:
    """Whether there are tables and no pool; a file of something else is neither."""
    if path.is_file():
        return path.suffix == ".parquet"
    return not (path / "manifest.json").is_file() and not is_open(path) and bool(table_files(path))
