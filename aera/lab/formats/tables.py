"""Tables of columns: rows of Parquet files and folders, and of what Hugging Face datasets saves.

Needs pyarrow, the extra `data`, and then also takes a URI of any file system pyarrow knows.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aera.errors import RecordError
from aera.lab.formats.sources import Rows
from aera.pools.parquet import Origin, table_files, told_origin
from aera.pools.places import Place, arrow


def zstd_decompressed(data: bytes, *, size: int) -> bytes:
    """Bytes that zstd packed, which Python cannot unpack before 3.14."""
    unpacked: bytes = arrow().decompress(data, size, codec="zstd", asbytes=True)
    return unpacked


def read_table(path: Path | Place) -> Rows:
    """The rows of all tables, each with where it stands."""
    unreadable = arrow().ArrowException
    for file in table_files(path):
        number = 0
        try:
            for batch in _batches(file):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{file.name}, row {number}", row
        except (unreadable, OSError, UnicodeDecodeError) as error:
            said = str(error).partition("\n")[0]
            raise RecordError(f"{file.name}, row {number + 1}: cannot be read, {said}") from None


def _batches(file: Path | Place) -> Iterator[Any]:
    if file.suffix != ".arrow":
        with file.open("rb") as source, arrow("pyarrow.parquet").ParquetFile(source) as table:
            yield from table.iter_batches(batch_size=1024)
        return
    ipc = arrow("pyarrow.ipc")
    with file.open("rb") as source:
        try:
            stream = ipc.open_stream(source)
        except arrow().ArrowInvalid:
            table = ipc.open_file(source)
            stream = map(table.get_batch, range(table.num_record_batches))
        yield from stream


def read_origin(path: Path | Place) -> Origin | None:
    """What an exported pool said of itself; None for a table from elsewhere."""
    file = table_files(path)[0]
    if file.suffix == ".arrow":
        return None
    try:
        with file.open("rb") as source:
            return told_origin(arrow("pyarrow.parquet").read_schema(source))
    except (arrow().ArrowException, OSError):
        return None
