"""The command `drop`: have questions or recorded audits forgotten."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from aera.cli.options import say
from aera.errors import UsageError


def drop(
    pool: Annotated[Path, typer.Argument(help="A pool, also one that is being written.")],
    ids: Annotated[
        str | None,
        typer.Option(help="Questions; of recorded audits replies or their requests: A,B,..."),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Audits of requests before 2026-01-31, or T12:00 of it."),
    ] = None,
) -> None:
    """Have questions or recorded audits forgotten: nobody reads or writes them any more.

    They are erased at once, or by whoever is writing the pool, at the end.
    """
    from aera.pools.log import drop as drop_from

    named = [each.strip() for each in (ids or "").split(",") if each.strip()]
    if not named and before is None:
        raise UsageError("say what is to be dropped: --ids or --before")
    try:
        until = None if before is None else datetime.fromisoformat(before).timestamp()
    except ValueError:
        raise UsageError(f'--before is a date such as 2026-01-31, but got "{before}"') from None
    found, awaiting = drop_from(pool, named, until)
    left = f"; {awaiting:,} await whoever is writing it" if awaiting else ""
    say(f"{pool}: {found - awaiting:,} erased{left}; what comes of them later is not kept")
