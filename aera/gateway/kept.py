"""Headers of a client that go along with every sample of its vote."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aera.errors import UsageError
from aera.gateway.options import RAW_HEADER
from aera.gateway.proxy import RAW_HOP_HEADERS, named_hops

Headers = Sequence[tuple[bytes, bytes]]
REQUEST_ID, TRACEPARENT = b"x-request-id", b"traceparent"
FOLLOWED = frozenset({TRACEPARENT, b"tracestate"})
OURS = RAW_HOP_HEADERS | {b"set-cookie", b"content-type", b"content-encoding"}
KEYS = frozenset({b"authorization", b"api-key", b"x-api-key", b"cookie"})
NAME = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]+")
SANE = re.compile(rb"[\x21-\x7e]([\x20-\x7e]{0,126}[\x21-\x7e])?")
"""An id that can stand in any log and header."""
TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def is_sane(given: bytes) -> bool:
    """Whether a client's own id of a request is one that may be repeated."""
    return SANE.fullmatch(given) is not None


def trace_id(traceparent: bytes) -> str | None:
    """The trace that a traceparent header names."""
    found = TRACE.fullmatch(traceparent)
    return found[1].decode() if found else None


@dataclass(frozen=True)
class KeptHeaders:
    """Those of a trace, and those that the operator names."""

    names: frozenset[bytes] = FOLLOWED

    @classmethod
    def of(cls, given: Iterable[str]) -> "KeptHeaders":
        """From names, of which some can never be kept."""
        return cls(FOLLOWED.union(map(_check, given)) - {REQUEST_ID})

    def find(self, headers: Headers, request_id: str) -> dict[str, str]:
        """What the samples of a request carry; its id is ours where the client gave none."""
        kept: dict[str, str] = {"x-request-id": request_id}
        hops: frozenset[bytes] = frozenset()
        for raw, value in headers:
            if raw == b"connection":
                hops |= named_hops(value)
            elif raw in self.names:
                name, text = raw.decode("latin-1"), value.decode("latin-1")
                kept[name] = f"{kept[name]}, {text}" if name in kept else text
        return {name: text for name, text in kept.items() if name.encode() not in hops}


def _check(name: str) -> bytes:
    """The name of a header that may be kept."""
    raw = name.lower().encode()
    if not NAME.fullmatch(raw):
        raise UsageError(f'"{name:.80}" is no name of a header: --keep-header takes one as X-Team')
    if raw in KEYS:
        raise UsageError(
            f'the header "{name}" holds a key or a session and is not kept; --forward-key sends '
            "each client's own key to the model server"
        )
    if raw in OURS or raw.startswith(RAW_HEADER):
        raise UsageError(f'the header "{name}" is made anew for each call and cannot be kept')
    return raw
