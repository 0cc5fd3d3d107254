"""Bring recorded responses from a file into a pool: all of it, or nothing."""

import json
import shutil
import zlib
from collections.abc import Iterator
from gzip import BadGzipFile
from itertools import chain
from pathlib import Path
from typing import Any

from aera.errors import RecordError, UsageError
from aera.lab.truths import Truths
from aera.pool import RESPONSE_FIELDS, Pool, Record, open_text, write_pool
from aera.response import Question, Response
from aera.task import TASKS, Task


def import_jsonl(file: str | Path, out: str | Path, *, task: Task | None = None) -> Pool:
    """Import one question per line: {"id", "question", "answer", "task", "responses": [...]}.

    Without `task`, the file's own is used. The pool appears under `out` only when it is complete.
    """
    file, out = Path(file), Path(out)
    if not file.is_file():
        raise UsageError(f'there is no file "{file}" to import')
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f'"{out}" exists already; choose another place or remove it first')
    partial = out.absolute().with_name(f".{out.absolute().name}.partial")
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
    chosen = task or _own_task(first[1], where=f"{file.name}, line {first[0]}")

    def records() -> Iterator[Record]:
        for number, row in chain([first], rows):
            where = f"{file.name}, line {number}"
            record = _record(row, where=where)
            if record.question.id in seen:
                raise RecordError(f"{where}: the question {record.question.id} comes a second time")
            seen.add(record.question.id)
            if row.get("answer") is not None:
                answers[record.question.id] = _truth(row, chosen, where=where)
            yield record

    seen: set[str] = set()
    write_pool(path, records(), task=chosen, sampler={"imported_from": file.name})
    if answers:
        Truths(answers).save(path)


def _own_task(row: dict[str, Any], *, where: str) -> Task:
    if row.get("task") not in TASKS:
        named = f'the task "{row["task"]}" is unknown' if "task" in row else "no task is named"
        raise RecordError(f"{where}: {named}; give --task, one of {', '.join(TASKS)}")
    return TASKS[row["task"]]


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
    except (ValueError, RecursionError) as error:
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
    listed = _field(row, "choices", list, where=where) if row.get("choices") else ()
    choices = tuple(str(choice) for choice in listed)
    question = Question(question_id, _field(row, "question", str, where=where), choices)
    rows = _field(row, "responses", list, where=where)
    if not rows:
        raise RecordError(f"{where}: the question {question_id} has no responses")
    responses = [_response(r, where=f"{where}, response {i}") for i, r in enumerate(rows)]
    return Record(question, tuple(responses))


def _response(row: Any, *, where: str) -> Response:
    if not isinstance(row, dict):
        raise RecordError(f"{where}: a JSON object is needed, but got {type(row).__name__}")
    given = {
        name: _field(row, name, kind, where=where)
        for name, kind in RESPONSE_FIELDS.items()
        if row.get(name) is not None or name == "tokens"
    }
    return Response(**{"text": "", **given})


def _truth(row: dict[str, Any], task: Task, *, where: str) -> str:
    """A truth as written; one the task cannot read would make every answer wrong."""
    truth = str(_field(row, "answer", (str, int, float), where=where))
    if task.canonical(truth) is None:
        raise RecordError(f'{where}: the field "answer", {truth!r:.40}, is no {task.kind} answer')
    return truth
