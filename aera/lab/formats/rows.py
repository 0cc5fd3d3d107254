"""Rows: what a row of any source means.

It is a question with its responses, or one response. A response is a text, an object, or only what
was answered. Names are those people use; where a file has others, a mapping says ours to theirs.
"""

import json
import math
import re
from ast import literal_eval
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from pathlib import Path
from string import digits
from typing import Any

from aera.core import Question, Response, choice_order
from aera.errors import PoolError, UpstreamError, UsageError
from aera.files import NONE, Json
from aera.lab.formats.sources import (
    KNOWN,
    NAMES,
    SOURCES,
    Row,
    bad_field,
    is_objects,
    plain_name,
    read_lines,
    recognise,
    shown,
)
from aera.lab.truths import Truths
from aera.pools.pool import RESPONSE_FIELDS, SOMETIMES, Record
from aera.reading.canonical import LETTERS, canonical_json
from aera.reading.task import Task, readable_answer
from aera.sampling.replies import (
    Choice,
    billed,
    choice_text,
    guess_tokens,
    parse_reply,
    read_tokens,
)

Mapped = Mapping[str, str] | Iterable[str]
"""Our names to a file's, also as texts OURS=THEIRS."""

THOUGHT = "reasoning_content"
"""Where DeepSeek, and who follows it, keeps thinking apart from the text."""
_CUT = ("True", "true", "MAX_TOKENS", "max_tokens", "model_length", "max_length", "max_new_tokens")
"""What others say of a response that was cut off."""
LOOSE = ("sample_id", "sample")
"""Columns that may as well be the place of a response as something else."""
_LETTERED = re.compile(r"(?:option|choice)?[ _]?([A-J])", re.IGNORECASE)
_NUMBERED = re.compile(r"(response|completion|generation|output|sample)[_ ]?\d+", re.IGNORECASE)
SHOWN_COLUMNS, SENTENCE = 20, 4
"""Names that are shown; spaces that only a text has, and no answer."""
SEVERAL = "several answers, where one must be kept"
MOST = 10**15
"""No count is larger; what is comes from a damaged file."""
_UNPARTED = re.compile(r"(?<=['\"])\s+(?=['\"])")
_WHOLE = re.compile(r"\s*([+-]?[0-9]{1,18})(?:\.0*)?\s*")
_KINDS = {name: kind for name, kind in {**RESPONSE_FIELDS, **SOMETIMES}.items() if name != "answer"}
_READ = {"task", "n", "request", "custom_id", "usage", "logprobs", "token_ids", "prompt_token_ids"}
_READ |= {THOUGHT, *_KINDS}


# --- names ----------------------------------------------------------------------------------------


def parse_columns(told: Mapped) -> dict[str, str]:
    """Our names of columns to a file's, as --map says them."""
    pairs = told.items() if isinstance(told, Mapping) else (each.split("=", 1) for each in told)
    mapped: dict[str, str] = {}
    for pair in pairs:
        ours, theirs = (part.strip() for part in (*pair, "")[:2])
        if ours not in NAMES or not theirs:
            raise UsageError(
                f"--map takes OURS=THEIRS, ours one of {', '.join(NAMES)}, but got "
                f'"{"=".join(pair)}"'
            )
        if ours in mapped:
            raise UsageError(f'--map says twice what "{ours}" is')
        mapped[ours] = theirs
    return mapped


@dataclass(frozen=True)
class Fields:
    """A row by our names: those that are mapped to its file's, else the usual ones."""

    row: Row
    where: str
    mapped: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Row, where: str, mapped: Mapping[str, str] = NONE) -> "Fields":
        """A row of a file: its names in any letters, also inside a request or a reply."""
        for asked in (row.get("request"), row.get("body")):
            row = {**asked, **row} if isinstance(asked, dict) else row
        if is_reply(row) and "choices" not in mapped.values():
            rest = {name: row[name] for name in row if name not in ("id", "choices")}
            row = {**rest, "response": row}
        tidy: Row = {}
        for name, value in row.items():
            plain = plain_name(name) if isinstance(name, str) else name
            rename = plain in KNOWN and name not in mapped.values()
            tidy[plain if rename and plain not in row and plain not in tidy else name] = value
        flat = cls(tidy, where)._flat() if mapped else {}
        tidy |= {path: flat[path] for path in mapped.values() if path in flat}
        return cls(tidy, where, mapped)

    def numbered(self) -> list[str]:
        """The numbered columns: those of a usual name, or of the kind of the one mapped."""
        if (theirs := self.mapped.get("responses")) is not None:
            alone = listed(self.row.get(theirs)) is not None
            return [] if alone else numbered_like(theirs, self.row)
        named = self.name("responses") or self.name("text")
        return [] if named else [*filter(_NUMBERED.fullmatch, self.row)]

    def name(self, key: str) -> str | None:
        """The name under which there is something; one that holds anything comes first.

        Beside a clearer name, also an empty one, "answer" is what the model answered.
        """
        if key in self.mapped:
            return self.mapped[key] if self.mapped[key] in self.row else None
        taken: Collection[str | None] = self.mapped.values() if key == "answer" else ()
        taken = [self.name("id")] if key == "index" else taken
        there = [name for name in NAMES[key] if name in self.row and name not in taken]
        if "answer" in there[1:]:
            there.remove("answer")
        held = [name for name in there if given(self.row, name) is not None]
        return next(iter(held or there), None)

    def get(self, key: str) -> Any:
        """What there is; None where there is nothing."""
        return given(self.row, self.name(key))

    def unused(self) -> tuple[str, ...]:
        """The columns that nobody reads, also those that gave way to another."""
        used = {*_READ, *self.mapped.values(), *self.numbered(), *map(self.name, NAMES)}
        rest = [name for name in self._flat() if name and not _LETTERED.fullmatch(name)]
        parts = ((name, {name, name.partition(".")[0], name.rpartition(".")[0]}) for name in rest)
        return tuple(name for name, within in parts if not within & used)

    def label(self) -> tuple[str | None, bool]:
        """What is right, and whether it is several answers of which any is."""
        value = self.get("answer")
        if str(value).lstrip()[:2] in ("['", '["'):  # texts in a cell, where [0, 1] is an interval
            value = listed(value) or [value, None]
        is_list = isinstance(value, list) and len(value) > 1
        return written(value), is_list or isinstance(value, dict)

    def bad(self, key: str, what: str) -> PoolError:
        """What is said of something that is not what it should be."""
        return bad_field(self.row, self.name(key) or key, what, where=self.where)

    def missing(self, key: str, what: str) -> PoolError:
        """What is said of a row without something it needs."""
        name = self.mapped.get(key) or self.name(key)
        if name in self.row:
            return PoolError(f'{self.where}: the column "{name}" is empty, and each row needs one')
        if key in self.mapped:
            return self.unknown(self.mapped[key])
        return PoolError(
            f"{self.where}: there is no {what}; its column is one of {', '.join(NAMES[key])}, or "
            f"give --map {self._guess(key)}; there are {self._names()}"
        )

    def unknown(self, name: str) -> PoolError:
        """What is said of a column that is not there."""
        return PoolError(f'{self.where}: there is no column "{name}"; there are {self._names()}')

    def _guess(self, key: str) -> str:
        """Which column it may be: a list of responses, several with a number, the longest text."""
        others = ("text", "responses", "answer") if key == "question" else ()
        asked = {self.name(each) for each in ("question", "messages", "choices", *others)}
        rest = {n: v for n, v in self._flat().items() if n not in asked and n.isprintable()}
        texts = {name: len(value) for name, value in rest.items() if isinstance(value, str)}
        if key == "text":
            if lists := [name for name, value in rest.items() if listed(value)]:
                return f"responses={lists[0]}"
            for name in (*texts, *rest):
                if (count := len(numbered_like(name, rest))) > 1:
                    return f"responses={name}, which takes all {count} numbered like it"
        said = [name for name in texts if " " in rest[name]]
        return f"{key}={max(said, key=texts.__getitem__) if said else 'NAME'}"

    def _flat(self) -> Row:
        """The row with what its objects hold, by the names that --map takes."""
        flat: Row = {}
        for name, value in self.row.items():
            inside = value.items() if isinstance(value, dict) else ()
            flat |= {f"{name}.{key}": each for key, each in inside} or {name: value}
        return flat

    def _names(self) -> str:
        names = [shown_name(str(name)) for name in self._flat()]
        more = f" and {len(names) - SHOWN_COLUMNS} more" if len(names) > SHOWN_COLUMNS else ""
        return ", ".join(names[:SHOWN_COLUMNS]) + more if names else "none"


def numbered_like(name: str | None, names: Iterable[str]) -> list[str]:
    """The names that differ from this one in their number alone; none where it has none."""
    stem = str(name).rstrip(digits)
    return [each for each in names if stem != name and stem == each.rstrip(digits) != each]


# --- values ---------------------------------------------------------------------------------------


def shown_name(name: str) -> str:
    """A name in a sentence, as it is where it can be."""
    return name if name.isprintable() and len(name) <= 80 else shown(name)


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
    if isinstance(value, list) and len(value) < 2:
        value = value[0] if value else None
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        return canonical_json(value)
    except (TypeError, ValueError):  # a date of Arrow's, or a number of too many digits
        return shown(value)


def listed(value: object) -> list[Any] | None:
    """A list, also where a cell holds it as JSON or as Python; None for anything else."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        text = value
        parsers: tuple[Callable[[str], object], ...] = (json.loads, _literal)
        for parse in parsers:
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                value = parse(text)
                break
    return value if isinstance(value, list) else None


def _literal(text: str) -> object:
    """A list as Python writes it, not as numpy prints it: without commas its texts would be one."""
    value = literal_eval(text)
    if len(value) < len(literal_eval(_UNPARTED.sub(",", text))):
        raise ValueError
    return value


# --- what is asked --------------------------------------------------------------------------------


Asked = tuple[str, str | None, tuple[str, ...], str | None]
"""What is asked, what a system message says before, earlier turns, and what was replied, if any."""


def asked_in(prompt: object) -> Asked:
    """A prompt that is a text, or a conversation: its last user messages are the question."""
    rows = conversation(prompt)
    if not rows:
        return (prompt if isinstance(prompt, str) else ""), None, (), None
    told = [(row["role"], choice_text({"message": row})) for row in rows]
    system = "\n\n".join(t for role, t in told if role in ("system", "developer") and t)
    turns = [(role, text) for role, text in told if role in ("user", "assistant")]
    reply = turns.pop()[1] if turns and turns[-1][0] == "assistant" else None
    begin = max((i for i, (role, _) in enumerate(turns, start=1) if role == "assistant"), default=0)
    texts = [text for _, text in turns]
    return "\n\n".join(texts[begin:]), system or None, tuple(texts[:begin]), reply


_ROLES = {"human": "user", "gpt": "assistant"}
"""Who speaks, as ShareGPT calls them."""


def conversation(value: object) -> list[Row]:
    """Messages, each with a role, also as ShareGPT writes them; none where it is anything else."""
    rows = listed(value) or []
    if not is_objects(rows):
        return []
    messages = [
        {"role": _ROLES.get(row["from"], row["from"]), "content": row.get("value")}
        if isinstance(row.get("from"), str)
        else row
        for row in rows
    ]
    return messages if all("role" in row for row in messages) else []


def _question_of(fields: Fields) -> tuple[Question, tuple[str, ...], str | None]:
    """The question of a row, "" its id where it has none; what was said before, and the reply."""
    told, messages = fields.get("question"), fields.get("messages")
    if isinstance(told, dict):
        told = told.get("messages", told)
    if told is not None and not isinstance(told, str) and not conversation(told):
        raise fields.bad("question", "text or conversation")
    if messages is not None and not conversation(messages):
        raise fields.bad("messages", "conversation")
    text, system, before, reply = asked_in(told)
    said, setting, earlier, replied = asked_in(messages)
    if not text.strip():
        text, before = said, earlier
    if not text.strip():
        raise fields.missing("messages" if "messages" in fields.mapped else "question", "question")
    value = fields.get("id")
    whole = whole_number(value)
    name = value if isinstance(value, str) else "" if whole is None else str(whole)
    if value is not None and not name:
        raise fields.bad("id", "text or whole number")
    system = system or setting or written(fields.get("system"))
    group = written(fields.get("group"))
    question = Question(name, text, choices_of(fields), system, group)
    return question, before, reply or replied


def choices_of(fields: Fields) -> tuple[str, ...]:
    """The choices of a question, none where it has none; also by letter, with their labels, or in
    columns named A, B and so on."""
    value = fields.get("choices")
    if isinstance(value, dict):
        value = value.get("text") if isinstance(value.get("text"), list) else [*value.values()]
    if not value:
        lettered = [_LETTERED.fullmatch(name) for name in fields.row]
        found = {m[1].upper(): fields.row[m[0]] for m in lettered if m and given(fields.row, m[0])}
        there = [*takewhile(found.__contains__, LETTERS)]
        return tuple(written(found[each]) or "" for each in there) if len(there) > 1 else ()
    if (choices := listed(value)) is None:
        raise fields.bad("choices", "list of choices")
    texts = [each.get("text") if isinstance(each, dict) else each for each in choices]
    return tuple(each if isinstance(each, str) else written(each) or "" for each in texts)


# --- questions with their responses ---------------------------------------------------------------


class Guessed(int):
    """A number of tokens that nobody counted."""


@dataclass(frozen=True)
class Entry(Record):
    """One question of a file: where it stands, what came back, and what the file says is right.

    `truth` is as the file writes it, in the field `truth_name`, perhaps `several` of which any is
    right; `task` is the one it names. A `remark` says what was taken for what, where a file does
    not say.
    """

    where: str
    truth: str | None = None
    several: bool = False
    truth_name: str = "answer"
    task: object = None
    unused: tuple[str, ...] = ()
    remark: str | None = None

    @property
    def estimated(self) -> bool:
        """Whether tokens are guessed from the length of texts."""
        return any(isinstance(each.tokens, Guessed) for each in self.responses)


def read_rows(rows: Iterable[tuple[str, Row]], mapped: Mapping[str, str] = NONE) -> Iterator[Entry]:
    """The questions of a source; those of one response per row come when all have been seen."""
    unseen = set(mapped.values())
    first: Fields | None = None
    singles: list[_Single] = []
    numbers: dict[object, str] = {}
    asked: dict[str, tuple[object, str]] = {}
    loose = False
    for count, (where, raw) in enumerate(rows):
        fields = Fields.of(raw, where, mapped)
        first = first or replace(fields, row=raw)
        (question, before, reply), told = _question_of(fields), _responses(fields)
        unseen -= {*fields.row}.union(*(each for each in told or () if isinstance(each, dict)))
        if told is None:
            entry = _one(fields, question, reply)
        else:
            entry = _entry(fields, question, _several(fields, told))
        call = any(isinstance(each, Response) or is_reply(each) for each in told or ())
        if told is not None and not call and "request_id" not in fields.row:
            yield replace(entry, question=_named(question, str(count)))
            continue
        # Further rows may be of the same question. An id beside a list of replies is its name.
        own = question.id if "responses" in fields.row else None
        key = (replace(question, id="", group=None), before, own)
        number = numbers.setdefault(key, str(len(numbers)))
        words = (question.text, question.choices, before)
        known, place = asked.setdefault(question.id, (words, where))
        if question.id and known != words:
            raise PoolError(
                f"{where}: the question {shown_name(question.id)} is another one than in {place}; "
                f"give each an id of its own, or --map id={fields.name('question') or 'NAME'}"
            )
        index, loose = whole_number(fields.get("index")), fields.name("index") in LOOSE
        if index is None and fields.get("index") is not None and not loose:
            raise fields.bad("index", "whole number")
        singles.append((replace(entry, question=_named(question, number)), number, index))
    if unseen and first:
        raise first.unknown(min(unseen))
    yield from _together(singles, loose=loose)


def _named(question: Question, number: str) -> Question:
    """A question without an id is called by a number."""
    return question if question.id else replace(question, id=number)


def _entry(fields: Fields, question: Question, read: list[Response]) -> Entry:
    """What a row says."""
    (right, several), name = fields.label(), fields.name("answer") or "answer"
    about = (fields.where, right, several, name, fields.row.get("task"), fields.unused())
    return Entry(question, tuple(read), *about)


def _responses(fields: Fields) -> list[Any] | None:
    """All responses of a row, None where it is one itself."""
    if numbered := fields.numbered():
        return [fields.row[name] for name in numbered]
    value, text = fields.get("responses"), fields.get("text")
    if fields.name("responses") is None:
        return [text] if is_reply(text) else text if _are_several(text) else None
    told = listed(value)
    if told is not None or fields.name("text") or fields.name("response_answer"):
        return told
    if value is not None:
        raise fields.bad("responses", "list of responses (numpy prints no commas: tolist() first)")
    return []


def _are_several(text: Any) -> bool:
    """Whether these are several texts or responses, and not the messages or the parts of one."""
    if is_objects(text):
        return not conversation(text) and not any("type" in each for each in text)
    return isinstance(text, list) and bool(text) and all(isinstance(each, str) for each in text)


def is_reply(value: object) -> bool:
    """Whether this is a completion as a server gives it, with choices that say something."""
    choices = value.get("choices") if isinstance(value, dict) else None
    return is_objects(choices) and any({"message", "finish_reason"} & {*c} for c in choices)


def _several(fields: Fields, told: list[Any]) -> list[Response]:
    """The responses of a row that holds all to its question, in the order of their index."""
    places = [whole_number(each.get("index")) if isinstance(each, dict) else None for each in told]
    if None not in places:
        told = [each for _, _, each in sorted(zip(places, range(len(told)), told, strict=True))]
    read: list[Response] = []
    lists: dict[str, list[Any]] = {}
    for key, name in ((THOUGHT, THOUGHT), ("finish_reason", fields.name("finish_reason"))):
        lists[key] = listed(given(fields.row, name)) or [None] * len(told)
        if len(lists[key]) != len(told):
            raise bad_field(fields.row, name or key, f"list of {len(told)}", where=fields.where)
    for place, each in enumerate(told):
        where = f"{fields.where}, response {place}"
        if is_reply(each):
            read += read_reply(each, where=where)
        else:
            about = {key: values[place] for key, values in lists.items()}
            read.append(_response(each, where, fields.mapped, about))
    prompt = listed(fields.row.get("prompt_token_ids"))
    if prompt and read and not any(response.prompt_tokens for response in read):
        read[0] = replace(read[0], prompt_tokens=len(prompt))
    model = written(fields.row.get("model"))
    return [replace(each, model=each.model or model) for each in read]


def read_reply(reply: Row, *, where: str) -> list[Response]:
    """The responses of a completion in OpenAI's words."""
    if is_objects(choices := reply.get("choices")):
        choices = sorted(choices, key=lambda choice: whole_number(choice.get("index")) or 0)
    try:
        found = parse_reply({**reply, "choices": choices}, latency_ms=0.0)
    except UpstreamError as error:
        raise PoolError(f"{where}: {error.message}") from None
    usage, texts = reply.get("usage"), [each.text for each in found]
    count = Guessed if billed(usage if isinstance(usage, dict) else {}, texts) is None else int
    took = _others({"latency_ms": reply.get("latency_ms")}, where).get("latency_ms")
    return [replace(each, tokens=count(each.tokens), latency_ms=took) for each in found]


def as_openai_ends(reason: object) -> str | None:
    """Why a response ended, in OpenAI's words."""
    return (
        "length"
        if reason is True or reason in _CUT
        else reason
        if isinstance(reason, str)
        else None
    )


# --- one response per row -------------------------------------------------------------------------

_Single = tuple[Entry, str, int | None]
"""A row of one response, the number of its question, and its place."""


def _one(fields: Fields, question: Question, reply: str | None) -> Entry:
    """A row of one response; what was taken for what is remarked."""
    rest = replace(fields, row={n: v for n, v in fields.row.items() if n != "answer"})
    whole, truth, remark = written(given(fields.row, "answer")), rest.name("answer"), None
    if reply is not None and not fields.name("text"):
        fields = replace(fields, row={**fields.row, "text": reply})
    elif whole and truth and not (fields.name("response_answer") or fields.name("text")):
        # Without a text and beside another truth, "answer" is what was answered.
        is_text = "\n" in whole or whole.count(" ") >= SENTENCE
        kind, other = ("text", "response_answer") if is_text else ("response_answer", "text")
        fields = replace(rest, row={**rest.row, kind: whole})
        remark = (
            f'the column "answer" is taken for the {"text" if is_text else "answer"} of the model, '
            f'and "{truth}" for what is right; --map {other}=answer says otherwise'
        )
    read = [_response_of(fields, fields.name("response_answer"))]
    return replace(_entry(fields, question, read), remark=remark)


def _together(singles: list[_Single], *, loose: bool) -> Iterator[Entry]:
    """The responses to each question from rows of their own, in the order of their index.

    A `loose` one may be a number of something else, so that only what is the same is there twice.
    """
    by_id: dict[str, list[_Single]] = {}
    by_text: dict[str, list[_Single]] = {}
    for single in singles:
        by_id.setdefault(single[0].question.id, []).append(single)
        by_text.setdefault(single[1], []).append(single)
    # An id that no two rows share, where texts repeat, is the name of a row and not of a question.
    rows_have_names = len(by_id) == len(singles) and 2 * len(by_text) <= len(by_id)
    for found in (by_text if rows_have_names else by_id).values():
        first = found[0][0].question
        name = shown_name(first.id)
        found.sort(key=lambda single: (single[2] is None, single[2] or 0))
        for (one, _, index), (other, _, following) in pairwise(found):
            same = one.responses == other.responses and found[0][2] != found[-1][2]
            if index is not None and index == following and (same or not loose):
                raise PoolError(f"{other.where}: the question {name} has response {index} twice")
        entries = [entry for entry, _, _ in found]
        told = {entry.truth: entry for entry in entries if entry.truth is not None}
        if len(told) > 1:
            where = [*told.values()][1].where
            raise PoolError(
                f"{where}: the question {name} has another answer than before; --map id=NAME says "
                "which column tells questions apart, --map answer=NAME which one is right"
            )
        yield replace(
            next(iter(told.values()), entries[-1]),
            question=first,
            responses=tuple(response for entry in entries for response in entry.responses),
        )


# --- responses ------------------------------------------------------------------------------------


def _response(told: Any, where: str, mapped: Mapping[str, str], about: Row) -> Response:
    """A response from a text, beside which more may be told, an object or an answer alone."""
    if isinstance(told, Response):
        return told
    if isinstance(told, dict):
        fields = Fields(told, where, mapped)
        return _response_of(fields, fields.name("response_answer") or "answer")
    key = "text" if told is None or isinstance(told, str | list) else "answer"
    if key == "answer" and (isinstance(told, bool) or written(told) is None):
        raise PoolError(f"{where}: a text or an object is needed, but it is {shown(told)}")
    return _response_of(Fields({**about, key: told}, where), key)


def _response_of(fields: Fields, said: str | None) -> Response:
    """The same from an object, whose answer has this name."""
    told, where = _as_openai_says(fields.row), fields.where
    told = {**told, "finish_reason": as_openai_ends(fields.get("finish_reason"))}
    others, named = _others(told, where), fields.name("text")
    failed = others.get("error") is not None
    thought = written(given(told, THOUGHT))
    if named is None and said not in told and "message" not in told and not (failed or thought):
        raise fields.missing("text", "response")
    text = _text(given(told, named), f'{where}, "{named}"')
    if named is None and isinstance(told.get("message"), dict):
        text = choice_text(told)
    # Beside a text only an answer that was meant for us counts: the task reads the text itself.
    ours = said == "response_answer" or "response_answer" in fields.mapped
    answer = written(given(told, said)) if ours or not text else None
    text = f"<think>{thought}</think>{text}" if thought else text
    tokens = whole_number(fields.get("tokens"))
    if fields.get("tokens") is not None and (tokens is None or tokens < 0):
        raise fields.bad("tokens", "number of tokens")
    if tokens is None and isinstance(told.get("usage"), dict):
        tokens = whole_number(told["usage"].get("completion_tokens"))
    if tokens is None and (ids := listed(told.get("token_ids"))) is not None:
        tokens = len(ids)
    served = read_tokens(told)
    if served is not None:
        others = {"logprob": round(served.total, 4), **others}
        others["source"] = Choice({}, tokens=served)
        tokens = len(served.ends) if tokens is None else tokens
    if tokens is None:
        tokens = 0 if failed else Guessed(guess_tokens(text) or answer is not None)
    return Response(text, tokens, answer=answer, **others)


def _as_openai_says(told: Row) -> Row:
    """A response with what vLLM calls otherwise: its logprobs are a dictionary for each token."""
    steps, ids = listed(told.get("logprobs")) or [], listed(told.get("token_ids")) or []
    if given(told, "cumulative_logprob") is not None and given(told, "logprob") is None:
        told = {**told, "logprob": told["cumulative_logprob"]}
    if not is_objects(steps):
        return told
    rows = []
    for place, step in enumerate(steps):
        tops = [each if isinstance(each, dict) else {"logprob": each} for each in step.values()]
        own = step.get(str(ids[place])) if place < len(ids) else None
        first = own if isinstance(own, dict) else tops[0] if tops else {}
        token = {"token": first.get("decoded_token"), "logprob": first.get("logprob")}
        rows.append({**token, "top_logprobs": tops})
    return {**told, "logprobs": {"content": rows}}


def _text(value: Any, where: str) -> str:
    """What a response says: a text, parts of one, or the reply of a conversation."""
    if value is None or isinstance(value, str):
        return value or ""
    if rows := conversation(value):
        return "".join(choice_text({"message": row}) for row in rows if row["role"] == "assistant")
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return choice_text({"message": {"content": value}})
    raise PoolError(f"{where}: a text is needed, but it is {shown(value)}")


def _others(told: Row, where: str) -> Json:
    """What else a pool keeps of a response, where it is told."""
    found: Json = {}
    for name, kinds in _KINDS.items():
        value = given(told, name)
        if name in ("text", "tokens") or value is None or value == "":
            continue
        if isinstance(value, str) and str not in kinds:
            with suppress(ValueError):
                value = float(value) if float in kinds else whole_number(value)
        if not isinstance(value, kinds) or isinstance(value, bool) or value is None:
            raise bad_field(told, name, where=where)
        found[name] = value
    return found


# --- questions alone ------------------------------------------------------------------------------


def read_questions(path: Path, columns: Mapped = ()) -> list[Question]:
    """The questions of a table as they stand; a line that is no JSON is a question.

    Right answers that stand beside them are left behind.
    """
    return [question for question, _ in table_questions(path, columns, plain=True)]


def read_exam(
    path: Path, task: Task, columns: Mapped = (), *, seed: int = 0
) -> tuple[list[Question], Truths | None]:
    """Questions of a table as they are asked, and the truths known for them.

    Choices are shuffled where the task says, and the truth moves along.
    """
    questions: list[Question] = []
    answers: dict[str, str] = {}
    for question, fields in table_questions(path, columns):
        answer, several = fields.label()
        if several and task.kind != "json":
            raise PoolError(f"{fields.where}: the answer {shown(answer)} is {SEVERAL}")
        if answer is not None:
            answers[question.id] = _answer(answer, question, task, seed, fields.where)
        questions.append(question.arrange(seed) if task.shuffle else question)
    return questions, Truths(answers) if answers else None


def table_questions(
    path: Path, columns: Mapped = (), *, plain: bool = False, turns: bool = False
) -> Iterator[tuple[Question, Fields]]:
    """Every question of a table with its row; one without an id is called by its place."""
    if not path.is_file():
        raise UsageError(f'there is no file "{path}" with questions')
    found = recognise(path)
    if found == "inspect":
        raise PoolError(f"{path.name} is a log, not a file of questions; aera import reads it")
    mapped, known, read = parse_columns(columns), set[str](), SOURCES.get(found, read_lines)
    rows = read_lines(path, plain=plain) if read is read_lines else read(path)
    for where, row in rows:
        fields = Fields.of(row, where, mapped)
        question, before, _ = _question_of(fields)
        question = _named(question, where.rpartition(" ")[2])
        if before and not turns:
            raise PoolError(f"{where}: a conversation of several turns cannot be asked")
        if len(question.choices) > len(LETTERS):
            raise PoolError(f"{where}: it has more than {len(LETTERS)} choices")
        if question.id in known:
            raise PoolError(f"{where}: the question {question.id} comes a second time")
        known.add(question.id)
        yield question, fields
    if not known:
        raise PoolError(f"{path.name} holds no question")


def _answer(answer: str, question: Question, task: Task, seed: int, where: str) -> str:
    """The truth in a form the task can read: a letter moves along when choices are shuffled."""
    letters = LETTERS[: len(question.choices)]
    form = readable_answer(question, answer, task)
    if form is None:
        raise PoolError(f'{where}: the answer "{answer:.40}" cannot be read as {task.kind}')
    if task.kind != "choice" or not letters:
        return form
    letter = task.canonical(form)
    if letter is None or letter not in letters:
        raise PoolError(f'{where}: the answer "{answer:.40}" is none of the choices')
    order = choice_order(question.id, len(letters), seed=seed)
    return LETTERS[order.index(letters.index(letter))] if task.shuffle else form
