"""The command `demo`: everything on bundled real responses, without a network."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def demo(
    questions: Annotated[int, typer.Option(help="How many of the bundled questions to ask.")] = 150,
    pace: Annotated[
        float, typer.Option(help="Seconds a thousand tokens take at the recorded server.")
    ] = 0.6,
    out: Annotated[Path | None, typer.Option(help="Keep the imported pool here.")] = None,
) -> None:
    """Solve bundled questions live against recorded real responses on loopback. No network."""
    from aera.lab.report.demo import run_demo

    run_demo(Console(), questions=questions, pace=pace, out=out)
