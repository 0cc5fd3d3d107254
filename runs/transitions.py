"""How correctness moves between checkpoints, and how often the evidence moves against it.

Right and wrong are the vote's, as in the paper. Its Table 1 ends at 64 responses, and so do the
first tables here.
"""

from pathlib import Path

from paper_runs import valid_share
from pools import TASKS, paper_table, pools_argument, publish, table
from published import Table

from aera.lab import SHAPES, Trajectories, counter_examples

LAST = 64
"""Of the paper's Table 1."""


def tracks(folder: Path) -> dict[str, Trajectories]:
    """Every pool with the leading answer's share of all responses, which the paper writes."""
    found = {}
    for name in TASKS:
        track = paper_table(folder, name).trajectories
        over_all = track.evidence["majority_ratio"] * valid_share(folder, name)
        found[name] = track.with_evidence("over all", over_all)
    return found


def moves(known: dict[str, Trajectories]) -> Table:
    """Transitions by pool, with the mean change of the evidence."""
    rows = [
        [f"{name} {row['name']}", row["count"], *[f"{c:+.3f}" for c in row["changes"].values()]]
        for name, track in known.items()
        for row in track.transitions()
    ]
    names = ["Δ majority", "Δ entropy", "Δ semantic", "Δ majority over all n"]
    return table(["transition", "count", *names], rows)


def main(folder: Path) -> None:
    known = tracks(folder)
    cut = {name: track.up_to(LAST) for name, track in known.items()}
    against = []
    for name, track in cut.items():
        for case in counter_examples(track):
            way = "while rising" if case["transition"] == "collapse" else "while falling"
            counts = list(case["against"].values())
            against.append(
                [f"{name} {case['transition']} {way}", case["count"], *counts, case["all_against"]]
            )
    shapes = [[n, *[t.shapes()[shape] for shape in SHAPES]] for n, t in known.items()]
    strength = ["majority", "certainty (entropy)", "semantic consensus", "all three"]
    publish(
        "transitions",
        "From 4 to 64 responses, as in the paper:",
        moves(cut),
        "Evidence against correctness, from 4 to 64:",
        table(["transition", "count", *strength], against),
        "Whole trajectories, from 4 to 128:",
        table(["pool", *SHAPES], shapes),
        "Transitions with the step from 64 to 128:",
        moves(known),
    )


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
