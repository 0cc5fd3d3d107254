"""Commands that move recorded responses: import into a pool, export from one."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from aera.cli.options import say
from aera.errors import UsageError
from aera.pools.pool import Pool


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
            help="jsonl, json, csv, tsv, lm-eval, inspect, openai-batch or parquet; recognised "
            "where not given.",
        ),
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="For openai-batch: the batch's input, or questions by id.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OURS=THEIRS",
            help="Column of the file that holds what we call question, messages, system, id, "
            "choices, answer (the right one), group, responses, text, response_answer, tokens or "
            "index. May be repeated.",
        ),
    ] = None,
    responses: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Responses a question needs, those with fewer are left out; else the number that "
            "keeps most responses.",
        ),
    ] = None,
) -> None:
    """Bring recorded responses into a pool: JSON, CSV, Parquet, or logs of other programs."""
    from aera.lab.formats.importing import bring_in

    found = bring_in(
        file,
        out,
        task=task or None,
        format_name=format_name,
        questions=questions,
        columns=columns,
        responses=responses,
    )
    for line in found.lines:
        say(_printable(line))
    if found.warning is not None:
        told = Text(_printable(found.warning), style="bold red")
        Console(stderr=True).print(told, soft_wrap=True)


def _printable(text: str) -> str:
    """A text without what a terminal would obey or no encoding takes."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def export(
    source: Annotated[Path, typer.Argument(help="A pool, or a file of what aera solve printed.")],
    out: Annotated[
        str, typer.Option(help="FILE.parquet, a folder, or a URI of either; for answers a file.")
    ],
) -> None:
    """Write a pool as Parquet, or allocations as the output of an OpenAI batch."""
    from aera.lab.formats.batches import export_allocations
    from aera.lab.formats.exporting import export_pool
    from aera.pools.parquet import show_address

    if source.is_dir():
        export_pool(Pool.open(source), out)
        say(f"{show_address(out)}: Parquet, a row per response")
    elif source.is_file():
        if "://" in out:
            raise UsageError("allocations go to a file on this disk; give its path as --out")
        lines = export_allocations(source, Path(out))
        say(f"{out}: OpenAI batch output, {lines:,} lines")
    else:
        raise UsageError(f'there is no pool and no file "{source}" to export')
