"""Foreign: logs of other programs as rows, each format one function; and allocations out.

lm-eval's samples, Inspect's logs, and batches of OpenAI's, whose output `aera export` writes too.
"""

import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aera.core import Response
from aera.errors import PoolError
from aera.files import to_line, whole_file
from aera.lab.formats.rows import (
    Fields,
    as_openai_ends,
    read_reply,
    table_questions,
    whole_number,
    written,
)
from aera.lab.formats.sources import (
    KNOWN,
    Row,
    Rows,
    need_field,
    need_object,
    parse_object,
    read_lines,
    read_whole,
)
from aera.pools.parquet import arrow
from aera.reading.canonical import canonical_json

# --- lm-eval --------------------------------------------------------------------------------------


def read_lm_eval(file: Path) -> Rows:
    """The samples of a log, one per question and filter; every filter saw the same responses."""
    seen: dict[str, object] = {}
    for where, row in read_lines(file):
        name = str(need_field(row, "doc_id", int, str, where=where))
        if seen.setdefault(name, row.get("filter")) != row.get("filter"):
            continue
        requests = need_field(row, "resps", list, where=where)
        said = requests[0] if len(requests) == 1 and isinstance(requests[0], list) else []
        rows = [each if isinstance(each, dict) else {"text": each} for each in said]
        if not rows or not all(isinstance(each.get("text"), str) for each in rows):
            raise PoolError(
                f'{where}: "resps" holds no generated texts, so there is nothing to vote'
            )
        told = [{name: each.get(name) for name in ("text", "logprobs")} for each in rows]
        doc = row.get("doc")
        asked = Fields(doc, where).get("question") if isinstance(doc, dict) else None
        if not isinstance(asked, str) or not asked.strip():  # then with the examples before it
            arguments = need_field(row, "arguments", dict, where=where)
            first = need_field(arguments, "gen_args_0", dict, where=where)
            asked = need_field(first, "arg_0", str, where=where)
        yield where, {"id": name, "question": asked, "target": row.get("target"), "responses": told}


# --- Inspect --------------------------------------------------------------------------------------

ZSTD = 93
"""The compression of its archives, as zip numbers it."""
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError),
    *(NotImplementedError, RuntimeError, ValueError, MemoryError),  # unknown, locked, foreign, huge
)
"""What is raised over an archive that is not whole."""


def read_inspect(file: Path) -> Rows:
    """The samples of a log, epochs in order; one that ended in an error is a failed response."""
    # Rows, not samples, are kept: a log may be many times as large as its responses.
    found = [(where, *_sample(sample, where=where)) for where, sample in _samples(file)]
    found.sort(key=lambda each: each[1])
    yield from ((where, row) for where, _, row in found)


def _sample(sample: Row, *, where: str) -> tuple[int, Row]:
    """The epoch of a sample, and its row."""
    name = str(need_field(sample, "id", str, int, where=where))
    told, failed = sample.get("output"), sample.get("error")
    output: Row = told if isinstance(told, dict) else {}
    row: Row = {key: sample.get(key) for key in ("choices", "target")}
    row |= {"id": name, "question": sample.get("input") or name}
    if failed or not output.get("choices"):
        said, model = _said(failed) or "no output", written(output.get("model"))
        row["responses"] = [Response("", error=said, model=model)]
    else:
        usage, seconds = output.get("usage"), output.get("time")
        tokens = usage.get("output_tokens") if isinstance(usage, dict) else None
        choices = map(_choice, need_field(output, "choices", list, where=where))
        took = round(1000 * seconds, 1) if isinstance(seconds, int | float) else None
        beside = {"model": output.get("model"), "latency_ms": took}
        reply = {**beside, "usage": {"completion_tokens": tokens}, "choices": [*choices]}
        row["responses"] = read_reply(reply, where=where)
    return int(need_field(sample, "epoch", int, where=where)), row


def _choice(choice: Any) -> Any:
    """A choice in OpenAI's words; what the model thought stands in parts of its content."""
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return choice
    content = choice["message"].get("content")
    parts = content if isinstance(content, list) else []
    thought = [part.get("reasoning") for part in parts if isinstance(part, dict)]
    reasoning = "".join(each for each in thought if isinstance(each, str))
    message = {"content": content, "reasoning": reasoning}
    return {"message": message, "finish_reason": as_openai_ends(choice.get("stop_reason"))}


def _samples(file: Path) -> Rows:
    """The samples of a log in the order in which it holds them."""
    with file.open("rb") as start:
        is_archive = start.read(2) == b"PK"
    if not is_archive:
        log = need_object(read_whole(file), where=file.name)
        for place, sample in enumerate(need_field(log, "samples", list, where=file.name)):
            where = f"{file.name}, sample {place}"
            yield where, need_object(sample, where=where)
        return
    try:
        opened = zipfile.ZipFile(file)
    except _DAMAGED as error:
        raise PoolError(f"{file.name} cannot be read, {error}") from None
    with opened as archive:
        for info in archive.infolist():
            if info.filename.startswith("samples/"):
                where = f"{file.name}, {info.filename}"
                yield where, parse_object(_member(archive, info, where=where), where=where)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, where: str) -> bytes:
    """One file of an archive, also packed by zstd, which Python cannot unpack before 3.14."""
    try:
        if info.compress_type != ZSTD:
            return archive.read(info)
        assert archive.fp is not None
        archive.fp.seek(info.header_offset + 26)
        lengths = archive.fp.read(4)  # of the name and the extra field that stand before the bytes
        archive.fp.seek(sum(int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2)), 1)
        packed, size = archive.fp.read(info.compress_size), info.file_size
        unpacked: bytes = arrow().decompress(packed, size, codec="zstd", asbytes=True)
    except _DAMAGED as error:
        raise PoolError(f"{where}: cannot be read, {error}") from None
    return unpacked


# --- batches --------------------------------------------------------------------------------------

MOST_CHOICES = 10_000
"""More responses nobody asks for in one request; a larger number is a mistake."""


def read_batch(file: Path, questions: Path | None = None) -> Rows:
    """The replies of a batch, by OpenAI or by vLLM; several choices are several responses.

    The output names its requests only, and in any order. `questions` is the batch's input, or a
    file of questions with these ids; it gives texts, order and truths, and requests with the same
    prompt become one question. Without it a question is known by its id alone.
    """
    replies: dict[str, tuple[str, list[Row]]] = {}
    for where, row in read_lines(file):
        name = need_field(row, "custom_id", str, where=where)
        if "body" in row and "response" not in row:
            raise PoolError(
                f"{where}: this is what the batch was asked; import its output, and give this as "
                "--questions"
            )
        rows = replies.setdefault(name, (where, []))[1]
        if row in rows:
            raise PoolError(f"{where}: the reply to {name} comes a second time")
        rows.append(row)
    requests = _requests(questions) if questions else {}
    if questions and (stray := [name for name in replies if name not in requests]):
        raise PoolError(f"{replies[stray[0]][0]}: {questions.name} has no question {stray[0]}")
    lists = [_body(row).get("choices") for _, rows in replies.values() for row in rows]
    most = max((len(choices) for choices in lists if isinstance(choices, list)), default=1)
    asked = requests or {name: {"id": name, "question": name} for name in replies}
    for name, request in asked.items():
        where, rows = replies.get(name, (file.name, []))
        count = request.get("n") or most
        told = [each for row in rows for each in _replied(row, count, where=where)]
        missing = [Response("", error="the batch gave no reply")] * count
        yield where, {**request, "responses": told or missing}


def _body(line: Row) -> Row:
    """The completion of a line; vLLM's own pages show it without the envelope."""
    told = line.get("response")
    response: Row = told if isinstance(told, dict) else {}
    body = response.get("body", response)
    return body if isinstance(body, dict) else {}


def _replied(line: Row, count: int, *, where: str) -> list[Response]:
    """What one line brought; a request that failed failed as often as was asked."""
    told, body = line.get("response"), _body(line)
    trouble = line.get("error") or body.get("error")
    status = told.get("status_code") if isinstance(told, dict) else None
    if trouble or (isinstance(status, int) and status != 200) or not body:
        said = _said(trouble) or (f"status {status}" if status else "no response")
        return [Response("", error=said)] * count
    return read_reply(body, where=where)


def _said(trouble: Any) -> str:
    """What an error says, however deep it says it."""
    while isinstance(trouble, Mapping):
        trouble = trouble.get("message") or trouble.get("error") or json.dumps(trouble)
    return str(trouble or "")


def _requests(file: Path) -> dict[str, Row]:
    """What was asked, by the id of the line; equal prompts share the question of the first."""
    requests, known = dict[str, Row](), dict[str | None, str]()
    for asked, fields in table_questions(file, turns=True):
        row, count = fields.row, whole_number(fields.row.get("n", 1))
        told = [fields.get("question"), fields.get("messages"), asked.choices, asked.system]
        requests[asked.id] = {
            **{name: row[name] for name in row if name in KNOWN or "body" not in row},
            "id": known.setdefault(canonical_json(told), asked.id),
            "n": count if "body" in row and 0 < (count or 0) <= MOST_CHOICES else None,
        }
    return requests


LOGS: dict[str, Callable[[Path], Rows]] = {
    "lm-eval": read_lm_eval,
    "inspect": read_inspect,
    "openai-batch": read_batch,
}
"""What other programs log, by the name of the format."""


# --- out ------------------------------------------------------------------------------------------


def export_allocations(file: Path, out: Path) -> int:
    """Write what `aera solve` printed as the output of an OpenAI batch; returns the lines."""
    rows = [_batch_row(row, where=where) for where, row in read_lines(file)]
    if not rows:
        raise PoolError(f"{file.name} holds no allocation")
    with whole_file(out) as partial:
        partial.write_text("".join(map(to_line, rows)), "utf-8")
    return len(rows)


def _batch_row(allocation: Row, *, where: str) -> Row:
    """An allocation as a chat completion: the winning text, the account beside it."""
    question_id = need_field(allocation, "question_id", str, where=where)
    name = f"aera-{question_id}"
    row: Row = {"id": name, "custom_id": question_id, "response": None, "error": None}
    if allocation.get("error"):
        return row | {"error": {"code": "upstream_error", "message": str(allocation["error"])}}
    answer = need_field(allocation, "answer", str, type(None), where=where)
    prompt = need_field(allocation, "prompt_tokens", int, where=where)
    completion = need_field(allocation, "completion_tokens", int, where=where)
    boxed = "" if answer is None else f"\\boxed{{{answer}}}"
    text = allocation.get("text")
    message = {"role": "assistant", "content": text if isinstance(text, str) else boxed}
    choice = {"index": 0, "message": {**message, "refusal": None}, "finish_reason": "stop"}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    body = {
        "id": name,
        "object": "chat.completion",
        "created": 0,
        "model": "aera",
        "choices": [{**choice, "logprobs": None}],
        "usage": {**usage, "total_tokens": prompt + completion},
        "aera": {key: value for key, value in allocation.items() if key != "question_id"},
    }
    return {**row, "response": {"status_code": 200, "request_id": name, "body": body}}
