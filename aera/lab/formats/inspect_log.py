"""Inspect's logs, .eval archives and .json files alike."""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from gzip import BadGzipFile
from pathlib import Path
from typing import Any

from aera.core import Question, Response
from aera.errors import RecordError, UpstreamError
from aera.lab.formats.entry import (
    Entry,
    Row,
    asked_in,
    choices_in,
    join_entries,
    need_field,
    written,
)
from aera.lab.formats.sources import need_object, open_text, parse_object
from aera.lab.formats.tables import zstd_decompressed
from aera.pools.pool import Record
from aera.sampling.replies import parse_reply

ZSTD = 93
"""The compression of its archives, as zip numbers it."""
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError),
    *(NotImplementedError, RuntimeError, ValueError, MemoryError),  # unknown, locked, foreign, huge
)
"""What is raised over an archive that is not whole."""
_FINISH = {"max_tokens": "length", "model_length": "length"}
"""Its names for what OpenAI calls otherwise."""


def read_inspect(file: Path) -> Iterator[Entry]:
    """The samples of a log, epochs in order; one that ended in an error is a failed response."""
    # Entries, not samples, are kept: a log may be many times as large as its responses.
    found = [(_epoch(*each), _entry(each[1], where=each[0])) for each in _samples(file)]
    gathered: dict[str, Entry] = {}
    for _, entry in sorted(found, key=lambda each: each[0]):
        question_id = entry.record.question.id
        gathered[question_id] = join_entries(gathered.get(question_id), entry)
    yield from gathered.values()


def _epoch(where: str, sample: Row) -> int:
    return int(need_field(sample, "epoch", int, where=where))


def _entry(sample: Row, *, where: str) -> Entry:
    asked = asked_in(sample.get("input"))
    question = Question(
        str(need_field(sample, "id", str, int, where=where)),
        asked.text,
        choices_in(sample, "choices", where=where),
        asked.system,
    )
    responses, estimated = _responses(sample, where=where)
    truth = written(sample.get("target"))
    return Entry(where, Record(question, responses), truth, "target", estimated=estimated)


def _samples(file: Path) -> Iterator[tuple[str, Row]]:
    """The samples of a log in the order in which it holds them."""
    if zipfile.is_zipfile(file):
        yield from _read_archive(file)
        return
    try:
        with open_text(file) as text:
            log = parse_object(text.read(), where=file.name)
    except (EOFError, zlib.error, BadGzipFile, UnicodeDecodeError) as error:
        raise RecordError(f"{file.name} cannot be read, {error}") from None
    for place, sample in enumerate(need_field(log, "samples", list, where=file.name)):
        where = f"{file.name}, sample {place}"
        yield where, need_object(sample, where=where)


def _read_archive(file: Path) -> Iterator[tuple[str, Row]]:
    try:
        opened = zipfile.ZipFile(file)
    except _DAMAGED as error:
        raise RecordError(f"{file.name} cannot be read, {error}") from None
    with opened as archive:
        for info in archive.infolist():
            if info.filename.startswith("samples/"):
                where = f"{file.name}, {info.filename}"
                yield where, parse_object(_member(archive, info, where=where), where=where)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, where: str) -> bytes:
    """One file of an archive, also where Python's zipfile does not know the compression."""
    try:
        if info.compress_type != ZSTD:
            return archive.read(info)
        assert archive.fp is not None
        archive.fp.seek(info.header_offset + 26)
        lengths = archive.fp.read(4)  # of the name and the extra field that stand before the bytes
        archive.fp.seek(sum(int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2)), 1)
        return zstd_decompressed(archive.fp.read(info.compress_size), size=info.file_size)
    except _DAMAGED as error:
        raise RecordError(f"{where}: cannot be read, {error}") from None


def _responses(sample: Row, *, where: str) -> tuple[tuple[Response, ...], bool]:
    """What one epoch gave, read like a reply of OpenAI's; and whether its tokens are estimated."""
    told, failed = sample.get("output"), sample.get("error")
    output: Row = told if isinstance(told, dict) else {}
    if failed or not output.get("choices"):
        said = failed.get("message") if isinstance(failed, dict) else failed
        return (Response("", error=str(said or "no output"), model=output.get("model")),), False
    usage, seconds = output.get("usage"), output.get("time")
    tokens = usage.get("output_tokens") if isinstance(usage, dict) else None
    reply = {
        "model": output.get("model"),
        "choices": [_choice(choice) for choice in need_field(output, "choices", list, where=where)],
        "usage": {"completion_tokens": tokens},
    }
    took = 1000 * seconds if isinstance(seconds, int | float) else 0.0
    try:
        responses = parse_reply(reply, latency_ms=took)
    except UpstreamError as error:
        raise RecordError(f"{where}: {error.message}") from None
    timed = None if seconds is None else round(took, 1)
    return tuple(replace(each, latency_ms=timed) for each in responses), tokens is None


def _choice(choice: Any) -> Any:
    """A choice in OpenAI's words; what the model thought stands in parts of its content."""
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return choice
    message, reason = choice["message"], choice.get("stop_reason")
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    thought = [part.get("reasoning") for part in parts if isinstance(part, dict)]
    reasoning = "".join(each for each in thought if isinstance(each, str))
    return {
        "message": {"content": content, "reasoning": reasoning},
        "finish_reason": _FINISH.get(reason, reason) if isinstance(reason, str) else None,
    }
