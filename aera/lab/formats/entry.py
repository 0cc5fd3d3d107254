"""Entry: one question of a file of recorded responses, whatever its format. Ours and lm-eval's."""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from gzip import BadGzipFile
from pathlib import Path
from typing import Any

from aera.errors import RecordError
from aera.files import open_text
from aera.pools.pool import RESPONSE_FIELDS
from aera.pools.record import Record
from aera.response import Question, Response
from aera.sampling.completion import CHARACTERS_PER_TOKEN, choice_text

QUESTION_NAMES = ("question", "problem", "prompt", "input", "query")
"""What files call the text of a question."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One question of a file: where it stands, what came back, and what the file says is right."""

    where: str
    record: Record
    truth: str | None = None
    """As the file writes it."""
    truth_name: str = "answer"
    """The field it stands in."""
    task: object = None
    """The task the file names."""
    estimated: bool = False
    """Whether the tokens are guessed from the length of the texts."""


# --- rows and fields ------------------------------------------------------------------------------


def read_objects(file: Path) -> Iterator[tuple[str, Row]]:
    """JSON objects, one per line, each with where it stands; blank lines are passed over."""
    number = 0
    try:
        with open_text(file) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    where = f"{file.name}, line {number}"
                    yield where, parse_object(line, where=where)
    except (EOFError, zlib.error, BadGzipFile, UnicodeDecodeError) as error:
        raise RecordError(f"{file.name}, line {number + 1}: cannot be read, {error}") from None


def parse_object(text: str | bytes, *, where: str) -> Row:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise RecordError(f"{where}: a JSON object is needed, but got {type(row).__name__}")
    return row


def need_field(row: Mapping[str, Any], name: str, *kinds: type, where: str) -> Any:
    """A field that must be there and be of one of these types."""
    value = row.get(name)
    if not isinstance(value, kinds) or isinstance(value, bool):
        problem = f"is {value!r:.40}" if name in row else "is missing"
        raise RecordError(f'{where}: the field "{name}" {problem}')
    return value


def truth_in(row: Mapping[str, Any], name: str, *, where: str) -> str | None:
    """The right answer as written, None where there is none."""
    if row.get(name) is None:
        return None
    return str(need_field(row, name, str, int, float, where=where))


def choices_in(row: Mapping[str, Any], name: str = "choices", *, where: str) -> tuple[str, ...]:
    """The choices of a question, none where it has none."""
    listed = need_field(row, name, list, where=where) if row.get(name) else ()
    return tuple(str(choice) for choice in listed)


def estimated_tokens(text: str) -> int:
    """For responses whose tokens nobody counted; a zero would look free."""
    return len(text) // CHARACTERS_PER_TOKEN


def messages_text(messages: object) -> str:
    """What the user says in a conversation; a prompt that is a text already is itself."""
    if isinstance(messages, str):
        return messages
    rows = [row for row in messages if isinstance(row, dict)] if isinstance(messages, list) else []
    return "\n\n".join(choice_text({"message": row}) for row in rows if row.get("role") == "user")


def join_entries(known: Entry | None, entry: Entry) -> Entry:
    """An entry with the responses of an earlier one to the same question before its own."""
    if known is None:
        return entry
    question = entry.record.question
    if known.truth != entry.truth:
        raise RecordError(
            f"{entry.where}: the question {question.id} has another answer than before"
        )
    record = Record(question, (*known.record.responses, *entry.record.responses))
    return replace(entry, record=record, estimated=known.estimated or entry.estimated)


# --- our own: one question per line ---------------------------------------------------------------


def read_jsonl(file: Path) -> Iterator[Entry]:
    """Lines {"id", "question", "choices"?, "answer"?, "task"?, "responses": [{"text", ...}]}."""
    for where, row in read_objects(file):
        truth = truth_in(row, "answer", where=where)
        yield Entry(where, _record(row, where=where), truth, task=row.get("task"))


def _record(row: Row, *, where: str) -> Record:
    question_id = str(need_field(row, "id", str, int, where=where))
    choices = choices_in(row, where=where)
    question = Question(question_id, need_field(row, "question", str, where=where), choices)
    rows = need_field(row, "responses", list, where=where)
    if not rows:
        raise RecordError(f"{where}: the question {question_id} has no responses")
    responses = [_response(r, where=f"{where}, response {i}") for i, r in enumerate(rows)]
    return Record(question, tuple(responses))


def _response(row: Any, *, where: str) -> Response:
    if not isinstance(row, dict):
        raise RecordError(f"{where}: a JSON object is needed, but got {type(row).__name__}")
    given = {
        name: need_field(row, name, *kinds, where=where)
        for name, kinds in RESPONSE_FIELDS.items()
        if row.get(name) is not None or name == "tokens"
    }
    return Response(**{"text": "", **given})


# --- lm-eval: samples_*.jsonl ---------------------------------------------------------------------


def read_lm_eval(file: Path) -> Iterator[Entry]:
    """The samples lm-eval logs, one per question and filter; every filter saw the same responses.

    It counts no tokens, so they are estimated.
    """
    seen: dict[str, object] = {}
    for where, row in read_objects(file):
        question_id = str(need_field(row, "doc_id", int, str, where=where))
        if seen.setdefault(question_id, row.get("filter")) != row.get("filter"):
            continue
        texts = _find_texts(row, where=where)
        question = Question(question_id, _find_question(row, where=where))
        responses = tuple(Response(text, estimated_tokens(text)) for text in texts)
        truth = truth_in(row, "target", where=where)
        yield Entry(where, Record(question, responses), truth, "target", estimated=True)


def _find_texts(row: Row, *, where: str) -> list[str]:
    """All repeats of the one request behind a generated answer."""
    requests = need_field(row, "resps", list, where=where)
    texts = requests[0] if len(requests) == 1 and isinstance(requests[0], list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RecordError(f'{where}: "resps" holds no generated texts, so there is nothing to vote')
    return texts


def _find_question(row: Row, *, where: str) -> str:
    """The question alone where the document has it, else the whole prompt with its examples."""
    document = row.get("doc")
    fields = document if isinstance(document, dict) else {}
    own = [fields[name] for name in QUESTION_NAMES if isinstance(fields.get(name), str)]
    if own:
        return str(own[0])
    arguments = need_field(row, "arguments", dict, where=where)
    first = need_field(arguments, "gen_args_0", dict, where=where)
    return str(need_field(first, "arg_0", str, where=where))
