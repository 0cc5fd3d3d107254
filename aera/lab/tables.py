"""What an evaluation looks like on a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table

from aera.lab.frontier import Frontier, Point
from aera.lab.trajectory import Trajectories

WIDE = 110
"""Columns of a terminal from which on the stops per checkpoint are shown too."""


def print_frontier(console: Console, frontier: Frontier, *, title: str) -> None:
    """One row per policy. Without truths, agreement with the full budget takes the first place."""
    trajectories = frontier.trajectories
    graded = trajectories.grades is not None
    quality = ("accuracy %", "re2_mean %") if graded else ("agreement %",)
    stops = console.width >= WIDE and len(trajectories.schedule) <= 8
    table = _table(title, "policy", *quality, "responses", "tokens", "saved %")
    for checkpoint in trajectories.schedule if stops else ():
        table.add_column(f"@{checkpoint}", justify="right", style="dim")
    for point in frontier.points:
        table.add_row(*_cells(point, graded=graded, stops=stops))
    console.print(table)


def _cells(point: Point, *, graded: bool, stops: bool) -> list[str]:
    quality = [f"{point.accuracy:.2f}", f"{point.re2_mean:.2f}"] if graded else []
    agreement = [] if graded else [f"{point.agreement:.2f}"]
    spend = [f"{point.responses:.2f}", f"{point.tokens:,.0f}", f"{point.token_saving:.1f}"]
    counts = [str(count) if count else "·" for count in point.stops.values()] if stops else []
    return [point.policy, *quality, *agreement, *spend, *counts]


def print_transitions(console: Console, trajectories: Trajectories) -> None:
    """Adjacent transitions and how the evidence moved with them."""
    names = [f"Δ {name}" for name in trajectories.evidence]
    table = _table("transitions between checkpoints", "transition", "count", *names)
    for row in trajectories.transitions():
        changes = [f"{change:+.3f}" for change in row.changes.values()]
        table.add_row(row.name, str(row.count), *changes)
    console.print(table)


def _table(title: str, first: str, *numbers: str) -> Table:
    """A table whose first column names and whose others count."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column(first, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table
