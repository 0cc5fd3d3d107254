"""What cannot wait: coarser schedules on gsm8k, nested, 2 points allowed, three split seeds."""

from pathlib import Path

import numpy as np
from pools import held, pools_argument, publish, table
from rivals import Outcome, gap, share

from aera import Schedule
from aera.lab import LossLimit, Point, VoteLearner, evaluate, nested

SCHEDULES = ("4,8,16,32,64,128", "4,16,64,128", "8,32,128", "16,32,128", "16,128")
BLOCKS = (16, 32)
"""Those asked for at once, with weights."""
SEEDS = range(3)


def runs_on(folder: Path, schedule: str) -> list[tuple[Point, list[Point]]]:
    """What `aera train` makes on a schedule, and its fixed budgets of weighted votes, by seed."""
    learner, checkpoints = VoteLearner(), Schedule(tuple(map(int, schedule.split(","))))
    known = learner.prepare(*held(folder, "gsm8k"), schedule=checkpoints)
    judged = [nested(learner, known, [LossLimit(0.02)], seed=seed)[0] for seed in SEEDS]
    return [(each.point("aera"), list(each.fixed())) for each in judged]


def row(label: str, points: list[Point], blocks: float, plain: Outcome) -> list[str]:
    """One way to ask, beside 128 plain votes."""
    done = Outcome.mean([Outcome.of(point) for point in points])
    return [label, f"{blocks:.1f}", share(done, plain)[0], " ".join(gap(done, plain))]


def main() -> None:
    folder = pools_argument(__doc__ or "")
    records, truths = held(folder, "gsm8k")
    plain = Outcome.of(evaluate(records, [], truths=truths).full_budget())
    found = {schedule: runs_on(folder, schedule) for schedule in SCHEDULES}
    rows = []
    for schedule, runs in found.items():
        points = [point for point, _ in runs]
        blocks = float(np.mean([point.columns + 1 for point in points]))
        rows.append(row(f"`--schedule {schedule}`", points, blocks, plain))
    fixed = [known for _, known in found[SCHEDULES[0]]]
    for number in BLOCKS:
        points = [each for known in fixed for each in known if each.counts.mean() == number]
        rows.append(row(f"`--policy weighted-{number}`", points, 1, plain))
    header = ["way to ask", "blocks, mean", "tokens, % of 128's", "points against 128 plain votes"]
    publish("waiting", table(header, rows))


if __name__ == "__main__":
    main()
