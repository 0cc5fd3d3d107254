"""Answers and tokens recorded by others, without texts: nested, 2 points allowed, five split seeds.

The pools are those of the repository jkomiyama/BoInf-code-publish (commit fbcb097): GPQA-Diamond,
MATH-500 and AIME 2024/2025, sampled from Phi-4-reasoning and gpt-oss-20b. POOLS is the folder that
holds their files.
"""

from pathlib import Path

import numpy as np
from pools import ROOT, SEEDS, interval, pools_argument, publish, table

from aera import ASC, Pool, get_task
from aera.lab import (
    Truths,
    VoteLearner,
    bootstrap_ratio,
    evaluate,
    import_jsonl,
    limit_for,
    nested,
    paired_bootstrap,
)
from aera.pools.record import hold

NAMES = {
    "gpqa-phi4": ("GPQA-Diamond, Phi-4-reasoning", "gpqa"),
    "math500-phi4": ("MATH-500, Phi-4-reasoning", "math"),
    "aime-phi4": ("AIME 2024/25, Phi-4-reasoning", "aime"),
    "aime-gptoss20b": ("AIME 2024/25, gpt-oss-20b", "aime"),
}


def open_pool(folder: Path, name: str) -> Pool:
    out = ROOT / "out" / "pools" / name
    if not out.exists():
        import_jsonl(folder / f"{name}.jsonl.gz", out, task=get_task(NAMES[name][1]))
    return Pool.open(out)


def rows_of(folder: Path, name: str) -> list[list[str]]:
    """The full budget, ASC(0.95) and both calibrated policies, on plain or weighted votes."""
    pool, learner = open_pool(folder, name), VoteLearner()
    truths = Truths.open(pool.path)
    assert truths is not None
    records = hold(pool)
    plain = evaluate(records, [ASC(0.95)], truths=truths)
    full, asc = plain.full_budget(), plain[ASC(0.95)]
    ready = learner.prepare(records, truths)
    judged = [nested(learner, ready, [limit_for(learner, 0.02)], seed=s)[0] for s in SEEDS]
    own = np.mean([each.fixed()[-1].scores for each in judged], axis=0)
    shown = {
        full.policy: (full.scores, full.spent),
        "asc-0.95": (asc.scores, asc.spent),
        **{
            label: (
                np.mean([each.point(family).scores for each in judged], axis=0),
                np.mean([each.point(family).spent for each in judged], axis=0),
            )
            for family, label in (("aera", "AERA"), ("asc", "ASC, calibrated alike"))
        },
    }
    rows = []
    for label, (scores, spent) in shown.items():
        gap = paired_bootstrap(100 * scores, 100 * full.scores, seed=0)
        lost = paired_bootstrap(100 * scores, 100 * own, seed=0)
        saved = bootstrap_ratio(spent, full.spent, seed=0)
        rows.append(
            [
                f"{NAMES[name][0]}: {label}",
                f"{len(full.columns)}",
                f"{100 * scores.mean():.2f}",
                f"{gap.difference:+.2f}",
                interval(gap.low, gap.high),
                f"{lost.difference:+.2f}",
                f"{100 - saved.percent:.1f} [{100 - saved.high:.1f}, {100 - saved.low:.1f}]",
            ]
        )
    return rows


HEADER = ["pool: policy", "questions", "accuracy %", "against all plain votes", "95 %"]
HEADER += ["against its own full budget", "tokens, % of all votes"]


def main(folder: Path) -> None:
    publish("others", table(HEADER, [row for name in NAMES for row in rows_of(folder, name)]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
