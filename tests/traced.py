"""A model server that lists the tokens of its replies, as far as it likes."""

import re
from collections.abc import Callable
from typing import Any

from aiohttp import web
from fakes import Call, FakeUpstream, Fault

from aera import Response

SURE, UNSURE = -0.01, -1.5


def rows_of(text: str, top: int = 0) -> list[dict[str, Any]]:
    """One row for each word of a text, numbers less sure than words, the last one the end."""
    made = []
    for piece in [*re.findall(r"\s*\w+|\s*[^\w\s]", text), "<|im_end|>"]:
        first = UNSURE if piece.strip().isdigit() else SURE
        likely = [{"token": "x", "logprob": first - place} for place in range(top)]
        row = {"token": piece, "logprob": first, "bytes": [*piece.encode()]}
        made.append({**row, "top_logprobs": likely})
    return made


class TracedUpstream(FakeUpstream):
    """Gives logprobs where they are asked for, at most `most` likely tokens, or refuses fields."""

    def __init__(
        self,
        answer: Callable[[Call, int], Response | str],
        *,
        most: int = 20,
        refuses: frozenset[str] = frozenset(),
        **settings: Any,
    ) -> None:
        super().__init__(answer, **settings)
        self.most, self.refuses = most, refuses

    async def _reply(
        self, request: web.Request, call: Call, fault: Fault | None
    ) -> web.StreamResponse:
        refused = self.refuses & {name for name, value in call.body.items() if value}
        if refused:
            error = {"message": f"{min(refused)} is not supported", "type": "invalid_request_error"}
            return web.json_response({"error": error}, status=400)
        return await super()._reply(request, call, fault)

    def _completion(self, call: Call, fault: Fault) -> dict[str, Any]:
        body = super()._completion(call, fault)
        top = min(self.most, call.body.get("top_logprobs") or 0)
        for choice in body["choices"] if call.body.get("logprobs") else ():
            choice["logprobs"] = {"content": rows_of(choice["message"]["content"] or "", top)}
        return body
