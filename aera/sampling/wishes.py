"""Wishes: logprobs that a request is sent with as far as the server gives them.

Full traces are wished for first, then the logprobs of the tokens alone, then nothing. A level that
was refused while a lower one was taken is remembered for its model, and tried again after a while.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aera.errors import UpstreamError
from aera.response import Response
from aera.sampling.body import RequestBody
from aera.sampling.observed import MOST_KEPT, model_of
from aera.sampling.refusal import BAD_REQUEST
from aera.trace import TOP_LOGPROBS, ServedTokens

Ask = Callable[[RequestBody, int, int], Awaitable[list[Response]]]
"""Asks for so many completions of a request, from one index on."""
REMEMBERED = 3_600.0
"""Seconds for which a server is not asked again for what it refused."""
AT_ONCE = 8
"""Completions of one call with such lists, which are a hundred times as long as the text."""
GIVES = ("nothing", "token logprobs", "full traces")


class Grants:
    """What a server gives of what is wished for, for each model."""

    def __init__(self) -> None:
        self._refused: dict[str, tuple[float, int]] = {}
        self.seen: dict[str, str] = {}
        """What each model was last seen to give, one of GIVES."""

    def level(self, model: str, wished: int) -> int:
        """How much to ask for."""
        until, most = self._refused.get(model, (0.0, wished))
        return min(wished, most) if time.monotonic() < until else wished

    def note(self, model: str, *, wished: int, taken: int, got: Sequence[Response]) -> None:
        """A request was taken at a level, and something came back."""
        if taken < wished:
            self._refused[model] = (time.monotonic() + REMEMBERED, taken)
        if any(response.error is None for response in got):
            self.seen[model] = GIVES[max(map(_level_of, got))]
        for kept in (self._refused, self.seen):
            if len(kept) > MOST_KEPT:
                kept.pop(next(iter(kept)))


def _level_of(response: Response) -> int:
    tokens = getattr(response.source, "tokens", None)
    if not isinstance(tokens, ServedTokens):
        return 0
    return 1 if tokens.confidence is None else 2


async def ask_wishing(
    ask: Ask, body: RequestBody, n: int, start: int, grants: Grants
) -> list[Response]:
    """Completions with as much of the wishes as the server grants."""
    model, wished = model_of(body), 1 + (TOP_LOGPROBS in body.wishes)
    level = grants.level(model, wished)
    while True:
        try:
            got = await _ask_in_parts(ask, _grant(body, level, wished), n, start)
        except UpstreamError as error:
            if not level or error.status not in BAD_REQUEST:
                raise
            level -= 1  # where a wish was the reason, less is taken; else the same comes again
            continue
        grants.note(model, wished=wished, taken=level, got=got)
        return got


def _grant(body: RequestBody, level: int, wished: int) -> RequestBody:
    """The request with its wishes up to a level; what it says itself is never made less."""
    wishes = {
        name: value
        for name, value in body.wishes.items()
        if level and (level == wished or name != TOP_LOGPROBS)
    }
    said = {name: body[name] for name in wishes if body.get(name)}
    top = max(_whole(wishes.get(TOP_LOGPROBS)), _whole(said.get(TOP_LOGPROBS)))
    return body.extend({**wishes, **said, **({TOP_LOGPROBS: top} if top else {})})


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


async def _ask_in_parts(ask: Ask, body: RequestBody, n: int, start: int) -> list[Response]:
    """All at once, or in parts where replies are long; one that fails takes no other with it."""
    if n <= AT_ONCE or not body.get(TOP_LOGPROBS):
        return await ask(body, n, start)
    sizes = [min(AT_ONCE, n - first) for first in range(0, n, AT_ONCE)]
    parts = [ask(body, size, start + place * AT_ONCE) for place, size in enumerate(sizes)]
    done = await asyncio.gather(*parts, return_exceptions=True)
    errors = [each for each in done if isinstance(each, BaseException)]
    lost = [each for each in errors if not isinstance(each, UpstreamError)]
    if lost or len(errors) == len(done):
        raise (lost or errors)[0]
    got: list[Response] = []
    for size, each in zip(sizes, done, strict=True):
        if isinstance(each, BaseException):
            got += [Response("", error=str(each), source=each)] * size
        else:
            got += each
    return got


def trim_logprobs(choice: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """A choice with the logprobs that its client asked for, and no others."""
    told = choice.get("logprobs")
    if told is None or not asked.get("logprobs"):
        return {**choice, "logprobs": None} if "logprobs" in choice else dict(choice)
    rows = told.get("content") if isinstance(told, dict) else None
    if not isinstance(rows, list):
        return dict(choice)
    most = _whole(asked.get(TOP_LOGPROBS))
    cut = [_trim_row(row, most) if isinstance(row, dict) else row for row in rows]
    return {**choice, "logprobs": {**told, "content": cut}}


def _trim_row(row: Mapping[str, Any], most: int) -> dict[str, Any]:
    top = row.get(TOP_LOGPROBS)
    return {**row, TOP_LOGPROBS: top[:most]} if isinstance(top, list) else dict(row)
