"""OpenAI batch lines: output of a batch in, allocations out."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aera.core import Question, Response
from aera.errors import RecordError, UpstreamError, UsageError
from aera.files import to_line, whole_file
from aera.lab.formats.entry import (
    Entry,
    Row,
    asked_in,
    choices_in,
    join_entries,
    need_field,
    whole_number,
    written,
)
from aera.lab.formats.sources import read_lines
from aera.pools.pool import Record
from aera.reading.json_values import canonical_json
from aera.sampling.replies import parse_reply

MOST_CHOICES = 10_000
"""More responses nobody asks for in one request; a larger number is a mistake."""


@dataclass(frozen=True)
class Request:
    """What one line of a batch asked: a question, how often, and the right answer if known."""

    question: Question
    responses: int | None = None
    """None where nobody says: as many as others asked for."""
    truth: str | None = None


# --- in -------------------------------------------------------------------------------------------


def read_batch(file: Path, questions: Path | None = None) -> Iterator[Entry]:
    """The replies of a batch, by OpenAI or by vLLM; several choices are several responses.

    The output names its requests only, and in any order. `questions` is the batch's input, or a
    file of questions with these ids; it gives texts, order and truths, and requests with the same
    prompt become one question. Without it a question is known by its id alone.
    """
    replies: dict[str, tuple[str, list[Row]]] = {}
    for where, row in read_lines(file):
        name = need_field(row, "custom_id", str, where=where)
        replies.setdefault(name, (where, []))[1].append(row)
    requests = _requests(questions) if questions else {}
    if requests and (stray := [name for name in replies if name not in requests]):
        assert questions is not None
        raise RecordError(f"{replies[stray[0]][0]}: {questions.name} has no question {stray[0]}")
    lists = [_body(row).get("choices") for _, rows in replies.values() for row in rows]
    most = max((len(choices) for choices in lists if isinstance(choices, list)), default=1)
    gathered: dict[str, Entry] = {}
    for name, request in (requests or {each: _bare(each) for each in replies}).items():
        where, rows = replies.get(name, (file.name, []))
        entry = _entry(request, rows, most=most, where=where)
        gathered[entry.record.question.id] = join_entries(gathered.get(request.question.id), entry)
    yield from gathered.values()


def _bare(name: str) -> Request:
    """A request nobody can look up: its id stands for words."""
    return Request(Question(name, name))


def _body(row: Row) -> Row:
    """The completion of a line; vLLM's own pages show it without the envelope."""
    told = row.get("response")
    response: Row = told if isinstance(told, dict) else {}
    body = response.get("body", response)
    return body if isinstance(body, dict) else {}


def _entry(request: Request, rows: Iterable[Row], *, most: int, where: str) -> Entry:
    """The replies to a request; one that failed failed as often as was asked."""
    count = request.responses or most
    read = [_responses(row, count, where=where) for row in rows]
    responses = [response for found, _ in read for response in found]
    missing = [Response("", error="the batch gave no reply")] * count
    record = Record(request.question, tuple(responses or missing))
    estimated = any(guessed for _, guessed in read)
    return Entry(where, record, request.truth, estimated=estimated)


def _responses(row: Row, count: int, *, where: str) -> tuple[list[Response], bool]:
    """The responses of one line, and whether their tokens are estimated."""
    told, body = row.get("response"), _body(row)
    trouble = row.get("error") or body.get("error")
    status = told.get("status_code") if isinstance(told, dict) else None
    if trouble or (isinstance(status, int) and status != 200) or not body:
        said = _said(trouble) or (f"status {status}" if status else "no response")
        return [Response("", error=said)] * count, False
    try:
        choices = sorted(body["choices"], key=lambda choice: int(choice.get("index", 0)))
        responses = parse_reply({**body, "choices": choices}, latency_ms=0.0)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RecordError(f"{where}: the reply holds no list of choices") from None
    except UpstreamError as error:
        raise RecordError(f"{where}: {error.message}") from None
    usage = body.get("usage")
    counted = isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int)
    return [replace(each, latency_ms=None) for each in responses], not counted


def _said(trouble: Any) -> str:
    """What an error says, however deep it says it."""
    while isinstance(trouble, Mapping):
        trouble = trouble.get("message") or trouble.get("error") or json.dumps(trouble)
    return str(trouble or "")


def _requests(file: Path) -> dict[str, Request]:
    """What was asked, by the id of the line; equal prompts share the question of the first."""
    if not file.is_file():
        raise UsageError(f'there is no file "{file}" with questions')
    requests: dict[str, Request] = {}
    known: dict[str | None, Question] = {}
    for where, row in read_lines(file):
        name, request = _request(row, where=where)
        if name in requests:
            raise RecordError(f"{where}: {name} comes a second time")
        if "body" in row:
            prompt = canonical_json(row["body"].get("messages") or row["body"].get("prompt"))
            request = replace(request, question=known.setdefault(prompt, request.question))
        requests[name] = request
    if not requests:
        raise RecordError(f"{file.name} holds no question")
    return requests


def _request(row: Row, *, where: str) -> tuple[str, Request]:
    """A line of a batch's input, or of a file of questions."""
    if "custom_id" not in row:
        name = str(need_field(row, "id", str, int, where=where))
        choices = choices_in(row, "choices", where=where)
        question = Question(name, need_field(row, "question", str, where=where), choices)
        return name, Request(question, truth=written(row.get("answer")))
    name = need_field(row, "custom_id", str, where=where)
    body = need_field(row, "body", dict, where=where)
    asked = asked_in(body.get("messages") or body.get("prompt"))
    if not asked.text:
        raise RecordError(f"{where}: the request {name} holds no message of a user")
    count = whole_number(body.get("n"))
    question = Question(name, asked.text, system=asked.system)
    return name, Request(question, count if count and 0 < count <= MOST_CHOICES else 1)


# --- out ------------------------------------------------------------------------------------------


def export_allocations(file: Path, out: Path) -> int:
    """Write what `aera solve` printed as the output of an OpenAI batch; returns the lines."""
    rows = [_batch_row(row, where=where) for where, row in read_lines(file)]
    if not rows:
        raise RecordError(f"{file.name} holds no allocation")
    with whole_file(out) as partial:
        partial.write_text("".join(map(to_line, rows)), "utf-8")
    return len(rows)


def _batch_row(allocation: Row, *, where: str) -> Row:
    question_id = need_field(allocation, "question_id", str, where=where)
    request = f"aera-{question_id}"
    if allocation.get("error"):
        failure = {"code": "upstream_error", "message": str(allocation["error"])}
        return {"id": request, "custom_id": question_id, "response": None, "error": failure}
    response = {
        "status_code": 200,
        "request_id": request,
        "body": _completion(allocation, request, where=where),
    }
    return {"id": request, "custom_id": question_id, "response": response, "error": None}


def _completion(allocation: Row, name: str, *, where: str) -> Row:
    """An allocation as a chat completion: the winning text, the account beside it."""
    answer = need_field(allocation, "answer", str, type(None), where=where)
    prompt = need_field(allocation, "prompt_tokens", int, where=where)
    completion = need_field(allocation, "completion_tokens", int, where=where)
    boxed = "" if answer is None else f"\\boxed{{{answer}}}"
    text = allocation.get("text")
    content = text if isinstance(text, str) else boxed
    message = {"role": "assistant", "content": content, "refusal": None}
    return {
        "id": name,
        "object": "chat.completion",
        "created": 0,
        "model": "aera",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
        "aera": {key: value for key, value in allocation.items() if key != "question_id"},
    }
