"""Golden files: what must stay as it is, and how they are written anew.

`AERA_GOLDEN=write pytest tests/test_golden_*.py` writes what today's code does; look at the diff
before it is committed. A test that fails shows the difference.
"""

import difflib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
WRITE = os.environ.get("AERA_GOLDEN") == "write"

_TEXTS = [
    (r"http://127\.0\.0\.1:\d+", "http://HOST"),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r"(?<![0-9a-f])[0-9a-f]{32,}", "ID"),
    (r"(Step \d: [\d+= ]+\. ?)+", "STEPS "),  # any of those that agree may be shown
]

GONE = "since"
"""A field that comes with use."""
MOVING = {
    *("created", "created_at", "active", "cooling_down"),
    *("seconds", "milliseconds", "gate_ms", "encoder_ms"),
}
"""Times, and what depends on requests before; only what they are called is compared."""


def plain(text: str) -> str:
    """A text without what differs from run to run: ports and ids."""
    for pattern, instead in _TEXTS:
        text = re.sub(pattern, instead, text)
    return text


def tidy(value: Any) -> Any:
    """A value without what differs from run to run."""
    if isinstance(value, dict):
        kept = {plain(key): value[key] for key in sorted(value) if key != GONE}
        return {key: key.upper() if key in MOVING else tidy(each) for key, each in kept.items()}
    if isinstance(value, list):
        return [tidy(each) for each in value]
    if isinstance(value, str):
        return plain(value)
    return round(value, 6) if isinstance(value, float) else value


def pretty(value: Any, indent: str = "") -> str:
    """JSON in which what fits on a line is on one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= 110 or not isinstance(value, dict | list) or not value:
        return line
    inner = indent + " "
    if isinstance(value, list):
        rows, ends = [pretty(each, inner) for each in value], "[]"
    else:
        rows = [f"{json.dumps(key)}: {pretty(each, inner)}" for key, each in value.items()]
        ends = "{}"
    return f"{ends[0]}\n" + ",\n".join(inner + row for row in rows) + f"\n{indent}{ends[1]}"


def compare(name: str, golden: str, now: str) -> None:
    """Fail with a readable difference."""
    if golden != now:
        lines = difflib.unified_diff(
            golden.splitlines(), now.splitlines(), "golden", "now", lineterm=""
        )
        pytest.fail(f"{name} is not what it was:\n" + "\n".join(lines), pytrace=False)
