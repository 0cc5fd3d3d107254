"""A request to /v1/responses as the chat request that is voted on, or why it cannot be one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aera.errors import UsageError

SAME = (
    "temperature", "top_p", "top_logprobs", "parallel_tool_calls", "user", "safety_identifier",
    "prompt_cache_key", "service_tier", "stream", "seed", "stop", "frequency_penalty",
    "presence_penalty", "top_k", "min_p", "repetition_penalty", "chat_template_kwargs",
)  # fmt: skip
"""Fields that a chat request has too."""
READ = (
    "model", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "include",
    "max_output_tokens", "metadata", "store", "stream_options", "truncation", "background", "aera",
)  # fmt: skip
"""Fields that are read here, or that change nothing."""
LOGPROBS = "message.output_text.logprobs"
INSTEAD = 'ask for the plain model, or send "aera": {"vote": false}'


@dataclass(frozen=True)
class ChatRequest:
    """The chat request, and what of the other could not be kept."""

    body: dict[str, Any]
    notes: tuple[str, ...] = ()


def to_chat(body: Mapping[str, Any]) -> ChatRequest:
    """The chat request that asks for the same."""
    given = {name: value for name, value in body.items() if value is not None}
    _check_fields(given)
    chat: dict[str, Any] = {name: given[name] for name in SAME if name in given}
    chat["messages"], dropped = _messages(given)
    if "max_output_tokens" in given:
        chat["max_completion_tokens"] = given["max_output_tokens"]
    if given.get("tools"):
        chat["tools"] = [_tool(tool) for tool in _rows(given["tools"], "tools")]
    if "tool_choice" in given:
        chat["tool_choice"] = _tool_choice(given["tool_choice"])
    chat |= _text(_object(given, "text"))
    reasoning = _object(given, "reasoning")
    if reasoning.get("effort") is not None:
        chat["reasoning_effort"] = reasoning["effort"]
    if LOGPROBS in given.get("include", ()):
        chat["logprobs"] = True
    return ChatRequest(chat, tuple(_notes(given, reasoning, dropped=dropped)))


def _refuse(what: str) -> UsageError:
    return UsageError(f"{what} cannot be voted on: {INSTEAD}")


def _check_fields(given: Mapping[str, Any]) -> None:
    """Refuse what only the model's own server can do."""
    for name in given:
        if name not in SAME and name not in READ:
            raise _refuse(f'a request with "{name:.40}"')
    if given.get("background"):
        raise _refuse("a request in the background")
    if given.get("truncation", "disabled") != "disabled":
        raise _refuse("a request whose input may be truncated")
    wanted = given.get("include", [])
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in wanted):
        raise UsageError('"include" must be a list of names')
    for each in wanted:
        if each not in (LOGPROBS, "reasoning.encrypted_content"):
            raise _refuse(f'a request that includes "{each:.60}"')


def _notes(
    given: Mapping[str, Any], reasoning: Mapping[str, Any], *, dropped: int
) -> Iterator[str]:
    """What was asked for and is not done."""
    if given.get("store"):
        yield "a voted response is not stored, so no later one can refer to it"
    if reasoning.get("summary") or reasoning.get("generate_summary"):
        yield "no summary of the reasoning is made of a voted response"
    if "reasoning.encrypted_content" in given.get("include", ()):
        yield "a voted response has no encrypted reasoning"
    if dropped:
        yield f"{dropped} items of earlier reasoning were not sent to the model"


# --- the input ------------------------------------------------------------------------------------


def _messages(given: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The messages, and how many items were dropped, for chats have no place for them."""
    instructions, asked = given.get("instructions"), given.get("input")
    if not isinstance(instructions, str | None):
        raise UsageError('"instructions" must be a text')
    made: list[dict[str, Any]] = []
    if instructions:
        made.append({"role": "system", "content": instructions})
    if isinstance(asked, str):
        return [*made, {"role": "user", "content": asked}], 0
    dropped = 0
    for item in _rows(asked, "input"):
        kind = item.get("type", "message")
        if kind == "message":
            made.append(_message(item))
        elif kind == "function_call":
            _add_call(made, item)
        elif kind == "function_call_output":
            output = item.get("output")
            told = output if isinstance(output, str) else _parts(output)
            made.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": told})
        elif kind == "reasoning":
            dropped += 1
        else:
            raise _refuse(f'an input of type "{kind!s:.40}"')
    return made, dropped


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    role, content = item.get("role"), item.get("content")
    # Not every server knows developers, and all know what a system message is.
    made = {"role": "system" if role == "developer" else role}
    if isinstance(content, str):
        return {**made, "content": content}
    parts = _parts(content)
    if len(parts) == 1 and "text" in parts[0]:
        return {**made, "content": parts[0]["text"]}
    return {**made, "content": parts}


def _parts(content: Any) -> list[dict[str, Any]]:
    return [_part(part) for part in _rows(content, "content")]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": part.get("text")}
    if kind == "input_image" and part.get("image_url"):
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file" and part.get("file_data"):
        named = {name: part[name] for name in ("filename", "file_data") if part.get(name)}
        return {"type": "file", "file": named}
    if kind in ("input_audio", "refusal"):
        return dict(part)
    raise _refuse(f'content of type "{kind!s:.40}" without its data')


def _add_call(made: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    """Calls in a row are one message of the assistant, and so is the text before them."""
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    call = {"id": item.get("call_id"), "type": "function", "function": function}
    if made and made[-1].get("role") == "assistant":
        made[-1].setdefault("tool_calls", []).append(call)
    else:
        made.append({"role": "assistant", "content": None, "tool_calls": [call]})


# --- tools and formats ----------------------------------------------------------------------------


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise _refuse(f'the tool "{tool.get("type")!s:.40}", which the model\'s server runs,')
    names = ("name", "description", "parameters", "strict")
    told = {name: tool[name] for name in names if tool.get(name) is not None}
    return {"type": "function", "function": told}


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    raise _refuse(f'"tool_choice" {choice!r:.60}')


def _text(text: Mapping[str, Any]) -> dict[str, Any]:
    """The format of the reply, and how many words it makes."""
    told = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    wanted = text.get("format") or {"type": "text"}
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if kind == "text":
        return told
    if kind == "json_object":
        return {**told, "response_format": {"type": kind}}
    if kind == "json_schema":
        schema = {name: value for name, value in wanted.items() if name != "type"}
        return {**told, "response_format": {"type": kind, "json_schema": schema}}
    raise _refuse(f'a reply in the format "{kind!s:.40}"')


def _object(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = given.get(name, {})
    if not isinstance(value, Mapping):
        raise UsageError(f'"{name}" must be an object')
    return value


def _rows(value: Any, name: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise UsageError(f'"{name}" must be a list of objects')
    return value
