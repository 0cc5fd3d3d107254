"""The command line. Each command opens what it needs, calls one function and shows the result."""

import sys
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from aera.cli.ask import sample, solve
from aera.cli.data import drop, export, import_, info, label, merge, policies, tasks
from aera.cli.lab import demo, evaluate, leaks, train
from aera.cli.options import Grouped, say
from aera.cli.serve import serve
from aera.errors import AeraError, UsageError

COMMANDS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "Begin with": {
        "demo": (demo, "See it work: recorded answers, no network, no key."),
        "import": (import_, "Bring answers that were sampled elsewhere: a file."),
        "evaluate": (evaluate, "What would stopping early have saved and lost?"),
        "train": (train, "Learn weights and when to stop, for a loss you allow."),
        "solve": (solve, "Ask a server, and stop where little is left to gain."),
    },
    "Sample and serve": {
        "sample": (sample, "Sample answers from a server into a pool."),
        "serve": (serve, "Voted answers behind the OpenAI API."),
    },
    "Look after pools": {
        "info": (info, "What a pool or a controller is."),
        "label": (label, "Which right answers would decide most?"),
        "merge": (merge, "Several pools as one."),
        "export": (export, "A pool as Parquet, answers for another program."),
        "drop": (drop, "Have questions forgotten."),
        "leaks": (leaks, "Check a pool or a controller for leaks."),
    },
    "Look up": {
        "policies": (policies, "Every policy that may be named."),
        "tasks": (tasks, "Every task that may be named."),
    },
}
BEGIN = """AERA decides after every block of sampled answers whether another is worth it.

  aera demo                                     see it work: no network, no key
  aera import FILE --task numeric --out pool    bring answers you have sampled
  aera evaluate pool                            what stopping early saves and loses
  aera train pool --out controller              learn when to stop, at what loss
  aera solve --base-url URL --model M QUESTION  ask a server for no more than needed

aera --help lists every command, and aera COMMAND --help says what one takes.
"""


class Front(TyperGroup):
    """The commands under headings, those that one needs first at the top."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Every command with one short sentence."""
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, told) for name, (_, told) in commands.items()])


app = typer.Typer(
    name="aera",
    cls=Front,
    help="Early stopping for self-consistency and best-of-n: after every block of sampled answers, "
    "decide whether another block is worth its price.",
    epilog="What that gains and costs, and how sure it is: docs/results.md.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _begin(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(metadata.version("aera"))
    elif ctx.invoked_subcommand is None:
        typer.echo(BEGIN, nl=False)


for name, (command, told) in (pair for each in COMMANDS.values() for pair in each.items()):
    app.command(name, cls=Grouped, short_help=told)(command)


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
