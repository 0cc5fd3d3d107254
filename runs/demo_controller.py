"""Train the bundled controller on the gsm8k questions that are not in the bundled pool."""

import gzip
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from pools import ROOT, pools_argument

from aera import get_task
from aera.lab import Truths, VoteLearner, build, import_jsonl, limit_for

DEMO = ROOT / "aera" / "demo"
TASK = replace(get_task("gsm8k"), system="You are a helpful assistant.")
"""The prompt that the pool was sampled with."""
MODEL = "Qwen2.5-Coder-1.5B-Instruct"
"""Who answered, which the pool's file does not say."""


def main() -> None:
    folder = pools_argument(__doc__ or "")
    with gzip.open(DEMO / "gsm8k.jsonl.gz", "rt", encoding="utf-8") as lines:
        bundled = {json.loads(line)["id"] for line in lines}
    with tempfile.TemporaryDirectory() as scratch:
        rest = Path(scratch) / "gsm8k-rest.jsonl"
        with gzip.open(folder / "gsm8k.jsonl.gz", "rt", encoding="utf-8") as lines:
            rest.write_text(
                "".join(x for x in lines if json.loads(x)["id"] not in bundled), "utf-8"
            )
        pool = import_jsonl(rest, Path(scratch) / "gsm8k-rest", task=TASK)
        truths = Truths.open(pool.path)
        assert truths is not None
        learner = VoteLearner()
        table = learner.prepare(pool, truths)
        built = build(learner, table, limit_for(learner, 0.02, 0.1), seed=0)
        controller = built.controller
        assert controller.home is not None
        home = replace(controller.home, models=(MODEL,))
        replace(controller, home=home).save(DEMO / "controller")
    print(built.learned)
    print(built.choice.summary)


if __name__ == "__main__":
    main()
