"""UsageTail: what a reply that was passed on says of its tokens, near its end."""

import re

from aera.gateway.clients import Client

KEPT = 4_096
"""Bytes at the end of a reply among which its usage stands."""
PROMPT = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
COMPLETION = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')


class UsageTail:
    """Counts the tokens of one reply for the client whose tokens or money are limited."""

    def __init__(self, client: Client) -> None:
        self._client, self._tail = client, b""

    @classmethod
    def of(cls, client: Client) -> "UsageTail | None":
        """None where nobody counts."""
        return cls(client) if client.counted else None

    def see(self, piece: bytes) -> None:
        """A piece of the reply."""
        self._tail = (self._tail + piece)[-KEPT:]

    def count(self) -> None:
        """The reply is over."""
        told = [pattern.findall(self._tail) for pattern in (PROMPT, COMPLETION)]
        if any(told):
            self._client.spend(*(int(found[-1]) if found else 0 for found in told))
