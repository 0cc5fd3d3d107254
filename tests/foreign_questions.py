"""Questions of the bundled controller's own kind, and of others."""

import gzip
import json
from functools import cache
from pathlib import Path

from aera import Controller, Question

DEMO = Path(__file__).parents[1] / "aera" / "demo"
BUNDLED = Controller.load(DEMO / "controller")
GATED = f"{BUNDLED.label}+vote"
"""What answers tell of it where it decides."""


@cache
def home_questions() -> tuple[Question, ...]:
    """Those of the bundled pool: of the kind it was taught on, and never seen by it."""
    with gzip.open(DEMO / "gsm8k.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(Question(each["id"], each["question"]) for each in map(json.loads, lines))


def short_questions(count: int) -> list[Question]:
    """Sums in one short sentence."""
    return [Question(f"s{n}", f"What is {n} plus {3 * n}?") for n in range(count)]
