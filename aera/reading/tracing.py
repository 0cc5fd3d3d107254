"""Traces of responses: their tokens' logprobs beside the place where the task finds the answer."""

from collections.abc import Iterable
from dataclasses import replace

from aera.reading.find import phrase_ends, visible
from aera.reading.task import Task
from aera.response import Response
from aera.trace import ServedTokens

NEAR = 80
"""Characters behind a phrase within which an answer begins."""
BOX, BEHIND = "box", 16
"""What every box is called by, and the characters from there to what is inside."""


def add_traces(responses: Iterable[Response], task: Task) -> list[Response]:
    """The responses, each with its trace where the server listed its tokens."""
    return [_add_trace(response, task) for response in responses]


def _add_trace(response: Response, task: Task) -> Response:
    tokens = getattr(response.source, "tokens", None)
    if response.trace is not None or not isinstance(tokens, ServedTokens):
        return response
    said = visible(response.text)
    return replace(response, trace=tokens.trace(said, answer_place(said, task)))


def answer_place(text: str, task: Task) -> slice | None:
    """Where the answer stands that the task reads in a text, None where it reads none."""
    found = task.find(text)
    start = -1 if found is None else _locate(found, text)
    return None if found is None or start < 0 else slice(start, start + len(found))


def _locate(found: str, text: str) -> int:
    """In the last box that begins with it, else behind the last such phrase, else at its last."""
    box = text.rfind(BOX)
    while box >= 0:
        if (start := text.find(found, box, box + BEHIND + len(found))) >= 0:
            return start
        box = text.rfind(BOX, 0, box)
    for end in phrase_ends(text):
        if (start := text.find(found, end, end + NEAR + len(found))) >= 0:
            return start
    return text.rfind(found)
