"""The paper's own benchmarks where responses to them were recorded: GPQA-Diamond, AIME, MATH-500.

POOLS/others holds answers and token counts from the repository jkomiyama/BoInf-code-publish (commit
fbcb097), without texts and log-probabilities; POOLS/traces/math500 was sampled here, with texts. The
gate is the paper's, with as many of its 55 features as can be computed.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from paper_runs import METRICS, RULES, gap, in_goal, quality_cells, scores_of, signed, spend_cells
from pools import SEEDS, open_as, pools_argument, publish, table

from aera import ASC, ESC, get_task
from aera.lab import (
    Judgement,
    PaperLearner,
    PaperTable,
    Point,
    Truths,
    collapsing,
    crossfit,
    fixed_points,
    hold,
    nested,
    point_of,
    without_group,
)

THRESHOLD = 0.3
ANSWERS = 14
"""Of the 55: budget and cost (5), answer distribution (4) and temporal change (5)."""


@dataclass(frozen=True)
class Benchmark:
    """One pool."""

    label: str
    file: str
    task: str
    texts: bool = False


BENCHMARKS = (
    Benchmark("GPQA-Diamond, Phi-4-reasoning", "others/gpqa-phi4", "gpqa"),
    Benchmark("AIME 2024/25, Phi-4-reasoning", "others/aime-phi4", "aime"),
    Benchmark("AIME 2024/25, gpt-oss-20b", "others/aime-gptoss20b", "aime"),
    Benchmark("MATH-500, Phi-4-reasoning", "others/math500-phi4", "math"),
    Benchmark("MATH-500 (176), Qwen2.5-Coder-1.5B", "traces/math500", "math", texts=True),
)


def open_bench(folder: Path, bench: Benchmark) -> PaperTable:
    """The pool with its evidence; what texts alone could say is made constant without them."""
    texts = bench.texts
    pool = open_as(folder, bench.file, replace(get_task(bench.task), redo=texts))
    truths = Truths.open(pool.path)
    assert truths is not None
    data = PaperLearner().prepare(replace(hold(pool), name=bench.label), truths)
    if texts:
        return data
    silent = without_group(without_group(data, "semantic state"), "projection")
    return without_group(silent, "re-solving")


@dataclass(frozen=True, eq=False)
class Judged:
    """A benchmark with everything that was fitted on it."""

    data: PaperTable
    crossed: list[Judgement]
    nested: dict[str, list[Judgement]]
    """By the metric that calibrated, 2 points allowed."""


@cache
def judge(folder: Path, bench: Benchmark) -> Judged:
    data, learner = open_bench(folder, bench), PaperLearner()
    goals = [in_goal(RULES["2 points"], metric) for metric in METRICS]
    runs = [nested(learner, data, goals, seed=seed) for seed in SEEDS]
    return Judged(
        data,
        [crossfit(learner, data, seed=seed) for seed in SEEDS],
        {metric: [run[place] for run in runs] for place, metric in enumerate(METRICS)},
    )


def asc_of(data: PaperTable) -> Point:
    """ASC at its default."""
    stops = data.families["asc"].stops(data.trajectories.values["asc"], 0.95)
    return point_of(ASC(0.95), stops, data.trajectories)


def policies(judged: Judged) -> dict[str, list[Point]]:
    """What the paper's Table 2 shows, and its nested rows."""
    data = judged.data
    esc = data.families["esc"].stops(data.trajectories.values["esc"], 5)
    found = {p.policy: [p] for p in fixed_points(data.trajectories) if p.setting in (32, 64)}
    full = fixed_points(data.trajectories)[-1]
    found |= {full.policy: [full], "esc-5": [point_of(ESC(5), esc, data.trajectories)]}
    found |= {"asc-0.95": [asc_of(data)]}
    found |= {"aera-0.30": [run.at(THRESHOLD) for run in judged.crossed]}
    for metric, runs in judged.nested.items():
        for family in ("aera", "asc"):
            found[f"{family} nested, by {metric}"] = [run.point(family) for run in runs]
    return found


def rows_of(bench: Benchmark, judged: Judged) -> list[list[str]]:
    """One row per policy."""
    rows = []
    for label, points in policies(judged).items():
        cells = [*quality_cells(points), *spend_cells(points)]
        rows.append([f"{bench.label}: {label}", *cells])
    return rows


def collapse_row(bench: Benchmark, judged: Judged) -> list[object]:
    """Transitions up to 64, and the questions with a collapse, with nested gates at 0.3."""
    data = judged.data
    counts = {row["name"]: row["count"] for row in data.trajectories.up_to(64).transitions()}
    members = collapsing(data.trajectories)
    gates = [p for run in judged.nested["vote"] for p in run.sweep() if p.setting == THRESHOLD]
    shown = [gates, [asc_of(data)], [p for p in fixed_points(data.trajectories) if p.setting == 8]]
    spent = (f"{np.mean([p.counts[members] for p in own]):.1f}" for own in shown)
    row: list[object] = [bench.label, f"{counts['recovery']} : {counts['collapse']}"]
    row += [int(members.sum()), " : ".join(spent)]
    for metric in METRICS:
        scores = [scores_of(own, metric)[members] for own in shown]
        row += [" : ".join(f"{100 * each.mean():.2f}" for each in scores)]
        row += [signed(gap(scores[0], scores[1]))]
    return row


def main(folder: Path) -> None:
    judged = {bench: judge(folder, bench) for bench in BENCHMARKS}
    header = ["benchmark: policy", "vote %", "against all responses"]
    header += ["mean %", "against all responses", "responses", "tokens saved %"]
    rows = [row for bench, each in judged.items() for row in rows_of(bench, each)]
    publish("benchmarks", table(header, rows))
    subset = ["benchmark", "recoveries : collapses, 4 to 64", "questions with a collapse"]
    subset += ["responses, gate : ASC : Fixed-8"]
    for metric in METRICS:
        subset += [f"gate : ASC : Fixed-8, {metric} %", "gate against ASC"]
    publish("benchmarks-collapse", table(subset, [collapse_row(b, j) for b, j in judged.items()]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
