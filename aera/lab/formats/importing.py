"""Bring recorded responses from a file of any known format into a pool: all of it, or nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from aera.errors import RecordError, UsageError
from aera.files import whole_folder, write_json
from aera.lab.formats.batches import read_batch
from aera.lab.formats.entry import Entry, shown, shown_name
from aera.lab.formats.inspect_log import read_inspect
from aera.lab.formats.lm_eval import read_lm_eval
from aera.lab.formats.recognising import choose_format
from aera.lab.formats.rows import Columns, read_rows
from aera.lab.formats.sources import Rows, read_csv, read_lines, read_list
from aera.lab.formats.tables import read_origin, read_table
from aera.lab.truths import Truths
from aera.pools.parquet import Origin
from aera.pools.places import Place, locate
from aera.pools.pool import RESPONSE_FIELDS, Pool, write_pool
from aera.pools.record import Record, batches, health_of, read_votes
from aera.reading.canonical import LETTERS
from aera.reading.find import last_boxed
from aera.reading.health import Readability
from aera.reading.presets import TASKS
from aera.reading.task import Task, task_from_json

SOURCES: dict[str, Callable[[Path], Rows]] = {
    "jsonl": read_lines,
    "json": read_list,
    "csv": read_csv,
    "tsv": read_csv,
    "parquet": read_table,
}
"""Formats whose rows are read by one set of rules."""
READERS: dict[str, Callable[[Path], Iterator[Entry]]] = {
    "lm-eval": read_lm_eval,
    "inspect": read_inspect,
    "openai-batch": read_batch,
}
"""Formats with rules of their own."""
ESTIMATED = "estimated from the length of the texts"


@dataclass(frozen=True)
class Imported:
    """A pool that was made of a file, and what was found out about it."""

    pool: Pool
    readability: Readability
    truths: int
    """Questions whose right answer is known."""
    truthless: Mapping[str, str]
    """The others, each with the reason; none where the file has no truths at all."""

    @property
    def estimated(self) -> bool:
        """Whether tokens are guessed from the length of the texts."""
        return self.pool.manifest.sampler.get("tokens") == ESTIMATED


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
    columns: Mapping[str, str] | None = None,
    responses: int | None = None,
) -> Pool:
    """Import a file or folder of recorded responses as `bring_in` does; this gives the pool."""
    return bring_in(
        file,
        out,
        task=task,
        format_name=format_name,
        questions=questions,
        columns=columns,
        responses=responses,
    ).pool


def bring_in(
    file: str | Path,
    out: str | Path,
    *,
    task: Task | None = None,
    format_name: str | None = None,
    questions: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    responses: int | None = None,
) -> Imported:
    """Import a file or folder of recorded responses; its format is recognised where not named.

    `columns` maps our names of columns to the file's. Questions with fewer than `responses` are
    left out; without it, the number that keeps most responses counts. A URI is read as Parquet.
    `questions` goes with openai-batch, whose lines do not say what was asked.
    """
    place, names = locate(file), Columns(columns or {})
    named = choose_format(place, format_name, in_rows=bool(columns))
    if questions and named != "openai-batch":
        raise UsageError(f"--questions goes with openai-batch, but {place.name} is {named}")
    if columns and named not in SOURCES:
        raise UsageError(f"--map goes with {', '.join(SOURCES)}, but {place.name} is {named}")
    if named in SOURCES:
        entries = read_rows(SOURCES[named](place), names)  # type: ignore[arg-type]
    elif questions:
        entries = read_batch(_on_disk(place), Path(questions))
    else:
        entries = READERS[named](_on_disk(place))
    out = Path(out)
    origin = read_origin(place) if named == "parquet" else None
    with whole_folder(out) as folder:
        found = _write(place, folder, entries=entries, task=task, origin=origin, each=responses)
    return replace(found, pool=Pool.open(out))


def _on_disk(place: Path | Place) -> Path:
    assert isinstance(place, Path), "only Parquet is read from elsewhere"
    return place


# --- writing --------------------------------------------------------------------------------------


def _write(
    file: Path | Place,
    path: Path,
    *,
    entries: Iterator[Entry],
    task: Task | None,
    origin: Origin | None,
    each: int | None,
) -> Imported:
    first = next(entries, None)
    if first is None:
        raise RecordError(f"{file.name} holds no question")
    chosen = task or (_told_task(origin.task, file) if origin else _own_task(first))
    sampler: Mapping[str, Any] = origin.sampler if origin else {"imported_from": file.name}
    intake = Intake(chosen)
    pool = write_pool(
        path,
        intake.records(chain([first], entries)),
        task=chosen,
        sampler=sampler,
        seed=origin.seed if origin else None,
        responses=each or (origin.each if origin else None),
    )
    wanted = origin.questions if origin and file.suffix != ".parquet" else None
    if wanted not in (None, len(intake.seen)):
        raise RecordError(
            f"{file.name} holds {len(intake.seen)} of the {wanted} questions it was exported with; "
            "export the pool again, or import its files one by one"
        )
    _check_readable(intake.readability, chosen, file.name)
    if intake.estimated:
        manifest = replace(pool.manifest, sampler={**pool.manifest.sampler, "tokens": ESTIMATED})
        write_json(path / "manifest.json", manifest.as_json())
    return intake.save_truths(pool)


@dataclass
class Intake:
    """What is found out about a file while its questions go by, each once."""

    task: Task
    seen: set[str] = field(default_factory=set)
    answers: dict[str, str] = field(default_factory=dict)
    truthless: dict[str, str] = field(default_factory=dict)
    unreadable: Entry | None = None
    """The first whose truth cannot be read."""
    readability: Readability = field(default_factory=Readability)
    estimated: bool = False

    def records(self, entries: Iterator[Entry]) -> Iterator[Record]:
        """The records of entries, looked at in bulk as they pass."""
        plain = replace(self.task, equivalence=False)  # which answers are equal is not asked here
        for some in batches(map(self._note, entries)):
            self.readability = self.readability.join([health_of(read_votes(some, plain))])
            yield from some

    def _note(self, entry: Entry) -> Record:
        name = entry.record.question.id
        if name in self.seen:
            raise RecordError(f"{entry.where}: the question {shown_name(name)} comes a second time")
        self.seen.add(name)
        _check_responses(entry)
        self.estimated |= entry.estimated
        truth = None if entry.truth is None else truth_of(entry, self.task)
        if truth is not None:
            self.answers[name] = truth
        elif entry.truth is None:
            self.truthless[name] = "none is given"
        else:
            self.unreadable = self.unreadable or entry
            self.truthless[name] = f"{shown(entry.truth)} is no {self.task.kind} answer"
        return entry.record

    def save_truths(self, pool: Pool) -> Imported:
        """Write the truths beside the pool; refuse a file that has some and none is understood."""
        if self.unreadable and not self.answers:
            entry = self.unreadable
            raise RecordError(
                f"{entry.where}: not one truth can be read as {self.task.kind}, here the field "
                f'"{entry.truth_name}" is {shown(entry.truth)}; give another --task, or --map '
                "answer=NAME for another column"
            )
        if self.answers:
            Truths(self.answers).save(pool.path)
        truthless = self.truthless if self.answers else {}
        return Imported(pool, self.readability, len(self.answers), truthless)


def _check_readable(readability: Readability, task: Task, name: str) -> None:
    if readability.failed == readability.responses:
        raise RecordError(f"{name} holds nothing to read: every response failed or is empty")
    readability.check(task, name)


def _check_responses(entry: Entry) -> None:
    """Refuse what the pool could not be read with again."""
    for response in entry.record.responses:
        for name, kinds in RESPONSE_FIELDS.items():
            value = getattr(response, name)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise RecordError(f"{entry.where}: the {name} of a response is {shown(value)}")


def _own_task(entry: Entry) -> Task:
    if isinstance(entry.task, str) and entry.task in TASKS:
        return TASKS[entry.task]
    named = f"the task {shown(entry.task)} is unknown" if entry.task else "no task is named"
    raise RecordError(f"{entry.where}: {named}; give --task, one of {', '.join(TASKS)}")


def _told_task(fields: Mapping[str, Any], file: Path | Place) -> Task:
    try:
        return task_from_json(dict(fields))
    except (TypeError, ValueError, UsageError):
        raise RecordError(
            f"{file.name}: its task cannot be understood; give --task, one of {', '.join(TASKS)}"
        ) from None


def truth_of(entry: Entry, task: Task) -> str | None:
    """A truth in a form the task can read, None where there is none.

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
    return None
