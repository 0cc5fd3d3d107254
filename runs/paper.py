"""Every table, figure and claim of the paper on the pools at hand, beside the paper's own numbers.

First the recipes run whose sections are read, which takes long; --quick takes what they published
last. The gate is the paper's: 55 inputs, plain votes, thresholds swept.
"""

import argparse
from pathlib import Path

import ablations
import benchmarks
import diagnostics
import frontier
import holdout
import holdout_live
import nested
import numpy as np
import reference
import transitions
import variants
from paper_claims import (
    POOLS,
    Gate,
    Published,
    Replay,
    all_claims,
    claim_table,
    main_table,
    online_table,
    tell_verdicts,
    transition_table,
)
from paper_figures import (
    draw_boxes,
    draw_evidence,
    draw_frontier,
    draw_overview,
    draw_trajectory,
    overlapping,
    recovers_then_collapses,
)
from paper_runs import METRICS, crossfits, gap, in_metric, in_track, scores_of, signed
from pools import DOCS, SEEDS, open_pool, paper_table, publish

from aera import ESC
from aera.lab import GATE_FAMILY, Interval, PaperTable, fixed_points, matched_random, pick, point_of

THRESHOLD = 0.3
STAND_IN = "csqa"
TESTS = {"gsm8k": 300, "csqa": 100}
"""How many questions generation is tested on."""


def rebuild(folder: Path) -> None:
    """Run every recipe whose section is read, and those that only this page has."""
    for recipe in (transitions, frontier, nested, holdout, diagnostics, ablations, reference):
        recipe.main(folder)
    for name, size in TESTS.items():
        holdout_live.run(folder, name, size)
    for recipe in (variants, benchmarks):
        recipe.main(folder)


def gate_at(folder: Path, data: PaperTable, metric: str) -> Gate:
    """The paper's gate at one threshold against everything it is compared with, in one metric."""
    runs = crossfits(folder, data.name)
    points = [run.at(THRESHOLD) for run in runs]
    scores, grades = scores_of(points, metric), in_track(data.trajectories, metric).known_grades
    asc = frontier.frontier_of(data.sweep("asc"), metric)
    mixed = [asc.mixture(point.responses) for point in points]
    esc = point_of(ESC(5), data.families["esc"].stops(data.measures["esc"], 5), data.trajectories)
    once = runs[0].one_shot()
    assert once is not None
    return Gate(
        accuracy=100 * float(scores.mean()),
        responses=float(np.mean([point.responses for point in points])),
        full=gap(scores, grades[:, -1]),
        asc=gap(scores, np.mean([m.scores for m in mixed if m is not None], axis=0)),
        esc=gap(scores, esc.pick(grades)),
        routing=[
            matched_random(100 * grades, point.columns, folds=run.folds, seed=seed)
            for seed, run, point in zip(SEEDS, runs, points, strict=True)
        ],
        one_shot=in_metric(once, metric).quality,
        one_shot_responses=once.responses,
        room=100 * float((grades.max(axis=1) - grades[:, -1]).mean()),
    )


def swept(folder: Path, name: str, metric: str) -> dict[str, list[tuple[float, float]]]:
    """Every complete sweep as responses and score; the gate's points are means over fold seeds."""
    names = {"asc": "ASC", "esc": "ESC"}
    kept = ("the paper's gate", "asc", "esc", "majority", "entropy", "consensus")
    found = {
        names.get(family, family): [
            (
                float(np.mean([p.responses for p in points])),
                float(np.mean([in_metric(p, metric).quality for p in points])),
            )
            for points in frontier.sweeps_of(folder, name)[family]
        ]
        for family in kept
    }
    fixed = fixed_points(in_track(paper_table(folder, name).trajectories, metric))
    return {**found, "fixed budget": [(point.responses, point.quality) for point in fixed]}


def frozen(folder: Path, metric: str) -> dict[str, Interval]:
    """The frozen gate of the generation test, replayed against every fixed budget."""
    data = paper_table(folder, "gsm8k")
    test, rest = holdout_live.deal(data, TESTS["gsm8k"])
    pool = open_pool(folder, "gsm8k", redo=True)
    _, model, choice = holdout_live.freeze(data, pool, rest, metric)
    stops = choice.stops(GATE_FAMILY, model.values(data, test).values[GATE_FAMILY.name])
    grades = in_track(data.trajectories, metric).known_grades[test]
    scores = pick(grades, stops)
    return {f"Fixed-{c}": gap(scores, grades[:, i]) for i, c in enumerate(data.schedule)}


def measure(folder: Path) -> Replay:
    """Everything that no section holds; draws the frontier on the way."""
    tables = {name: paper_table(folder, name) for name in POOLS}
    draw_frontier({m: {name: swept(folder, name, m) for name in tables} for m in METRICS})
    tracks = {name: data.trajectories for name, data in tables.items()}
    early = {name: track.up_to(transitions.LAST) for name, track in tracks.items()}
    return Replay(
        questions={name: len(data) for name, data in tables.items()},
        fallen={name: len(recovers_then_collapses(track)) for name, track in tracks.items()},
        overlapping={name: overlapping(track) for name, track in early.items()},
        gates={
            metric: {name: gate_at(folder, data, metric) for name, data in tables.items()}
            for metric in METRICS
        },
        online={metric: frozen(folder, metric) for metric in METRICS},
    )


def section(page: Published, seen: Replay, sight: str) -> str:
    """The whole comparison as Markdown."""
    gaps = " and ".join(
        f"by {signed(gate.asc)} on {name} in the {metric}"
        for metric, gates in seen.gates.items()
        for name, gate in gates.items()
    )
    claims = all_claims(page, seen)
    parts = [
        "Two numbers where the paper gives two: GSM8K; GPQA, and ours gsm8k; csqa. Gate at 0.3: out of "
        "fold, mean over fold seeds 0-4; intervals over questions.\n",
        tell_verdicts(claims) + "\n",
        claim_table(claims),
        "\nTable 1, transitions from 4 to 64 responses:\n",
        transition_table(page),
        "\nTable 2, representative points (gate: mean over fold seeds 0-4):\n",
        main_table(page, seen),
        "\nTable 3, gsm8k with a frozen threshold and real generation:\n",
        online_table(page),
        f"\nFigure 1: {sight}\n",
        "![One question by checkpoint: right or wrong above, three kinds of evidence below](figures/paper-trajectory.svg)\n",
        "Figure 2: evidence often rises while the answer turns wrong, and falls while it turns right. So "
        "the gate is asked for the future, after every block.\n",
        "![Shares of collapses with rising and of recoveries with falling evidence](figures/paper-evidence.svg)\n",
        "![The method: a block of responses, evidence, the gate, then stop or go on](figures/paper-overview.svg)\n",
        "Figure 3: where the boxes of recovery and collapse overlap, that evidence alone cannot tell them apart.\n",
        "![Boxes of the change of evidence by transition](figures/paper-boxes.svg)\n",
        f"Figure 4: at 0.3 the gate differs from mixtures of ASC's settings {gaps}.\n",
        "![Score against responses for the gate, ASC, ESC, fixed budgets and thresholds on evidence, in both metrics](figures/paper-frontier.svg)",
    ]  # fmt: skip
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pools", type=Path, help="a folder with gsm8k.jsonl.gz and its siblings")
    parser.add_argument("--quick", action="store_true", help="take the other sections as they are")
    given = parser.parse_args()
    if not given.quick:
        rebuild(given.pools)
    seen = measure(given.pools)
    page = Published((DOCS / "paper.md").read_text("utf-8"))
    shown = paper_table(given.pools, STAND_IN).trajectories
    sight = draw_trajectory(shown)
    draw_evidence(page)
    draw_overview()
    draw_boxes(STAND_IN, shown.up_to(transitions.LAST))
    publish("paper", section(page, seen, sight))


if __name__ == "__main__":
    main()
