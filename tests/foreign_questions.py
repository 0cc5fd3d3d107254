"""Questions of the bundled controller's own kind, and of others."""

import gzip
import json
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from aera import Controller, Question

DEMO = Path(__file__).parents[1] / "aera" / "demo"
BUNDLED = Controller.load(DEMO / "controller")
GATED = f"{BUNDLED.label}+vote"
"""What answers tell of it where it decides."""


def demo_rows(questions: int | None = None, responses: int | None = None) -> list[dict[str, Any]]:
    """The first of the bundled questions as they stand in their file, with the first responses."""
    with gzip.open(DEMO / "gsm8k.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in islice(lines, questions)]
    return [{**row, "responses": row["responses"][:responses]} for row in rows]


@cache
def home_questions() -> tuple[Question, ...]:
    """Those of the bundled pool: of the kind it was taught on, and never seen by it."""
    return tuple(Question(row["id"], row["question"]) for row in demo_rows())


def short_questions(count: int) -> list[Question]:
    """Sums in one short sentence."""
    return [Question(f"s{n}", f"What is {n} plus {3 * n}?") for n in range(count)]
