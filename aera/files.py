"""Files: JSON lines whose errors name the place, and writes that are whole or not there."""

import gzip
import hashlib
import json
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module, metadata
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from aera.errors import AeraError, PoolError, UsageError

T = TypeVar("T")
Json = dict[str, Any]
"""A JSON object as it stands in a file or on the wire; who uses it reads it into a type."""
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What is raised over JSON that is not what it should be."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def take_field(fields: Json, name: str, kind: tuple[type, ...]) -> Any:
    """A field that must be there and be of one of these types."""
    value = fields[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f'the field "{name}" is {value!r:.40}')
    return value


def read_rows(path: Path, parse: Callable[[Any], T], *, cut: bool = False) -> Iterator[T]:
    """What `parse` makes of the JSON of each line; an error names the file and the line.

    A half-written last line is an error too; with `cut` it is passed over.
    """
    number = 1
    try:
        with open_bytes(path) as file:
            while line := file.readline():
                if not line.endswith(b"\n"):
                    if cut:
                        return
                    raise PoolError(f"{path.name}, line {number}: half-written, no end of line")
                yield parse(json.loads(line))
                number += 1
    except FileNotFoundError:
        raise PoolError(
            f'"{path}" is missing; bring it back from a copy or make the pool again'
        ) from None
    except (*UNREADABLE, EOFError, OSError, zlib.error) as error:
        raise PoolError(f"{path.name}, line {number}: {problem(error)}") from None


def open_bytes(path: Path) -> gzip.GzipFile | BufferedReader:
    """A file, gzipped or plain, told by its first bytes."""
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if zipped else path.open("rb")


def problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg} at character {error.pos})"
    return f"the field {error} is missing" if isinstance(error, KeyError) else str(error)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Whatever the disk refuses names the file, which a full one does not do by itself."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place when the block ends well."""
    partial = path.with_name(path.name + ".partial")
    with naming(path):
        yield partial
    partial.replace(path)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody ever sees half of it."""
    with replacing(path) as partial:
        partial.write_text(text, "utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write one JSON value, likewise."""
    write_whole(path, json.dumps(content, indent=2) + "\n")


def to_line(fields: Json) -> str:
    """One JSON line. Half a surrogate pair, which no encoding takes, is escaped."""
    line = json.dumps(fields, ensure_ascii=False)
    return (json.dumps(fields) if _SURROGATE.search(line) else line) + "\n"


@cache
def written_by() -> str | None:
    """The version of aera that writes, None where it runs without being installed."""
    try:
        return metadata.version("aera")
    except metadata.PackageNotFoundError:
        return None


def check_format(
    fields: Mapping[str, Any], known: int, *, where: str, error: type[AeraError]
) -> None:
    """Refuse what a newer version wrote; older formats are read."""
    found = fields["format"]
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise TypeError(f'the field "format" is {found!r:.40}')
    if found > known:
        version = fields.get("written_by")
        wrote = f"aera {version}" if isinstance(version, str) else "a newer aera"
        raise error(
            f"{where} is of format {found}, which {wrote} wrote, and this version reads up to "
            f"format {known}; update aera, as with pip install -U aera"
        )


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def whole_folder(out: Path, *, single: bool = False) -> Iterator[Path]:
    """A folder to fill, which becomes `out` when the block ends well and vanishes otherwise.

    What is `single` is a file.
    """
    empty = not single and out.is_dir() and not any(out.iterdir())
    if out.exists() and not empty:
        raise already_there(out)
    partial = out.absolute().with_name(f".{out.absolute().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial.parent if single else partial).mkdir(parents=True, exist_ok=True)
    try:
        yield partial
        if empty:
            out.rmdir()
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        partial.unlink(missing_ok=True)


whole_file = partial(whole_folder, single=True)
"""A file to write, likewise."""


def already_there(out: object) -> UsageError:
    """What is said of a place for results that is not free."""
    return UsageError(f'"{out}" exists already; choose another place or remove it first')


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


WEB = Path(__file__).parent / "web"
NONE: Mapping[str, str] = MappingProxyType({})


def fill_template(template: Path, parts: Mapping[str, str] = NONE) -> str:
    """A page with {{style.css}}, {{charts.js}} and its own parts put in."""
    shared = {name: (WEB / name).read_text("utf-8") for name in ("style.css", "charts.js")}
    known = {**shared, **parts}
    return re.sub(r"\{\{([a-z.]+)\}\}", lambda hole: known[hole[1]], template.read_text("utf-8"))


def palette() -> dict[str, str]:
    """The colours on light paper by name, for files that cannot ask a page for them."""
    light = (WEB / "style.css").read_text("utf-8").partition("@media")[0]
    return dict(re.findall(r"(--[a-z]+): (#[0-9a-f]{6});", light))
