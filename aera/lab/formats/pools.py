"""Pools from files of any known format, as Parquet, and several as one: all of it, or nothing."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product
from pathlib import Path, PurePath
from typing import Any

from aera.core import Question, Response
from aera.errors import PoolError, UsageError
from aera.files import Json, already_there, whole_folder
from aera.lab.formats.foreign import LOGS, read_batch
from aera.lab.formats.rows import (
    SEVERAL,
    SHOWN_COLUMNS,
    Entry,
    Mapped,
    numbered_like,
    parse_columns,
    read_rows,
    shown_name,
    whole_number,
)
from aera.lab.formats.sources import SOURCES, Rows, read_table, recognise, shown
from aera.lab.label import open_truths
from aera.lab.truths import Truths
from aera.pools.parquet import (
    ANSWER,
    RESPONSE_ANSWER,
    TRACE,
    ParquetPool,
    arrow,
    exported_schema,
    list_files,
    locate,
    open_address,
    open_pool,
    reading,
    show_address,
    table_files,
    tell_origin,
    told_origin,
)
from aera.pools.pool import (
    MANIFEST,
    RESPONSE_FIELDS,
    Manifest,
    Plan,
    Pool,
    Record,
    batches,
    draw_records,
    health_of,
    read_votes,
    write_pool,
)
from aera.pools.stats import name_few, tell_pool
from aera.reading.canonical import LETTERS
from aera.reading.find import is_marked, opened_by_prompt
from aera.reading.task import TASKS, Readability, Task, get_task, readable_answer, task_from_json
from aera.trace import trace_to_json

FORMATS: dict[str, Callable[[Path], Rows]] = {**SOURCES, **LOGS}
"""Every format that is known by name: a function from a path to rows."""
ESTIMATED = "estimated from the length of the texts"
LONGEST = 63
"""Bits of a number that Parquet takes."""
LONG = 200
"""Characters of a text that no two samples share by chance."""
ALONE = "every question has one response, so there is nothing to vote on"
BATCH = "--questions takes the batch's input, or a table of id (the custom_id), question and answer"
NO_TRUTHS = "no truths: evaluate shows what policies would spend, not how often they are right"


# --- in -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Imported:
    """A pool of what was in a file, and what was found out about it.

    `lines` say what came in, what did not, and how much of it can be read; `warning` what must be
    said loudly, where that is little.
    """

    pool: Pool
    lines: Sequence[str]
    warning: str | None


def import_file(
    file: str | Path,
    out: str | Path,
    *,
    task: Task | str | None = None,
    format_name: str | Callable[[Path], Rows] | None = None,
    questions: str | Path | None = None,
    columns: Mapped | None = None,
    responses: int | None = None,
) -> Imported:
    """Import a file or folder of recorded responses; its format is recognised where not named.

    A function from a path to rows is a format, too. `columns` maps our names of columns to the
    file's, also as texts OURS=THEIRS. Questions with fewer than `responses` are left out; without
    it, the number that keeps most responses counts. A URI is read as Parquet. `questions` goes
    with openai-batch, whose lines do not say what was asked. Without `task` the file's own counts.
    """
    mapped = parse_columns(columns or ())
    wanted = get_task(task) if isinstance(task, str) else task
    place, out = locate(file), Path(out)
    if isinstance(place, Path) and not place.exists():
        raise UsageError(f'there is no file "{place}" to import')
    name = PurePath(show_address(place)).name
    with whole_folder(out) as folder:
        read = _choose_reader(place, name, format_name, mapped, questions)
        origin = _read_origin(place) if read is read_table else {}
        seen = _Seen(dict(origin["sampler"] if origin else {"imported_from": name}))
        entries = read_rows(read(place), mapped)  # type: ignore[arg-type]
        first = next(entries, None)
        if first is None:
            raise PoolError(f"{name} holds no question")
        found = wanted or _find_task(origin, first, name)
        plan = Plan(found, responses or origin.get("each"), seen.sampler, origin.get("seed"))
        pool = write_pool(folder, seen.records(chain([first], entries), found), plan)
        count, there = len(seen.entries), origin.get("questions")
        if there not in (None, count) and not name.endswith(".parquet"):
            raise PoolError(
                f"{name} holds {count} of the {there} questions it was exported with; "
                "export the pool again, or import its files one by one"
            )
        readability = Readability().join(seen.parts)
        if readability.failed == readability.responses:
            raise PoolError(f"{name} holds nothing to read: every response failed or is empty")
        readability.check(found, name)
        truths, doubts = _read_truths(seen.entries.values(), found)
        if truths:
            truths.save(folder)
        lines = [*tell_pool(pool.manifest, out), *doubts]
        lines += seen.tell(pool.manifest, mapped, is_log=bool(questions) or read in LOGS.values())
        if read is read_batch or (questions and truths is None):
            lines.append(BATCH)
    return Imported(Pool.open(out), [*lines, *readability.lines(found)], readability.warning(found))


@dataclass
class _Seen:
    """What is found out about a file while its rows pass by."""

    sampler: Json
    unused: dict[str, None] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    parts: list[Readability] = field(default_factory=list)
    models: Counter[str] = field(default_factory=Counter)
    silent: dict[str, str] = field(default_factory=dict)
    """Questions of which every response failed, and why."""
    long: int = 0
    copies: int = 0
    """How many texts have so many characters, and how many of those repeat another."""

    def records(self, entries: Iterable[Entry], task: Task) -> Iterator[Record]:
        """Every question once."""
        plain = replace(task, equivalence=False)  # which answers are equal is not asked here
        for batch in batches(entries):
            for entry in batch:
                question = entry.question.id
                if (known := self.entries.get(question)) is not None:
                    told = f"comes a second time, as in {known.where}; --map id=NAME parts the two"
                    raise PoolError(f"{entry.where}: the question {shown_name(question)} {told}")
                self.entries[question] = replace(entry, responses=())
                self.unused.update(dict.fromkeys(entry.unused))
                self.models.update(each.model for each in entry.responses if each.model)
                errors = [each.error for each in entry.responses]
                if errors and all(errors):
                    self.silent[question] = str(errors[0])
                texts = [each.text for each in entry.responses if len(each.text) >= LONG]
                self.long += len(texts)
                self.copies += len(texts) - len({*texts})
                if entry.estimated:
                    self.sampler["tokens"] = ESTIMATED
            records = [_reopened(entry, task, self.sampler).with_traces(task) for entry in batch]
            self.parts.append(health_of(read_votes(records, plain)))
            yield from records

    def tell(self, made: Manifest, mapped: Mapping[str, str], *, is_log: bool) -> Iterator[str]:
        """What is to be known of it besides its truths, a sentence each."""
        if names := ", ".join([shown_name(each) for each in self.unused][:SHOWN_COLUMNS]):
            right = ", ".join({each.truth_name: 0 for each in self.entries.values() if each.truth})
            hint = "; --map answer=NAME says which is right" if not (right or is_log) else ""
            yield f"columns without a use: {names}{hint}{right and f'; {right} says what is right'}"
        if self.silent:
            yield f"nothing came back to {name_few(self.silent)}"
        if 2 * self.copies >= self.long > 0:
            yield (
                f"{self.copies:,} of {self.long:,} long responses are copies of another, which "
                "agree and say nothing: was a file added to itself, or every sample sent one seed?"
            )
        if self.sampler.get("tokens") == ESTIMATED:
            yield f"tokens are {ESTIMATED}: the file does not count them"
        text = mapped.get("text")
        if len(alike := numbered_like(text, [str(text), *self.unused])) > 1:
            yield (
                f'"{text}" is one of {len(alike)} columns numbered like it: --map responses={text} '
                "takes all"
            )
        elif made.each == 1 < made.questions:
            yield ALONE if is_log else f"{ALONE}; --map id=NAME says which column tells them apart"
        if len(self.models) > 1:
            counts = ", ".join(f"{name} ({count:,})" for name, count in self.models.items())
            yield f"responses of {len(self.models)} models: {counts}; a pool is best of one model"
        if cut := self.sampler.get("cut_in_thinking"):
            yield f"{cut:,} end inside thinking that the prompt opened, and do not vote"
        yield from [each.remark for each in self.entries.values() if each.remark][:1]


def _reopened(entry: Entry, task: Task, sampler: Json) -> Entry:
    """The same where the prompt opened the thinking: what never closes it was cut off inside."""
    own = task.thinking
    texts = [response.text for response in entry.responses if response.text]
    marker = opened_by_prompt(entry.question.text, texts, own)
    if marker is None:
        return entry
    responses = []
    for each in entry.responses:
        is_open = bool(each.text) and each.finish_reason in (None, "length")
        cut = is_open and not is_marked(each.text, own)
        sampler["cut_in_thinking"] = sampler.get("cut_in_thinking", 0) + cut
        whole = replace(each, text=marker + each.text, finish_reason="length") if cut else each
        responses.append(whole)
    return replace(entry, responses=tuple(responses))


def _read_truths(entries: Collection[Entry], task: Task) -> tuple[Truths | None, list[str]]:
    """The truths that can be read, and whose cannot; refuses where none can."""
    truths, unreadable = dict[str, str](), list[Entry]()
    without: dict[str, str] = {}
    labels = [(each.truth, each.question.choices) for each in entries if each.truth is not None]
    chosen = task.kind == "choice" and bool(labels)
    worded = chosen and all(label in words for label, words in labels)
    lettered = chosen and all(label in [*LETTERS[: len(words)]] for label, words in labels)
    lettered = lettered and any([*words] != [*LETTERS[: len(words)]] for _, words in labels)
    first = _first_place(labels) if chosen else None
    for entry in entries:
        truth, place = readable_answer(entry.question, entry.truth, task), whole_number(entry.truth)
        fault = SEVERAL if entry.several else f"no {task.kind} answer"
        if entry.several and truth is not None and task.kind != "json":
            name, value = entry.truth_name, shown(entry.truth)
            raise PoolError(f'{entry.where}: the field "{name}" is {value}, {SEVERAL}')
        if first is not None and place is not None and not worded:
            truth = LETTERS[place - first]
        elif lettered and not worded:  # also where an option is called by another's letter
            truth = entry.truth
        if truth is not None:
            truths[entry.question.id] = truth
        elif entry.truth is None:
            without[entry.question.id] = "none is given"
        else:
            unreadable.append(entry)
            without[entry.question.id] = f"{shown(entry.truth)} is {fault}"
    if unreadable and not truths and unreadable[0].truth_name != "reference":
        entry = unreadable[0]
        raise PoolError(
            f"{entry.where}: not one truth can be read as {task.kind}, here in the field "
            f'"{entry.truth_name}" {without[entry.question.id]}; give another --task, or --map '
            "answer=NAME for another column"
        )
    doubts = [f"without a truth: {name_few(without)}"] if without and (truths or unreadable) else []
    if worded and (lettered or first is not None):
        doubts.append("labels are taken for the words of choices, not for their letters or places")
    elif first is not None:
        doubts.append(f"labels are places among the choices, counted from {first}")
    return (Truths(truths), doubts) if truths else (None, [*doubts, NO_TRUTHS])


def _first_place(labels: Collection[tuple[str | None, Sequence[str]]]) -> int | None:
    """What places are counted from where labels are places among the choices; else None.

    Whether it is 0 or 1 the ends tell.
    """
    found = [(whole_number(label), len(words)) for label, words in labels]
    places = [(place, place - count) for place, count in found if place is not None]
    if len(places) < len(found):
        return None
    low, high = min(place for place, _ in places), max(beyond for _, beyond in places)
    fits = (low == 0 and high < 0) or (low == 1 and high == 0)
    return low if fits and max(count for _, count in found) <= len(LETTERS) else None


def _choose_reader(
    place: Path | str,
    name: str,
    told: str | Callable[[Path], Rows] | None,
    mapped: Mapping[str, str],
    questions: str | Path | None,
) -> Callable[[Path], Rows]:
    """The function that reads what is at a place; mapped columns leave only tables."""
    if callable(told):
        return told
    found = told or ("parquet" if isinstance(place, str) else recognise(place))
    if found not in FORMATS:
        raise UsageError(f'--format is one of {", ".join(FORMATS)}, but got "{found}"')
    if isinstance(place, str) and found != "parquet":
        raise UsageError(f"only Parquet is read from a URI, but --format is {told}")
    if isinstance(place, Path) and (place / MANIFEST).is_file():
        raise UsageError(f'"{place}" is a pool already: aera evaluate "{place}"')
    is_folder = isinstance(place, str) or place.is_dir()
    if is_folder and found != "json" and (found != "parquet" or not table_files(place)):
        raise UsageError(f'"{show_address(place)}" holds no Parquet, Arrow or JSON: name a file')
    if mapped and not told and found in ("lm-eval", "openai-batch"):
        found = "jsonl"
    if questions and found != "openai-batch":
        raise UsageError(f"--questions goes with openai-batch, but {name} is {found}")
    if mapped and found not in SOURCES:
        raise UsageError(f"--map goes with {', '.join(SOURCES)}, but {name} is {found}")
    return partial(read_batch, questions=Path(questions)) if questions else FORMATS[found]


def _read_origin(address: str | Path) -> Json:
    """What an exported pool said of itself; nothing for a table from elsewhere."""
    file = table_files(address)[0]
    if file.endswith(".arrow"):
        return {}
    with suppress(arrow().ArrowException, OSError):
        read = arrow("pyarrow.parquet").read_schema
        return told_origin(read(file, filesystem=open_address(address)[0])) or {}
    return {}


def _find_task(origin: Mapping[str, Any], entry: Entry, name: str) -> Task:
    """The task that the file names."""
    try:
        if origin:
            return task_from_json(dict(origin["task"]))
        if isinstance(entry.task, str) and entry.task in TASKS:
            return TASKS[entry.task]
        unknown = f"the task {shown(entry.task)} is unknown" if entry.task else "no task is named"
        said = f"{entry.where}: {unknown}"
    except (TypeError, ValueError, UsageError):
        said = f"{name}: its task cannot be understood"
    raise PoolError(f"{said}; give --task, one of {', '.join(TASKS)}")


# --- out ------------------------------------------------------------------------------------------


def export_pool(pool: Pool, out: str | Path) -> None:
    """Write a pool as Parquet, a row per response: one file for *.parquet, else a folder of files.

    A URI puts it on that file system. Truths go along where the pool has them, questions left out
    do not. Half a surrogate pair, which Parquet cannot hold, becomes U+FFFD, and a seed of more
    than 63 bits is left out.
    """
    filesystem, path = open_address(out)
    tables, single = _tables(pool), path.endswith(".parquet")
    with _filled(out, single=single) as target:
        for number, table in enumerate(tables):
            file = target if single else f"{target}/part-{number:05}.parquet"
            rest = tables if single else ()
            make = arrow("pyarrow.parquet").ParquetWriter
            with make(file, table.schema, filesystem=filesystem, compression="zstd") as writer:
                for group in chain([table], rest):
                    writer.write_table(group)


@contextmanager
def _filled(out: str | Path, *, single: bool) -> Iterator[str]:
    """The path to write to; away from this disk, where nothing can be renamed, half may stay."""
    place = locate(out)
    if isinstance(place, Path):
        with whole_folder(place, single=single) as unfinished:
            yield str(unfinished)
        return
    if list_files(place):
        raise already_there(show_address(place))
    with reading(show_address(place), UsageError):
        yield open_address(place)[1]


def _tables(pool: Pool) -> Iterator[Any]:
    """Whole questions, about as many responses each as a segment holds."""
    truths = Truths.open(pool.path)
    schema = exported_schema(with_truths=truths is not None)
    schema = schema.with_metadata(tell_origin(pool.manifest))
    for records in batches(pool):
        rows = [row for record in records for row in _rows(record, truths)]
        yield arrow().Table.from_pylist(rows, schema=schema)


def _rows(record: Record, truths: Truths | None) -> Iterator[dict[str, object]]:
    asked = record.question
    own: dict[str, object] = {"question_id": asked.id, "question": asked.text}
    own |= {"choices": [*asked.choices], "system": asked.system, "group": asked.group}
    own[ANSWER] = truths.answers.get(asked.id) if truths else None
    for index, response in enumerate(record.responses):
        said = {name: getattr(response, name) for name in (*RESPONSE_FIELDS, "prompt_tokens")}
        said[RESPONSE_ANSWER], trace = response.answer, response.trace
        row = {**own, "index": index, **said, TRACE: trace and trace_to_json(trace)}
        yield {name: _whole(value) for name, value in row.items()}


def _whole(value: object) -> object:
    """A value that Parquet holds: text that every encoding takes, no number of too many bits."""
    if isinstance(value, int) and value.bit_length() > LONGEST:
        return None
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


# --- several as one -------------------------------------------------------------------------------


Stored = Pool | ParquetPool


def merge_pools(
    addresses: Sequence[str | Path], out: str | Path, *, responses: int | None = None
) -> Pool:
    """Write one pool with the questions of all, which need the same task and prompt.

    A question that is in several has its responses one pool after the other. Questions with fewer
    than `responses` are left out; without it, it is the number that keeps most responses.
    """
    pools = [open_pool(address) for address in addresses]
    if not pools:
        raise UsageError("there is nothing to merge; give at least one pool")
    _check_alike(pools)
    questions, truths = _merge_questions(pools), _merge_truths(pools)
    seeds = {pool.manifest.seed for pool in pools}
    out = Path(out)
    with whole_folder(out) as folder:
        seed = seeds.pop() if len(seeds) == 1 else None
        plan = Plan(pools[0].task, responses, _merge_sampler(pools), seed)
        write_pool(folder, _merge_records(pools, questions), plan)
        if truths:
            truths.save(folder)
    return Pool.open(out)


def _check_alike(pools: Sequence[Stored]) -> None:
    """Refuse pools whose responses were asked for, or would be read, in different ways."""
    first, *others = pools
    for pool, (name, ours) in product(others, _asked(first).items()):
        if (theirs := _asked(pool)[name]) != ours:
            raise UsageError(
                f'"{first.name}" and "{pool.name}" cannot be merged, their {name} differs: '
                f"{_told(ours)} and {_told(theirs)}; import or sample one of them again"
            )


def _asked(pool: Stored) -> dict[str, object]:
    """What pools must have in common: the task with its prompt, and the system message."""
    task = pool.task.as_json()
    named = {f"task's {name}": value for name, value in task.items() if name != "template"}
    return {"prompt": task["template"], **named, "system": pool.manifest.sampler.get("system")}


def _told(value: object) -> str:
    return "nothing" if value is None else f"{value!r:.60}"


def _merge_questions(pools: Sequence[Stored]) -> dict[str, Question]:
    """All questions by id, in the order of the pools; one id for two questions is refused."""
    merged: dict[str, Question] = {}
    for pool in pools:
        for question in pool.stored_questions.values():
            known = merged.get(question.id, question)
            if replace(known, group=None) != replace(question, group=None):
                raise UsageError(
                    f'question {question.id} in "{pool.name}" has another text, other choices or '
                    "another system message than before; give one of the two another id"
                )
            merged[question.id] = replace(known, group=known.group or question.group)
    return merged


def _merge_records(pools: Sequence[Stored], questions: Mapping[str, Question]) -> Iterator[Record]:
    """Every question with its responses in all pools, also those that are left out in some.

    Responses that are there already, by the same seed and text or one and all, are refused.
    """
    for question, drawn in zip(questions.values(), draw_records(pools, questions), strict=True):
        responses: list[Response] = []
        whole: list[list[str]] = []
        for pool, found in zip(pools, drawn, strict=True):
            added = found.responses if found else ()
            texts = [each.text for each in added]
            if any(texts) and texts in whole:
                raise UsageError(
                    f'the responses to question {question.id} in "{pool.name}" are those of an '
                    "earlier pool, one and all; leave that pool out"
                )
            whole.append(texts)
            known = {(r.seed, r.model, r.text) for r in responses if r.seed is not None}
            for response in added:
                if (response.seed, response.model, response.text) in known:
                    raise UsageError(
                        f"the response to question {question.id} with seed {response.seed} in "
                        f'"{pool.name}" is in an earlier pool too; leave that pool out, or sample '
                        "it with another --seed"
                    )
            responses += added
        yield Record(question, tuple(responses))


def _merge_sampler(pools: Sequence[Stored]) -> dict[str, object]:
    """The settings all pools share, and what each has of its own."""
    samplers = [pool.manifest.sampler for pool in pools]
    shared = {
        name: value
        for name, value in samplers[0].items()
        if all(name in other and other[name] == value for other in samplers)
    }
    own = [{k: v for k, v in each.items() if k not in shared} for each in samplers]
    sources = [{"pool": pool.name, **told} for pool, told in zip(pools, own, strict=True)]
    return {**shared, "merged_from": sources}


def _merge_truths(pools: Sequence[Stored]) -> Truths | None:
    """The truths of all pools, None where none has any; two truths for one question are refused."""
    merged: dict[str, str] = {}
    for pool in pools:
        truths = open_truths(pool)
        for question_id, answer in (truths.answers if truths else {}).items():
            known = merged.setdefault(question_id, answer)
            if known != answer and not pool.task.same(known, answer):
                raise UsageError(
                    f'question {question_id} has the truth "{answer:.40}" in "{pool.name}" and '
                    f'"{known:.40}" before; correct one of them in its truths.jsonl'
                )
    return Truths(merged) if merged else None
