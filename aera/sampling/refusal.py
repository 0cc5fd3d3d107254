"""What a model server says when it refuses, as an error that keeps all of it."""

import json
import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from aera.errors import UpstreamError

BAD_REQUEST = frozenset({400, 422})
"""What a server says to a field that it does not take."""
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
UNBILLED = frozenset({*range(300, 408), *range(409, 500), 503, 529})
"""Refusals for which nobody sends a bill; after any other failure it may have been generated."""
LONGEST_RETRY_AFTER = 86_400.0
"""Seconds; a server that asks for a longer pause is taken to have said nothing."""


def refusal(status: int, content: bytes, headers: Mapping[str, str]) -> UpstreamError:
    """The upstream's own error, with its status, type, code and message."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    said = body.get("error", body) if isinstance(body, dict) else None
    fallback = content[:200].decode("utf-8", "replace")
    wait = parse_retry_after(headers.get("Retry-After"))
    return make_refusal(said, status=status, body=body, fallback=fallback, retry_after=wait)


def refusal_in(reply: Mapping[str, Any]) -> UpstreamError:
    """The error that came with a good status; its code is its status where it is one, else 502."""
    said = reply["error"]
    fields = said if isinstance(said, dict) else {}
    codes = [fields.get(name) for name in ("status", "code")]
    known = [code for code in map(_status, codes) if code is not None]
    return make_refusal(said, status=known[0] if known else 502, body=reply)


def make_refusal(
    said: Any,
    *,
    status: int,
    body: Any,
    fallback: str = "",
    retry_after: float | None = None,
) -> UpstreamError:
    """An error from what a server put into its error object, whatever shape that has."""
    fields = said if isinstance(said, dict) else {"message": said}
    message, kind, code = (fields.get(name) for name in ("message", "type", "code"))
    told = message if isinstance(message, str) else None
    return UpstreamError(
        told or fallback or "no message",
        status=status,
        kind=kind if isinstance(kind, str) else None,
        code=code if isinstance(code, str | int) else None,
        retry_after=retry_after,
        retryable=status in RETRIED,
        unbilled=status in UNBILLED,
        body=body,
    )


def redirect_refusal(status: int, location: str | None, *, named: bool) -> UpstreamError:
    """A redirect, which is never followed: it would take key and prompt to another server."""
    origin = origin_of(location or "")
    where = f" to {origin}" if origin and named else ""
    text = f"the server redirects{where}, which is not followed; give its final address instead"
    error = UpstreamError(text, status=status, retryable=False, unbilled=True)
    error.detail = f"redirected to {origin or 'the same server'}"
    return error


def origin_of(url: str) -> str:
    """Scheme, host and port of an address, and nothing that may be secret; "" where it has none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if not host:
        return ""
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme or 'http'}://{shown}" + (f":{port}" if port else "")


def parse_retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header, which holds seconds or a date; None if it is no use."""
    if value is None:
        return None
    try:
        wait = float(value)
    except ValueError:
        try:
            wait = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    # Comparisons with nan are false, so that it is no use either.
    return wait if 0 <= wait <= LONGEST_RETRY_AFTER and math.isfinite(wait) else None


def _status(code: Any) -> int | None:
    """An error's code as a status, where it is one."""
    if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit():
        code = int(code)
    whole = isinstance(code, int) and not isinstance(code, bool)
    return code if whole and 400 <= code < 600 else None
