"""Grow a finished pool: sample what is missing beside it, then put the larger pool in its place.

What is added gathers in the folder `growing` of the pool, which stays whole meanwhile. There the
larger pool is written whole too, and its manifest decides: from then on its files move into
place, and whoever finds them half moved goes on moving. In between there is no manifest, so that
nobody takes the mixture for a pool.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from aera.errors import UsageError
from aera.pools.pool import GROWING, Pool, read_questions
from aera.response import Question
from aera.sampling.plan import PLAN, Plan, read_plan

MANIFEST, QUESTIONS = "manifest.json", "questions.jsonl"


def find_base(path: Path, plan: Plan, questions: Sequence[Question]) -> Pool | None:
    """The finished pool that a plan would make larger; None where there is nothing to grow.

    A plan that goes another way than the pool's is for the recording to refuse, but for one with
    fewer responses, which nobody could tell from a slip.
    """
    there = read_plan(path) if (path / MANIFEST).is_file() else None
    if there is None or not there.alike(plan):
        return None
    if plan.responses < there.responses:
        raise UsageError(
            f'the pool at "{path}" was sampled with other settings: it has {there.responses} '
            f"responses for each question, and {plan.responses} are fewer; ask for as many or "
            "more, or sample into another place"
        )
    known = {question.id: question for question in read_questions(path / QUESTIONS)}
    asked = {question.id: question for question in questions}
    if any(asked.get(name) != question for name, question in known.items()):
        return None
    larger = plan.responses > there.responses or len(asked) > len(known)
    return Pool.open(path) if larger else None


def move_in(path: Path) -> None:
    """Let the larger pool take the place of the one it grew from, if it is whole.

    Interrupted at any moment, it can be done again; before it is done there is no manifest.
    """
    grown = path / GROWING
    if not (path / PLAN).is_file():
        return  # no pool of ours, whatever lies there
    if (grown / MANIFEST).is_file():
        names = json.loads((grown / MANIFEST).read_text("utf-8"))["hashes"]
        (path / MANIFEST).unlink(missing_ok=True)
        for file in [*path.glob("responses-*.jsonl*")]:
            if file.name not in names:
                file.unlink()
        for name in (*names, PLAN):
            if (grown / name).exists():
                (grown / name).replace(path / name)
        (grown / MANIFEST).replace(path / MANIFEST)
    if not (grown / PLAN).exists():  # nothing was begun there, or all of it has moved
        shutil.rmtree(grown, ignore_errors=True)
