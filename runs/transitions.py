"""How correctness moves between checkpoints, and how often the evidence moves against it."""

from pathlib import Path

from pools import TASKS, paper_table, pools_argument, publish, table

from aera.lab.judging.diagnostics import counter_examples
from aera.lab.replay.trajectory import SHAPES


def main(folder: Path) -> None:
    moves, against, shapes = [], [], []
    for name in TASKS:
        trajectories = paper_table(folder, name).trajectories
        for row in trajectories.transitions():
            changes = [f"{change:+.3f}" for change in row.changes.values()]
            moves.append([f"{name} {row.name}", row.count, *changes])
        for case in counter_examples(trajectories):
            way = "while rising" if case.transition == "collapse" else "while falling"
            counts = list(case.against.values())
            against.append(
                [f"{name} {case.transition} {way}", case.count, *counts, case.all_against]
            )
        counted = trajectories.shapes()
        shapes.append([name, *[counted[shape] for shape in SHAPES]])
    names = ["Δ majority", "Δ entropy", "Δ semantic"]
    strength = ["majority", "certainty (entropy)", "semantic consensus", "all three"]
    publish(
        "transitions",
        "\n".join(
            [
                table(["transition", "count", *names], moves),
                "\nEvidence against correctness:\n",
                table(["transition", "count", *strength], against),
                "\nWhole trajectories:\n",
                table(["pool", *SHAPES], shapes),
            ]
        ),
    )


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
