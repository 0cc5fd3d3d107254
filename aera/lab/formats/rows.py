"""Rows: files of every tabular kind, what a file is, and what a row of any source means.

A row says where it stands; it is a question with its responses, or one response. A response is a
text, an object, or only what was answered. Names are those people use; where a file has others,
`Columns` maps ours to theirs.
"""

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path, PurePath
from typing import IO, Any

from aera.core import Question, Response
from aera.errors import PoolError, UpstreamError, UsageError
from aera.lab.truths import Truths, shuffled_letter
from aera.pools.parquet import arrow, open_address, table_files
from aera.pools.pool import RESPONSE_FIELDS, SOMETIMES, Record
from aera.reading.canonical import LETTERS, canonical_json
from aera.reading.task import Task
from aera.sampling.replies import (
    CHARACTERS_PER_TOKEN,
    Choice,
    choice_text,
    parse_reply,
    read_tokens,
)

Row = dict[str, Any]
Rows = Iterator[tuple[str, Row]]

NAMES: dict[str, tuple[str, ...]] = {
    "question": ("question", "problem", "prompt", "input", "query"),
    "messages": ("messages", "conversations", "conversation"),
    "system": ("system", "system_prompt"),
    "id": (
        *("id", "question_id", "doc_id", "problem_id", "prompt_id", "unique_id", "task_id"),
        "request_id",
    ),
    "choices": ("choices", "options"),
    "answer": (
        *("answer", "target", "ground_truth", "gold", "solution", "label", "correct_answer"),
        *("gold_answer", "gt"),
    ),
    "group": ("group",),
    "responses": (
        *("responses", "completions", "generations", "samples", "outputs", "model_outputs"),
        "generated_texts",
    ),
    "text": (
        *("text", "response", "completion", "generation", "output", "content", "model_output"),
        *("generated_text", "model_response"),
    ),
    "response_answer": ("response_answer", "final_answer", "prediction", "extracted"),
    "tokens": ("tokens", "completion_tokens", "output_tokens", "num_tokens"),
    "index": ("index", "response_index", "sample_index", "sample_idx"),
}
"""What a column may be called; the first that holds anything counts."""
_KNOWN = {name for names in NAMES.values() for name in names}
HEAD, LONGEST_LINE = 4096, 1 << 26
"""Characters that are looked at to recognise a file, and of a first line that is looked at."""
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_UNREADABLE = (EOFError, zlib.error, gzip.BadGzipFile, UnicodeError)
SHOWN_COLUMNS, SENTENCE = 20, 4
"""Names that are shown; spaces that only a text has, and no answer."""
MOST = 10**15
"""No count is larger; what is comes from a damaged file."""
_WHOLE = re.compile(r"\s*([+-]?[0-9]{1,18})(?:\.0*)?\s*")
_OTHERS = {
    name: kinds
    for name, kinds in {**RESPONSE_FIELDS, **SOMETIMES}.items()
    if name not in ("text", "tokens", "answer")
}


# --- files ----------------------------------------------------------------------------------------


@contextmanager
def open_text(file: Path, *, newline: str | None = None) -> Iterator[IO[str]]:
    """A file of text, gzipped or plain, with a byte-order mark or without."""
    with file.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if zipped else raw as data:
            encoding = _MARKS.get(data.read(2), "utf-8-sig")
            data.seek(0)
            yield io.TextIOWrapper(data, encoding, newline=newline)


def parse_object(text: str | bytes, *, where: str) -> Row:
    """The JSON object a text holds."""
    return need_object(_parse(text, where=where), where=where)


def _parse(text: str | bytes, *, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = ""
        if ", line " in where:
            hint = "; on each line there must be a whole object of JSON, as json.dumps writes it"
        raise PoolError(f"{where}: not JSON ({error}){hint}") from None


def need_object(value: object, *, where: str) -> Row:
    """A JSON object, and nothing else."""
    if not isinstance(value, dict):
        raise PoolError(f"{where}: a JSON object is needed, but got {type(value).__name__}")
    return value


def read_whole(file: Path) -> Any:
    """What one file of JSON holds."""
    try:
        with open_text(file) as text:
            content = text.read()
    except _UNREADABLE as error:
        raise _unreadable(file.name, error) from None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        objects = _concatenated(content)
    return objects if len(objects) > 1 else _parse(content, where=file.name)


def _concatenated(content: str) -> list[Row]:
    """Objects that stand one after the other; none where anything else does."""
    objects, place = list[Row](), 0
    with suppress(ValueError, RecursionError):
        while content := content[place:].lstrip():
            found, place = json.JSONDecoder().raw_decode(content)
            objects.append(found)
        return objects
    return []


def _unreadable(where: str, error: Exception) -> PoolError:
    said = "; save it as UTF-8" if isinstance(error, UnicodeDecodeError) else ""
    return PoolError(f"{where} cannot be read, {error}{said}")


# --- tables ---------------------------------------------------------------------------------------


def read_lines(file: Path, *, plain: bool = False) -> Rows:
    """JSON objects, one per line; `plain` takes other lines for questions."""
    number = 0
    try:
        with open_text(file) as lines:
            for number, line in enumerate(lines, start=1):
                where = f"{file.name}, line {number}"
                if plain and line.strip() and not line.lstrip().startswith(("{", "[")):
                    yield where, {"question": line.rstrip("\r\n")}
                elif line.strip():
                    yield where, parse_object(line, where=where)
    except _UNREADABLE as error:
        raise _unreadable(f"{file.name}, line {number + 1}:", error) from None


def read_list(file: Path) -> Rows:
    """The objects of one JSON list, or of an object that has them by id or in a list of its own."""
    items = read_whole(file)
    if isinstance(items, dict):
        items = _items(items) or items
    if not isinstance(items, list):
        raise PoolError(f"{file.name}: a JSON list is needed, but got {type(items).__name__}")
    for number, value in enumerate(items, start=1):
        where = f"{file.name}, item {number}"
        yield where, need_object(value, where=where)


def _items(content: Row) -> list[Any]:
    """The rows an object holds, perhaps itself."""
    lists = [each for each in content.values() if _is_objects(each)]
    if {*content} & {*NAMES["question"], *NAMES["messages"]}:
        return [content]
    if all(isinstance(each, dict) for each in content.values()):
        return [{"id": name, **each} for name, each in content.items()]
    return lists[0] if len(lists) == 1 else []


def _is_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def read_csv(file: Path) -> Rows:
    """The rows of a table of text by the names in its first line; an empty cell is nothing."""
    csv.field_size_limit(2**31 - 1)
    begin = 1
    try:
        with open_text(file, newline="") as text:
            head = next((line for line in text if line.strip()), "")
            lines = csv.reader(chain([head], text), delimiter=_separator(head), strict=True)
            names = [name.strip() for name in next(lines, [])]
            begin = lines.line_num + 1
            for cells in lines:
                where, begin = f"{file.name}, line {begin}", lines.line_num + 1
                if not any(cells):
                    continue
                if len(cells) != len(names):
                    raise PoolError(
                        f"{where}: it has {len(cells)} cells, but the first line {len(names)}"
                    )
                yield where, {name: cell or None for name, cell in zip(names, cells, strict=True)}
    except csv.Error as error:
        raise PoolError(f"{file.name}, line {begin}: no CSV ({error})") from None
    except _UNREADABLE as error:
        raise _unreadable(f"{file.name}, line {begin}:", error) from None


def _separator(head: str) -> str:
    """What parts the cells of a table, by its first line."""
    return max(",\t;", key=head.count)


def read_table(address: str | Path) -> Rows:
    """The rows of Parquet files and folders, and of what Hugging Face datasets saves.

    Needs pyarrow, the extra `data`, and then also takes a URI that pyarrow or fsspec opens.
    """
    unreadable = arrow().ArrowException
    for file in table_files(address):
        number, name = 0, PurePath(file).name
        try:
            for batch in _batches(open_address(address)[0], file):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{name}, row {number}", row
        except (unreadable, OSError, UnicodeDecodeError) as error:
            said = str(error).partition("\n")[0]
            raise PoolError(f"{name}, row {number + 1}: cannot be read, {said}") from None


def _batches(filesystem: Any, file: str) -> Iterator[Any]:
    with filesystem.open_input_file(file) as source:
        if not file.endswith(".arrow"):
            yield from arrow("pyarrow.parquet").ParquetFile(source).iter_batches(batch_size=1024)
            return
        ipc = arrow("pyarrow.ipc")
        try:
            stream = ipc.open_stream(source)
        except arrow().ArrowInvalid:
            table = ipc.open_file(source)
            stream = map(table.get_batch, range(table.num_record_batches))
        yield from stream


SOURCES: dict[str, Callable[[Path], Rows]] = {
    "jsonl": read_lines,
    "json": read_list,
    "csv": read_csv,
    "tsv": read_csv,
    "parquet": read_table,
}
"""Tables by the name of their format."""


# --- what a file is -------------------------------------------------------------------------------


def recognise(file: Path) -> str:
    """The format a file seems to be in; JSON lines where nothing else fits."""
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() != ".gz"]
    suffix = suffixes[-1] if suffixes else ""
    if file.is_dir() or suffix == ".arrow":
        return "parquet"
    with file.open("rb") as opened:
        magic = opened.read(4)
    if magic[:1] == b"\x80" or suffix in (".pkl", ".pickle", ".pt", ".xlsx", ".xls"):
        kind, instead = ("spreadsheet", "CSV") if suffix[:3] == ".xl" else ("pickle", "JSON lines")
        raise PoolError(f"{file.name} is a {kind}, which is not read; save it as {instead}")
    if magic in (b"PAR1", b"PK\x03\x04"):
        return "parquet" if magic == b"PAR1" else "inspect"
    if suffix in (".csv", ".tsv"):
        return suffix[1:]
    try:
        with open_text(file) as text:
            line = ""
            while not line.strip() and (read := text.readline(LONGEST_LINE)):
                line = read
            head = line + text.read(HEAD)
    except (OSError, EOFError, ValueError, zlib.error):
        return "jsonl"  # whose reader says what is wrong
    return _recognise_line(line, head)


def _recognise_line(line: str, head: str) -> str:
    if line.lstrip()[:1] == "[" or (line.strip() == "{" and '"eval": {' not in head):
        return "json"
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
    if isinstance(row, dict) and row and not keys & _KNOWN and _items(row):
        return "json"
    mark = _separator(line)
    cells = {_plain(cell.strip(' "\r\n')) for cell in line.split(mark)}
    asks = cells & {*NAMES["question"], *NAMES["messages"]}
    table = row is None and line.lstrip()[:1] != "{" and mark in line
    return "csv" if table and asks else "jsonl"


# --- names ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry(Record):
    """One question of a file: where it stands, what came back, and what the file says is right."""

    where: str
    truth: str | None = None
    """As the file writes it."""
    truth_name: str = "answer"
    """The field it stands in."""
    task: object = None
    """The task the file names."""
    estimated: bool = False
    """Whether the tokens are guessed from the length of the texts."""
    remark: str | None = None
    """What was taken for what, where a file does not say."""


@dataclass(frozen=True)
class Columns:
    """Under which names a file keeps what: the usual ones, or those a user has mapped."""

    mapped: Mapping[str, str] = field(default_factory=dict)
    """Ours to theirs."""

    def __post_init__(self) -> None:
        unknown = [ours for ours in self.mapped if ours not in NAMES]
        if unknown:
            raise UsageError(
                f'--map takes OURS=THEIRS, and "{unknown[0]}" is none of ours: {", ".join(NAMES)}'
            )

    @classmethod
    def parse(cls, pairs: Iterable[str]) -> "Columns":
        """What --map says, each as OURS=THEIRS."""
        mapped: dict[str, str] = {}
        for pair in pairs:
            ours, equals, theirs = (part.strip() for part in pair.partition("="))
            if not equals or not theirs or ours not in NAMES:
                raise UsageError(
                    f'--map takes OURS=THEIRS, ours one of {", ".join(NAMES)}, but got "{pair}"'
                )
            if ours in mapped:
                raise UsageError(f'--map says twice what "{ours}" is')
            mapped[ours] = theirs
        return cls(mapped)

    def find(self, key: str, row: Row, but: str | None = None) -> str | None:
        """The name under which a row has something; one that holds anything comes first."""
        if key in self.mapped:
            return self.mapped[key] if self.mapped[key] in row else None
        there = [name for name in NAMES[key] if name in row and name != but]
        held = [name for name in there if given(row, name) is not None]
        return next(iter(held or there), None)

    def missing(self, key: str, row: Row, *, where: str, what: str) -> PoolError:
        """What is said of a row without something it needs."""
        if key in self.mapped:
            return _unknown_column(self.mapped[key], row, where=where)
        return PoolError(
            f"{where}: there is no {what}; its column is one of {', '.join(NAMES[key])}, or give "
            f"--map {self._guess(key, row)}; there are {_names(row)}"
        )

    def _guess(self, key: str, row: Row) -> str:
        """Which column it may be: a list of responses, else the longest text."""
        asked = {self.find(each, row) for each in ("question", "messages", "choices")}
        rest = {n: v for n, v in row.items() if n not in asked and n.isprintable()}
        lists = [name for name, value in rest.items() if listed(value)]
        if key == "text" and lists:
            return f"responses={lists[0]}"
        texts = {name: len(v) for name, v in rest.items() if isinstance(v, str) and " " in v}
        return f"{key}={max(texts, key=texts.__getitem__) if texts else 'NAME'}"

    def tidy(self, row: Row) -> Row:
        """A row under names that are known: in any letters, also those inside a request."""
        if isinstance(row.get("request"), dict):
            row = {**row["request"], **row}
        reply = row if is_reply(row) else row.get("response")
        if is_reply(reply):
            row = {k: v for k, v in row.items() if reply is not row or k not in ("id", "choices")}
            row |= {"response": reply}
        theirs = {*self.mapped.values()}
        for name in [each for each in row if isinstance(each, str) and each not in theirs]:
            plain = _plain(name)
            if plain != name and plain in _KNOWN and plain not in row:
                row = {plain if each == name else each: value for each, value in row.items()}
        return row


@lru_cache(1024)
def _plain(name: str) -> str:
    """A name in small letters, with underscores."""
    return re.sub(r"[\s-]+", "_", name.strip()).lower()


def _unknown_column(name: str, row: Row, *, where: str) -> PoolError:
    return PoolError(f'{where}: there is no column "{name}"; there are {_names(row)}')


def _names(row: Row) -> str:
    names = [shown_name(str(name)) for name in row]
    more = f" and {len(names) - SHOWN_COLUMNS} more" if len(names) > SHOWN_COLUMNS else ""
    return ", ".join(names[:SHOWN_COLUMNS]) + more if names else "none"


# --- fields ---------------------------------------------------------------------------------------


def shown(value: object) -> str:
    """A value in a sentence: short, on one line, and without what a terminal would obey."""
    try:
        return f"{value!r:.40}"
    except (RecursionError, ValueError):  # too deep, or a number of too many digits
        return type(value).__name__


def shown_name(name: str) -> str:
    """A name in a sentence, as it is where it can be."""
    return name if name.isprintable() and len(name) <= 80 else shown(name)


def need_field(row: Mapping[str, Any], name: str, *kinds: type, where: str) -> Any:
    """A field that must be there and be of one of these types."""
    value = row.get(name)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise bad_field(row, name, where=where)
    return value


def bad_field(row: Mapping[str, Any], name: str, *, where: str) -> PoolError:
    """What is said of a field that cannot be used."""
    problem = f"is {shown(row[name])}" if name in row else "is missing"
    return PoolError(f'{where}: the field "{name}" {problem}')


def given(row: Mapping[str, Any], name: str | None) -> Any:
    """What a field holds; not a number, as tables write what is missing, is nothing."""
    value = None if name is None else row.get(name)
    return None if isinstance(value, float) and math.isnan(value) else value


def whole_number(value: object) -> int | None:
    """A whole number, also as text or as a fraction without one; None for anything else."""
    if isinstance(value, str):
        match = _WHOLE.fullmatch(value)
        return int(match[1]) if match else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST:
        return None
    return int(value) if value == int(value) else None


def written(value: object) -> str | None:
    """An answer as a text, None where there is none; a list of one is what it holds."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        return canonical_json(value)
    except (TypeError, ValueError):  # a date of Arrow's, or a number of too many digits
        return shown(value)


def listed(value: object) -> list[Any] | None:
    """A list, also where a cell holds it as JSON; None for anything else."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


def choices_in(row: Mapping[str, Any], name: str | None, *, where: str) -> tuple[str, ...]:
    """The choices of a question, none where it has none; also by letter, or with their labels."""
    value = given(row, name)
    if isinstance(value, dict):
        value = value.get("text") if isinstance(value.get("text"), list) else [*value.values()]
    if name is None or not value:
        return ()
    choices = listed(value)
    if choices is None:
        raise bad_field(row, name, where=where)
    texts = [each.get("text") if isinstance(each, dict) else each for each in choices]
    return tuple(each if isinstance(each, str) else written(each) or "" for each in texts)


# --- what is asked --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What a prompt asks, what a system message says before, and what was replied, if anything."""

    text: str
    system: str | None = None
    before: tuple[str, ...] = ()
    """What was said in earlier turns, which tells questions apart that end alike."""
    reply: str | None = None


def asked_in(prompt: object) -> Asked:
    """A prompt that is a text, or a conversation: its last user messages are the question."""
    rows = conversation(prompt)
    if not rows:
        return Asked(prompt if isinstance(prompt, str) else "")
    told = [(row["role"], choice_text({"message": row})) for row in rows]
    system = [text for role, text in told if role in ("system", "developer") and text]
    turns = [(role, text) for role, text in told if role in ("user", "assistant")]
    reply = turns.pop()[1] if turns and turns[-1][0] == "assistant" else None
    begin = max((i for i, (role, _) in enumerate(turns, start=1) if role == "assistant"), default=0)
    texts = [text for _, text in turns]
    question, said = "\n\n".join(texts[begin:]), "\n\n".join(system)
    return Asked(question, said or None, tuple(texts[:begin]), reply)


_ROLES = {"human": "user", "gpt": "assistant"}
"""Who speaks, as ShareGPT calls them."""


def conversation(value: object) -> list[Row]:
    """Messages, each with a role, also as ShareGPT writes them; none where it is anything else."""
    rows = listed(value)
    if not _is_objects(rows):
        return []
    messages = [
        {"role": _ROLES.get(row["from"], row["from"]), "content": row.get("value")}
        if isinstance(row.get("from"), str)
        else row
        for row in rows or ()
    ]
    return messages if all("role" in row for row in messages) else []


def _find_asked(row: Row, columns: Columns, *, where: str) -> Asked:
    """What a row asks, by its question or by its messages."""
    named, talked = columns.find("question", row), columns.find("messages", row)
    told, messages = given(row, named), given(row, talked)
    if named and told is not None and not isinstance(told, str) and not conversation(told):
        raise bad_field(row, named, where=where)
    if talked and messages is not None and not conversation(messages):
        raise bad_field(row, talked, where=where)
    asked, talk = asked_in(told), asked_in(messages)
    if not asked.text.strip():
        asked = talk
    if not asked.text.strip():
        key = "messages" if "messages" in columns.mapped else "question"
        raise columns.missing(key, row, where=where, what="question")
    return replace(asked, system=asked.system or talk.system, reply=asked.reply or talk.reply)


def _find_question(
    row: Row, asked: Asked, columns: Columns, *, number: str, where: str
) -> Question:
    """The question of a row; without an id it is given a number."""
    named = columns.find("id", row)
    value = given(row, named)
    whole = whole_number(value)
    name = value if isinstance(value, str) else str(whole) if whole is not None else None
    if named and value is not None and not name:
        raise bad_field(row, named, where=where)
    choices = choices_in(row, columns.find("choices", row), where=where)
    group = written(given(row, columns.find("group", row)))
    system = asked.system or written(given(row, columns.find("system", row)))
    return Question(name or number, asked.text, choices, system, group)


# --- questions with their responses ---------------------------------------------------------------


Pair = tuple[Response, bool]
"""A response, and whether its tokens are guessed."""


def read_rows(rows: Iterable[tuple[str, Row]], columns: Columns | None = None) -> Iterator[Entry]:
    """The questions of a source; those of one response per row come when all have been seen."""
    columns = columns or Columns()
    unseen = set(columns.mapped.values())
    first: tuple[str, Row] | None = None
    singles: list[_Single] = []
    numbers: dict[object, str] = {}
    for count, (where, raw) in enumerate(rows):
        first = first or (where, raw)
        row = columns.tidy(raw)
        asked = _find_asked(row, columns, where=where)
        told = _responses(row, columns, where=where)
        if unseen:
            unseen -= {*row}.union(*(each for each in told or () if isinstance(each, dict)))
        if told is None:
            pair, named, remark = _one(row, asked, columns, where=where)
            read = [pair]
        else:
            read, remark = _several(row, told, columns, where=where), None
            named = columns.find("answer", row)
        made = any(isinstance(each, Response) or is_reply(each) for each in told or ())
        call = made or "request_id" in row
        number, whole = str(count), told is not None and not call
        if not whole:  # further rows may be of the same question
            # An id beside a list of replies is the name of a question, whatever its text.
            own = str(row.get("id")) if "responses" in row else None
            key = (replace(asked, reply=None), str(given(row, columns.find("choices", row))), own)
            number = numbers.setdefault(key, str(len(numbers)))
        entry = Entry(
            _find_question(row, asked, columns, number=number, where=where),
            tuple(response for response, _ in read),
            where,
            written(given(row, named)),
            named or "answer",
            row.get("task"),
            any(guessed for _, guessed in read),
            remark,
        )
        if whole:
            yield entry
            continue
        ordered = columns.find("index", row)
        index = whole_number(given(row, ordered))
        if ordered and index is None and given(row, ordered) is not None:
            raise bad_field(row, ordered, where=where)
        singles.append((entry, number, index))
    if unseen and first:
        raise _unknown_column(min(unseen), first[1], where=first[0])
    yield from _together(singles)


def _responses(row: Row, columns: Columns, *, where: str) -> list[Any] | None:
    """All responses of a row, None where it is one itself."""
    named, texts = columns.find("responses", row), columns.find("text", row)
    value, text = given(row, named), given(row, texts)
    told = listed(value)
    if named is None and is_reply(text):
        return [text]
    if named is None and isinstance(text, list) and text and all(isinstance(v, str) for v in text):
        return list(text)
    if named is None and not texts:
        told = [row[name] for name in row if _NUMBERED.fullmatch(name)] or None
    if named is None or told is not None:
        return told
    if texts or columns.find("response_answer", row):
        return None
    if value is not None:
        raise bad_field(row, named, where=where)
    return []


_NUMBERED = re.compile(r"(?:response|completion|generation|output|sample)[_ ]?\d+", re.IGNORECASE)


def is_reply(value: object) -> bool:
    """Whether this is a completion as a server gives it, with choices that say something."""
    choices = value.get("choices") if isinstance(value, dict) else None
    return _is_objects(choices) and any({"message", "finish_reason"} & {*c} for c in choices or ())


def _several(row: Row, told: list[Any], columns: Columns, *, where: str) -> list[Pair]:
    """The responses of a row that holds all to its question, in the order of their index."""
    places = [whole_number(each.get("index")) if isinstance(each, dict) else None for each in told]
    order = [(index, place) for place, index in enumerate(places) if index is not None]
    if len(order) == len(told):
        told = [told[place] for _, place in sorted(order)]
    read: list[Pair] = []
    for place, each in enumerate(told):
        here = f"{where}, response {place}"
        if is_reply(each):
            found, guessed = read_reply(each, where=here)
            read += [(response, guessed) for response in found]
        else:
            read.append(_response(each, columns, where=here))
    prompt = listed(row.get("prompt_token_ids"))
    if prompt and read and not any(response.prompt_tokens for response, _ in read):
        read[0] = (replace(read[0][0], prompt_tokens=len(prompt)), read[0][1])
    return read


def read_reply(reply: Row, *, where: str) -> tuple[list[Response], bool]:
    """The responses of a completion in OpenAI's words, and whether their tokens are estimated."""
    try:
        choices = sorted(
            reply["choices"], key=lambda c: int(c.get("index", 0)) if isinstance(c, dict) else 0
        )
    except (KeyError, TypeError, ValueError):
        raise PoolError(f"{where}: the reply holds no list of choices") from None
    try:
        found = parse_reply({**reply, "choices": choices}, latency_ms=0.0)
    except UpstreamError as error:
        raise PoolError(f"{where}: {error.message}") from None
    usage = reply.get("usage")
    counted = isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int)
    return [replace(each, latency_ms=reply.get("latency_ms")) for each in found], not counted


# --- one response per row -------------------------------------------------------------------------

_Single = tuple[Entry, str, int | None]
"""A row of one response, the number of its question, and its place."""


def _one(
    row: Row, asked: Asked, columns: Columns, *, where: str
) -> tuple[Pair, str | None, str | None]:
    """The response of a row, the name of what is right, and what was taken for what."""
    if asked.reply is not None and not columns.find("text", row):
        row = {**row, "text": asked.reply}
    said, named = columns.find("response_answer", row), columns.find("answer", row)
    remark = None
    if named is not None and named in (said, columns.find("text", row)):
        named = columns.find("answer", row, but=named)
    elif said is None and not columns.find("text", row) and named == "answer":
        # Without a text and beside another truth, "answer" is what was answered.
        other = columns.find("answer", row, but="answer")
        if other not in (None, "answer"):
            said, named, whole = "answer", other, written(row["answer"]) or ""
            if "\n" in whole or whole.count(" ") >= SENTENCE:
                row, said = {**row, "text": whole}, None
            kind, key = ("answer", "text") if said else ("text", "response_answer")
            remark = (
                f'the column "answer" is taken for the {kind} of the model, and "{other}" for what '
                f"is right; --map {key}=answer says otherwise"
            )
    return _response(row, columns, said=said, single=True, where=where), named, remark


def _together(singles: list[_Single]) -> Iterator[Entry]:
    """The responses to each question from rows of their own, in the order of their index."""
    by_id: dict[str, list[_Single]] = {}
    by_text: dict[str, list[_Single]] = {}
    for single in singles:
        by_id.setdefault(single[0].question.id, []).append(single)
        by_text.setdefault(single[1], []).append(single)
    # An id that no two rows share, where texts repeat, is the name of a row and not of a question.
    rows_have_names = len(by_id) == len(singles) and 2 * len(by_text) <= len(by_id)
    for found in (by_text if rows_have_names else by_id).values():
        first = found[0][0].question
        found.sort(key=lambda single: (single[2] is None, single[2] or 0))
        for (_, _, index), (other, _, following) in pairwise(found):
            if index is not None and index == following:
                raise PoolError(
                    f"{other.where}: the question {shown_name(first.id)} has response {index} twice"
                )
        yield _join(first, [entry for entry, _, _ in found])


def _join(question: Question, entries: list[Entry]) -> Entry:
    """Entries of one question as one, in their order; two truths contradict each other."""
    told = {entry.truth: entry for entry in entries if entry.truth is not None}
    if len(told) > 1:
        raise PoolError(
            f"{[*told.values()][1].where}: the question {shown_name(question.id)} has another "
            "answer than before"
        )
    last = next(iter(told.values()), entries[-1])
    responses = tuple(response for entry in entries for response in entry.responses)
    guessed = any(entry.estimated for entry in entries)
    return replace(last, question=question, responses=responses, estimated=guessed)


# --- responses ------------------------------------------------------------------------------------


def _response(
    told: Any, columns: Columns, *, where: str, said: str | None = None, single: bool = False
) -> tuple[Response, bool]:
    """A response from a text, an object or an answer alone, and whether its tokens are guessed."""
    if isinstance(told, Response):
        return told, False
    if told is None or isinstance(told, str | list):
        text = _text(told, where=where)
        return Response(text, len(text) // CHARACTERS_PER_TOKEN), True
    if not isinstance(told, dict):
        answer = None if isinstance(told, bool) else written(told)
        if answer is None:
            raise PoolError(f"{where}: a text or an object is needed, but it is {shown(told)}")
        return Response("", 1, answer=answer), True
    told = _as_openai_says(told)
    if not single:
        said = columns.find("response_answer", told) or ("answer" if "answer" in told else None)
    named = columns.find("text", told)
    others = _others(told, where=where)
    failed = others.get("error") is not None
    if named is None and said is None and "message" not in told and not failed:
        raise columns.missing("text", told, where=where, what="response")
    text = _text(given(told, named), where=f'{where}, "{named}"')
    if named is None and isinstance(told.get("message"), dict):
        text = choice_text(told)
    # Beside a text only an answer that was meant for us counts: the task reads the text itself.
    ours = said == "response_answer" or "response_answer" in columns.mapped
    answer = written(given(told, said)) if ours or not text else None
    counted = columns.find("tokens", told)
    tokens = whole_number(given(told, counted))
    if counted and given(told, counted) is not None and (tokens is None or tokens < 0):
        raise bad_field(told, counted, where=where)
    if tokens is None and (ids := listed(told.get("token_ids"))) is not None:
        tokens = len(ids)
    served = read_tokens(told)
    if served is not None:
        others = {"logprob": round(served.total, 4), **others}
        others["source"] = Choice.of({}, {}, served)
        tokens = len(served.ends) if tokens is None else tokens
    # Where nobody counted, a zero would look free.
    guess = 0 if failed else len(text) // CHARACTERS_PER_TOKEN if text else int(answer is not None)
    response = Response(text, guess if tokens is None else tokens, answer=answer, **others)
    return response, tokens is None and not failed


def _as_openai_says(told: Row) -> Row:
    """A response with what vLLM calls otherwise: its logprobs are a dictionary for each token."""
    steps, ids = listed(told.get("logprobs")), listed(told.get("token_ids")) or []
    if given(told, "cumulative_logprob") is not None and given(told, "logprob") is None:
        told = {**told, "logprob": told["cumulative_logprob"]}
    if not _is_objects(steps):
        return told
    rows = []
    for place, step in enumerate(steps or ()):
        tops = [each if isinstance(each, dict) else {"logprob": each} for each in step.values()]
        own = step.get(str(ids[place])) if place < len(ids) else None
        first = own if isinstance(own, dict) else tops[0] if tops else {}
        token = {"token": first.get("decoded_token"), "logprob": first.get("logprob")}
        rows.append({**token, "top_logprobs": tops})
    return {**told, "logprobs": {"content": rows}}


def _text(value: Any, *, where: str) -> str:
    """What a response says: a text, parts of one, or the reply of a conversation."""
    if value is None or isinstance(value, str):
        return value or ""
    if rows := conversation(value):
        return "".join(choice_text({"message": row}) for row in rows if row["role"] == "assistant")
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return choice_text({"message": {"content": value}})
    raise PoolError(f"{where}: a text is needed, but it is {shown(value)}")


def _others(told: Row, *, where: str) -> dict[str, Any]:
    """What else a pool keeps of a response, where it is told."""
    found: dict[str, Any] = {}
    for name, kinds in _OTHERS.items():
        value = given(told, name)
        if value is None or value == "":
            continue
        if isinstance(value, str) and str not in kinds:
            value = _number(value) if float in kinds else whole_number(value)
        if not isinstance(value, kinds) or isinstance(value, bool) or value is None:
            raise bad_field(told, name, where=where)
        found[name] = value
    return found


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


# --- questions alone ------------------------------------------------------------------------------


def read_questions(path: Path, columns: Columns | None = None) -> list[Question]:
    """The questions of a table as they stand, also of a file with a question on each line.

    Right answers that stand beside them are left behind.
    """
    return [question for _, _, question in _questions(path, columns or Columns(), plain=True)]


def read_exam(
    path: Path, task: Task, columns: Columns | None = None, *, seed: int = 0
) -> tuple[list[Question], Truths | None]:
    """Questions of a table as they are asked, and the truths known for them.

    Choices are shuffled where the task says, and the truth moves along.
    """
    columns = columns or Columns()
    questions: list[Question] = []
    answers: dict[str, str] = {}
    for where, row, question in _questions(path, columns, plain=False):
        answer = written(given(row, columns.find("answer", row)))
        if answer is not None:
            answers[question.id] = _answer(answer, question, task=task, seed=seed, where=where)
        questions.append(question.arrange(seed) if task.shuffle else question)
    return questions, Truths(answers) if answers else None


def _questions(path: Path, columns: Columns, *, plain: bool) -> Iterator[tuple[str, Row, Question]]:
    """Every row with its question; one without an id is called by its place."""
    known: set[str] = set()
    for where, raw in _question_rows(path, plain=plain):
        row = columns.tidy(raw)
        asked = _find_asked(row, columns, where=where)
        if asked.before:
            raise PoolError(
                f"{where}: a conversation of several turns cannot be asked as a question"
            )
        number = where.rpartition(" ")[2]
        question = _find_question(row, asked, columns, number=number, where=where)
        if len(question.choices) > len(LETTERS):
            raise PoolError(f"{where}: it has more than {len(LETTERS)} choices")
        if question.id in known:
            raise PoolError(f"{where}: the question {question.id} comes a second time")
        known.add(question.id)
        yield where, row, question
    if not known:
        raise PoolError(f"{path.name} holds no question")


def _question_rows(path: Path, *, plain: bool) -> Rows:
    if not path.is_file():
        raise UsageError(f'there is no file "{path}" with questions')
    found = recognise(path)
    if found == "inspect":
        raise PoolError(f"{path.name} is a log, not a file of questions; aera import reads it")
    if found in SOURCES and found != "jsonl":
        return SOURCES[found](path)
    return read_lines(path, plain=plain)


def _answer(answer: str, question: Question, *, task: Task, seed: int, where: str) -> str:
    """The truth in the task's form: for choices a letter, moved along when they are shuffled."""
    letters = LETTERS[: len(question.choices)]
    if answer in question.choices:
        answer = letters[question.choices.index(answer)]
    canonical = task.canonical(answer)
    if canonical is None:
        raise PoolError(f'{where}: the answer "{answer:.40}" cannot be read as {task.kind}')
    if task.kind == "choice" and letters and canonical not in letters:
        raise PoolError(f'{where}: the answer "{answer:.40}" is none of the choices')
    if task.shuffle and letters:
        return shuffled_letter(canonical, question.id, choices=len(letters), seed=seed)
    return answer
