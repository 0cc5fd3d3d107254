"""What the paper's text leaves open: two metrics, what a redo is, ESC's windows."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from paper_runs import (
    METRICS,
    against_full,
    crossfits,
    gap,
    in_metric,
    quality_cells,
    signed,
    unseen_means,
)
from pools import TASKS, held, paper_table, pools_argument, publish, table

from aera import ASC, ESC, Schedule, Vote
from aera.lab import (
    REDO_PHRASE,
    Columns,
    Point,
    fixed_points,
    last_boxed,
    point_of,
)

WINDOWS = (3, 5, 8)


# --- two metrics ----------------------------------------------------------------------------------


def shown(folder: Path, name: str) -> dict[str, list[Point]]:
    """Fixed budgets, ASC, ESC and the gate at 0.3, which is a mean over fold seeds."""
    data = paper_table(folder, name)
    found = {p.policy: [p] for p in fixed_points(data.trajectories)}
    for policy, family, setting in ((ASC(0.95), "asc", 0.95), (ESC(5), "esc", 5)):
        stops = data.families[family].stops(data.trajectories.values[family], setting)
        found[str(policy)] = [point_of(policy, stops, data.trajectories)]
    return {**found, "aera-0.30": [run.at(0.3) for run in crossfits(folder, name)]}


def metric_rows(folder: Path, name: str) -> list[list[str]]:
    """Both metrics, and the mean of the responses that the decision did not look at."""
    unseen, rows = unseen_means(folder, name), []
    for label, points in shown(folder, name).items():
        fresh = np.mean([point.pick(unseen) for point in points], axis=0)
        spent = np.mean([point.responses for point in points])
        told = signed(gap(fresh, unseen[:, -1]))
        rows.append([f"{name} {label}", f"{spent:.2f}", *quality_cells(points), told])
    return rows


# --- redo -----------------------------------------------------------------------------------------


def redo_row(folder: Path, name: str) -> list[object]:
    """What the responses are that the redo test catches."""
    records, _ = held(folder, name, redo=True)
    pairs = [pair for r in records for pair in zip(r.responses, r.votes, strict=True)]
    caught = [response for response, vote in pairs if vote.redo]
    boxed = [last_boxed(response.text) is not None for response in caught]
    cut = [response.truncated for response in caught]
    said = sum(REDO_PHRASE in response.text for response in caught)
    early = sum(boxed)
    ended = sum(not box and end for box, end in zip(boxed, cut, strict=True))
    bare = len(caught) - early - ended
    return [name, len(pairs), len(caught), said, early, ended, bare]


# --- windows --------------------------------------------------------------------------------------

Window = Callable[[Sequence[Vote], int], bool]


def same(votes: Sequence[Vote]) -> bool:
    """Whether all give one answer."""
    return votes[0].answer is not None and len({vote.answer for vote in votes}) == 1


def last_responses(votes: Sequence[Vote], w: int) -> bool:
    """The last w responses agree, and none is a redo: what `esc-5` is here."""
    return len(votes) >= w and same(votes[-w:])


def last_valid(votes: Sequence[Vote], w: int) -> bool:
    """The last w responses with an answer agree."""
    return last_responses([vote for vote in votes if vote.answer is not None], w)


def any_window(votes: Sequence[Vote], w: int) -> bool:
    """Some w responses in a row agree, counted in windows that do not overlap."""
    return any(same(votes[start : start + w]) for start in range(0, len(votes) - w + 1, w))


def redo_as_answer(votes: Sequence[Vote], w: int) -> bool:
    """The last w responses agree, and to give none is an answer like any other."""
    return len(votes) >= w and len({vote.answer for vote in votes[-w:]}) == 1


VARIANTS: dict[str, Window] = {
    "last w responses": last_responses,
    "last w valid answers": last_valid,
    "any window of w": any_window,
    "a redo is an answer": redo_as_answer,
}


def stops(votes: Sequence[Vote], agrees: Window, w: int, schedule: Schedule) -> int:
    """The first checkpoint at which the window agrees, else the last."""
    ends = enumerate(schedule.checkpoints[:-1])
    return next((c for c, end in ends if agrees(votes[:end], w)), len(schedule) - 1)


def window_rows(folder: Path, name: str) -> list[list[str]]:
    """ESC's windows in both metrics."""
    records, _ = held(folder, name, redo=True)
    track, rows = paper_table(folder, name).trajectories, []
    for variant, agrees in VARIANTS.items():
        for w in WINDOWS:
            found = [stops(record.votes, agrees, w, track.schedule) for record in records]
            columns: Columns = np.array(found, dtype=np.int64)
            point = point_of(ESC(w), columns, track)
            cells = [f"{in_metric(point, m).quality:.2f}" for m in METRICS]
            gaps = [signed(against_full([point], metric)) for metric in METRICS]
            told = [cells[0], gaps[0], cells[1], gaps[1], f"{point.responses:.2f}"]
            rows.append([f"{name}, {variant}, w = {w}", *told])
    return rows


def main(folder: Path) -> None:
    header = ["policy", "responses", "vote %", "against Fixed-128", "mean %", "against Fixed-128"]
    rows = [row for name in TASKS for row in metric_rows(folder, name)]
    publish("metrics", table([*header, "mean of what it did not look at, against it"], rows))
    redo = ["pool", "responses", "redo by the test", "say the phrase", "box, but earlier"]
    redo += ["no box, cut off", "no box, ended"]
    publish("redo", table(redo, [redo_row(folder, name) for name in TASKS]))
    kept = ("gsm8k", "csqa")
    windows = ["pool, variant, window", *header[2:], "responses"]
    publish("esc", table(windows, [row for name in kept for row in window_rows(folder, name)]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
