"""Learned votes, nested, beside plain ones: four pools, five seeds."""

from pathlib import Path

from judged import FULL, judged
from pools import TASKS, pools_argument, publish, table
from rivals import gap


def row_of(folder: Path, name: str) -> list[str]:
    """Learned votes at the full budget, and how often the gate was kept."""
    found = judged(folder, name)
    fixed, learned = (found.at(votes, FULL) for votes in ("plain", "weighted"))
    means = [f"{100 * each.scores.mean():.2f}" for each in (fixed, learned)]
    return [name, *means, *gap(learned, fixed), found.gates()]


def main(folder: Path) -> None:
    header = ["pool", "plain votes, full budget %", "learned votes %", "difference", "95 %"]
    publish("beyond", table([*header, "gate kept"], [row_of(folder, name) for name in TASKS]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
