"""VotedReply: what the client of a voted request gets, whole or as a stream."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Protocol

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from aera.errors import AeraError
from aera.gateway.account import VotedChoice, completion
from aera.gateway.clients import Client
from aera.gateway.openai import send_json, status_of
from aera.gateway.proxy import ClosingStream, DisconnectWatch
from aera.gateway.request import split_model
from aera.gateway.settings import ServedModel
from aera.gateway.telemetry import Telemetry


class Wire(Protocol):
    """How a request asks for a chat, and how its reply looks."""

    @property
    def chat(self) -> Mapping[str, Any]: ...

    def whole(self, completion: dict[str, Any]) -> dict[str, Any]: ...

    def events(self, completion: Mapping[str, Any]) -> Iterator[bytes]: ...

    def failed(self, error: AeraError) -> bytes: ...


class VotedReply:
    """The reply to one voted request, whole or as a stream."""

    def __init__(
        self,
        settings: ServedModel,
        telemetry: Telemetry,
        client: Client,
        wire: Wire,
        model: str,
        begun: float,
    ) -> None:
        self.settings, self.telemetry, self.client = settings, telemetry, client
        self.wire, self.model, self.begun = wire, model, begun
        self.asked, _ = split_model(model)
        """The model without the word that it votes."""

    async def send(self, voted: list[VotedChoice], send: Send) -> None:
        """The reply in one piece."""
        headers = self._record(voted)
        await send_json(send, self.wire.whole(self._completion(voted)), headers)

    def _completion(self, voted: list[VotedChoice]) -> dict[str, Any]:
        return completion(voted, self.model, self.wire.chat)

    def _record(self, voted: list[VotedChoice]) -> dict[str, str]:
        """Count what was voted; the headers that tell of it."""
        waited = max(each.waited for each in voted)
        overhead = max(0.0, time.monotonic() - self.begun - waited)
        self.telemetry.overhead.observe(overhead)
        for each in voted:
            self.telemetry.record(each, self.asked)
        prompt, spent = (sum(part) for part in zip(*(each.tokens for each in voted), strict=True))
        self.client.spend(prompt, spent)
        if self.client.name:
            label = self.telemetry.models.label(self.asked)
            self.telemetry.counts["key_tokens", self.client.name, label] += prompt + spent
        return {
            "x-aera-samples": str(sum(each.allocation.responses for each in voted)),
            "x-aera-stop-reason": voted[0].allocation.reason,
            "x-aera-overhead-ms": f"{1000 * overhead:.1f}",
        }

    async def stream(
        self, scope: Scope, receive: Receive, work: "asyncio.Task[list[VotedChoice]]"
    ) -> ClosingStream:
        """Keep-alive comments while voting, then the reply. What fails at once is an HTTP error."""
        try:
            async with DisconnectWatch(receive):
                await asyncio.wait([work], timeout=self.settings.keep_alive)
        except (ClientDisconnect, asyncio.CancelledError):
            work.cancel()
            raise
        headers = self._record(work.result()) if work.done() else {}
        kind = {"media_type": "text/event-stream", "headers": headers}
        return ClosingStream(self._events(work, recorded=bool(headers)), work.cancel, **kind)

    async def _events(
        self, work: "asyncio.Task[list[VotedChoice]]", *, recorded: bool
    ) -> AsyncIterator[bytes]:
        while not work.done():
            yield b": keep-alive\n\n"
            await asyncio.wait([work], timeout=self.settings.keep_alive)
        try:
            voted = work.result()
        except AeraError as error:
            # The status went out as 200; what became of it is counted apart.
            label = self.telemetry.models.label(self.asked)
            self.telemetry.counts["requests", "stream", str(status_of(error)), label] += 1
            yield self.wire.failed(error)
            return
        if not recorded:
            self._record(voted)
        for each in self.wire.events(self._completion(voted)):
            yield each
