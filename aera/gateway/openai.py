"""OpenAI's API on the wire: what is read of requests, replies, streams, errors, responses."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from math import ceil, inf, isfinite, nan
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive

from aera.errors import AeraError, UpstreamError, UsageError
from aera.files import Json
from aera.reading.task import Task
from aera.sampling.budget import Bound, Ledger
from aera.sampling.replies import is_whole

# An object of a request or reply, whose fields others choose.
Headers = Sequence[tuple[bytes, bytes]]
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
PREFIX, RAW_HEADER = "aera/", b"x-aera-"
ENCODER = json.JSONEncoder(check_circular=False, allow_nan=False, separators=(",", ":"))
# Fields of an upstream's reply that the client gets as they are.
KEPT = ("system_fingerprint", "service_tier")
# The refusal of a request that was not read to its end, after which nothing else can follow.
UNREAD = 413

# --- errors ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class DeniedError(UsageError):
    """A request the gateway itself turns away, with the status that says why."""

    message: str
    _: KW_ONLY
    status: int
    code: str
    kind: str = "invalid_request_error"
    retry_after: float | None = None


def too_many(text: str, wait: float) -> DeniedError:
    """A refusal to be repeated later."""
    kind, code = "rate_limit_error", "too_many_requests"
    return DeniedError(text, status=429, kind=kind, code=code, retry_after=wait)


def used_up(ledgers: Sequence[Ledger], bound: Bound | None = None) -> DeniedError:
    """The refusal of a key that has spent what it may, or that may never spend so much."""
    waits = {each: each.wait(bound) for each in ledgers}
    last = max(waits, key=lambda each: waits[each])
    minute = last.period == 60
    if waits[last] == inf:
        text = "this request can take more than its key may spend in a"
        text = f"{text} {'minute' if minute else 'day'}: shorten it"
        return DeniedError(text, status=400, code="request_too_large")
    what = "tokens of the minute" if minute else "money of the day"
    return too_many(f"this key has used up its {what}", max(1.0, waits[last]))


def json_reply(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A reply in JSON."""
    return Response(dump(content), status, headers, media_type="application/json")


def dump(content: Any) -> bytes:
    """JSON that anybody can read: plain ASCII, and null where a number is not finite."""
    try:
        return ENCODER.encode(content).encode()
    except ValueError:
        finite = json.loads(json.dumps(content), parse_constant=lambda _: None)
        return ENCODER.encode(finite).encode()


def event(content: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(content) + b"\n\n"


def status_of(error: AeraError) -> int:
    """The status an error is answered with: its own where it has one."""
    if isinstance(error, DeniedError | UpstreamError):
        # Anything but an error status means that nothing useful came back.
        return error.status if error.status and 400 <= error.status < 600 else 502
    return 400 if isinstance(error, UsageError) else 500


def error_body(error: AeraError) -> Json:
    """The error object; an upstream's own fields are kept."""
    kind = "invalid_request_error" if status_of(error) < 500 else "api_error"
    blank: Json = {"message": str(error), "type": kind, "param": None, "code": None}
    if not isinstance(error, DeniedError | UpstreamError):
        return {"error": blank}
    own = {"message": error.message, "type": error.kind or "upstream_error", "code": error.code}
    body = error.body if isinstance(error, UpstreamError) and isinstance(error.body, dict) else {}
    # Some servers put it all beside, where others have an error object.
    said = body["error"] if isinstance(body.get("error"), dict) else {"param": body.get("param")}
    return {**body, "error": {**blank, **said, **own}}


def failure(error: AeraError) -> Response:
    """The reply to a request that failed."""
    wait = error.retry_after if isinstance(error, UpstreamError | DeniedError) else None
    headers = {} if wait is None or not isfinite(wait) else {"Retry-After": str(ceil(wait))}
    if isinstance(error, DeniedError) and error.status == UNREAD:
        headers["Connection"] = "close"
    return json_reply(error_body(error), status_of(error), headers)


# --- reading requests -----------------------------------------------------------------------------

# Levels of nesting beyond which a request is refused; Python's own limit lies far above.
DEEPEST = 64
# Values in a request, each of which takes memory beside its bytes.
MOST_VALUES = 1_000_000
# Values that one with a name counts for beside itself, as it takes so much more.
NAMED = 3
# How many times the size limit is read and thrown away, so that a client hears its refusal.
PATIENCE = 4
# Bytes of a request beyond which it is parsed in another thread.
LARGE = 256 * 2**10


async def read_body(receive: Receive, limit: int) -> bytes:
    """The body of a request, unless it is too large."""
    size, content, more = 0, bytearray(), True
    while more and size <= PATIENCE * limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size <= limit:
            content += chunk
    if size > limit:
        raise _too_large(f"the request is larger than {limit} bytes")
    return bytes(content)


def _too_large(text: str) -> DeniedError:
    return DeniedError(text, status=413, code="request_too_large")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> Json:
    """An object; of a name that stands twice, servers differ in which one counts."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f'the request names "{twice:.40}" twice in one object')
    return made


DECODER = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_pairs)


async def parse_body(content: bytes) -> Any:
    """The JSON of a request, None where it is none; a large one is read off the event loop."""
    return await asyncio.to_thread(_parse, content) if len(content) > LARGE else _parse(content)


def _parse(content: bytes) -> Any:
    if sum(map(content.count, (b",", b"[", b"{"))) + NAMED * content.count(b":") > MOST_VALUES:
        raise _too_large(f"the request has more than {MOST_VALUES:,} values")
    try:
        body = DECODER.decode(content.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    if content.count(b"{") + content.count(b"[") <= DEEPEST:  # it cannot be nested deeper
        return body
    level: list[Any] = [body]
    for _ in range(DEEPEST):
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
    if level:
        raise UsageError(f"the request is nested deeper than {DEEPEST} levels")
    return body


def check_object(body: Any) -> Json:
    """The request, if it is a JSON object."""
    if not isinstance(body, dict):
        what = "is not JSON" if body is None else "must be a JSON object"
        raise UsageError(f"the request {what}")
    return body


# --- headers that go along ------------------------------------------------------------------------

REQUEST_ID, TRACEPARENT = b"x-request-id", b"traceparent"
# What belongs to one connection, or to the gateway and its own clients, and is not passed on.
HOP_HEADERS = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"host",
     b"expect", b"proxy-authorization", b"proxy-authenticate", b"content-length",
     b"accept-encoding", b"authorization", b"cookie"}
)  # fmt: skip
OURS = HOP_HEADERS | {b"set-cookie", b"content-type", b"content-encoding"}
SECRET = frozenset({b"authorization", b"api-key", b"x-api-key", b"cookie"})
NAME = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]+")


def end_to_end(
    headers: Headers, dropped: frozenset[bytes] = HOP_HEADERS
) -> list[tuple[bytes, bytes]]:
    """Headers without these, those of one connection, as it says itself, and our own."""
    told = [value for name, value in headers if name == b"connection"]
    dropped |= {name.strip().lower() for value in told for name in value.split(b",")}
    return [
        (name, value)
        for name, value in headers
        if name not in dropped and not name.startswith(RAW_HEADER)
    ]


def forwarded_names(given: Iterable[str]) -> frozenset[bytes]:
    """The headers of a client that its samples carry: those of a trace, and those named here."""
    names = {TRACEPARENT, b"tracestate"}
    for name in given:
        raw = name.lower().encode()
        if not NAME.fullmatch(raw):
            raise UsageError(f'"{name:.80}" is no name of a header: keep_headers takes X-Team')
        if raw in SECRET:
            raise UsageError(
                f'the header "{name}" holds a key or a session and is not kept; forward_key sends '
                "each client's own key to the model server"
            )
        if raw in OURS or raw.startswith(RAW_HEADER):
            raise UsageError(f'the header "{name}" is made anew for each call and cannot be kept')
        names.add(raw)
    return frozenset(names - {REQUEST_ID})


def is_upload(headers: Headers) -> bool:
    """Whether a request is a form with files."""
    return dict(headers).get(b"content-type", b"").lower().startswith(b"multipart/form-data")


def own_headers(headers: Headers) -> dict[str, str]:
    """The headers that are about votes, by the rest of their names; of two alike the first."""
    return {
        name[len(RAW_HEADER) :].decode("latin-1"): value.decode("latin-1")
        for name, value in reversed(headers)
        if name.startswith(RAW_HEADER)
    }


def find_forwarded(headers: Headers, request_id: str, names: frozenset[bytes]) -> dict[str, str]:
    """What the samples of a request carry; its id is ours where the client gave none."""
    kept = {"x-request-id": request_id}
    for raw, value in end_to_end(headers):
        if raw in names:
            name, text = raw.decode("latin-1"), value.decode("latin-1")
            kept[name] = f"{kept[name]}, {text}" if name in kept else text
    return kept


# --- requests -------------------------------------------------------------------------------------

MAY_BE_ZERO = ("threshold", "min_samples")
FRACTIONS = ("threshold", "deadline_s")


@dataclass(frozen=True)
class RequestOptions:
    """What a request decides for itself, in its `aera` object or headers; None: the gateway."""

    # Whether to vote, whatever the model's name and the gateway's default say.
    vote: bool | None = None
    policy: str | None = None
    threshold: float | None = None
    min_samples: int | None = None
    max_samples: int | None = None
    # Completion tokens after which no further block is asked for.
    max_tokens_total: int | None = None
    deadline_s: float | None = None

    @classmethod
    def parse(cls, given: Any, headers: Headers) -> "RequestOptions":
        """From the request's `aera` object, and from x-aera-* headers where it is silent."""
        if given is not None and not isinstance(given, dict):
            raise UsageError('the field "aera" must be an object')
        told = own_headers(headers)
        chosen: Json = {name.replace("-", "_"): value for name, value in told.items()}
        chosen |= {name: value for name, value in (given or {}).items() if value is not None}
        if unknown := sorted(chosen.keys() - cls.__dataclass_fields__.keys()):
            known = ", ".join(cls.__dataclass_fields__)
            raise UsageError(f'no option is called "{unknown[0]:.40}"; known are {known}')
        return cls(**{name: _parse_option(name, value) for name, value in chosen.items()})


def _parse_option(name: str, value: Any) -> Any:
    """An option as what it must be."""
    if name == "vote":
        must, written = "true or false", str(value).lower()
        if isinstance(value, bool | str) and written in ("true", "false"):
            return written == "true"
    elif name == "policy":
        must = "a label"
        if isinstance(value, str) and len(value) <= 100:
            return value
    else:
        whole, zero = name not in FRACTIONS, name in MAY_BE_ZERO
        try:  # also one written as text, as headers hold it
            number = nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = nan
        if (zero or number > 0) and 0 <= number < inf and (number.is_integer() or not whole):
            return int(number) if whole else number
        must = f"{'a whole number' if whole else 'a number'} {'from 0 up' if zero else 'above 0'}"
    raise UsageError(f'"aera.{name}" must be {must}, but got {value!r:.40}')


def split_model(model: Any) -> tuple[str, bool]:
    """The plain name of a model, and whether it was asked to vote."""
    if not isinstance(model, str) or not model.removeprefix(PREFIX):
        raise UsageError('"model" must be a name')
    return model.removeprefix(PREFIX), model.startswith(PREFIX)


def check_chat(body: Json) -> None:
    """Refuse a request that cannot be voted on; all else is for the upstream to judge."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise UsageError('"messages" must be a list of objects')
    if not isinstance(body.get("stream", False), bool | None):
        raise UsageError('"stream" must be true or false')


def count_choices(body: Json, most: int) -> int:
    """How many choices are wanted; what the seeds of their samples are made from is checked too."""
    seed, wanted = body.get("seed"), body.get("n")
    if seed is not None and not is_whole(seed):
        raise UsageError(f'"seed" must be a whole number, but got {seed!r:.40}')
    if wanted is None:
        return 1
    if not is_whole(wanted) or not 1 <= wanted <= most:
        raise UsageError(f'"n" must be a whole number from 1 to {most}, but got {wanted!r:.40}')
    return wanted


def structure_of(body: Json) -> tuple[bool, bool]:
    """Whether the reply is to be JSON, and whether it may call tools."""
    wanted = body.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    return kind in ("json_object", "json_schema"), bool(body.get("tools") or body.get("functions"))


def _last_asked(messages: Sequence[Json]) -> Json:
    return next((each for each in reversed(messages) if each.get("role") == "user"), {})


def find_last_words(body: Json) -> str:
    """The text of the last user message."""
    content = _last_asked(body["messages"]).get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(_texts(parts))


def _texts(parts: Sequence[Any]) -> list[str]:
    """The texts of the parts of a message."""
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]


def find_system(body: Json) -> str | None:
    """The text of a system message at the beginning."""
    first = body["messages"][0] if body["messages"] else {}
    content = first.get("content")
    known = first.get("role") in ("system", "developer") and isinstance(content, str)
    return content if known else None


def add_instruction(body: Json, task: Task) -> Json:
    """The request with the task's answer instruction behind its last user message."""
    messages = [dict(message) for message in body["messages"]]
    asked = task.template.replace("{question}", "").strip()
    last = _last_asked(messages)
    if isinstance(content := last.get("content"), str):
        last["content"] = f"{content}\n\n{asked}"
    elif isinstance(content, list):
        last["content"] = [*content, {"type": "text", "text": asked}]
    return {**body, "messages": messages}


def write_body(body: Json) -> bytes:
    """The JSON of a request that is passed on with other fields than it came with."""
    try:
        return json.dumps(body, allow_nan=False).encode()
    except ValueError:  # a number beyond all bounds was read as Infinity
        raise UsageError("the request cannot be sent as JSON: it holds Infinity") from None


# --- replies --------------------------------------------------------------------------------------


def chunks(reply: Json, asked: Json) -> Iterator[bytes]:
    """A completion as a stream; the account is on the last choice's end."""
    wanted = asked.get("stream_options")
    with_usage = isinstance(wanted, Mapping) and bool(wanted.get("include_usage"))
    base = {key: reply[key] for key in ("id", "created", "model", *KEPT) if key in reply}
    base |= {"object": "chat.completion.chunk", **({"usage": None} if with_usage else {})}
    made = [{**base, "choices": [row]} for c in reply["choices"] for row in _rows(c)]
    made[-1]["aera"] = reply["aera"]
    if with_usage:
        made.append({**base, "choices": [], "usage": reply["usage"]})
    yield from map(event, made)
    yield b"data: [DONE]\n\n"


def _rows(choice: Json) -> list[Json]:
    """The role, the content and the end of one choice."""
    told = choice.get("message")
    message = dict(told) if isinstance(told, Mapping) else {}
    calls = message.pop("tool_calls", None)
    delta = {name: value for name, value in message.items() if name != "role"}
    if isinstance(calls, list):
        called = [call for call in calls if isinstance(call, Mapping)]
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(called)]
    logprobs = {"logprobs": choice["logprobs"]} if choice.get("logprobs") else {}
    index = choice["index"]
    opening = {"role": "assistant", "content": ""}
    return [
        {"index": index, "delta": opening, "finish_reason": None},
        {"index": index, "delta": delta, "finish_reason": None, **logprobs},
        {"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")},
    ]


# --- /v1/responses --------------------------------------------------------------------------------

# How the ids of voted responses begin, which nobody keeps.
OWN_ID = "resp_aera_"
# Fields that a chat request has too.
SAME = frozenset({
    "temperature", "top_p", "user", "safety_identifier", "prompt_cache_key", "service_tier",
    "stream", "seed", "stop", "frequency_penalty", "presence_penalty", "top_k", "min_p",
    "repetition_penalty", "chat_template_kwargs",
})  # fmt: skip
# Fields that are read here, or that change nothing in a reply of text.
READ = frozenset({
    "model", "input", "instructions", "max_output_tokens", "metadata", "store", "truncation",
    "text", "reasoning", "aera", "stream_options", "parallel_tool_calls", "tool_choice",
})  # fmt: skip
# Parts of a message that are text.
TEXTS = ("input_text", "output_text", "text")
# What a response says where its request is silent, of which it repeats whatever is read here.
BLANK: Json = {
    "object": "response", "background": False, "error": None, "previous_response_id": None,
    "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None}, "temperature": None, "top_p": None,
    "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "user": None,
    "truncation": "disabled",
}  # fmt: skip


def to_chat(body: Json) -> Json | None:
    """The chat request that asks for the same text; None for whatever is more than text."""
    given = {name: v for name, v in body.items() if not (v is None or v is False or v == [])}
    text, reasoning = given.get("text", {}), given.get("reasoning", {})
    asked, said = given.get("input"), given.get("instructions")
    items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    known = given.get("truncation", "disabled") == "disabled" and not given.keys() - READ - SAME
    tables = isinstance(text, dict) and isinstance(reasoning, dict)
    if not (known and tables and isinstance(items, list)):
        return None
    items = [{"role": "system", "content": said}, *items] if said else items
    messages = [_to_message(item) for item in items]
    if None in messages or text.get("format") not in (None, {"type": "text"}):
        return None
    chat = {
        "messages": messages,
        "max_completion_tokens": given.get("max_output_tokens"),
        "reasoning_effort": reasoning.get("effort"),
        "verbosity": text.get("verbosity"),
        **{name: body[name] for name in SAME & body.keys()},
    }
    return {name: value for name, value in chat.items() if value is not None}


def _to_message(item: Any) -> Json | None:
    """The chat message that says the same, None where it is more than text."""
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        return None
    content, role = item.get("content"), item.get("role")
    if isinstance(content, list):
        texts = _texts([p for p in content if isinstance(p, dict) and p.get("type") in TEXTS])
        content = "\n".join(texts) if len(texts) == len(content) else None
    # Not every server knows developers, and all know what a system message is.
    told = {"role": "system" if role == "developer" else role, "content": content}
    return told if isinstance(content, str) else None


def to_response(reply: Json, asked: Json) -> Json:
    """The response that says what a completion says."""
    mark = str(reply["id"]).removeprefix("chatcmpl-")
    choice, usage = reply["choices"][0], reply["usage"]
    ends = {"length": "max_output_tokens", "content_filter": "content_filter"}
    reason = ends.get(str(choice.get("finish_reason")))
    status = "incomplete" if reason else "completed"
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else None
    said = {"type": "output_text", "text": text if isinstance(text, str) else ""}
    item = {"id": f"msg_{mark}", "type": "message", "role": "assistant", "status": status}
    account = dict(reply["aera"])
    if asked.get("store"):
        note = "a voted response is not stored, so no later one can refer to it"
        account["warnings"] = [*account["warnings"], note]
    repeated = asked.keys() & (READ | SAME)
    cached = {"cached_tokens": 0, "cache_write_tokens": 0}
    thought = {"reasoning_tokens": 0, **usage.get("completion_tokens_details", {})}
    return {
        **BLANK,
        **{name: asked[name] for name in BLANK.keys() & repeated if asked[name] is not None},
        "store": False,
        "id": f"{OWN_ID}{mark}",
        "created_at": reply["created"],
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": reply["model"],
        "output": [{**item, "content": [{**said, "annotations": [], "logprobs": []}]}],
        **({"service_tier": s} if (s := reply.get("service_tier")) else {}),
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {**cached, **usage.get("prompt_tokens_details", {})},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": thought,
            "total_tokens": usage["total_tokens"],
        },
        "aera": account,
    }


def response_events(response: Json) -> Iterator[bytes]:
    """A finished response as a stream."""
    begun = {name: value for name, value in response.items() if name != "aera"}
    begun |= {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    [item] = response["output"]
    [part] = item["content"]
    place: Json = {"output_index": 0}
    at = {**place, "item_id": item["id"], "content_index": 0}
    said = {"logprobs": part["logprobs"]}
    empty = {**item, "status": "in_progress", "content": []}
    told: list[tuple[str, Json]] = [
        ("created", {"response": begun}),
        ("in_progress", {"response": begun}),
        ("output_item.added", {**place, "item": empty}),
        ("content_part.added", {**at, "part": {**part, "text": "", "logprobs": []}}),
        ("output_text.delta", {**at, "delta": part["text"], **said}),
        ("output_text.done", {**at, "text": part["text"], **said}),
        ("content_part.done", {**at, "part": part}),
        ("output_item.done", {**place, "item": item}),
        (response["status"], {"response": response}),
    ]
    for number, (kind, content) in enumerate(told):
        yield _named_event(f"response.{kind}", {**content, "sequence_number": number})


def _named_event(kind: str, content: Json) -> bytes:
    return f"event: {kind}\n".encode() + event({"type": kind, **content})


def failed_event(error: AeraError, *, is_chat: bool) -> bytes:
    """The last event of a stream that failed."""
    body = error_body(error)
    if is_chat:
        return event(body)
    named = {name: body["error"].get(name) for name in ("code", "message", "param")}
    return _named_event("error", {**named, "error": body["error"], "sequence_number": 0})
