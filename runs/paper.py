"""Every table, figure and claim of the paper on the pools at hand, beside the paper's own numbers.

First the recipes run whose sections are read, which takes long; --quick takes what they published
last. The gate is the paper's: 55 inputs, plain votes, thresholds swept.
"""

import argparse
from pathlib import Path

import ablations
import diagnostics
import frontier
import holdout
import holdout_live
import nested
import numpy as np
import reference
import transitions
from paper_claims import (
    POOLS,
    Gate,
    Published,
    Replay,
    all_claims,
    claim_table,
    main_table,
    online_table,
    signed,
    transition_table,
)
from paper_figures import (
    draw_boxes,
    draw_evidence,
    draw_frontier,
    draw_trajectory,
    overlapping,
    placed,
    recovers_then_collapses,
)
from pools import PAGE, SEEDS, open_pool, paper_table, publish

from aera import ESC
from aera.arrays import Floats
from aera.lab import (
    CrossFit,
    Frontier,
    Interval,
    PaperLearner,
    crossfit,
    matched_random,
    paired_bootstrap,
)
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.judging.diagnostics import collapsing
from aera.lab.learning.paper import PaperTable
from aera.lab.replay.frontier import fixed_points, point_of
from aera.lab.replay.trajectory import pick

THRESHOLD = 0.3
STAND_IN = "csqa"
TESTS = {"gsm8k": 300, "csqa": 100}
"""How many questions generation is tested on."""


def rebuild(folder: Path) -> None:
    """Run every recipe whose section is read."""
    for recipe in (transitions, frontier, nested, holdout, diagnostics, ablations, reference):
        recipe.main(folder)
    for name, size in TESTS.items():
        holdout_live.run(folder, name, size)


def gap(scores: Floats, other: Floats) -> Interval:
    """In points, paired by question."""
    return paired_bootstrap(100 * scores, 100 * other, seed=0)


def gate_at(data: PaperTable, runs: list[CrossFit]) -> Gate:
    """The paper's gate at one threshold against everything it is compared with."""
    points = [run.at(THRESHOLD) for run in runs]
    scores = np.mean([point.scores for point in points], axis=0)
    asc = Frontier(tuple(data.sweep("asc")), data.trajectories)
    mixed = [asc.mixture(point.responses) for point in points]
    esc = point_of(ESC(5), data.families["esc"].stops(data.measures["esc"], 5), data.trajectories)
    means = data.trajectories.re2_mean
    assert means is not None
    once = runs[0].one_shot()
    assert once is not None
    return Gate(
        accuracy=100 * float(scores.mean()),
        responses=float(np.mean([point.responses for point in points])),
        full=gap(scores, data.grades[:, -1]),
        full_re2=gap(np.mean([point.pick(means) for point in points], axis=0), means[:, -1]),
        asc=gap(scores, np.mean([m.scores for m in mixed if m is not None], axis=0)),
        esc=gap(scores, esc.scores),
        routing=[
            matched_random(100 * data.grades, point.columns, folds=run.folds, seed=seed)
            for seed, run, point in zip(SEEDS, runs, points, strict=True)
        ],
        one_shot=once.accuracy or 0.0,
        one_shot_responses=once.responses,
    )


def sweeps(data: PaperTable, runs: list[CrossFit]) -> dict[str, list[tuple[float, float]]]:
    """What the frontier shows; the gate's points are means over the fold seeds."""
    ours = np.mean([placed(run.sweep()) for run in runs], axis=0)
    return {
        "the paper's gate": [(float(spent), float(right)) for spent, right in ours],
        "ASC": placed(data.sweep("asc")),
        "ESC": placed(data.sweep("esc")),
        "fixed budget": placed(fixed_points(data.trajectories)),
    }


def frozen(folder: Path) -> tuple[dict[str, Interval], float]:
    """The frozen gate of the generation test, replayed: against fixed budgets, and in calibration."""
    data = paper_table(folder, "gsm8k")
    test, rest = holdout_live.deal(data, TESTS["gsm8k"])
    _, model, choice = holdout_live.freeze(data, open_pool(folder, "gsm8k", redo=True), rest)
    stops = choice.stops(GATE_FAMILY, model.values(data, test).values[GATE_FAMILY.name])
    scores = pick(data.grades[test], stops)
    schedule = data.trajectories.schedule
    gaps = {f"Fixed-{c}": gap(scores, data.grades[test, i]) for i, c in enumerate(schedule)}
    return gaps, 100 * (choice.accuracy - choice.reference)


def measure(folder: Path) -> Replay:
    """Everything that no section holds; draws the frontier on the way."""
    tables = {name: paper_table(folder, name) for name in POOLS}
    runs = {
        name: [crossfit(PaperLearner(one_shot=seed == SEEDS[0]), data, seed=seed) for seed in SEEDS]
        for name, data in tables.items()
    }
    draw_frontier({name: sweeps(data, runs[name]) for name, data in tables.items()})
    tracks = {name: data.trajectories for name, data in tables.items()}
    early = tables["gsm8k"].trajectories.schedule.checkpoints.index(8)
    online, calibrated = frozen(folder)
    return Replay(
        questions={name: len(data) for name, data in tables.items()},
        fallen={name: len(recovers_then_collapses(track)) for name, track in tracks.items()},
        overlapping={name: overlapping(track) for name, track in tracks.items()},
        gates={name: gate_at(data, runs[name]) for name, data in tables.items()},
        early={
            name: 100 * float(data.grades[collapsing(data.trajectories), early].mean())
            for name, data in tables.items()
        },
        online=online,
        calibrated=calibrated,
    )


def section(page: Published, seen: Replay, sight: str) -> str:
    """The whole comparison as Markdown."""
    gaps = " and by ".join(f"{signed(gate.asc)} on {name}" for name, gate in seen.gates.items())
    parts = [
        "Two numbers where the paper gives two: GSM8K; GPQA, and ours gsm8k; csqa. Gate at 0.3: out of "
        "fold, mean over fold seeds 0-4; intervals over questions.\n",
        claim_table(all_claims(page, seen)),
        "\nTable 1, transitions:\n",
        transition_table(page),
        "\nTable 2, representative points (gate: mean over fold seeds 0-4):\n",
        main_table(page, seen),
        "\nTable 3, gsm8k with a frozen threshold and real generation:\n",
        online_table(page),
        f"\nFigure 1: {sight}\n",
        "![One question by checkpoint: right or wrong above, three kinds of evidence below](figures/paper-trajectory.svg)\n",
        "Figure 2: evidence often rises while the answer turns wrong, and falls while it turns right.\n",
        "![Shares of collapses with rising and of recoveries with falling evidence](figures/paper-evidence.svg)\n",
        "Figure 3: where the boxes of recovery and collapse overlap, that evidence alone cannot tell them apart.\n",
        "![Boxes of the change of evidence by transition](figures/paper-boxes.svg)\n",
        f"Figure 4: at 0.3 the gate differs from mixtures of ASC's settings by {gaps}.\n",
        "![Accuracy against responses for the gate, ASC, ESC and fixed budgets](figures/paper-frontier.svg)",
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
    page = Published(PAGE.read_text("utf-8"))
    shown = paper_table(given.pools, STAND_IN).trajectories
    sight = draw_trajectory(shown)
    draw_evidence(page)
    draw_boxes(STAND_IN, shown)
    publish("paper", section(page, seen, sight))


if __name__ == "__main__":
    main()
