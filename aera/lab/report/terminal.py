"""What an evaluation looks like on a terminal."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from aera.lab.judging.audit import Audit, Finding
from aera.lab.replay.columns import table_columns
from aera.lab.replay.frontier import Frontier
from aera.lab.replay.money import PLAIN, Terms
from aera.lab.replay.trajectory import Trajectories

WIDE = 110
"""Columns of a terminal from which on the stops per checkpoint are shown too."""

ROOMY = 90
"""Columns below which money takes the place of the paper's score."""


def print_frontier(
    console: Console, frontier: Frontier, *, title: str, terms: Terms = PLAIN
) -> None:
    """One row per policy. Without truths, agreement with the full budget takes the first place."""
    trajectories = frontier.trajectories
    means = terms.prices is None or console.width >= ROOMY
    columns = table_columns(trajectories, terms, means=means)
    stops = console.width >= WIDE and len(trajectories.schedule) <= 8
    table = _table(title, *columns)
    for checkpoint in trajectories.schedule if stops else ():
        table.add_column(f"@{checkpoint}", justify="right", style="dim")
    for point in frontier.points:
        counts = [str(count) if count else "·" for count in point.stops.values()] if stops else []
        table.add_row(*(cell(point) for cell in columns.values()), *counts)
    console.print(table)


def print_transitions(console: Console, trajectories: Trajectories) -> None:
    """Adjacent transitions and how the evidence moved with them."""
    names = [f"Δ {name}" for name in trajectories.evidence]
    table = _table("transitions between checkpoints", "transition", "count", *names)
    for row in trajectories.transitions():
        changes = [f"{change:+.3f}" if row.count else "·" for change in row.changes.values()]
        table.add_row(row.name, str(row.count), *changes)
    console.print(table)


def print_calibration(console: Console, calibration: dict[str, list[dict[str, Any]]]) -> None:
    """What calibration chose for each policy, once per fold."""
    table = _table("calibration", "policy")
    table.add_column("chosen settings")
    table.add_column("questions each", justify="right")
    for name, choices in calibration.items():
        settings = [
            "[bold red]full budget[/]" if c["setting"] is None else f"{c['setting']:g}"
            for c in choices
        ]
        table.add_row(name, ", ".join(settings), str(choices[0]["questions"]))
    console.print(table)


def audit_summary(audit: Audit) -> str:
    """The audit in one sentence."""
    looked = f"{len(audit.admitted)} inputs and {len(audit.checks)} checks"
    return f"no leak found in {looked}" if not audit.leaks else f"LEAKS found in {looked}"


def print_audit(console: Console, audit: Audit) -> None:
    """Admitted inputs with their origin, excluded columns with the reason, checks, leaks."""
    for title, findings in (
        ("admitted inputs", audit.admitted),
        ("excluded", audit.excluded),
        ("checks", audit.checks),
    ):
        table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        for name in ("subject", "where it comes from, or why not", "leak"):
            table.add_column(name)
        for finding in _group(findings):
            leak = f"[bold red]{finding.leak}[/]" if finding.leak else "none"
            table.add_row(finding.subject, finding.provenance, leak)
        console.print(table)


def _group(findings: Sequence[Finding]) -> list[Finding]:
    """Clean ones of the same origin as one line; of the projection, its first and its last."""
    lines: dict[str, list[str]] = {}
    for finding in findings:
        if not finding.leak:
            lines.setdefault(finding.provenance, []).append(finding.subject)
    clean = [Finding(_name(names), origin) for origin, names in lines.items()]
    return [*(finding for finding in findings if finding.leak), *clean]


def _name(subjects: Sequence[str]) -> str:
    """Some subjects in few words."""
    if len(subjects) > 1 and subjects[0].startswith("projection_"):
        return f"{subjects[0]} to {subjects[-1][-2:]}"
    return ", ".join(subjects)


def _table(title: str, first: str, *numbers: str) -> Table:
    """A table whose first column names and whose others count."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column(first, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table
