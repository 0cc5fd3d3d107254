"""What a model server says: completions, tokens with their logprobs, refusals."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from itertools import accumulate, pairwise
from math import isfinite
from typing import Any, TypeGuard

import numpy as np
from yarl import URL

from aera.arrays import Floats
from aera.core import Response
from aera.errors import UpstreamError
from aera.files import Json
from aera.reading.task import Task, add_traces
from aera.sampling.budget import Usage
from aera.trace import TOP, TOP_LOGPROBS, ServedTokens

BAD_REQUEST = frozenset({400, 422})
"""What a server says to a field that it does not take."""
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
UNBILLED = frozenset({*range(300, 408), *range(409, 500), 503, 529})
"""Refusals for which nobody sends a bill; after any other failure it may have been generated."""
SPENT = "insufficient_quota"
"""How a server calls a refusal of 429 that no waiting mends."""
LONGEST_RETRY_AFTER = 86_400.0
"""Seconds; a server that asks for a longer pause is taken to have said nothing."""

CONTEXT = re.compile(r"[^\[{\n]*?context (?:length|size)\D{0,5}(\d{1,9}) tokens", re.IGNORECASE)
"""Where a refusal names the model's context; what a client wrote would be quoted in brackets."""
PROMPT = re.compile(
    r"(?:input|request) \((\d+) tokens"
    r"|(?<!at least )\b(\d+) (?:input tokens|(?:tokens )?(?:in|from) the (?:input|messages|prompt))"
)
STREAMED = "the server streams its reply, which nobody asked for: switch that off there"
NO_API = "; the address is probably not one of an OpenAI-compatible server, which ends in /v1"
"""What to say to a web page."""


def context_of(error: UpstreamError) -> tuple[int, int | None] | None:
    """A model's context and the tokens of the prompt, where a refusal for its length names them."""
    context = CONTEXT.match(error.message) if error.status in BAD_REQUEST else None
    if context is None:
        return None
    prompt = PROMPT.search(error.message)
    return int(context[1]), int(prompt[1] or prompt[2]) if prompt else None


def is_field_refusal(error: UpstreamError) -> bool:
    """Whether a server may have refused one field of a request, and would take it without."""
    return error.status in BAD_REQUEST and context_of(error) is None and not error.final


def is_page(content: bytes, headers: Mapping[str, str]) -> bool:
    """Whether a reply is a web page."""
    return content.lstrip()[:1] == b"<" or headers.get("Content-Type", "").startswith("text/html")


def decode(content: bytes, headers: Mapping[str, str], *, first: bool = False) -> Any:
    """The JSON of a reply; a server whose `first` is not even the begin of an object has none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        begun = content.lstrip()
        if begun.startswith((b"data:", b"event:", b":")):
            raise UpstreamError(STREAMED, status=200, final=True) from None
        shown = repr(content[:80].decode("utf-8", "replace"))
        hint = NO_API if is_page(content, headers) else ""
        text, none = f"the reply is not JSON but {shown}{hint}", first and begun[:1] != b"{"
        raise UpstreamError(text, status=200 if none else None, unbilled=none, final=none) from None


def refusal(
    status: int, content: bytes, headers: Mapping[str, str], *, named: bool
) -> UpstreamError:
    """The upstream's own error, with its status, type, code and message.

    A redirect is never followed: it would take key and prompt to another server; where to is said
    if `named`.
    """
    if 300 <= status < 400:
        origin = origin_of(headers.get("Location", ""))
        where = f" to {origin}" if origin and named else ""
        text = f"the server redirects{where}, which is not followed; give its final address instead"
        detail = f"redirected to {origin or 'the same server'}"
        return UpstreamError(text, status=status, retryable=False, unbilled=True, detail=detail)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    said = body.get("error", body) if isinstance(body, dict) else None
    shown = content[:200].decode("utf-8", "replace").strip()
    if status < 500 and is_page(content, headers):  # beyond it a proxy's own page is usual
        shown += NO_API
    error = _refusal(status, said, body, shown)
    error.retry_after = parse_retry_after(headers.get("Retry-After"))
    return error


def refusal_in(reply: Mapping[str, Any]) -> UpstreamError:
    """The error that came with a good status; its code is its status where it is one, else 502."""
    said = reply["error"]
    codes = [said.get(name) for name in ("status", "code")] if isinstance(said, dict) else []
    known = [code for code in map(_status, codes) if code is not None]
    return _refusal(known[0] if known else 502, said, reply)


def _refusal(status: int, said: Any, body: object, fallback: str = "") -> UpstreamError:
    """An error from what a server put into its error object, whatever shape that has."""
    fields = said if isinstance(said, dict) else {"message": said}
    names = ("message", "type", "code", "param")
    message, kind, code, param = (fields.get(name) for name in names)
    return UpstreamError(
        (message if isinstance(message, str) else fallback) or "no message",
        status=status,
        kind=_name(kind),
        code=code if isinstance(code, str | int) else None,
        param=_name(param),
        retryable=status in RETRIED and SPENT not in (kind, code),
        unbilled=status in UNBILLED,
        body=body,
    )


def origin_of(url: str) -> str:
    """Scheme, host and port of an address, and nothing that may be secret; "" where it has none."""
    try:
        return str(URL(url).origin())
    except ValueError:
        return ""


def parse_retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header, which holds seconds or a date; None if it is no use."""
    if value is None:
        return None
    try:
        wait = float(value)
    except ValueError:
        try:
            wait = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    # Comparisons with nan are false, so that it is no use either.
    return wait if 0 <= wait <= LONGEST_RETRY_AFTER and isfinite(wait) else None


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _status(code: Any) -> int | None:
    """An error's code as a status, where it is one."""
    if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit():
        code = int(code)
    return code if is_whole(code) and 400 <= code < 600 else None


LEAST = -50.0
"""Of other likely tokens, less is a server's way of writing minus infinity."""
MOST = 10**9
"""No reply has more tokens: a count beyond it, or below 0, is no count, and no logprob either."""


def read_tokens(choice: Mapping[str, Any]) -> ServedTokens | None:
    """The tokens of a choice, None where the server lists none with their logprobs.

    Chat completions list rows; completions, as some batch files have them, list columns.
    """
    told = choice.get("logprobs")
    rows = _rows(told) if isinstance(told, dict) else []
    kept = [row for row in rows if isinstance(row, dict) and is_logprob(row.get("logprob"))]
    if not kept:
        return None
    pieces = [_written(row) for row in kept]
    ends = np.cumsum([_characters(piece) for piece in pieces], dtype=np.intp)
    values = np.array([row["logprob"] for row in kept], dtype=np.float64)
    text = b"".join(pieces).decode("utf-8", "replace")
    return ServedTokens(text, ends, values, _confidence([row.get(TOP_LOGPROBS) for row in kept]))


def _rows(told: Mapping[str, Any]) -> list[Any]:
    """One row for each token, also where columns are given."""
    rows, values = told.get("content"), told.get("token_logprobs")
    if isinstance(rows, list):
        return rows
    if not isinstance(values, list):
        return []
    named = {"token": told.get("tokens"), "logprob": values, TOP_LOGPROBS: told.get(TOP_LOGPROBS)}
    columns: dict[str, list[Any]] = {
        name: column
        for name, column in named.items()
        if isinstance(column, list) and len(column) == len(values)
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _written(row: Mapping[str, Any]) -> bytes:
    """A token as bytes: it may be a part of a character only."""
    token, raw = row.get("token"), row.get("bytes")
    if isinstance(raw, list) and raw and all(isinstance(b, int) and 0 <= b < 256 for b in raw):
        return bytes(raw)
    return token.encode("utf-8", "replace") if isinstance(token, str) else b""


def _characters(piece: bytes) -> int:
    """How many characters begin in it."""
    return len(piece) if piece.isascii() else sum(byte & 0xC0 != 0x80 for byte in piece)


def _confidence(tops: Sequence[Any]) -> Floats | None:
    """Minus the mean logprob of the likeliest tokens; fewer than twenty give another number."""
    found = [_likeliest(top) for top in tops]
    if any(len(values) < TOP for values in found):
        return None
    held = np.maximum(np.array([values[:TOP] for values in found], dtype=np.float64), LEAST)
    means: Floats = -held.mean(axis=1)
    return means


def _likeliest(top: Any) -> list[float]:
    """The logprobs of the likely tokens, the largest first."""
    if isinstance(top, list):
        values = [row.get("logprob") for row in top if isinstance(row, dict)]
    elif isinstance(top, dict):
        values = [*top.values()]
    else:
        return []
    return sorted((float(value) for value in values if is_logprob(value)), reverse=True)


def is_logprob(value: Any) -> TypeGuard[float]:
    """Whether it can be one: a number that is finite."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= MOST
    return isinstance(value, float) and isfinite(value)


CHARACTERS_PER_TOKEN = 4
"""For servers that report no usage."""


def guess_tokens(text: str) -> int:
    """About how many tokens a text has; at least one, for a zero would look free."""
    return max(len(text) // CHARACTERS_PER_TOKEN, int(text != ""))


class Choice(dict[str, Any]):
    """A choice as the server gave it, with what the reply said beside its choices."""

    __slots__ = ("reply", "tokens")

    def __init__(
        self,
        choice: Mapping[str, Any],
        reply: Mapping[str, Any] | None = None,
        tokens: ServedTokens | None = None,
    ) -> None:
        super().__init__(choice)
        self.reply, self.tokens = reply or {}, tokens


def parse_reply(
    reply: Any,
    *,
    seed: int | None = None,
    latency_ms: float,
    sent: int = 0,
    shows_logprobs: bool = False,
    task: Task | None = None,
) -> list[Response]:
    """The responses of one reply; the call and its prompt are billed to the first of them.

    A server that says nothing of the prompt's tokens gets an estimate by the bytes `sent`. The
    logprobs as they came, of which there may be a lot, are kept only where somebody shows them;
    what a trace keeps of them looks at the answer that the `task` finds.
    """
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not choices:
        if isinstance(reply, dict) and reply.get("error"):
            raise refusal_in(reply)
        raise UpstreamError("the reply has no choices", retryable=True)
    for choice in choices:
        if not isinstance(choice, dict):
            raise UpstreamError("the reply has a choice that is no object", retryable=True)
    texts = [choice_text(choice) for choice in choices]
    listed = [read_tokens(choice) for choice in choices]
    usage = reply.get("usage") if isinstance(reply.get("usage"), dict) else {}
    tokens = _tokens(choices, texts, listed, billed(usage, texts))
    took = round(latency_ms, 1)
    prompt = _count(usage.get("prompt_tokens")) or sent // CHARACTERS_PER_TOKEN
    model = _name(reply.get("model"))
    beside = {name: value for name, value in reply.items() if name != "choices"}
    responses = [
        Response(
            text=text,
            tokens=count,
            logprob=None if own is None else own.total,
            finish_reason=_name(choice.get("finish_reason")),
            seed=None if seed is None else seed + place,
            latency_ms=took,
            model=model,
            prompt_tokens=prompt if place == 0 else 0,
            calls=1 if place == 0 else 0,
            # Where most of the tokens that were counted are not listed, the list is no help.
            source=Choice(
                choice if shows_logprobs else trim_logprobs(choice, {}),
                beside,
                own if own and 2 * len(own.ends) >= count else None,
            ),
        )
        for place, (choice, text, count, own) in enumerate(
            zip(choices, texts, tokens, listed, strict=True)
        )
    ]
    return responses if task is None else add_traces(responses, task)


def usage_of(responses: Sequence[Response]) -> Usage:
    """What the server says that the call took which brought these; None where it says nothing."""
    reply = getattr(responses[0].source, "reply", {})
    told = reply.get("usage")
    said = told if isinstance(told, dict) else {}
    completion = billed(said, [each.text for each in responses])
    choices = (each.source if isinstance(each.source, dict) else {} for each in responses)
    if completion is None and all(map(_said_tokens, choices)):
        completion = sum(each.tokens for each in responses)
    return Usage(_count(said.get("prompt_tokens")) or None, completion, len(responses))


def billed(usage: Mapping[str, Any], texts: Sequence[str]) -> int | None:
    """The completion tokens of all; a text of no tokens is a field that nobody filled in."""
    told = _count(usage.get("completion_tokens"))
    return None if told == 0 and any(texts) else told


def _count(value: Any) -> int | None:
    """A number of tokens, None where it cannot be one."""
    return value if is_whole(value) and 0 <= value <= MOST else None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def choice_text(choice: Mapping[str, Any]) -> str:
    """What a choice says; reasoning in a field of its own goes into a thinking section."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return _flat(choice.get("text") or choice.get("content"))
    content = _flat(message.get("content"))
    reasoning = _flat(message.get("reasoning") or message.get("reasoning_content"))
    return f"<think>{reasoning}</think>{content}" if reasoning else content


def _flat(content: Any) -> str:
    """Text given as a string, as a list of parts, or not at all."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _said_tokens(choice: Mapping[str, Any]) -> int:
    """What a choice says of its own length: in a usage of its own, or by listing its tokens."""
    usage, listed = choice.get("usage"), choice.get("token_ids")
    said = _count(usage.get("completion_tokens")) if isinstance(usage, dict) else None
    if said:
        return said
    return len(listed) if isinstance(listed, list) else 0


def _tokens(
    choices: Sequence[Mapping[str, Any]],
    texts: Sequence[str],
    listed: Sequence[ServedTokens | None],
    total: int | None,
) -> list[int]:
    """Tokens of each choice: said, its part of the total, counted, or estimated by its length.

    Parts are by the tokens that are listed, or by length, which is close but not exact: what was
    thought before an answer is billed, and seldom listed.
    """
    if len(choices) == 1 and total is not None:
        return [total]
    said = [_said_tokens(choice) for choice in choices]
    rows = [0 if own is None else len(own.ends) for own in listed]
    counted = [own or row for own, row in zip(said, rows, strict=True)]
    if all(said) or (total is None and all(counted)):
        return counted
    if total is None:
        return [*map(guess_tokens, texts)]
    weights = counted if all(counted) else [len(text) + 1 for text in texts]
    whole = sum(weights)
    ends = [0, *(round(total * part / whole) for part in accumulate(weights))]
    return [end - before for before, end in pairwise(ends)]


def trim_logprobs(choice: Mapping[str, Any], asked: Mapping[str, Any]) -> Json:
    """A choice with the logprobs that its client asked for, and no others."""
    told = choice.get("logprobs")
    if told is None or not asked.get("logprobs"):
        return {**choice, "logprobs": None} if "logprobs" in choice else dict(choice)
    rows = told.get("content") if isinstance(told, dict) else None
    if not isinstance(rows, list):
        return dict(choice)
    most = _count(asked.get(TOP_LOGPROBS)) or 0
    cut = [
        {**row, TOP_LOGPROBS: row[TOP_LOGPROBS][:most]}
        if isinstance(row, dict) and isinstance(row.get(TOP_LOGPROBS), list)
        else row
        for row in rows
    ]
    return {**choice, "logprobs": {**told, "content": cut}}
