"""Read an OpenAI chat completion, with what servers leave out or name differently."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from aera.errors import UpstreamError
from aera.response import Response
from aera.sampling.refusal import refusal_in

CHARACTERS_PER_TOKEN = 4
"""For servers that report no usage; an estimate beats a zero that would look free."""
MOST_TOKENS = 10**9
"""No reply has more; a count beyond it, or below 0, is no count."""


class Choice(dict[str, Any]):
    """A choice as the server gave it, with what the reply said beside its choices."""

    reply: Mapping[str, Any]

    @classmethod
    def of(cls, choice: Mapping[str, Any], reply: Mapping[str, Any]) -> "Choice":
        """A choice of a reply."""
        made = cls(choice)
        made.reply = reply
        return made


def parse_reply(
    reply: Any, *, seed: int | None = None, latency_ms: float, sent: int = 0
) -> list[Response]:
    """The responses of one reply; the call and its prompt are billed to the first of them.

    A server that says nothing of the prompt's tokens gets an estimate by the bytes `sent`.
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
    usage = reply.get("usage") if isinstance(reply.get("usage"), dict) else {}
    tokens = _tokens(choices, texts, _count(usage.get("completion_tokens")))
    counted, took = _count(usage.get("prompt_tokens")), round(latency_ms, 1)
    prompt = sent // CHARACTERS_PER_TOKEN if counted is None else counted
    model = _name(reply.get("model"))
    beside = {name: value for name, value in reply.items() if name != "choices"}
    return [
        Response(
            text=text,
            tokens=count,
            logprob=choice_logprob(choice),
            finish_reason=_name(choice.get("finish_reason")),
            seed=None if seed is None else seed + place,
            latency_ms=took,
            model=model,
            prompt_tokens=prompt if place == 0 else 0,
            calls=1 if place == 0 else 0,
            source=Choice.of(choice, beside),
        )
        for place, (choice, text, count) in enumerate(zip(choices, texts, tokens, strict=True))
    ]


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


def _token_logprobs(choice: Mapping[str, Any]) -> list[float]:
    logprobs = choice.get("logprobs")
    rows = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(rows, list):
        return []
    values = [row.get("logprob") for row in rows if isinstance(row, dict)]
    return [float(value) for value in values if value is not None and _is_logprob(value)]


def _is_logprob(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= MOST_TOKENS
    return isinstance(value, float) and isfinite(value)


def choice_logprob(choice: Mapping[str, Any]) -> float | None:
    """Sum of the token log-probabilities, None where the server gives none."""
    values = _token_logprobs(choice)
    return sum(values) if values else None


def _said_tokens(choice: Mapping[str, Any]) -> int:
    """What a choice says of its own length: in a usage of its own, or by listing its tokens."""
    usage, listed = choice.get("usage"), choice.get("token_ids")
    said = _count(usage.get("completion_tokens")) if isinstance(usage, dict) else None
    if said:
        return said
    return len(listed) if isinstance(listed, list) else 0


def _tokens(
    choices: Sequence[Mapping[str, Any]], texts: Sequence[str], total: int | None
) -> list[int]:
    """Tokens of each choice: said, counted, its part of the total, or estimated by its length.

    Where only the total is known, parts are by length, which is close but not exact.
    """
    if len(choices) == 1 and total is not None:
        return [total]
    counted = [_said_tokens(choice) or len(_token_logprobs(choice)) for choice in choices]
    if all(counted):
        return counted
    if total is None:
        return [len(text) // CHARACTERS_PER_TOKEN for text in texts]
    weights = [len(text) + 1 for text in texts]
    ends = [round(total * sum(weights[: i + 1]) / sum(weights)) for i in range(len(weights))]
    return [end - before for before, end in zip([0, *ends[:-1]], ends, strict=True)]
