"""What logprobs cost on the way from a server: bytes, and CPU to read them, for each response.

    python bench/traces.py

The demo pool's responses as a server sends them without logprobs, with those of the tokens, and
with the 5 and the 20 likeliest tokens in every place; four to a call, as blocks ask for them. The
CPU is that of JSON, parsing and the trace, the best of five runs; the ratios are to read, not the
milliseconds.
"""

import gzip
import json
import random
import re
import time
from itertools import islice
from typing import Any

from aera import get_task
from aera.lab import BUNDLED, parse_reply

AT_ONCE, RUNS, QUESTIONS = 4, 5, 25


def row(token: str, top: int | None, chance: random.Random) -> dict[str, Any]:
    """One token as servers list it."""

    def one(text: str) -> dict[str, Any]:
        return {"token": text, "logprob": -chance.expovariate(0.3), "bytes": [*text.encode()]}

    likely = [one(token[::-1] + str(place)) for place in range(top or 0)]
    return {**one(token), "top_logprobs": likely}


def reply(texts: list[str], top: int | None, chance: random.Random) -> bytes:
    """A reply of several choices; None lists no token."""
    choices = []
    for place, text in enumerate(texts):
        pieces = re.findall(r"\s?\w{1,6}|\W", text)
        rows = None if top is None else {"content": [row(each, top, chance) for each in pieces]}
        message = {"role": "assistant", "content": text}
        choices.append(
            {"index": place, "message": message, "logprobs": rows, "finish_reason": "stop"}
        )
    return json.dumps({"id": "x", "model": "m", "choices": choices}).encode()


def main() -> None:
    """Print a table."""
    chance, blocks = random.Random(0), []
    with gzip.open(BUNDLED / "gsm8k.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in islice(lines, QUESTIONS):
            responses = json.loads(line)["responses"]
            blocks.append([each["text"] for each in responses[:AT_ONCE]])
    print("| logprobs | kB a response | kB compressed | CPU ms a response | against none |")
    print("|---|---|---|---|---|")
    first = None
    for name, top in {"none": None, "of the tokens": 0, "and 5": 5, "and 20": 20}.items():
        replies = [reply(block, top, chance) for block in blocks]
        count = AT_ONCE * len(replies)
        size = sum(map(len, replies)) / count / 1e3
        small = sum(len(gzip.compress(each, 6)) for each in replies) / count / 1e3
        took = min(_read(replies) for _ in range(RUNS)) / count
        first = first or took
        print(f"| {name} | {size:.1f} | {small:.1f} | {1e3 * took:.2f} | {took / first:.0f} × |")


def _read(replies: list[bytes]) -> float:
    begun = time.process_time()
    for each in replies:
        parse_reply(json.loads(each), latency_ms=0.0, task=get_task("numeric"))
    return time.process_time() - begun


if __name__ == "__main__":
    main()
