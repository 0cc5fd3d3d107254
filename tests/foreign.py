"""Files that other programs wrote, what they say, and short ways to import them."""

from pathlib import Path
from typing import Any

import pytest

from aera import Pool, get_task
from aera.errors import AeraError
from aera.lab import import_file

DATA = Path(__file__).parent / "data"
APPLES = "Ann has 3 apples and buys 4 more. How many apples has she?"
PENS = "Tom has 3 boxes of 12 pens. How many pens has he?"
TEXTS = {
    APPLES: ["3 + 4 = 7, so \\boxed{7}", "\\boxed{7}", "I am not sure.", "\\boxed{8}"],
    PENS: ["3 x 12 = \\boxed{36}", "\\boxed{36}", "\\boxed{36}", "12 + 3 = \\boxed{15}"],
}
FORMATS = {
    "samples_tiny.jsonl": "lm-eval",
    "inspect.json": "inspect",
    "inspect.eval": "inspect",
    "wide.parquet": "parquet",
    "saved": "parquet",
    "batch_output.jsonl": "openai-batch",
    "vllm_batch.jsonl": "openai-batch",
}


def imported(path: Path, out: Path, **options: Any) -> Pool:
    return import_file(path, out, task=get_task("numeric"), **options).pool


def refused(path: Path, out: Path, **options: Any) -> str:
    with pytest.raises(AeraError) as caught:
        imported(path, out, **options)
    assert not out.exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)
