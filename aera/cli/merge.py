"""The command `merge`: several pools as one."""

from pathlib import Path
from typing import Annotated

import typer

from aera.cli.options import say


def merge(
    pools: Annotated[
        list[str],
        typer.Argument(help="Pools with the same task and prompt; also exports, by folder or URI."),
    ],
    out: Annotated[Path, typer.Option(help="Directory the merged pool is written to.")],
    responses: Annotated[
        int | None,
        typer.Option(
            help="Responses a question needs to count; else the number that keeps most responses."
        ),
    ] = None,
) -> None:
    """Merge pools: their questions together, and more responses to those that are in several."""
    from aera.lab.formats.merging import merge_pools

    pool = merge_pools(pools, out, responses=responses)
    counts = f"{len(pool)} questions, {pool.manifest.responses:,} responses"
    say(f"{out}: {counts}, task {pool.task.name}, checkpoints {pool.schedule}")
    for question_id, why in [*pool.left_out.items()][:3]:
        say(f"question {question_id} is left out: it {why}")
    if len(pool.left_out) > 3:
        say(f"{len(pool.left_out)} questions are left out in all")
