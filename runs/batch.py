"""One token limit over many questions: best first, against the same for all and per-question stops."""

import asyncio

import numpy as np
from pools import course, interval, open_pool, pools_argument, publish, table

from aera import Controller, RecordedSampler
from aera.batch import solve_batch
from aera.gate import Gated
from aera.lab import paired_bootstrap
from aera.lab.dials import GATE
from aera.lab.evaluation import Grader
from aera.lab.folds import fold_numbers
from aera.lab.frontier import Frontier, Point
from aera.lab.learning import learn
from aera.lab.trajectory import Floats

SHARES = (0.05, 0.06, 0.08, 0.10, 0.15, 0.20)
"""Limits, as shares of the tokens that the full budget takes."""
FOLDS = 5


def main() -> None:
    folder = pools_argument(__doc__ or "")
    ready, pool = course(folder, "gsm8k"), open_pool(folder, "gsm8k")
    numbers = fold_numbers(len(ready.marked), FOLDS, seed=0)
    found: dict[float, list[tuple[Floats, Floats, Floats, float]]] = {s: [] for s in SHARES}
    for fold in range(FOLDS):
        outer, rest = np.flatnonzero(numbers == fold), np.flatnonzero(numbers != fold)
        learned = learn(ready, rest, seed=fold)
        controller = Controller(
            ready.task, ready.schedule, Gated(learned.gate, 0.5), learned.gate, learned.weigher
        )
        questions = [ready.marked.ballots[row].record.question for row in outer]
        graders = [Grader(ready.task, ready.truths[question.id]) for question in questions]
        votes = learned.votes(ready, outer)
        trajectories, values = votes.measured.trajectories, votes.values[GATE.name]
        whole = trajectories.tokens[:, -1].sum()
        fixed = Frontier(
            tuple(
                Point(f"fixed-{c}", np.full(len(outer), i), trajectories)
                for i, c in enumerate(ready.schedule)
            ),
            trajectories,
        )
        stops = Frontier(
            tuple(Point(f"{s}", GATE.stops(values, s), trajectories) for s in GATE.fine),
            trajectories,
        )
        for share in SHARES:
            limit = round(share * whole)
            done = asyncio.run(
                solve_batch(questions, RecordedSampler(pool), controller, tokens=limit)
            )
            scores = np.array([g(a.answer) for g, a in zip(graders, done, strict=True)])
            spent = sum(a.completion_tokens for a in done) / whole
            uniform = fixed.mixture(limit / len(outer), "tokens")
            each = stops.mixture(limit / len(outer), "tokens")
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
