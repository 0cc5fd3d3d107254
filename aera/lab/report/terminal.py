"""What an evaluation and a leak check look like on a terminal."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from aera.lab.calibrating.calibration import Choice
from aera.lab.frontier import Trajectories
from aera.lab.leaks import Finding


def print_policies(console: Console, rows: Sequence[Sequence[str]], *, spoken: str) -> None:
    """One row per policy, headings first; the one that is spoken of stands out.

    Where questions stopped is a table of its own, for 80 columns do not hold both.
    """
    stops = [place for place, name in enumerate(rows[0]) if name.startswith("@")]
    kept = [place for place in range(len(rows[0])) if place not in stops]
    for places in (kept, [0, *stops]) if stops else (kept,):
        _print_rows(console, [[row[place] for place in places] for row in rows], bold=spoken)


def print_transitions(console: Console, trajectories: Trajectories) -> None:
    """Adjacent transitions and how the evidence moved with them."""
    rows = [["transitions", "count", *(f"Δ {name}" for name in trajectories.evidence)]]
    for row in trajectories.transitions():
        changes = [f"{c:+.3f}" if row["count"] else "·" for c in row["changes"].values()]
        rows.append([row["name"], str(row["count"]), *changes])
    _print_rows(console, rows)


def print_calibration(console: Console, calibration: Mapping[str, Sequence[Choice]]) -> None:
    """What calibration chose for each policy, once per fold."""
    rows = [["calibration", "questions each", "chosen settings"]]
    for name, choices in calibration.items():
        settings = ["all" if c.setting is None else f"{c.setting:g}" for c in choices]
        rows.append([name, str(choices[0].questions), ", ".join(settings)])
    _print_rows(console, rows)


def _print_rows(console: Console, rows: Sequence[Sequence[str]], *, bold: str = "") -> None:
    """A table, headings first; its first column names and its others count, but for remarks."""
    table = Table(box=box.SIMPLE_HEAD)
    for place, name in enumerate(rows[0]):
        counts = place > 0 and name != "what it is"
        wrapped = name in ("what it is", "chosen settings")
        table.add_column(name, justify="right" if counts else "left", no_wrap=not wrapped)
    for row in rows[1:]:
        table.add_row(*row, style="bold" if row[0] == bold else None)
    console.print(table)


def print_leaks(console: Console, findings: Sequence[Finding]) -> None:
    """Admitted inputs with their origin, excluded columns with the reason, checks, leaks."""
    parts: dict[str, list[Finding]] = {}
    for finding in findings:
        parts.setdefault(finding.part, []).append(finding)
    for title, found in parts.items():
        table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        for name in ("subject", "where it comes from, or why not", "leak"):
            table.add_column(name)
        for finding in _group(found):
            leak = f"[bold red]{finding.leak}[/]" if finding.leak else "none"
            table.add_row(finding.subject, finding.provenance, leak)
        console.print(table)
    looked = f"{len(parts.get('admitted inputs', ()))} inputs and {len(parts['checks'])} checks"
    leaks = any(finding.leak for finding in findings)
    console.print(f"{'LEAKS' if leaks else 'no leak'} found in {looked}", style="bold")


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
