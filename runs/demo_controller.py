"""Train the bundled controller on the gsm8k questions that are not in the bundled pool."""

import gzip
import json
import tempfile
from pathlib import Path

from pools import ROOT, pools_argument

from aera import get_task
from aera.lab import Truths, import_jsonl, read_ballots
from aera.lab.building import build_controller
from aera.lab.learning import open_course
from aera.lab.protocols import Demand

DEMO = ROOT / "aera" / "demo"


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
        pool = import_jsonl(rest, Path(scratch) / "gsm8k-rest", task=get_task("gsm8k"))
        ballots = read_ballots(pool, pool.task)
        truths = Truths.open(pool.path)
        assert truths is not None
        course = open_course(pool, truths, ballots=ballots)
        built = build_controller(course, demand=Demand(0.02, 0.1), seed=0)
        built.controller.save(DEMO / "controller", card=built.card)
    print(built.story)
    print(built.choice.verdict)


if __name__ == "__main__":
    main()
