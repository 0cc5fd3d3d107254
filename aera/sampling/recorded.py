"""Recorded responses in the place of a model: behind a real HTTP port, or as a sampler.

async with RecordedUpstream(pool) as upstream:          # serves the pool's own responses
    endpoint = Endpoint(upstream.base_url)
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from aera.core import Question, Response
from aera.errors import PoolError
from aera.files import Json
from aera.pools.pool import Pool
from aera.sampling.replies import CHARACTERS_PER_TOKEN

JITTER = 0.2
"""Share by which the time of a call differs from what its tokens would take."""


@dataclass(frozen=True)
class Call:
    """One request as the server saw it."""

    number: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]

    @property
    def prompt(self) -> str:
        """The last message's text."""
        return str(self.body["messages"][-1]["content"])

    @property
    def n(self) -> int:
        """How many choices were asked for."""
        return int(self.body.get("n") or 1)


class RecordedUpstream:
    """Serves the responses of a pool. A request's seed is the index of its first response.

    Without a seed, each question's responses come one after the other. The question is found in
    the last user message, whatever instruction stands around it. `pace` is the seconds that a
    thousand tokens take.
    """

    def __init__(self, pool: Pool, *, pace: float = 0.0) -> None:
        self.calls: list[Call] = []
        self.base_url = ""
        self._recorded = {pool.task.prompt(record.question): record.responses for record in pool}
        self._texts = {record.question.text: record.responses for record in pool}
        self._texts.pop("", None)
        self._next = Counter[str]()
        self._chance = random.Random(0)
        self._pace = pace
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "RecordedUpstream":
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1_024).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def answer(self, call: Call) -> list[Response]:
        """What the choices of a call say; none where its question was not recorded."""
        recorded, first = self._find(call.prompt), call.body.get("seed")
        if first is None:
            first = self._next[call.prompt]
            self._next[call.prompt] += call.n
        return [recorded[(first + place) % len(recorded)] for place in range(call.n) if recorded]

    async def _chat(self, request: web.Request) -> web.Response:
        call = Call(len(self.calls), await request.json(), dict(request.headers))
        self.calls.append(call)
        said = self.answer(call)
        if not said:
            error = {"message": "no such question was recorded", "type": "not_found", "code": 404}
            return web.json_response({"error": {**error, "param": None}}, status=404)
        if self._pace:
            each = self._pace / 1000 * self._chance.uniform(1 - JITTER, 1 + JITTER)
            await asyncio.sleep(each * max((response.tokens for response in said), default=0))
        return web.json_response(completion(call, said))

    async def _models(self, request: web.Request) -> web.Response:
        models = [{"id": "recorded", "object": "model"}]
        return web.json_response({"object": "list", "data": models})

    def _find(self, prompt: str) -> Sequence[Response]:
        if prompt not in self._recorded:
            inside = (text for text in self._texts if text in prompt)
            self._recorded[prompt] = self._texts.get(max(inside, key=len, default=""), ())
        return self._recorded[prompt]


def completion(call: Call, said: Sequence[Response]) -> Json:
    """A reply to a call whose choices are these responses, each with a usage of its own.

    They keep to the request's limit, and all the log-probability of one stands at one token.
    """
    most = call.body.get("max_completion_tokens") or call.body.get("max_tokens")
    prompt, choices, spent = len(call.prompt) // CHARACTERS_PER_TOKEN, [], 0
    for place, each in enumerate(said):
        text, tokens, end = each.text, each.tokens, each.finish_reason or "stop"
        if most and tokens > most:
            text, tokens, end = text[: len(text) * most // tokens], most, "length"
        shown = call.body.get("logprobs") and each.logprob is not None
        rows = [{"token": "", "logprob": each.logprob}]
        choices.append(
            {
                "index": place,
                "message": {"role": "assistant", "content": text},
                "finish_reason": end,
                "logprobs": {"content": rows} if shown else None,
                "usage": {"completion_tokens": tokens},
            }
        )
        spent += tokens
    counted = {"prompt_tokens": prompt, "completion_tokens": spent}
    return {
        "id": f"chatcmpl-{call.number}",
        "object": "chat.completion",
        "created": 0,
        "model": call.body.get("model"),
        "choices": choices,
        "usage": {**counted, "total_tokens": prompt + spent},
    }


class RecordedSampler:
    """Answers from a pool, in recorded order: live code on recorded responses."""

    def __init__(self, pool: Pool) -> None:
        self._records = {record.question.id: record.responses for record in pool}

    async def __aenter__(self) -> "RecordedSampler":
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing to close."""

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        """The recorded responses `start` to `start + n`."""
        if question.id not in self._records:
            raise PoolError(f"question {question.id} is not in the recorded pool")
        return list(self._records[question.id][start : start + n])
