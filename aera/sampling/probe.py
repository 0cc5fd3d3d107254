"""Ask a model server, by requests of a few tokens, what it gives."""

from typing import Any

from aera.errors import UpstreamError
from aera.sampling.body import RequestBody
from aera.sampling.upstream import Endpoint, Upstream
from aera.trace import FULL

FEW = 8
"""Tokens of the replies that are asked for."""


async def probe(endpoint: Endpoint, model: str) -> dict[str, Any]:
    """What it gives of logprobs, and whether it takes `n`; its own error where it refuses."""
    message = {"role": "user", "content": "Say 1."}
    asked = {"model": model, "messages": [message], "max_tokens": FEW, "temperature": 1.0}
    async with Upstream(endpoint) as upstream:
        got = await upstream.complete(RequestBody(asked, wishes=FULL), 2)
        failed = [response for response in got if response.error is not None]
        if failed:
            raise UpstreamError(f"the model server gave nothing: {failed[0].error}")
        return {"takes_n": not upstream.ignores_n, "gives": upstream.grants.seen[model]}
