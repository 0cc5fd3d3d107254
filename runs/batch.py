"""One token limit over many questions: best first, against the same for all and per-question stops."""

import asyncio
from dataclasses import replace

import numpy as np
from pools import interval, open_pool, pools_argument, publish, table, vote_table

from aera import Allocation, Budget, Controller, Question, RecordedSampler, solve_many
from aera.lab import (
    GATE_FAMILY,
    Floats,
    Frontier,
    Grader,
    VoteLearner,
    deal,
    fixed_points,
    paired_bootstrap,
    sweep,
)

SHARES = (0.05, 0.06, 0.08, 0.10, 0.15, 0.20)
"""Limits, as shares of the tokens that the full budget takes."""


async def _share(
    questions: list[Question], sampler: RecordedSampler, controller: Controller, limit: int
) -> list[Allocation]:
    """What every question gets of one limit in tokens."""
    budget = Budget(tokens=limit)
    many = solve_many(questions, sampler, controller, budget=budget, shared=True)
    return [each async for each in many]


def main() -> None:
    folder = pools_argument(__doc__ or "")
    ready, pool = vote_table(folder, "gsm8k"), open_pool(folder, "gsm8k")
    truths = ready.truths
    assert truths is not None
    found: dict[float, list[tuple[Floats, Floats, Floats, float]]] = {s: [] for s in SHARES}
    for fold in deal(ready.groups, seed=0):
        model = VoteLearner().fit(ready, fold.rest, seed=fold.number)
        controller = Controller(
            ready.task, ready.schedule, model.policy(0.5, GATE_FAMILY), model.gate, model.weigher
        )
        questions = [ready.questions[row] for row in fold.own]
        graders = [Grader(ready.task, truths[question.id]) for question in questions]
        judged = model.values(ready, fold.own)
        trajectories, values = judged.trajectories, judged.values[GATE_FAMILY.name]
        whole = trajectories.tokens[:, -1].sum()
        fixed = Frontier(tuple(fixed_points(trajectories)), trajectories)
        every = replace(GATE_FAMILY, settings=GATE_FAMILY.fine)
        stops = Frontier(tuple(sweep(every, values, trajectories)), trajectories)
        for share in SHARES:
            limit = round(share * whole)
            done = asyncio.run(_share(questions, RecordedSampler(pool), controller, limit))
            scores = np.array([g.grade([a.answer])[0] for g, a in zip(graders, done, strict=True)])
            spent = sum(a.completion_tokens for a in done) / whole
            uniform = fixed.mixture(limit / len(fold.own), "tokens")
            each = stops.mixture(limit / len(fold.own), "tokens")
            assert uniform is not None
            below = each.scores if each is not None else uniform.scores
            found[share].append((scores, uniform.scores, below, spent))
    rows = []
    for share, parts in found.items():
        best, uniform_scores, threshold = (np.concatenate([p[i] for p in parts]) for i in range(3))
        pair = paired_bootstrap(100 * best, 100 * uniform_scores, seed=0)
        other = paired_bootstrap(100 * best, 100 * threshold, seed=0)
        rows.append(
            [
                f"{100 * share:g}",
                f"{100 * np.mean([p[3] for p in parts]):.2f}",
                f"{100 * best.mean():.2f}",
                f"{100 * uniform_scores.mean():.2f}",
                f"{pair.difference:+.2f}",
                interval(pair.low, pair.high),
                f"{100 * threshold.mean():.2f}",
                f"{other.difference:+.2f}",
                interval(other.low, other.high),
            ]
        )
    header = ["limit, % of the full budget", "spent %", "best first", "the same for all"]
    header += ["difference", "95 %", "thresholds, chosen afterwards", "difference", "95 %"]
    publish("batch", table(header, rows))


if __name__ == "__main__":
    main()
