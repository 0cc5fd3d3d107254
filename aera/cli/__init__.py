"""The command line. Each command opens what it needs, calls one function and shows the result."""

import sys
from importlib import metadata
from typing import Annotated

import typer

from aera.cli.ask import sample, solve
from aera.cli.data import drop, export, import_, info, label, merge, policies, tasks
from aera.cli.lab import audit, demo, evaluate, train
from aera.cli.options import say
from aera.cli.serve import serve
from aera.errors import AeraError, UsageError

app = typer.Typer(
    name="aera",
    help="Early stopping for self-consistency and best-of-n: after every block of sampled answers, "
    "decide whether another block is worth it. The way to a controller of your own: sample (or "
    "import), evaluate, train, then solve or serve.",
    epilog="On 519 held-out questions of GSM8K: +3.08 points [+0.58, +5.59] against 128 plain "
    "votes, for 12.5 % [11.1, 13.9] of their tokens (docs/results.md).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(metadata.version("aera"))
        raise typer.Exit


for name, command in (
    ("demo", demo),
    ("sample", sample),
    ("import", import_),
    ("export", export),
    ("merge", merge),
    ("info", info),
    ("drop", drop),
    ("label", label),
    ("train", train),
    ("evaluate", evaluate),
    ("solve", solve),
    ("serve", serve),
    ("audit", audit),
    ("policies", policies),
    ("tasks", tasks),
):
    app.command(name)(command)


def main() -> None:
    """Exit 0: done, 1: the work failed, 2: the call was wrong, 3: some have no answer."""
    try:
        app()
    except AeraError as error:
        say(f"aera: {error}", stderr=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except OSError as error:
        where = f' "{error.filename}"' if error.filename else ""
        say(f"aera:{where} {error.strerror or error}", stderr=True)
        sys.exit(1)
    except KeyboardInterrupt:
        say("aera: interrupted", stderr=True)
        sys.exit(130)
