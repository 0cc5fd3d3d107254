"""Bring recorded responses from a file of any known format into a pool: all of it, or nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from aera.errors import RecordError, UsageError
from aera.files import whole_folder
from aera.lab.formats.batches import read_batch
from aera.lab.formats.entry import Entry, shown, shown_name
from aera.lab.formats.inspect_log import read_inspect
from aera.lab.formats.lm_eval import read_lm_eval
from aera.lab.formats.recognising import choose_format
from aera.lab.formats.rows import Columns, parse_map, read_rows
from aera.lab.formats.sources import Rows, read_csv, read_lines, read_list
from aera.lab.formats.tables import read_origin, read_table
from aera.lab.truths import Truths
from aera.pools import pool as stored
from aera.pools.parquet import Origin, locate, show_address
from aera.pools.pool import RESPONSE_FIELDS, Pool, PoolWriter, health_of, read_votes
from aera.pools.stats import name_few, tell_pool
from aera.reading.task import TASKS, Readability, Task, get_task, readable_answers, task_from_json

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
NO_TRUTHS = "no truths: evaluate shows what policies would spend, not how often they are right"


@dataclass(frozen=True)
class Imported:
    """A pool that was made of a file, and what was found out about it."""

    pool: Pool
    readability: Readability
    truths: int
    """Questions whose right answer is known."""
    truthless: Mapping[str, str]
    """The others, each with the reason; none where the file has no truths at all."""
    lines: Sequence[str] = ()
    """What came in, what did not, and how much of it can be read."""
    warning: str | None = None
    """What must be said loudly, where little can be read."""


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
    task: Task | str | None = None,
    format_name: str | None = None,
    questions: str | Path | None = None,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    responses: int | None = None,
) -> Imported:
    """Import a file or folder of recorded responses; its format is recognised where not named.

    `columns` maps our names of columns to the file's, also as texts OURS=THEIRS. Questions with
    fewer than `responses` are left out; without it, the number that keeps most responses counts.
    A URI is read as Parquet. `questions` goes with openai-batch, whose lines do not say what was
    asked.
    """
    mapped = columns if isinstance(columns, Mapping) else parse_map(columns or ())
    names = Columns(mapped)
    wanted = get_task(task) if isinstance(task, str) else task
    place, out = locate(file), Path(out)
    if isinstance(place, Path) and not (
        place.is_file() if format_name == "jsonl" else place.exists()
    ):
        raise UsageError(f'there is no file "{place}" to import')
    with whole_folder(out) as folder:
        source = _open_source(place, names, format_name=format_name, questions=questions)
        intake = Intake.begin(source, folder, task=wanted, each=responses)
        while intake.take_some():
            continue
        found = intake.finish(out)
    return replace(found, pool=Pool.open(out))


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A file whose format is known: its questions, and what it says of itself."""

    name: str
    """What sentences call it."""
    entries: Iterator[Entry]
    origin: Origin | None = None
    """Of an exported pool."""

    @property
    def questions(self) -> int | None:
        """How many a folder was exported with; None where nothing can be missing."""
        return self.origin.questions if self.origin and not self.name.endswith(".parquet") else None

    def choose_task(self, first: Entry) -> Task:
        """The task it names itself, or its first entry does."""
        return _told_task(self.origin.task, self.name) if self.origin else _own_task(first)


def _open_source(
    place: Path | str,
    names: Columns,
    *,
    format_name: str | None,
    questions: str | Path | None,
) -> Source:
    named = choose_format(place, format_name, in_rows=bool(names.mapped))
    name = PurePath(show_address(place)).name
    if questions and named != "openai-batch":
        raise UsageError(f"--questions goes with openai-batch, but {name} is {named}")
    if names.mapped and named not in SOURCES:
        raise UsageError(f"--map goes with {', '.join(SOURCES)}, but {name} is {named}")
    if named in SOURCES:
        entries = read_rows(SOURCES[named](place), names)  # type: ignore[arg-type]
    elif questions:
        entries = read_batch(Path(place), Path(questions))
    else:
        entries = READERS[named](Path(place))
    return Source(name, entries, read_origin(place) if named == "parquet" else None)


# --- writing --------------------------------------------------------------------------------------


@dataclass
class Intake:
    """Takes the questions of a file into a pool, each once, and finds out about them in bulk."""

    source: Source
    entries: Iterator[Entry]
    writer: PoolWriter
    seen: set[str] = field(default_factory=set)
    answers: dict[str, str] = field(default_factory=dict)
    truthless: dict[str, str] = field(default_factory=dict)
    unreadable: Entry | None = None
    """The first whose truth cannot be read."""
    readability: Readability = field(default_factory=Readability)
    estimated: bool = False

    @classmethod
    def begin(
        cls, source: Source, folder: Path, *, task: Task | None, each: int | None
    ) -> "Intake":
        """What will fill a folder, once the first question has told how it is to be read."""
        first = next(source.entries, None)
        if first is None:
            raise RecordError(f"{source.name} holds no question")
        origin = source.origin
        writer = PoolWriter(
            folder,
            task=task or source.choose_task(first),
            sampler=origin.sampler if origin else {"imported_from": source.name},
            seed=origin.seed if origin else None,
            responses=each or (origin.each if origin else None),
        )
        return cls(source, chain([first], source.entries), writer)

    def take_some(self) -> bool:
        """Write a segment of questions and look at what they say; False where none is left."""
        batch = self._next_batch()
        if not batch:
            return False
        task = self.writer.task
        records = [entry.record.with_traces(task) for entry in batch]
        self.writer.add(records)
        plain = replace(task, equivalence=False)  # which answers are equal is not asked here
        self.readability = self.readability.join([health_of(read_votes(records, plain))])
        truths = readable_answers([(each.record.question, each.truth) for each in batch], task)
        for entry, truth in zip(batch, truths, strict=True):
            name = entry.record.question.id
            self.estimated |= entry.estimated
            if truth is not None:
                self.answers[name] = truth
            elif entry.truth is None:
                self.truthless[name] = "none is given"
            else:
                self.unreadable = self.unreadable or entry
                self.truthless[name] = f"{shown(entry.truth)} is no {task.kind} answer"
        return True

    def _next_batch(self) -> list[Entry]:
        """The next questions, together about as many responses as a segment holds."""
        batch: list[Entry] = []
        responses = 0
        for entry in self.entries:
            name = entry.record.question.id
            if name in self.seen:
                raise RecordError(
                    f"{entry.where}: the question {shown_name(name)} comes a second time"
                )
            self.seen.add(name)
            _check_responses(entry)
            batch.append(entry)
            responses += len(entry.record.responses)
            if responses >= stored.SEGMENT_RESPONSES:
                break
        return batch

    def finish(self, out: Path) -> Imported:
        """Write the truths and what makes the pool whole; refuse one that nobody could use."""
        writer, answers, readability = self.writer, self.answers, self.readability
        task, name, wanted = writer.task, self.source.name, self.source.questions
        if answers:
            Truths(answers).save(writer.path)
        if self.estimated:
            writer.sampler = dict(writer.sampler) | {"tokens": ESTIMATED}
        pool = writer.finish()
        if wanted not in (None, len(self.seen)):
            raise RecordError(
                f"{name} holds {len(self.seen)} of the {wanted} questions it was exported with; "
                "export the pool again, or import its files one by one"
            )
        if readability.failed == readability.responses:
            raise RecordError(f"{name} holds nothing to read: every response failed or is empty")
        readability.check(task, name)
        if self.unreadable and not answers:
            raise _no_truth(self.unreadable, task)
        truthless = self.truthless if answers else {}
        lines = tell_pool(pool.manifest, out)
        if truthless:
            lines.append(f"without a truth: {name_few(truthless)}")
        if not answers:
            lines.append(NO_TRUTHS)
        if pool.manifest.sampler.get("tokens") == ESTIMATED:
            lines.append(f"tokens are {ESTIMATED}: the file does not count them")
        lines += readability.lines()
        warning = readability.warning(task)
        return Imported(pool, readability, len(answers), truthless, lines, warning)


def _no_truth(entry: Entry, task: Task) -> RecordError:
    """What is said of a file that has truths of which none is understood."""
    return RecordError(
        f"{entry.where}: not one truth can be read as {task.kind}, here the field "
        f'"{entry.truth_name}" is {shown(entry.truth)}; give another --task, or --map '
        "answer=NAME for another column"
    )


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


def _told_task(fields: Mapping[str, Any], name: str) -> Task:
    try:
        return task_from_json(dict(fields))
    except (TypeError, ValueError, UsageError):
        raise RecordError(
            f"{name}: its task cannot be understood; give --task, one of {', '.join(TASKS)}"
        ) from None
