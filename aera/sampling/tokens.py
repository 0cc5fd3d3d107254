"""Read the tokens that a server lists with a choice: logprobs, and the likely ones beside them."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, TypeGuard

import numpy as np

from aera.arrays import Floats
from aera.trace import TOP, TOP_LOGPROBS, ServedTokens

LEAST = -50.0
"""Of other likely tokens, less is a server's way of writing minus infinity."""
MOST = 10**9


def read_tokens(choice: Mapping[str, Any]) -> ServedTokens | None:
    """The tokens of a choice, None where the server lists none with their logprobs.

    Chat completions list rows; completions, as some batch files have them, list columns.
    """
    told = choice.get("logprobs")
    rows = _rows(told) if isinstance(told, dict) else []
    kept = [row for row in rows if isinstance(row, dict) and is_logprob(row.get("logprob"))]
    if not kept:
        return None
    pieces = [_written(row) for row in kept]
    ends = np.cumsum([_characters(piece) for piece in pieces], dtype=np.intp)
    values = np.array([row["logprob"] for row in kept], dtype=np.float64)
    text = b"".join(pieces).decode("utf-8", "replace")
    return ServedTokens(text, ends, values, _confidence([row.get(TOP_LOGPROBS) for row in kept]))


def _rows(told: Mapping[str, Any]) -> list[Any]:
    """One row for each token, also where columns are given."""
    rows, values = told.get("content"), told.get("token_logprobs")
    if isinstance(rows, list):
        return rows
    if not isinstance(values, list):
        return []
    named = {"token": told.get("tokens"), "logprob": values, TOP_LOGPROBS: told.get(TOP_LOGPROBS)}
    columns: dict[str, Any] = {
        name: column for name, column in named.items() if _as_long(column, values)
    }
    return [
        {name: column[place] for name, column in columns.items()} for place in range(len(values))
    ]


def _as_long(column: Any, other: list[Any]) -> bool:
    return isinstance(column, list) and len(column) == len(other)


def _written(row: Mapping[str, Any]) -> bytes:
    """A token as bytes: it may be a part of a character only."""
    token, raw = row.get("token"), row.get("bytes")
    if isinstance(raw, list) and raw and all(isinstance(b, int) and 0 <= b < 256 for b in raw):
        return bytes(raw)
    return token.encode("utf-8", "replace") if isinstance(token, str) else b""


def _characters(piece: bytes) -> int:
    """How many characters begin in it."""
    return len(piece) if piece.isascii() else sum(byte & 0xC0 != 0x80 for byte in piece)


def _confidence(tops: Sequence[Any]) -> Floats | None:
    """Minus the mean logprob of the likeliest tokens; fewer than twenty give another number."""
    found = [_likeliest(top) for top in tops]
    if any(len(values) < TOP for values in found):
        return None
    held = np.maximum(np.array([values[:TOP] for values in found], dtype=np.float64), LEAST)
    means: Floats = -held.mean(axis=1)
    return means


def _likeliest(top: Any) -> list[float]:
    """The logprobs of the likely tokens, the largest first."""
    if isinstance(top, list):
        values = [row.get("logprob") for row in top if isinstance(row, dict)]
    elif isinstance(top, dict):
        values = [*top.values()]
    else:
        return []
    return sorted((float(value) for value in values if is_logprob(value)), reverse=True)


def is_logprob(value: Any) -> TypeGuard[float]:
    """Whether it can be one: a number that is finite."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= MOST
    return isinstance(value, float) and isfinite(value)
