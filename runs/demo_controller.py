"""Train the bundled controller on the gsm8k questions that are not in the bundled pool."""

import gzip
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from pools import ROOT, pools_argument
from published import read

import aera
from aera import Controller, get_task
from aera.lab import Truths, VoteLearner, build, import_file, limit_for

DEMO = ROOT / "aera" / "demo"
TASK = replace(get_task("gsm8k"), system="You are a helpful assistant.")
"""The prompt that the pool was sampled with."""
MODEL = "Qwen2.5-Coder-1.5B-Instruct"
"""Who answered, which the pool's file does not say."""


TESTED = """
## Test

On the {questions} bundled questions, none of which it has seen:

{told}

The procedure itself, taught on 800 questions and judged once on 519 held-out ones:

- as `aera train` does without being asked for a certificate, in the mean over five seeds: {held} of their tokens;
- certified, as this controller: {certified} of their tokens.

Both are in `docs/results.md`, "Held out".
"""


def held_out() -> str:
    """What was found on held-out questions, in the mean over the training seeds."""
    _, _, tokens, _, _, points, *_ = read("held-seeds").tables[0].by_name()["mean"]
    return f"{points.replace(' ', ' points ', 1)} against 128 plain votes, for {tokens} %"


def certified() -> str:
    """The same of a certified controller, one seed."""
    _, _, _, tokens, points, *_ = read("held-losses").tables[0].by_name()["AERA, 2 certified"]
    points, tokens = points.replace(" ", " points ", 1), tokens.replace(" ", " % ", 1)
    return f"{points} against 128 plain votes, for {tokens}"


def add_test(controller: Controller) -> str:
    """The card with what an evaluation says of it on the bundled questions."""
    with tempfile.TemporaryDirectory() as scratch:
        bundled = import_file(DEMO / "gsm8k.jsonl.gz", Path(scratch) / "demo", task=TASK).pool
        headline = aera.evaluate(bundled, controller=controller).headline
    assert headline is not None
    *lines, _ = headline["lines"]  # the certificate stands above
    told = "\n".join(f"- {line}" for line in lines)
    made = controller.card.partition("\n## Test")[0].rstrip("\n")
    known = {"held": held_out(), "certified": certified()}
    return f"{made}\n{TESTED.format(questions=len(bundled), told=told, **known)}"


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
        pool = import_file(rest, Path(scratch) / "gsm8k-rest", task=TASK).pool
        truths = Truths.open(pool.path)
        assert truths is not None
        learner = VoteLearner()
        table = learner.prepare(pool, truths)
        built = build(learner, table, limit_for(learner, 0.02, 0.1), seed=0)
        controller = built.controller
        assert controller.home is not None
        home = replace(controller.home, models=(MODEL,))
        finished = replace(controller, home=home)
        replace(finished, card=add_test(finished)).save(DEMO / "controller")
    print(built.controller.calibration["learned"])
    print(controller.calibration["summary"])


if __name__ == "__main__":
    main()
