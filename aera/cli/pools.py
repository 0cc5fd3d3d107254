"""Commands that move recorded responses: import into a pool, export from one."""

from pathlib import Path
from typing import Annotated

import typer

from aera.cli.options import say
from aera.errors import UsageError
from aera.pools.pool import Pool
from aera.reading.task import get_task


def import_(
    file: Annotated[
        str, typer.Argument(help="Recorded responses: a file, or a Parquet folder or URI.")
    ],
    out: Annotated[Path, typer.Option(help="Directory the pool is written to.")],
    task: Annotated[
        str | None,
        typer.Option(help="Task by which answers are read (aera tasks); else the file's own."),
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="jsonl, lm-eval, inspect, openai-batch or parquet; recognised where not given.",
        ),
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="For openai-batch: the batch's input, or questions by id.")
    ] = None,
) -> None:
    """Bring recorded responses into a pool."""
    from aera.lab.formats.importing import ESTIMATED, import_file

    chosen = get_task(task) if task else None
    pool = import_file(file, out, task=chosen, format_name=format_name, questions=questions)
    counts = f"{len(pool)} questions, {pool.manifest.responses:,} responses"
    say(f"{out}: {counts}, task {pool.task.name}, checkpoints {pool.schedule}")
    if pool.manifest.responses > len(pool) * pool.schedule.last:
        say(f"some question has only {pool.schedule.last} responses, so the checkpoints end there")
    if pool.manifest.sampler.get("tokens") == ESTIMATED:
        say(f"tokens are {ESTIMATED}: the file does not count them")


def export(
    source: Annotated[Path, typer.Argument(help="A pool, or a file of what aera solve printed.")],
    out: Annotated[
        str, typer.Option(help="FILE.parquet, a folder, or a URI of either; for answers a file.")
    ],
) -> None:
    """Write a pool as Parquet, or allocations as the output of an OpenAI batch."""
    from aera.lab.formats.batches import export_allocations
    from aera.lab.formats.exporting import export_pool
    from aera.pools.places import locate

    if source.is_dir():
        export_pool(Pool.open(source), out)
        say(f"{locate(out)}: Parquet, a row per response")
    elif source.is_file():
        if "://" in out:
            raise UsageError("allocations go to a file on this disk; give its path as --out")
        lines = export_allocations(source, Path(out))
        say(f"{out}: OpenAI batch output, {lines:,} lines")
    else:
        raise UsageError(f'there is no pool and no file "{source}" to export')
