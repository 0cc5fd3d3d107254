"""Read an OpenAI chat completion, with what servers leave out or name differently."""

from collections.abc import Mapping, Sequence
from typing import Any

from aera.errors import UpstreamError
from aera.reading.task import Task
from aera.reading.tracing import add_traces
from aera.response import Response
from aera.sampling.budget import Usage
from aera.sampling.refusal import refusal_in
from aera.sampling.tokens import read_tokens
from aera.trace import TOP_LOGPROBS, ServedTokens

CHARACTERS_PER_TOKEN = 4
"""For servers that report no usage; an estimate beats a zero that would look free."""
MOST_TOKENS = 10**9
"""No reply has more; a count beyond it, or below 0, is no count."""


class Choice(dict[str, Any]):
    """A choice as the server gave it, with what the reply said beside its choices."""

    reply: Mapping[str, Any]
    tokens: ServedTokens | None = None

    @classmethod
    def of(
        cls, choice: Mapping[str, Any], reply: Mapping[str, Any], tokens: ServedTokens | None
    ) -> "Choice":
        """A choice of a reply."""
        made = cls(choice)
        made.reply, made.tokens = reply, tokens
        return made


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
    if not shows_logprobs:
        choices = [_without_logprobs(choice) for choice in choices]
    usage = reply.get("usage") if isinstance(reply.get("usage"), dict) else {}
    tokens = _tokens(choices, texts, listed, _count(usage.get("completion_tokens")))
    counted, took = _count(usage.get("prompt_tokens")), round(latency_ms, 1)
    prompt = sent // CHARACTERS_PER_TOKEN if counted is None else counted
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
            source=Choice.of(choice, beside, _whole(own, count)),
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
    prompt, completion = (_count(said.get(f"{name}_tokens")) for name in ("prompt", "completion"))
    if not completion and any(each.text for each in responses):
        completion = None  # a text of no tokens is a field that nobody filled in
    if completion is None and all(_said_tokens(_choice(each)) for each in responses):
        completion = sum(each.tokens for each in responses)
    return Usage(prompt or None, completion, len(responses))


def _choice(response: Response) -> Mapping[str, Any]:
    return response.source if isinstance(response.source, dict) else {}


def _without_logprobs(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice with null in the place of the logprobs that nobody will see."""
    return choice if choice.get("logprobs") is None else {**choice, "logprobs": None}


def _whole(listed: ServedTokens | None, count: int) -> ServedTokens | None:
    """The tokens, unless most of those that were counted are not among them."""
    return None if listed is None or 2 * len(listed.ends) < count else listed


def _count(value: Any) -> int | None:
    """A number of tokens, None where it cannot be one."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_TOKENS else None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def choice_text(choice: Mapping[str, Any]) -> str:
    """What a choice says; reasoning in a field of its own goes into a thinking section."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return str(choice.get("text") or "")
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
        return [len(text) // CHARACTERS_PER_TOKEN for text in texts]
    weights = counted if all(counted) else [len(text) + 1 for text in texts]
    ends = [round(total * sum(weights[: i + 1]) / sum(weights)) for i in range(len(weights))]
    return [end - before for before, end in zip([0, *ends[:-1]], ends, strict=True)]


def trim_logprobs(choice: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """A choice with the logprobs that its client asked for, and no others."""
    told = choice.get("logprobs")
    if told is None or not asked.get("logprobs"):
        return {**choice, "logprobs": None} if "logprobs" in choice else dict(choice)
    rows = told.get("content") if isinstance(told, dict) else None
    if not isinstance(rows, list):
        return dict(choice)
    most = _count(asked.get(TOP_LOGPROBS)) or 0
    cut = [_trim_row(row, most) if isinstance(row, dict) else row for row in rows]
    return {**choice, "logprobs": {**told, "content": cut}}


def _trim_row(row: Mapping[str, Any], most: int) -> dict[str, Any]:
    top = row.get(TOP_LOGPROBS)
    return {**row, TOP_LOGPROBS: top[:most]} if isinstance(top, list) else dict(row)
