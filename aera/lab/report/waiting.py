"""The figure of waiting: quality against the time that questions wait, at every hurry."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aera.lab.judging.waiting import timed_points
from aera.lab.replay.frontier import Frontier
from aera.lab.report.figure import Figure, Row
from aera.lab.report.frontier import frontier_figure, frontier_rows


def waiting_figure(frontier: Frontier, evaluation: Mapping[str, Any], *, measure: str) -> Figure:
    """The frontier with seconds in the place of spend."""
    told = evaluation["waiting"]
    figure = frontier_figure(_rows(frontier, evaluation), spend="waiting", measure=measure)
    more = (
        f"Points with a hurry are {told['policy']}, whose answers it does not change: the more, "
        f"the sooner and the dearer. Simulated from recorded tokens: {told['told']}."
    )
    title = f"{measure.capitalize()} against waiting time"
    return replace(figure, title=title, caption=f"{figure.caption} {more}")


def _rows(frontier: Frontier, evaluation: Mapping[str, Any]) -> list[Row]:
    """One row per policy and hurry; quality is the same at every hurry."""
    told = evaluation["waiting"]
    points = timed_points(frontier, frontier[told["policy"]])
    timed = replace(frontier, points=tuple(points))
    known = {row["policy"]: row for row in frontier_rows(timed, evaluation)}
    return [_row(known[each["policy"]], each, told["policy"]) for each in told["rows"]]


def _row(row: Row, each: Mapping[str, Any], spoken: str) -> Row:
    time = {name: each[name] for name in ("hurry", "tokens", "p50", "p95")}
    line = "hurry" if row["policy"] == spoken else row["line"]
    timed = {**row, **time, "waiting": each["mean"], "line": line}
    if not each["hurry"]:
        return timed
    label = f"hurry {each['hurry']:g}"
    looks = {"name": label, "shown": False, "barred": False}
    return {**timed, **looks, "policy": f"{row['policy']}, {label}"}
