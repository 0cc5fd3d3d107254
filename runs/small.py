"""Does the promise hold on few questions? Nested, 2 points allowed, five split seeds, all pools.

POOLS has the four pools, traces/ and others/. Each pool and seed is kept in out/small once it is
done, so a run that was broken off goes on where it was; delete that folder to begin anew.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from pools import ROOT, SEEDS, interval, pools_argument, publish, table

from aera import Pool, get_task
from aera.arrays import Floats
from aera.lab import (
    Truths,
    VoteLearner,
    bootstrap_ratio,
    import_jsonl,
    limit_for,
    nested,
    paired_bootstrap,
)
from aera.lab.learning.votes import VoteTable
from aera.pools.record import hold

MAX_LOSS = 0.02
ENOUGH = 200
"""Questions from which the mean loss has to be within what is allowed; else its lower bound."""
LEARNER = VoteLearner()
DONE = ROOT / "out" / "small"
TASKS = {
    "gsm8k": "gsm8k",
    "svamp": "gsm8k",
    "csqa": "commonsense",
    "traces/gsm8k": "gsm8k",
    "traces/gsm8k-half": "gsm8k",
    "traces/csqa": "commonsense",
    "others/math500-phi4": "math",
    "math": "math",
    "traces/math500": "math",
    "others/gpqa-phi4": "gpqa",
    "others/aime-phi4": "aime",
    "others/aime-gptoss20b": "aime",
}


@cache
def prepared(folder: Path, name: str) -> VoteTable:
    """A pool with the traits and grades of its responses, imported into out/ on first use."""
    out = ROOT / "out" / "pools" / name.replace("/", "-")
    if not out.exists():
        import_jsonl(folder / f"{name}.jsonl.gz", out, task=get_task(TASKS[name]))
    truths = Truths.open(out)
    assert truths is not None
    return LEARNER.prepare(replace(hold(Pool.open(out)), name=name), truths)


def judged(folder: Path, name: str, seed: int) -> Mapping[str, Floats]:
    """One nested run: grades, tokens and responses of every question, and what to compare with."""
    path = DONE / f"{name.replace('/', '-')}-{seed}.npz"
    if not path.exists():
        known = prepared(folder, name)
        [found] = nested(LEARNER, known, [limit_for(LEARNER, MAX_LOSS)], seed=seed)
        plain = known.replay(np.arange(len(known)), None).trajectories
        point, asc = found.point("aera"), found.point("asc")
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            path,
            scores=point.scores,
            spent=point.spent,
            counts=point.counts,
            own=found.fixed()[-1].scores,
            plain=plain.known_grades[:, -1],
            full=plain.tokens[:, -1],
            asc_scores=asc.scores,
            asc_spent=asc.spent,
            gates=np.array([choice.family == "aera" for choice in found.choices["aera"]], float),
        )
        print(f"{name}, seed {seed}", flush=True)
    with np.load(path) as kept:
        return dict(kept)


def row_of(folder: Path, name: str) -> list[str]:
    """The mean over the seeds of every question; intervals over questions."""
    runs = [judged(folder, name, seed) for seed in SEEDS]
    mean = {key: np.mean([run[key] for run in runs], axis=0) for key in runs[0]}
    own = paired_bootstrap(100 * mean["scores"], 100 * mean["own"], seed=0)
    plain = paired_bootstrap(100 * mean["scores"], 100 * mean["plain"], seed=0)
    asc = paired_bootstrap(100 * mean["asc_scores"], 100 * mean["own"], seed=0)
    saved = bootstrap_ratio(mean["spent"], mean["full"], seed=0)
    questions = len(mean["scores"])
    bound = own.difference if questions >= ENOUGH else own.high
    return [
        name,
        f"{questions}",
        f"{own.difference:+.2f}",
        interval(own.low, own.high),
        "yes" if bound >= -100 * MAX_LOSS - 1e-9 else "**no**",
        f"{plain.difference:+.2f}",
        interval(plain.low, plain.high),
        f"{100 - saved.percent:.1f} [{100 - saved.high:.1f}, {100 - saved.low:.1f}]",
        f"{mean['counts'].mean():.1f}",
        f"{sum(run['gates'].sum() for run in runs):.0f} of {sum(len(run['gates']) for run in runs)}",
        f"{asc.difference:+.2f} for {100 * mean['asc_spent'].sum() / mean['full'].sum():.1f}",
    ]


HEADER = ["pool", "questions", "against its own full budget", "95 %", "promise kept"]
HEADER += ["against all plain votes", "95 %", "tokens, % of all votes", "responses", "gate kept"]
HEADER += ["ASC on the same votes: loss for tokens, %"]


def main(folder: Path) -> None:
    publish("small", table(HEADER, [row_of(folder, name) for name in TASKS]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
