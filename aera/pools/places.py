"""Places: where tables are read and results go, on disk or on any file system pyarrow knows.

A place for results is taken only where it is free, and filled whole or not at all.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from aera.errors import UsageError
from aera.files import already_there


def arrow(name: str = "pyarrow") -> Any:
    """pyarrow, or a part of it, loaded only where it is needed."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError('this needs pyarrow: pip install "aera[data]"') from None


@dataclass(frozen=True)
class Place:
    """A file or folder away from this disk. It travels as its address and is opened where used."""

    uri: str = field(repr=False)
    """Names the file system, with its settings and perhaps a key."""
    path: str
    """Where on it."""

    @property
    def filesystem(self) -> Any:
        """The file system, connected to once in every process."""
        return _open_filesystem(self.uri)[0]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def suffix(self) -> str:
        """What the name ends in, from its dot."""
        return PurePosixPath(self.path).suffix

    def absolute(self) -> "Place":
        """The same from everywhere, as it is."""
        return self

    def __truediv__(self, name: str) -> "Place":
        return replace(self, path=f"{self.path}/{name}")

    def __str__(self) -> str:
        """Without settings and keys, which are nobody else's business."""
        return f"{self.uri.partition('://')[0]}://{self.path}"

    def files(self) -> list["Place"]:
        """This file, or all files below; none where there is nothing."""
        fs = arrow("pyarrow.fs")
        with _reach(self):
            [info] = self.filesystem.get_file_info([self.path])
            if info.type == fs.FileType.File:
                return [self]
            below = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
            found = self.filesystem.get_file_info(below)
        return [replace(self, path=each.path) for each in found if each.type == fs.FileType.File]

    def open(self, mode: str = "rb") -> Any:
        """The file, to be read at any point."""
        assert mode == "rb", "what is written is written whole"
        return self.filesystem.open_input_file(self.path)

    def write_bytes(self, content: bytes) -> None:
        """Write the file; object storage shows it when it is whole."""
        with self.filesystem.open_output_stream(self.path) as stream:
            stream.write(content)

    def upload(self, file: Path) -> None:
        """Write the file as a copy of one on this disk."""
        with file.open("rb") as source, self.filesystem.open_output_stream(self.path) as stream:
            shutil.copyfileobj(source, stream, 1 << 24)

    def unlink(self) -> None:
        """Remove the file."""
        self.filesystem.delete_file(self.path)


@lru_cache(maxsize=16)
def _open_filesystem(uri: str) -> tuple[Any, str]:
    """The file system a URI names, and the path in it."""
    fs, scheme = arrow("pyarrow.fs"), uri.partition("://")[0]
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except (arrow().ArrowException, OSError, ValueError, ImportError) as error:
        said = str(error).replace(uri, "it").partition("\n")[0]  # it may hold a key
        raise UsageError(f'pyarrow cannot open this address of "{scheme}://": {said}') from None
    return filesystem, path.rstrip("/")


@contextmanager
def _reach(place: Place) -> Iterator[None]:
    """What a file system says when it cannot be reached, as one sentence."""
    try:
        yield
    except (arrow().ArrowException, OSError) as error:
        said = str(error).partition("\n")[0]
        raise UsageError(f'"{place}" cannot be reached: {said}') from None


def locate(address: str | Path | Place) -> Path | Place:
    """A path on this disk, also as file://, or a place on the file system that a URI names."""
    if not isinstance(address, str) or "://" not in address:
        return address if isinstance(address, Place) else Path(address)
    filesystem, path = _open_filesystem(address)
    return Path(path) if filesystem.type_name == "local" else Place(address, path)


@contextmanager
def whole_place(out: Place) -> Iterator[Place]:
    """A place away from this disk to fill, where nothing can be renamed: what fails is removed.

    A process that is killed removes nothing, so a reader must be able to tell that parts miss.
    """
    if out.files():
        raise already_there(out)
    try:
        with _reach(out):
            yield out
    except BaseException:
        with suppress(UsageError, OSError):
            for file in out.files():
                file.unlink()
        raise
