"""Rows: what a row of any source means. A row is a question with its responses, or one response.

A response is a text, an object, or only what was answered. Names are those people use; where a
file has others, `Columns` maps ours to theirs.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from aera.core import Question, Response
from aera.errors import RecordError, UsageError
from aera.lab.formats.entry import (
    Asked,
    Entry,
    Row,
    asked_in,
    bad_field,
    choices_in,
    estimated_tokens,
    given,
    is_conversation,
    join_all,
    listed,
    shown,
    shown_name,
    whole_number,
    written,
)
from aera.pools.pool import RESPONSE_FIELDS, SOMETIMES, Record
from aera.sampling.replies import Choice, choice_text, read_tokens

NAMES: dict[str, tuple[str, ...]] = {
    "question": ("question", "problem", "prompt", "input", "query"),
    "messages": ("messages",),
    "system": ("system", "system_prompt"),
    "id": ("id", "question_id", "doc_id", "problem_id", "prompt_id", "unique_id", "task_id"),
    "choices": ("choices", "options"),
    "answer": ("answer", "target", "ground_truth", "gold", "solution", "label"),
    "group": ("group",),
    "responses": ("responses", "completions", "generations", "samples", "outputs"),
    "text": ("text", "response", "completion", "generation", "output", "content"),
    "response_answer": ("response_answer", "final_answer", "prediction", "extracted"),
    "tokens": ("tokens", "completion_tokens", "output_tokens", "num_tokens"),
    "index": ("index", "response_index", "sample_index", "sample_idx"),
}
"""What a column may be called; the first that holds anything counts."""
SHOWN_COLUMNS = 20


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

    def find(self, key: str, row: Row, but: str | None = None) -> str | None:
        """The name under which a row has something; one that holds anything comes first."""
        if key in self.mapped:
            return self.mapped[key] if self.mapped[key] in row else None
        empty = None
        for name in NAMES[key]:
            if name in row and name != but:
                if given(row, name) is not None:
                    return name
                empty = empty or name
        return empty

    def missing(self, key: str, row: Row, *, where: str, what: str) -> RecordError:
        """What is said of a row without something it needs."""
        if key in self.mapped:
            return unknown_column(self.mapped[key], row, where=where)
        return RecordError(
            f"{where}: there is no {what}; its column is one of {', '.join(NAMES[key])}, or give "
            f"--map {key}=NAME; there are {_names(row)}"
        )


def parse_map(pairs: Iterable[str]) -> dict[str, str]:
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
    return mapped


def unknown_column(name: str, row: Row, *, where: str) -> RecordError:
    """What is said of a mapped column that is not there."""
    return RecordError(f'{where}: there is no column "{name}"; there are {_names(row)}')


def _names(row: Row) -> str:
    names = [shown_name(str(name)) for name in row]
    more = f" and {len(names) - SHOWN_COLUMNS} more" if len(names) > SHOWN_COLUMNS else ""
    return ", ".join(names[:SHOWN_COLUMNS]) + more if names else "none"


# --- questions ------------------------------------------------------------------------------------


def read_rows(rows: Iterable[tuple[str, Row]], columns: Columns | None = None) -> Iterator[Entry]:
    """The questions of a source; those of one response per row come when all have been seen."""
    columns = columns or Columns()
    unseen = set(columns.mapped.values())
    first: tuple[str, Row] | None = None
    singles: list[_Single] = []
    numbers: dict[object, str] = {}
    for count, (where, row) in enumerate(rows):
        first = first or (where, row)
        asked = find_asked(row, columns, where=where)
        told = _responses(row, columns, where=where)
        if unseen:
            unseen -= {
                *row,
                *(name for each in told or () if isinstance(each, dict) for name in each),
            }
        if told is not None:
            yield _wide(row, told, asked, columns, number=str(count), where=where)
            continue
        key = (replace(asked, reply=None), str(given(row, columns.find("choices", row))))
        number = numbers.setdefault(key, str(len(numbers)))
        singles.append(_single(row, asked, columns, number=number, place=count, where=where))
    if unseen and first:
        raise unknown_column(min(unseen), first[1], where=first[0])
    yield from _together(singles)


def find_asked(row: Row, columns: Columns, *, where: str) -> Asked:
    """What a row asks, by its question or by its messages."""
    named, talked = columns.find("question", row), columns.find("messages", row)
    told, messages = given(row, named), listed(given(row, talked))
    if told is not None and not isinstance(told, str) and not is_conversation(told):
        assert named is not None
        raise bad_field(row, named, where=where)
    if talked and row[talked] is not None and not is_conversation(messages):
        raise bad_field(row, talked, where=where)
    asked, talk = asked_in(told), asked_in(messages)
    if not asked.text.strip():
        asked = talk
    if not asked.text.strip():
        key = "messages" if "messages" in columns.mapped else "question"
        raise columns.missing(key, row, where=where, what="question")
    return replace(asked, system=asked.system or talk.system, reply=asked.reply or talk.reply)


def find_question(row: Row, asked: Asked, columns: Columns, *, number: str, where: str) -> Question:
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


def _responses(row: Row, columns: Columns, *, where: str) -> list[Any] | None:
    """All responses of a row, None where it is one itself."""
    named = columns.find("responses", row)
    value = given(row, named)
    told = listed(value)
    if named is None or told is not None:
        return told
    if columns.find("text", row) or columns.find("response_answer", row):
        return None
    if value is not None:
        raise bad_field(row, named, where=where)
    return []


def _wide(
    row: Row, told: list[Any], asked: Asked, columns: Columns, *, number: str, where: str
) -> Entry:
    """A row that holds all responses to its question, which come in the order of their index."""
    places = [whole_number(each.get("index")) if isinstance(each, dict) else None for each in told]
    order = [(index, place) for place, index in enumerate(places) if index is not None]
    if len(order) == len(told):
        told = [told[place] for _, place in sorted(order)]
    read = [
        _response(each, columns, where=f"{where}, response {place}")
        for place, each in enumerate(told)
    ]
    question = find_question(row, asked, columns, number=number, where=where)
    record = Record(question, tuple(response for response, _ in read))
    named = columns.find("answer", row)
    guessed = any(guess for _, guess in read)
    truth = written(given(row, named))
    return Entry(where, record, truth, named or "answer", row.get("task"), guessed)


# --- one response per row -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Single:
    """A row of one response: the question it belongs to, by name and by number, and its place."""

    entry: Entry
    number: str
    index: int | None
    place: int


def _single(
    row: Row, asked: Asked, columns: Columns, *, number: str, place: int, where: str
) -> _Single:
    if asked.reply is not None and not columns.find("text", row):
        row = {**row, "text": asked.reply}
    said, named = columns.find("response_answer", row), columns.find("answer", row)
    if named is not None and named == said:
        named = columns.find("answer", row, but=said)
    elif said is None and not columns.find("text", row) and named == "answer":
        # Without a text and beside another truth, "answer" is what was answered.
        other = columns.find("answer", row, but="answer")
        said, named = ("answer", other) if other not in (None, "answer") else (None, named)
    response, guessed = _response(row, columns, said=said, single=True, where=where)
    question = find_question(row, asked, columns, number=number, where=where)
    truth, record = written(given(row, named)), Record(question, (response,))
    entry = Entry(where, record, truth, named or "answer", row.get("task"), guessed)
    ordered = columns.find("index", row)
    index = whole_number(given(row, ordered))
    if ordered and index is None and given(row, ordered) is not None:
        raise bad_field(row, ordered, where=where)
    return _Single(entry, number, index, place)


def _together(singles: list[_Single]) -> Iterator[Entry]:
    """The responses to each question from rows of their own, in the order of their index."""
    by_id: dict[str, list[_Single]] = {}
    by_text: dict[str, list[_Single]] = {}
    for single in singles:
        by_id.setdefault(single.entry.record.question.id, []).append(single)
        by_text.setdefault(single.number, []).append(single)
    # An id that no two rows share, where texts repeat, is the name of a row and not of a question.
    rows_have_names = len(by_id) == len(singles) and 2 * len(by_text) <= len(by_id)
    for found in (by_text if rows_have_names else by_id).values():
        first = found[0].entry.record.question
        found.sort(key=lambda single: (single.index is None, single.index or 0, single.place))
        for one, other in pairwise(found):
            if one.index is not None and one.index == other.index:
                raise RecordError(
                    f"{other.entry.where}: the question {shown_name(first.id)} has response "
                    f"{one.index} twice"
                )
        entry = join_all([single.entry for single in found])
        yield replace(entry, record=replace(entry.record, question=first))


# --- responses ------------------------------------------------------------------------------------

_OTHERS = {
    name: kinds
    for name, kinds in {**RESPONSE_FIELDS, **SOMETIMES}.items()
    if name not in ("text", "tokens", "answer")
}


def _response(
    told: Any, columns: Columns, *, where: str, said: str | None = None, single: bool = False
) -> tuple[Response, bool]:
    """A response from a text, an object or an answer alone, and whether its tokens are guessed."""
    if told is None or isinstance(told, str | list):
        text = _text(told, where=where)
        return Response(text, estimated_tokens(text)), True
    if not isinstance(told, dict):
        answer = None if isinstance(told, bool) else written(told)
        if answer is None:
            raise RecordError(f"{where}: a text or an object is needed, but it is {shown(told)}")
        return Response("", 1, answer=answer), True
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
    listed = read_tokens(told)
    if listed is not None:
        others = {"logprob": round(listed.total, 4), **others}
        others["source"] = Choice.of({}, {}, listed)
    guess = 0 if failed else estimated_tokens(text) if text else int(answer is not None)
    response = Response(text, guess if tokens is None else tokens, answer=answer, **others)
    return response, tokens is None and not failed


def _text(value: Any, *, where: str) -> str:
    """What a response says: a text, parts of one, or the reply of a conversation."""
    if value is None or isinstance(value, str):
        return value or ""
    if is_conversation(value):
        return "".join(choice_text({"message": row}) for row in value if row["role"] == "assistant")
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return choice_text({"message": {"content": value}})
    raise RecordError(f"{where}: a text is needed, but it is {shown(value)}")


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
