"""Bring recorded responses from a file of any known format into a pool: all of it, or nothing."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from aera.errors import RecordError, UsageError
from aera.files import open_text, whole_folder
from aera.lab.formats.batches import read_batch
from aera.lab.formats.entry import Entry, read_jsonl, read_lm_eval
from aera.lab.formats.inspect_log import read_inspect
from aera.lab.formats.tables import read_origin, read_table
from aera.lab.truths import Truths
from aera.pools.parquet import table_files
from aera.pools.places import Place, locate
from aera.pools.pool import RESPONSE_FIELDS, Pool, write_pool
from aera.pools.record import Record
from aera.reading.canonical import LETTERS
from aera.reading.find import last_boxed
from aera.reading.task import TASKS, Task, task_from_json

READERS: dict[str, Callable[[Path], Iterator[Entry]]] = {
    "jsonl": read_jsonl,
    "lm-eval": read_lm_eval,
    "inspect": read_inspect,
    "openai-batch": read_batch,
}
FORMATS = (*READERS, "parquet")
ESTIMATED = "estimated from the length of the texts"
HEAD = 4096
"""Characters of a file that are looked at to tell its format."""


def import_jsonl(file: str | Path, out: str | Path, *, task: Task | None = None) -> Pool:
    """Import one question per line: {"id", "question", "answer", "task", "responses": [...]}.

    Without `task`, the file's own is used. The pool appears under `out` only when it is complete.
    """
    return import_file(file, out, task=task, format_name="jsonl")


def import_file(
    file: str | Path,
    out: str | Path,
    *,
    task: Task | None = None,
    format_name: str | None = None,
    questions: str | Path | None = None,
) -> Pool:
    """Import a file or folder of recorded responses; its format is recognised where not named.

    A URI is read as Parquet. `questions` goes with openai-batch, whose lines do not say what was
    asked.
    """
    place = locate(file)
    named = _format(place, format_name)
    if questions and named != "openai-batch":
        raise UsageError(f"--questions goes with openai-batch, but {place.name} is {named}")
    entries = _entries(place, named, questions=questions)
    out = Path(out)
    with whole_folder(out) as folder:
        _write(place, folder, entries=entries, task=task, tabular=named == "parquet")
    return Pool.open(out)


def _entries(place: Path | Place, named: str, *, questions: str | Path | None) -> Iterator[Entry]:
    if isinstance(place, Place) or named == "parquet":
        return read_table(place)
    return read_batch(place, questions=Path(questions)) if questions else READERS[named](place)


# --- recognising ----------------------------------------------------------------------------------


def _format(place: Path | Place, named: str | None) -> str:
    """The format to read a file or folder in, which must be there."""
    if isinstance(place, Place):
        if named not in (None, "parquet"):
            raise UsageError(f"only Parquet is read from a URI, but --format is {named}")
        if not table_files(place):
            raise UsageError(f'"{place}" holds no Parquet or Arrow file to import')
        return "parquet"
    if not place.exists() or (named == "jsonl" and not place.is_file()):
        raise UsageError(f'there is no file "{place}" to import')
    named = named or recognise(place)
    if named not in FORMATS:
        raise UsageError(f'--format is one of {", ".join(FORMATS)}, but got "{named}"')
    if place.is_dir() and (named != "parquet" or not table_files(place)):
        raise UsageError(f'the folder "{place}" holds no Parquet or Arrow file to import')
    return named


def recognise(file: Path) -> str:
    """The format a file seems to be in; our own where nothing else fits."""
    if file.is_dir() or file.suffix == ".arrow":
        return "parquet"
    with file.open("rb") as opened:
        magic = opened.read(4)
    if magic in (b"PAR1", b"PK\x03\x04"):
        return "parquet" if magic == b"PAR1" else "inspect"
    try:
        with open_text(file) as text:
            line = next((line for line in text if line.strip()), "")
            head = line + text.read(HEAD)
    except (OSError, EOFError, ValueError):
        return "jsonl"  # whose reader says what is wrong
    return _recognise_line(line, head)


def _recognise_line(line: str, head: str) -> str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    keys = set(row) if isinstance(row, dict) else set()
    if "custom_id" in keys:
        return "openai-batch"
    if {"doc_id", "resps"} <= keys:
        return "lm-eval"
    if {"version", "eval", "samples"} <= keys or (row is None and '"eval": {' in head):
        return "inspect"
    return "jsonl"


# --- writing --------------------------------------------------------------------------------------


def _write(
    file: Path | Place, path: Path, *, entries: Iterator[Entry], task: Task | None, tabular: bool
) -> None:
    answers: dict[str, str] = {}
    first = next(entries, None)
    if first is None:
        raise RecordError(f"{file.name} holds no question")
    origin = read_origin(file) if tabular else None
    sampler: dict[str, Any] = dict(origin.sampler) if origin else {"imported_from": file.name}
    chosen = task or (_told_task(origin.task, file) if origin else _own_task(first))

    def records() -> Iterator[Record]:
        for entry in chain([first], entries):
            question_id = entry.record.question.id
            if question_id in seen:
                raise RecordError(f"{entry.where}: the question {question_id} comes a second time")
            seen.add(question_id)
            _check_responses(entry)
            if entry.truth is not None:
                answers[question_id] = _truth(entry, chosen)
            if entry.estimated:  # read by write_pool when the last record is written
                sampler["tokens"] = ESTIMATED
            yield entry.record
        wanted = origin.questions if origin and file.suffix != ".parquet" else None
        if wanted not in (None, len(seen)):
            raise RecordError(
                f"{file.name} holds {len(seen)} of the {wanted} questions it was exported with; "
                "export the pool again, or import its files one by one"
            )

    seen: set[str] = set()
    seed = origin.seed if origin else None
    write_pool(path, records(), task=chosen, sampler=sampler, seed=seed)
    if answers:
        Truths(answers).save(path)


def _check_responses(entry: Entry) -> None:
    """Refuse what the pool could not be read with again."""
    for response in entry.record.responses:
        for name, kinds in RESPONSE_FIELDS.items():
            value = getattr(response, name)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise RecordError(f"{entry.where}: the {name} of a response is {value!r:.40}")


def _own_task(entry: Entry) -> Task:
    if isinstance(entry.task, str) and entry.task in TASKS:
        return TASKS[entry.task]
    named = f'the task "{entry.task}" is unknown' if entry.task else "no task is named"
    raise RecordError(f"{entry.where}: {named}; give --task, one of {', '.join(TASKS)}")


def _told_task(fields: Mapping[str, Any], file: Path | Place) -> Task:
    try:
        return task_from_json(dict(fields))
    except (TypeError, UsageError):
        raise RecordError(
            f"{file.name}: its task cannot be understood; give --task, one of {', '.join(TASKS)}"
        ) from None


def _truth(entry: Entry, task: Task) -> str:
    """A truth in a form the task can read, else every answer would be wrong.

    A worked solution counts as what it boxes or puts behind ####, a choice by its text as its
    letter.
    """
    truth = entry.truth or ""
    if task.kind == "choice":
        truth = dict(zip(entry.record.question.choices, LETTERS, strict=False)).get(truth, truth)
    marked = truth.rpartition("####")[2].strip() if "####" in truth else None
    for form in (last_boxed(truth), marked, truth):
        if form and task.canonical(form) is not None:
            return form
    raise RecordError(
        f'{entry.where}: the field "{entry.truth_name}", {truth!r:.40}, is no {task.kind} answer'
    )
