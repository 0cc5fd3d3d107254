"""Tables of columns: rows of Parquet files and folders, and of what Hugging Face datasets saves.

Needs pyarrow, the extra `data`, and then also takes a URI that pyarrow or fsspec opens.
"""

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from aera.errors import RecordError
from aera.lab.formats.sources import Rows
from aera.pools.parquet import Origin, arrow, open_address, table_files, told_origin


def zstd_decompressed(data: bytes, *, size: int) -> bytes:
    """Bytes that zstd packed, which Python cannot unpack before 3.14."""
    unpacked: bytes = arrow().decompress(data, size, codec="zstd", asbytes=True)
    return unpacked


def read_table(address: str | Path) -> Rows:
    """The rows of all tables, each with where it stands."""
    unreadable = arrow().ArrowException
    for file in table_files(address):
        number, name = 0, PurePath(file).name
        try:
            for batch in _batches(open_address(address)[0], file):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{name}, row {number}", row
        except (unreadable, OSError, UnicodeDecodeError) as error:
            said = str(error).partition("\n")[0]
            raise RecordError(f"{name}, row {number + 1}: cannot be read, {said}") from None


def _batches(filesystem: Any, file: str) -> Iterator[Any]:
    with filesystem.open_input_file(file) as source:
        if not file.endswith(".arrow"):
            yield from arrow("pyarrow.parquet").ParquetFile(source).iter_batches(batch_size=1024)
            return
        ipc = arrow("pyarrow.ipc")
        try:
            stream = ipc.open_stream(source)
        except arrow().ArrowInvalid:
            table = ipc.open_file(source)
            stream = map(table.get_batch, range(table.num_record_batches))
        yield from stream


def read_origin(address: str | Path) -> Origin | None:
    """What an exported pool said of itself; None for a table from elsewhere."""
    file = table_files(address)[0]
    if file.endswith(".arrow"):
        return None
    try:
        with open_address(address)[0].open_input_file(file) as source:
            return told_origin(arrow("pyarrow.parquet").read_schema(source))
    except (arrow().ArrowException, OSError):
        return None
