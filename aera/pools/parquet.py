"""Parquet: the columns of an exported pool, and what its files say of themselves."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from aera.errors import UsageError
from aera.files import check_format
from aera.pools.manifest import FORMAT
from aera.pools.places import Place, arrow
from aera.pools.pool import RESPONSE_FIELDS

ANSWER = "answer"
"""The column with the truth, which is read by itself and never with the responses."""
RESPONSE_ANSWER = "response_answer"
TRACE = "trace"
"""The column with what a response answered where that is all that was recorded of it."""
METADATA = b"aera"
"""Where an exported file keeps what the pool said of itself."""


@dataclass(frozen=True)
class Origin:
    """What a pool said of itself before it was exported."""

    task: Mapping[str, Any]
    sampler: Mapping[str, Any]
    seed: int | None
    schedule: Sequence[int] | None = None
    """None where an older version exported it, as with what follows."""
    questions: int | None = None
    responses: int | None = None
    pool: str | None = None
    """A digest of all its responses."""
    part: Mapping[str, int] | None = None
    """Of a file that is one of many: its number, the question it ends before, and how many
    responses it holds."""
    each: int | None = None
    """Responses a question needs to count; those with fewer are not exported."""
    written_by: str | None = None
    format: int = 1


def part_name(number: int) -> str:
    """The file name of a part."""
    return f"part-{number:05}.parquet"


def table_files(path: Path | Place) -> list[Path] | list[Place]:
    """The tables at a path: itself, or those in the folder, without what is hidden or cached."""
    if isinstance(path, Place):
        files = path.files()
        tables = [file for file in files if _is_table(file.path, below=path.path)]
        return files if files == [path] else sorted(tables, key=lambda file: file.path)
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if _is_table(file, below=path))


def _is_table(file: str | Path, *, below: str | Path) -> bool:
    inside = PurePath(file).relative_to(below)
    hidden = any(part.startswith((".", "_", "cache-")) for part in inside.parts)
    return inside.suffix in (".parquet", ".arrow") and not hidden


def told_origin(schema: Any) -> Origin | None:
    """What the schema of an exported file says of its pool."""
    metadata = schema.metadata or {}
    if METADATA not in metadata:
        return None
    try:
        fields = json.loads(metadata[METADATA])
        check_format({"format": 1, **fields}, FORMAT, where="the export", error=UsageError)
        return Origin(**fields)
    except (ValueError, TypeError):
        return None


def exported_schema(*, with_truths: bool, version: int = FORMAT) -> Any:
    """The columns of an exported file, also as an older version wrote them."""
    pa = arrow()
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    columns: dict[str, type] = {"question_id": str, "index": int, "question": str, "choices": list}
    columns |= {"system": str, "group": str} if version >= 2 else {}
    columns |= {ANSWER: str} if with_truths else {}
    columns |= {name: told[0] for name, told in RESPONSE_FIELDS.items()}
    columns |= {RESPONSE_ANSWER: str} if version >= 2 else {}
    columns |= {"prompt_tokens": int} if version >= 3 else {}
    fields = [(name, kinds.get(kind, pa.list_(pa.string()))) for name, kind in columns.items()]
    fields += [(TRACE, pa.list_(pa.float64()))] if version >= 4 else []
    return pa.schema(fields)
