"""Bring recorded responses from a file into a pool: all of it, or nothing."""

import json
import shutil
import zlib
from collections.abc import Iterator
from gzip import BadGzipFile
from pathlib import Path
from typing import Any

from aera.errors import RecordError, UsageError
from aera.lab.truths import Truths
from aera.pool import Pool, Record, open_text, write_pool
from aera.response import Question, Response
from aera.task import Task, get_task


def import_jsonl(file: str | Path, out: str | Path, *, task: Task | None = None) -> Pool:
    """Import one question per line: {"id", "question", "answer", "task", "responses": [...]}.

    Without `task`, the file's own is used. The pool appears under `out` only when it is complete.
    """
    file, out = Path(file), Path(out)
    if not file.is_file():
        raise UsageError(f'there is no file "{file}" to import')
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f'"{out}" exists already; choose another place or remove it first')
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        _write(file, partial, task=task)
        if out.exists():
            out.rmdir()
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Pool.open(out)


def _write(file: Path, path: Path, *, task: Task | None) -> None:
    answers: dict[str, str] = {}
    rows = _rows(file)
    first = next(rows, None)
    if first is None:
        raise RecordError(f"{file.name} holds no question")
    chosen = task or get_task(str(first[1].get("task", "")))

    def records() -> Iterator[Record]:
        for number, row in (first, *rows):
            where = f"{file.name}, line {number}"
            record = _record(row, where=where)
            if record.question.id in seen:
                raise RecordError(f"{where}: the question {record.question.id} comes a second time")
            seen.add(record.question.id)
            if "answer" in row:
                answers[record.question.id] = _truth(row["answer"], chosen, where=where)
            yield record

    seen: set[str] = set()
    write_pool(path, records(), task=chosen, sampler={"imported_from": file.name})
    if answers:
        Truths(answers).save(path)


def _rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered JSON objects; blank lines are passed over."""
    number = 0
    try:
        with open_text(file) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, _object(line, where=f"{file.name}, line {number}")
    except (EOFError, zlib.error, BadGzipFile, UnicodeDecodeError) as error:
        raise RecordError(f"{file.name}, line {number + 1}: cannot be read, {error}") from None


def _object(line: str, *, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise RecordError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise RecordError(f"{where}: a JSON object is needed, but got {type(row).__name__}")
    return row


def _field(row: dict[str, Any], name: str, kind: type | tuple[type, ...], *, where: str) -> Any:
    value = row.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        problem = f"is {value!r:.40}" if name in row else "is missing"
        raise RecordError(f'{where}: the field "{name}" {problem}')
    return value


def _record(row: dict[str, Any], *, where: str) -> Record:
    question_id = str(_field(row, "id", (str, int), where=where))
    choices = tuple(str(choice) for choice in row.get("choices") or ())
    question = Question(question_id, _field(row, "question", str, where=where), choices)
    rows = _field(row, "responses", list, where=where)
    if not rows:
        raise RecordError(f"{where}: the question {question_id} has no responses")
    responses = [_response(r, where=f"{where}, response {i}") for i, r in enumerate(rows)]
    return Record(question, tuple(responses))


def _response(row: Any, *, where: str) -> Response:
    if not isinstance(row, dict):
        raise RecordError(f"{where}: a JSON object is needed, but got {type(row).__name__}")
    logprob = row.get("logprob")
    if logprob is not None:
        _field(row, "logprob", (int, float), where=where)
    return Response(
        text=_field(row, "text", str, where=where) if row.get("text") is not None else "",
        tokens=_field(row, "tokens", int, where=where),
        logprob=logprob,
        finish_reason=row.get("finish_reason"),
        seed=row.get("seed"),
        latency_ms=row.get("latency_ms"),
        error=row.get("error"),
        model=row.get("model"),
    )


def _truth(value: Any, task: Task, *, where: str) -> str:
    """A truth in the task's own form; one that cannot be read would make every answer wrong."""
    truth = str(value)
    canonical = task.canonical(truth)
    if canonical is None:
        raise RecordError(f'{where}: the answer "{truth:.40}" cannot be read as {task.kind}')
    return truth
