"""JSON values in replies: find one in a text, select a field, and write equal ones alike."""

import json
from math import isfinite
from typing import Any

EXACT = 2**53
"""Beyond this, a whole number and a fraction that look alike need not be equal."""
MOST_TRIES = 100
"""Opening braces at which a value may begin that are looked at, from the end of the text."""


def parse_json(text: str) -> Any:
    """The value of a JSON text; whole numbers are the same however they are written."""
    return json.loads(text, parse_float=_plain, parse_constant=_refuse)


def canonical_json(value: Any) -> str | None:
    """One text for equal JSON values, whatever the order of keys, the spacing and 1 or 1.0."""
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        return None


def find_json(text: str) -> Any:
    """The last whole object or list in a text, None where there is none."""
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        pass
    end, found = len(text), None
    for _ in range(MOST_TRIES):
        place = max(text.rfind("{", 0, end), text.rfind("[", 0, end))
        if place < 0:
            break
        try:
            value, stop = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place
            continue
        if found is not None and stop < found[1]:
            break  # it stands before the one that was found, not around it
        found, end = (value, stop), place
    return None if found is None else found[0]


def select(value: Any, path: str) -> Any:
    """The part of a value at a dotted path, as result.0.answer; None where there is none."""
    for name in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.lstrip("-").isdecimal():
            place = int(name)
            value = value[place] if -len(value) <= place < len(value) else None
        else:
            return None
    return value


def _plain(written: str) -> int | float:
    number = float(written)
    if not isfinite(number):
        raise ValueError(f"{written:.40} is beyond all numbers")
    return int(number) if number.is_integer() and abs(number) <= EXACT else number


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(parse_float=_plain, parse_constant=_refuse)
