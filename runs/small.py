"""Does the promise hold on few questions? Nested, 2 points allowed, five split seeds, all pools.

POOLS has the four pools, traces/ and others/. Two processes share the work, and what they find is
kept for other recipes.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from judged import FULL, judge_seed, judged
from pools import SEEDS, pools_argument, publish, table
from pools import vote_table as prepared
from rivals import gap, share

from aera.lab import VoteLearner, paired_bootstrap

__all__ = ["LEARNER", "MAX_LOSS", "TASKS", "prepared"]

MAX_LOSS = 0.02
ENOUGH = 200
"""Questions from which the mean loss has to be within what is allowed; else its lower bound."""
LEARNER = VoteLearner()
TASKS = (
    *("gsm8k", "svamp", "csqa", "traces/gsm8k", "traces/gsm8k-half", "traces/csqa"),
    *("others/math500-phi4", "math", "traces/math500", "others/gpqa-phi4"),
    *("others/aime-phi4", "others/aime-gptoss20b"),
)
"""Pools of 200 questions or more first."""


def row_of(folder: Path, name: str) -> list[str]:
    """The mean over the seeds of every question; intervals over questions."""
    found = judged(folder, name)
    ours, asc = (found.at("weighted", rule, MAX_LOSS) for rule in ("aera", "asc"))
    own, plain = (found.at(votes, FULL) for votes in ("weighted", "plain"))
    lost = paired_bootstrap(100 * ours.scores, 100 * own.scores, seed=0)
    questions = len(ours.scores)
    bound = lost.difference if questions >= ENOUGH else lost.high
    return [
        name,
        f"{questions}",
        *gap(ours, own),
        "yes" if bound >= -100 * MAX_LOSS - 1e-9 else "**no**",
        *gap(ours, plain),
        " ".join(share(ours, plain)),
        f"{ours.counts.mean():.1f}",
        found.gates(MAX_LOSS),
        f"{gap(asc, own)[0]} for {share(asc, plain)[0]}",
    ]


HEADER = ["pool", "questions", "against its own full budget", "95 %", "promise kept"]
HEADER += ["against all plain votes", "95 %", "tokens, % of all votes", "responses", "gate kept"]
HEADER += ["ASC on the same votes: loss for tokens, %"]


def judge_all(folder: Path) -> None:
    """Every pool and seed that is not kept yet."""
    with ProcessPoolExecutor(2, get_context("spawn")) as both:
        jobs = [both.submit(judge_seed, folder, name, seed) for name in TASKS for seed in SEEDS]
        for job in jobs:
            job.result()


def main(folder: Path) -> None:
    judge_all(folder)
    publish("small", table(HEADER, [row_of(folder, name) for name in TASKS]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
